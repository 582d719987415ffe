"""The command line in a fork of a process that has it imported: for tests that call it very often."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamad.__main__ import main
from tests.support.forks import fork_server_context, forked
from tests.support.runtime.cli import LIMIT_S, Outcome


def forked_streamad(*arguments: str, cwd: Path, path: Sequence[str] = (), **environment: str) -> Outcome:
    """Call the command line in a process of its own; it imports from ``path`` first."""
    with tempfile.TemporaryDirectory() as folder, forked(fork_server_context()) as start:
        said = [Path(folder) / name for name in ("out", "err")]
        process = start(
            _be_streamad, arguments, cwd, [*path, *sys.path], {**os.environ, "COLUMNS": "200", **environment}, said
        )
        process.join(LIMIT_S)
        code = process.exitcode
        assert code is not None, f"it runs after {LIMIT_S:g} s"
        return Outcome(code, *(each.read_text() for each in said))


def _be_streamad(
    arguments: Sequence[str], cwd: Path, path: list[str], environment: Mapping[str, str], said: Sequence[Path]
) -> None:
    for number, each in enumerate(said, 1):
        os.dup2(os.open(each, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    os.environ.clear()
    first = environment.get("PYTHONPATH", "")
    os.environ.update({**environment, "PYTHONPATH": os.pathsep.join(filter(None, [first, *path]))})
    sys.path[:] = path
    sys.argv = ["streamad", *arguments]
    try:
        main()
    finally:
        gc.collect()  # what complains as it is deleted does so now: this process has no end of an interpreter
