"""A third party's plug-in that fails at work, after it was made, ends in one line that names it, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.support.kafka.child import PLUGINS
from tests.support.runtime.cli import Outcome, streamad
from tests.support.runtime.forked import forked_streamad

MODULE = """
import asyncio
import os
import sys
from pydantic import BaseModel
from streamad_test_detector import MeanSquare
from streamad_connectors.files.source import FileSource


class Options(BaseModel):
    pass


class Own(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def caught():
    try:
        raise LookupError("inner")
    except LookupError as error:
        return error


# What asyncio, click or a formatter of errors takes for its own, or fails with.
ODD = {
    "group": lambda: ExceptionGroup("several", [ExceptionGroup("deep", [LookupError("inner")])]),
    "caught": lambda: ExceptionGroup("several", [caught()]),
    "cancelled": lambda: asyncio.CancelledError("away"),
    "stop": lambda: StopIteration("done"),
    "generator": lambda: GeneratorExit("closed"),
    "own": lambda: Own("mine"),
    "mute": lambda: Mute("x"),
    "end": lambda: EOFError("no more"),
    "pipe": lambda: BrokenPipeError(32, "no reader"),
    "interrupt": lambda: KeyboardInterrupt(),
}


def fail_at(place):
    if os.environ.get("FAIL_AT") == place:
        how = os.environ.get("FAIL_AS")
        if how == "exit":
            sys.exit("license expired")
        if how == "os":
            raise ConnectionResetError(104, "reset by peer")
        if how == "file":
            raise FileNotFoundError(2, "No such file or directory", "license.key")
        if how in ODD:
            raise ODD[how]()
        if how == "module":
            import acme_license
        raise ValueError("two\\n lines for kafka://kim:hunter22@h")


class Source:
    options_model = Options

    def __init__(self, rest, options, context):
        self._inner = FileSource("recordings", FileSource.options_model(), context)

    async def batches(self):
        fail_at("begin")
        async for batch in self._inner.batches():
            yield batch
            fail_at("read")

    async def seek(self, partition, offset):
        fail_at("seek")
        return await self._inner.seek(partition, offset)

    async def close(self):
        fail_at("close source")
        await self._inner.close()


class Sink:
    options_model = Options

    def __init__(self, rest, options, context):
        pass

    async def write(self, records):
        fail_at("write")

    async def flush(self):
        fail_at("flush")

    async def close(self):
        fail_at("close sink")


class Scorer:
    def __init__(self, inner):
        self.window_shape, self.n_terms, self._inner = inner.window_shape, inner.n_terms, inner
        self._n = 0

    def score(self, windows, lengths):
        self._n += 1
        if self._n > 1:  # not the probe
            fail_at("score")
        return self._inner.score(windows, lengths)


class Detector(MeanSquare):
    options_model = Options

    def __init__(self, options):
        super().__init__()

    def fit(self, *args, **options):
        fail_at("fit")
        return super().fit(*args, **options)

    def load(self, folder, *, device):
        fail_at("load")
        return Scorer(super().load(folder, device=device))
"""
ENTRY_POINTS = "".join(
    f"[streamad.{group}]\nacme = acme_plant.parts:{name}\n"
    for group, name in {"sources": "Source", "sinks": "Sink", "detectors": "Detector"}.items()
)
OWNERS = {
    **dict.fromkeys(("begin", "read", "seek", "close source"), "source 'acme' (acme_plant.parts:Source)"),
    **dict.fromkeys(("write", "flush", "close sink"), "sink 'acme' (acme_plant.parts:Sink)"),
    **dict.fromkeys(("fit", "load", "score"), "detector 'acme' (acme_plant.parts:Detector)"),
}


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plant whose source, sink and detector are a third party's, with a trained model."""
    folder = tmp_path_factory.mktemp("plant")
    package = folder / "site" / "acme_plant"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(MODULE)
    info = folder / "site" / "acme_plant-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plant\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "recordings").mkdir()
    lines = [
        f'{{"stream": "s", "sequence": "q{n}", "time": {n * 100 + k}, "values": {{"a": {n % 7 + k}}}}}\n'
        for n in range(40)
        for k in range(12)
    ]
    (folder / "recordings" / "day.jsonl").write_text("".join(lines))
    config = {
        "channels": [{"name": "a"}],
        "source": {"url": "acme:"},
        "window": {"length": 12},
        "model": {"detector": "acme", "recordings": "recordings", "folds": 2, "device": "cpu", "references": []},
        "alerts": {"false_alarm_rate": 0.3},
        "sinks": {"alerts": "acme:", "verdicts": "acme:"},
        "run": {"checkpoint": None},
    }
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    assert called(folder, "train").code == 0
    return folder


def called(folder: Path, command: str, **environment: str) -> Outcome:
    path = os.pathsep.join([str(folder / "site"), str(PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return streamad(*command.split(), cwd=folder, PYTHONPATH=path, **environment)


def called_in_fork(folder: Path, command: str, **environment: str) -> Outcome:
    """As ``called``, a tenth of its time: for the many ways to fail at the same places."""
    return forked_streamad(*command.split(), cwd=folder, path=[str(folder / "site"), str(PLUGINS)], **environment)


def the_error(outcome: Outcome) -> str:
    """Return the only error line; there is nothing else of an error, and no secret."""
    assert outcome.code in (1, 2), outcome.err
    assert "Traceback" not in outcome.err + outcome.out
    assert "never retrieved" not in outcome.err
    assert "hunter22" not in outcome.err + outcome.out
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("train", "fit"),
        ("run --quiet", "begin"),
        ("run --quiet", "seek"),
        ("run", "read"),
        ("run", "close source"),
        ("run --quiet", "write"),
        ("run", "flush"),
        ("run", "close sink"),
        ("run", "load"),
        ("run", "score"),
        ("replay", "read"),
        ("replay", "score"),
        ("score recordings/day.jsonl", "score"),
        ("train acme:", "read"),
        ("record --out out.jsonl", "read"),
    ],
)
def test_a_plug_in_that_fails_at_work_is_named_in_one_line(plant: Path, command: str, place: str) -> None:
    line = the_error(called(plant, command, FAIL_AT=place))
    assert "ValueError: two lines for kafka://***@h" in line
    assert OWNERS[place] in line


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit", "SystemExit: license expired"),
        ("os", "ConnectionResetError: [Errno 104] reset by peer"),
        ("file", "FileNotFoundError: [Errno 2] No such file or directory: 'license.key'"),
        ("module", "ModuleNotFoundError: No module named 'acme_license'"),
    ],
)
@pytest.mark.parametrize(("command", "place"), [("train", "fit"), ("run", "read"), ("run", "write"), ("run", "load")])
def test_whatever_it_raises(plant: Path, command: str, place: str, how: str, said: str) -> None:
    line = the_error(called_in_fork(plant, command, FAIL_AT=place, FAIL_AS=how))
    assert said in line
    assert OWNERS[place] in line
    assert line.endswith(": install the package that has the module 'acme_license'") == (how == "module")
    assert how != "module" or "train anew" not in line


