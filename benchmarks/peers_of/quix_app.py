"""Quix Streams: a stateful ``apply`` with its RocksDB state and changelog topic, commits and checkpoints as by default.

The samples of an open sequence are one list in the state, or (mode "items") state items of their own: a list is encoded
and decoded anew with each sample.
"""

from __future__ import annotations

import logging
from typing import Any

from job import Job, Rows, rows_of
from quixstreams import Application, State


def by_list(state: State, sequence: str, rows: Rows, *, ends: bool) -> Rows:
    """Add samples to the sequence's list; return all of them."""
    found: Rows = state.get(sequence, []) + rows
    if not ends:
        state.set(sequence, found)
    elif len(found) > len(rows):
        state.delete(sequence)
    return found


def by_items(state: State, sequence: str, rows: Rows, *, ends: bool) -> Rows:
    """Add samples as items, under their number; return all of them if the sequence ends."""
    n_before = state.get(sequence, 0)
    if not ends:
        for number, row in enumerate(rows, n_before):
            state.set(f"{sequence}/{number}", row)
        state.set(sequence, n_before + len(rows))
        return []
    before = [state.get(f"{sequence}/{number}") for number in range(n_before)]
    for number in range(n_before):
        state.delete(f"{sequence}/{number}")
    if n_before:
        state.delete(sequence)
    return before + rows


def run(job: Job) -> None:
    """Run the application until all windows were made; its end commits the last checkpoint."""
    app = Application(
        broker_address=job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once" if "exactly-once" in job.modes else "at-least-once",
        loglevel=logging.ERROR,
    )
    source = app.topic(job.topic, key_deserializer="str", value_deserializer="json")
    output = app.topic(job.output, key_serializer="str", value_serializer="json")
    add = by_items if "items" in job.modes else by_list

    def gather(message: dict[str, Any], state: State) -> dict[str, Any] | None:
        rows, ends = rows_of(message), bool(message.get("end"))
        job.count(len(rows))
        rows = add(state, message["sequence"], rows, ends=ends)
        return job.judged(message["stream"], message["sequence"], rows) if ends else None

    windows = app.dataframe(source).apply(gather, stateful=True).filter(lambda value: value is not None)
    windows.to_topic(output)
    app.run(count=job.n_windows, collect=False)
    job.report()


if __name__ == "__main__":
    run(Job.of_arguments())
