"""Tries mutants in a copy of the checkout, one after the other; the checkout itself is never changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0
PLUGIN = "benchmarks.mutants.unshrunk"
_TESTS_FAILED = 1
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class TrialError(Exception):
    """Raised when tests cannot tell anything: they fail without a mutant, or cannot be run with it."""


class Copy:
    """A copy of the checkout's files that git does not ignore, in which tests run."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def caught_by(self, mutant: Mutant, limit_s: float = LIMIT_S) -> str | None:
        """Return the first test that fails with ``mutant``, None if all pass. Raises StaleError, TrialError."""
        path = self.root / mutant.file
        source = path.read_text(encoding="utf-8")
        self._write(path, mutant.of(source))
        try:
            return self.first_failure(mutant.tests, limit_s)
        finally:
            self._write(path, source)

    def first_failure(self, tests: Iterable[str], limit_s: float = LIMIT_S) -> str | None:
        """Run ``tests`` up to the first failure, and return its test; "time-out" if they take too long."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, *tests]
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "time-out"
        if done.returncode == 0:
            return None
        found = _FAILED.search(done.stdout)
        if done.returncode != _TESTS_FAILED or found is None:
            raise TrialError(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        return found[1]

    @property
    def _environment(self) -> dict[str, str]:
        """The copy's packages, and what makes a trial repeatable: drawn examples are the same, no broker is missing."""
        path = os.pathsep.join(str(self.root / part) for part in ("", "connectors", "models"))
        return {**os.environ, "PYTHONPATH": path, "CI": "true", "OMP_NUM_THREADS": "1"}

    @staticmethod
    def _write(path: Path, source: str) -> None:
        """Write a module, and remove its byte code: that knows a change only by second and size."""
        path.write_text(source, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


@contextmanager
def copied(root: Path = ROOT) -> Iterator[Copy]:
    """Yield a copy of the checkout ``root``, which is deleted afterwards."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    with TemporaryDirectory(prefix="streamad-mutants-") as name:
        for file in filter(None, listed.stdout.decode().split("\0")):
            if (root / file).is_file():
                (Path(name) / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / file, Path(name) / file)
        yield Copy(Path(name))
