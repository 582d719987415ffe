"""A plant on disk for tests of the command line: small recordings, a small real model, and a way to call streamad."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamad.cli import main
from tests.support.runtime.pipeline import START_US
from tests.support.waiting import LIMIT_S

CHANNELS = ("temp", "pressure")
L = 12
OPTIONS = {"epochs": 12, "n_transformations": 3, "n_blocks": 1, "base_width": 4, "embedding_dim": 8}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def last_json(self) -> Any:
        """The last line of standard output as JSON."""
        return json.loads(self.out.strip().splitlines()[-1])

    def assert_one_line_error(self, *words: str, code: int = 1) -> None:
        """One line on stderr that begins with "error:" and holds ``words``; nothing like a traceback anywhere."""
        assert self.code == code, self.err
        lines = [text for text in self.err.splitlines() if text.strip()]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        assert "Traceback" not in self.err + self.out
        for word in words:
            assert word in lines[0], lines[0]


def streamad(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Outcome:
    """Call the installed command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "streamad", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@contextmanager
def started(
    *arguments: str | Path,
    cwd: Path | None = None,
    program: Sequence[str] = ("-m", "streamad"),
    is_limited: bool = True,
    **environment: str,
) -> Iterator[subprocess.Popen[str]]:
    """Start the command line, or another ``program`` of Python; it is killed after the block, or after LIMIT_S.

    Not ``is_limited``: after the block alone, which may hold all tests of a file.
    """
    process = subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with ended_in_time(process) if is_limited else nullcontext():
            yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def ended_in_time(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill ``process`` if the block takes longer than LIMIT_S: what the block reads of it ends then."""
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def until_line(process: subprocess.Popen[str], text: str) -> None:
    """Read the process's error output up to the line that contains ``text``."""
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"it ended without a line that contains {text!r}"


NEAREST: dict[str, Any] = {"detector": "nearest", "options": {}, "references": []}
"""A section ``model`` for tests of what no detector does."""


class CliPlant:
    """A folder with plant.yaml, recordings/ (streams r1 and r2) and labels.csv; commands run inside this process."""

    def __init__(
        self,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        model: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self._model = model or {}
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    @property
    def config(self) -> Path:
        return self.folder / "plant.yaml"

    def write_config(self, **sections: Any) -> Path:
        """Write plant.yaml with ``sections`` merged into what the plant needs."""
        content: dict[str, Any] = {
            "channels": [{"name": "temp", "unit": "degC"}, {"name": "pressure", "unit": "bar"}],
            "source": {"url": "recordings"},
            "window": {"length": L},
            "model": {
                "recordings": "normal",
                "detector": "neutral_ad",
                "options": OPTIONS,
                "folds": 2,
                "device": "cpu",
                **self._model,
            },
            "alerts": {"false_alarm_rate": 0.3},
            "sinks": {
                role: f"out/{role}.jsonl" for role in ("alerts", "attributions", "verdicts", "dead_letters", "late")
            },
        }
        for name, section in sections.items():
            old = content.get(name)
            content[name] = {**old, **section} if isinstance(old, dict) and isinstance(section, dict) else section
        self.config.write_text(yaml.safe_dump(content))
        return self.config

    def write_recordings(self, name: str = "recordings", *, normal: int = 12, odd: int = 4, seed: int = 1) -> Path:
        """Write ``name``/day.jsonl and, beside the folder, labels.csv: odd sequences have a stuck, shifted pressure."""
        rng = random.Random(seed)
        labels = [0] * normal + [1] * odd
        rng.shuffle(labels)
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            self.message(f"r{1 + i % 2}", f"{name}-{i}", i * 30.0, rng, odd=bool(label))
            for i, label in enumerate(labels)
        ]
        (folder / "day.jsonl").write_text("".join(f"{text}\n" for text in lines))
        with (self.folder / "labels.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["sequence", "label"])
            table.writerows([f"{name}-{i}", label] for i, label in enumerate(labels))
        return folder / "day.jsonl"

    @staticmethod
    def message(stream: str, sequence: str, start_s: float, rng: random.Random, *, odd: bool = False) -> str:
        """One whole sequence as a chunked message."""
        n = rng.randrange(9, L + 1)
        rows = []
        for i in range(n):
            pressure = 12.0 if odd else 3.0 + 0.5 * i / L
            rows.append([20.0 + 4.0 * i + rng.gauss(0, 0.3), pressure + rng.gauss(0, 0.05)])
        times = [START_US / 1e6 + start_s + i for i in range(n)]
        return json.dumps({"stream": stream, "sequence": sequence, "times": times, "values": rows, "end": True})

    def __call__(self, command: str, *arguments: str | Path, config: bool = True) -> Outcome:
        """Run a command of streamad; ``--config`` is added."""
        words: Sequence[str] = [*command.split(), *map(str, arguments)]
        self._monkeypatch.setattr(
            sys, "argv", ["streamad", *words, *(["--config", str(self.config)] if config else [])]
        )
        self._monkeypatch.chdir(self.folder)
        self._capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        said = self._capsys.readouterr()
        return Outcome(code, said.out, said.err)

    def lines(self, role: str) -> list[dict[str, Any]]:
        """The messages in a sink."""
        path = self.folder / "out" / f"{role}.jsonl"
        return [json.loads(text) for text in path.read_text().splitlines()]

    def files(self) -> dict[str, bytes]:
        """Every file of the plant with its content, less empty lock files."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
        found = (path for path in found if path.name != ".lock")
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}
