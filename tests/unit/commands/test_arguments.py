"""Paths on the command line that no file can have, and too little memory: one line, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamad import cli

LONG = b"x" * 5_000
COMMANDS: dict[str, list[bytes]] = {
    "score": [b"score"],
    "replay": [b"replay"],
    "train": [b"train"],
    "record": [b"record", b"--out"],
    "simulate": [b"simulate", b"--out"],
}
START = [sys.executable, "-c", "from streamad.cli import main; main()"]


def started(command: str, path: bytes, folder: Path) -> subprocess.CompletedProcess[bytes]:
    arguments = [*map(os.fsencode, START), *COMMANDS[command], path]
    return subprocess.run(arguments, cwd=folder, capture_output=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plant")
    (folder / "in.jsonl").write_text('{"stream": "s", "sequence": "a", "time": 1, "values": {"a": 1}}\n')
    (folder / "plant.yaml").write_text("channels: [{name: a}]\nsource: {url: in.jsonl}\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_that_is_not_utf_8(command: str, folder: Path) -> None:
    ended = started(command, b"caf\xe9", folder)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == b"error: the argument caf\\udce9 is not UTF-8 text: rename the file or folder\n"
    assert not (folder / os.fsdecode(b"caf\xe9")).exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_that_is_too_long(command: str, folder: Path) -> None:
    ended = started(command, LONG, folder)
    assert ended.returncode in (1, 2)
    lines = ended.stderr.decode().splitlines()
    assert len([line for line in lines if line.startswith("error:")]) == 1, lines
    assert not any("Traceback" in line for line in lines), lines


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: ..."),
        RuntimeError("could not execute a primitive"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB."),
    ],
    ids=str,
)
def test_too_little_memory(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr("sys.argv", ["streamad", "train"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("error: there is not enough memory")


def test_another_error_of_a_library_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr("sys.argv", ["streamad", "train"])
    with pytest.raises(RuntimeError, match="shape mismatch"):
        cli.main()
