"""Command lines: every command with options that it has, and values that a person or a script may give."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from streamad.cli import app
from streamad.commands.shared.console import stop_on_signals
from tests.support.fuzz.calling import call, call_process
from tests.support.fuzz.law import broken
from tests.support.fuzz.plant import FuzzPlant
from tests.support.fuzz.values import TEXTS, URLS

PROCESS_SHARE = 0.01
"""Share of the command lines that run in a process of their own."""
_INTEGERS = ("0", "1", "2", "3", "7", "-1", "1.5", "x", "", "٣", "1e2", "0x10", "+2", " 1", "1_0", "9" * 5_000)
_TIMES = (
    "2026-01-01",
    "2026-01-01T00:05:00Z",
    "2h",
    "7d",
    "0s",
    "9999999d",
    "tomorrow",
    "2026-13-45",
    "0001-01-01",
    "9999-12-31",
    "",
    "-1h",
    "nan",
    "1e400s",
)
_PATHS = (
    *(
        "recordings/day.jsonl",
        "recordings",
        "labels.csv",
        "marks.csv",
        "plant.yaml",
        "flat.yaml",
        "out/alerts.jsonl",
        "registry",
        "samples/b.npz",
    ),
    *(
        "samples/b.csv",
        "samples/dates.csv",
        "samples/b.parquet",
        "samples/*",
        "no/such",
        "",
        ".",
        "..",
        "../plant/recordings",
        "/dev/null",
        "/dev/full",
        "/dev/zero",
        "new.npz",
    ),
    *(
        "new.jsonl",
        "new",
        "new/deep/x.jsonl",
        "x" * 300,
        "x" * 5_000,
        "\udcff",
        "a\nb",
        "[/]",
        "~nobody-here/x",
        "samples/b.npz?x=1",
        "inliers",
        "./-",
        "-",
        "password.txt",
    ),
)
_WORDS = (
    "0001",
    "0002",
    "1",
    "9999",
    "../0001",
    "r1",
    "B-4",
    "r2",
    "accepted",
    "reserve",
    "aside",
    "default",
    "0",
    "source",
    "max",
    "real",
    "10",
    "alert",
    "config",
    "latest",
)


def run_command_line(rng: random.Random, plant: FuzzPlant, folder: Path) -> Iterator[tuple[list[str], str | None]]:
    """Call one command line in a copy of the plant; yield it with how it broke the law."""
    place = plant.copy(folder)
    words = _command_line(rng, plant)
    run = call_process if rng.random() < PROCESS_SHARE else call
    is_endless = not ENDLESS.isdisjoint(words)
    yield words, broken(run(words, place, stop_after_s=1.5 if is_endless else None), words)


def _commands() -> list[tuple[list[str], Any]]:
    """Return every command and group with the words that name it."""
    found: list[tuple[list[str], Any]] = []
    left: list[tuple[list[str], Any]] = [([], typer.main.get_command(app))]
    while left:
        words, command = left.pop()
        found.append((words, command))
        left += [([*words, name], inner) for name, inner in getattr(command, "commands", {}).items()]
    return sorted(found, key=lambda each: each[0])


def _runs_until_stopped(command: Any) -> bool:
    """Return whether the command's own module waits for the signal that ends it."""
    module = None if command.callback is None else sys.modules[command.callback.__module__]
    return hasattr(module, stop_on_signals.__name__)


_ALL = _commands()
_COMMANDS = [(words, command) for words, command in _ALL if not hasattr(command, "commands")]
ENDLESS = {
    *{words[-1] for words, command in _ALL if words and _runs_until_stopped(command)},
    *{"--follow", "-f", "--speed", "--to", "--watch", "-w", "topics"},  # these wait for others, or for time to pass
}
"""The words of command lines that may run until they are stopped."""
_SLOW = (["train"], ["models", "retrain"], ["models", "relearn"], ["simulate"])


def _command_line(rng: random.Random, plant: FuzzPlant) -> list[str]:
    name, command = rng.choice(_COMMANDS)
    if name in _SLOW and rng.random() < 0.8:
        name, command = rng.choice(_COMMANDS)
    words = [*(["-v"] if rng.random() < 0.03 else []), *name]
    params = [param for param in command.params if param.name not in {"help", "supervised"}]
    chosen = rng.sample(params, min(len(params), rng.choice([0, 1, 1, 2, 2, 3, 5])))
    for param in params:
        needed = param.required and rng.random() < 0.9
        if (param in chosen or needed) and (param.param_type_name != "argument" or rng.random() < 0.9):
            words += _given(param, rng, plant)
    if name == ["simulate"]:  # its defaults take long, as they should
        words += ["--train", "3", "--normal", "2", "--faulty", "1", *(["--batches", "1"] if "--to" in words else [])]
    if rng.random() < 0.03:
        words.insert(
            rng.randrange(len(words) + 1),
            rng.choice(["--", "-", "--unknown", "-x", "", "extra", "\udcff", "--help", "--version", "@x", "-" * 500]),
        )
    return [word.replace("\x00", "") for word in words]


def _given(param: Any, rng: random.Random, plant: FuzzPlant) -> list[str]:
    values = [_value(param, rng, plant) for _ in range(2 if param.multiple and rng.random() < 0.3 else 1)]
    if param.param_type_name == "argument":
        return values
    flag: str = rng.choice([*param.opts, *param.secondary_opts])
    if param.is_flag or param.count:
        return [flag]
    joined = rng.random() < 0.2 and flag.startswith("--")
    return [word for value in values for word in ([f"{flag}={value}"] if joined else [flag, value])]


def _value(param: Any, rng: random.Random, plant: FuzzPlant) -> str:
    if rng.random() < 0.15:
        return _text(rng)
    if param.bare_type in (int, float):
        return rng.choice(_INTEGERS)
    if param.name in {"since", "until", "before", "start", "duration", "duration_"}:
        return rng.choice(_TIMES)
    if param.name == "config":
        return rng.choice(["plant.yaml", "plant.yaml", "flat.yaml", "dates.yaml", "resumed.yaml", *_PATHS])
    if param.name in {"from_url", "url", "to_url", "to", "recordings", "sample"} and rng.random() < 0.6:
        return rng.choice([url for url in URLS if "follow" not in url] + list(_PATHS))
    ids = [alert_id[: rng.choice([4, 6, 8, 32])] for alert_id in plant.alert_ids]
    return rng.choice([rng.choice(_PATHS), rng.choice(_WORDS), rng.choice(ids), _text(rng)])


def _text(rng: random.Random) -> str:
    """Return a text that the arguments of a process can hold: no lone surrogates but those of bytes."""
    return "".join(char for char in rng.choice(TEXTS + URLS) if not "\ud800" <= char <= "\udc7f")
