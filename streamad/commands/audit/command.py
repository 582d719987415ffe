"""``streamad audit``: verifies the decision log, and exports it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import msgspec
import typer

from streamad.commands.shared.console import ConfigOption, JsonOption, err, note, out, print_json, run_async
from streamad.commands.shared.plants import load_plant
from streamad.decisions.verifying import Break, KeptHead, Verifying
from streamad.errors import StreamadError, UsageError
from streamad.messages import DecisionEntry
from streamad.outputs.decisions import log_in, log_of
from streamad.ports import StoredMessage
from streamad.safe_text import visible_name
from streamad.system.files import replacing

audit = typer.Typer(help="Verify and export the decision log: who decided what, when and why.", no_args_is_help=True)

FilesArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files of a log; default: where the config writes it.")
]
_COLUMNS = ("created_at", "kind", "subject", "who", "identity", "reason", "details", "writer", "number", "hash")


class NotWholeError(StreamadError):
    """Raised when a decision log is not whole."""


@audit.command("verify")
def verify(
    files: FilesArgument = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="HEAD", help="A head that was kept, as this command printed it; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say of each writer how many entries its chain has, its head, and whether it is whole.

    Keep the heads outside of the plant: with --expect an end that was cut off, or a chain that was made anew, is found.
    Exit code 1 if anything is not whole.

    Examples: streamad audit verify; streamad audit verify --expect
    reactor/page:12:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    """
    kept = [KeptHead.parsed(text) for text in expect or ()]
    verifying = Verifying()
    run_async(_verify(_stored(files, config), verifying))
    lost = [why for each in kept if (why := verifying.lost(each)) is not None]
    if as_json:
        print_json(_as_dict(verifying, lost))
    else:
        _print(verifying, lost)
    if lost or not verifying.is_whole:
        raise NotWholeError("the decision log is not whole")


@audit.command("export")
def export(
    files: FilesArgument = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="jsonl: the entries byte for byte; csv: a table.")
    ] = "jsonl",
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="A new file; default: stdout.")] = None,
) -> None:
    """Write the decision log, each entry once, one writer's chain after the other of its place.

    What is exported as JSON lines can be verified with streamad audit verify FILE. Exit code 1 if the log is not whole:
    what can be read of it is exported all the same.

    Examples: streamad audit export --format csv --to decisions.csv; streamad audit export --to decisions.jsonl
    """
    verifying = Verifying()
    if to is not None and (to.exists() or to.is_symlink()):
        raise UsageError(f"{to} is there already: name another file")
    with nullcontext(sys.stdout) if to is None else _new_file(to) as file:
        n = run_async(_export(_stored(files, config), verifying, file, form))
    if to is not None:
        err.print(f"{n} entries written to {to}")
    if not verifying.is_whole:
        _print(verifying, [], to_stderr=True)
        raise NotWholeError("the decision log is not whole: what could be read of it was exported")


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """Yield a file to write to, which lies at ``path`` once it is whole; after an error nothing does."""
    with replacing(path) as descriptor, open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as file:
        yield file


def _stored(files: list[Path] | None, config: Path) -> AsyncIterator[StoredMessage]:
    return log_in(files) if files else log_of(load_plant(config))


async def _verify(log: AsyncIterator[StoredMessage], verifying: Verifying) -> None:
    async for _ in _entries(log, verifying):
        pass


async def _entries(
    log: AsyncIterator[StoredMessage], verifying: Verifying
) -> AsyncIterator[tuple[StoredMessage, DecisionEntry]]:
    async for stored in log:
        if stored.problem is not None:
            verifying.damage(stored.place, stored.problem)
        elif (entry := verifying.take(stored.value, stored.place)) is not None:
            yield stored, entry


async def _export(log: AsyncIterator[StoredMessage], verifying: Verifying, file: TextIO, form: str) -> int:
    n = 0
    table = csv.writer(file)
    if form == "csv":
        table.writerow(_COLUMNS)
    async for stored, entry in _entries(log, verifying):
        n += 1
        if form == "csv":
            table.writerow(_row(entry))
        else:
            file.write(stored.value.decode() + "\n")
    return n


def _row(entry: DecisionEntry) -> list[str]:
    """Return the columns of an entry; a spreadsheet takes no text in them as a formula."""
    fields: dict[str, Any] = msgspec.to_builtins(entry)
    fields["details"] = json.dumps(entry.details, ensure_ascii=False) if entry.details else ""
    texts = [str(fields[name]) for name in _COLUMNS]
    return [f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text for text in texts]


def _as_dict(verifying: Verifying, lost: list[str]) -> dict[str, Any]:
    writers = [
        {
            "writer": chain.writer,
            "entries": chain.entries,
            "repeats": chain.repeats,
            "head": str(chain.kept),
            "whole": chain.broken is None,
            "broken": None if chain.broken is None else chain.broken._asdict(),
        }
        for chain in verifying.chains.values()
    ]
    damaged = None if verifying.damaged is None else verifying.damaged._asdict()
    whole = verifying.is_whole and not lost
    return {"whole": whole, "writers": writers, "n_damaged": verifying.n_damaged, "damaged": damaged, "lost": lost}


def _print(verifying: Verifying, lost: list[str], *, to_stderr: bool = False) -> None:
    console = err if to_stderr else out
    if not verifying.chains:
        console.print("the log has no entries")
    for chain in verifying.chains.values():
        n = "1 entry" if chain.entries == 1 else f"{chain.entries} entries"
        again = f" ({chain.repeats} came again)" if chain.repeats else ""
        state = "whole" if chain.broken is None else f"broken {_text(chain.broken)}"
        console.print(visible_name(f"{chain.writer}: {n}{again}, {state}"))
        console.print(visible_name(f"  head {chain.kept}"), soft_wrap=True)
    if verifying.damaged is not None:
        more = f" (and {verifying.n_damaged - 1} more)" if verifying.n_damaged > 1 else ""
        err.print(note(visible_name(f"damaged {_text(verifying.damaged)}{more}")))
    for why in lost:
        err.print(note(visible_name(why)))


def _text(broken: Break) -> str:
    return f"at {broken.place}: expected {broken.expected}, found {broken.found}"
