"""The stored results of trials: one JSON line for each mutant."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

STORE = Path(__file__).with_name("results.jsonl")


class Result(msgspec.Struct, frozen=True):
    """The result of one mutant: the first test that failed (None: it survived), and how long that took."""

    name: str
    digest: str
    caught_by: str | None
    seconds: float


def read_results(path: Path = STORE) -> dict[str, Result]:
    """Return the stored results by name."""
    if not path.exists():
        return {}
    found = [msgspec.json.decode(line, type=Result) for line in path.read_bytes().splitlines()]
    return {result.name: result for result in found}


def store_result(result: Result, order: Iterable[str], path: Path = STORE) -> None:
    """Add a result, or replace that of the same mutant; those of no mutant in ``order`` go."""
    results = {**read_results(path), result.name: result}
    lines = [msgspec.json.encode(results[name]) for name in order if name in results]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def table(results: Iterable[Result]) -> str:
    """Return the results as a Markdown table."""
    rows = ["| mutant | caught by |", "|---|---|"]
    for result in results:
        rows.append(f"| {result.name} | {'**survived**' if result.caught_by is None else f'`{result.caught_by}`'} |")
    return "\n".join(rows)
