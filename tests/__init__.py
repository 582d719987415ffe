"""The tests. Their processes compute in one thread each: threads that wait for each other on busy cores are slow."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy and torch are imported
