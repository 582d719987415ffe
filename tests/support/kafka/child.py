"""What a forked worker does: the command line of ``streamad``, with all imported that a plant on Kafka needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PLUGINS = Path(__file__).parents[1] / "plugins"
if str(PLUGINS) not in sys.path:  # its entry point is found in this process as in the workers'
    sys.path.insert(0, str(PLUGINS))

import streamad_connectors.kafka.writing.committer  # noqa: E402, F401 - imported before the fork, as is the next
from streamad.cli import main  # noqa: E402


def streamad(arguments: list[str], folder: Path, log: Path, environment: Mapping[str, str]) -> None:
    """Be ``streamad`` with ``arguments``, in ``folder``, in ``environment``; what it says goes to ``log``."""
    said = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(folder)
    # A trainer that it starts finds what it finds itself, and what tests put first (tests/support/priority).
    path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH", ""), *sys.path]))
    # Not the environment of whoever first asked for a fork.
    os.environ.clear()
    os.environ.update({**environment, "PYTHONPATH": path})
    sys.argv = ["streamad", *arguments]
    main()
