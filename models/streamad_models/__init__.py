"""The detectors that come with streamad, found by entry point."""

import os

# Before torch loads OpenMP: its threads spin while they wait, which slows training tenfold on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