ODD = {
    "group": "LookupError: inner",
    "caught": "LookupError: inner",
    "cancelled": "CancelledError: away",
    "stop": "StopIteration: done",
    "generator": "GeneratorExit: closed",
    "own": "Own: mine",
    "mute": "Mute: no reason given",
    "end": "EOFError: no more",
    "pipe": "BrokenPipeError: [Errno 32] no reader",
}


@pytest.mark.parametrize("how", ODD)
@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("train", "fit"),
        ("run", "seek"),
        ("run", "read"),
        ("run", "write"),
        ("run", "close sink"),
        ("run", "load"),
        ("run", "score"),
    ],
)
def test_also_what_others_take_for_their_own(plant: Path, command: str, place: str, how: str) -> None:
    outcome = called_in_fork(plant, command, FAIL_AT=place, FAIL_AS=how)
    line = the_error(outcome)
    assert (ODD[how] in line, OWNERS[place] in line, outcome.code) == (True, True, 1), line


@pytest.mark.parametrize(("command", "place"), [("train", "fit"), ("run", "read"), ("run", "write"), ("run", "score")])
def test_a_keyboard_interrupt_stays_one(plant: Path, command: str, place: str) -> None:
    outcome = called_in_fork(plant, command, FAIL_AT=place, FAIL_AS="interrupt")
    assert (outcome.code, "Traceback" in outcome.err, "error:" in outcome.err) == (130, False, False), outcome.err


def test_the_log_has_the_traceback(plant: Path) -> None:
    outcome = called(plant, "-vv run", FAIL_AT="read")
    assert any('"traceback"' in line and "fail_at" in line for line in outcome.err.splitlines())
