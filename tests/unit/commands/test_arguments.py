"""Paths on the command line that no file can have, wrong usage and too little memory: one line, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

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


# --- wrong usage ---

USAGE: dict[str, tuple[list[str], str, str]] = {
    "unknown command": (["fly"], "No such command 'fly'", "streamad"),
    "unknown command of a group": (["models", "fly"], "No such command 'fly'", "streamad models"),
    "unknown option": (["score", "--zz"], "No such option: --zz", "streamad score"),
    "unknown option of a group": (["--zz"], "No such option: --zz", "streamad"),
    "no value": (["run", "--config"], "Option '--config' requires an argument", "streamad run"),
    "no value in a group": (["models", "list", "-c"], "Option '-c' requires an argument", "streamad models list"),
    "missing argument": (["models", "promote"], "Missing argument 'version'", "streamad models promote"),
    "wrong value": (["models", "prune", "--keep", "0"], "Invalid value for '--keep'", "streamad models prune"),
    "wrong choice": (
        ["web", "user", "add", "kim", "--role", "boss"], "'--role': 'boss' is not one of", "streamad web user add",
    ),
    "no duration": (["topics", "create", "--history", "3x"], "'3x' is not a duration", "streamad topics create"),
    "no time to keep": (["topics", "create", "--history", "0s"], "that a topic can keep", "streamad topics create"),
    "no time at all": (["topics", "create", "--history", "9e99d"], "'--history'", "streamad topics create"),
    "value of our own": (["schema", "x"], "Invalid value for NAME: 'x' is not one of ", "streamad schema"),
    "too many": (["train", "a", "b"], "Got unexpected extra argument", "streamad train"),
    "markup": (["models", "show", "a", "[red]x[/red]"], "([red]x[/red])", "streamad models show"),
    "line of its own": (["models", "show", "a", "x\nerror: y\x1b[2J"], r"error: y\x1b[2J)", "streamad models show"),
    "emoji": (["fly:smile:"], "No such command 'fly:smile:'", "streamad"),
    "secret": (["models", "show", "a", "kafka://u:pw@h/t"], "(kafka://***@h/t)", "streamad models show"),
}  # fmt: skip


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_one_line_that_names_the_help(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, said, command = USAGE[case]
    monkeypatch.setattr("sys.argv", ["streamad", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert printed.err.startswith("error: ")
    assert printed.err.endswith(f": see {command} --help\n")
    assert printed.err.count("\n") == 1
    assert said in printed.err


@pytest.mark.parametrize("group", [[], ["models"], ["inliers"], ["alerts"]], ids=" ".join)
def test_a_group_without_a_command_prints_its_help(
    group: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["streamad", *group])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert ended.value.code in (0, 2)
    assert "Usage: " in printed.out + printed.err
    assert "error:" not in printed.err


@pytest.mark.parametrize(
    "arguments",
    ["score", "replay", "record", "report", "init x.csv", "simulate", "inliers export"],
)
def test_results_are_not_written_to_a_folder_named_as_a_url(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(cli.app, [*arguments.split(), "--out", "s3://plant/judged"])
    assert "--out s3:/plant/judged: is a URL" in str(ended.exception)
    assert not list(tmp_path.iterdir())
