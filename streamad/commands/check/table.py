"""Checks the table of batches: that it can be read and used, and that samples and rows meet."""

from __future__ import annotations

from streamad.commands.check.findings import Finding, failed, ok, warning
from streamad.commands.check.sample import Sample
from streamad.commands.shared.console import count
from streamad.commands.shared.plants import table_is_refused
from streamad.errors import some_of
from streamad.ingest.table.rows import BatchTable, Row, time_text
from streamad.plant import Plant

_TABLE = "sequences.table"
_NAMES_AND_ZONE = "check that its streams have the names of the samples', and decode.timezone"


def check_table(plant: Plant) -> list[Finding]:
    """Check that the plant's source may be cut by a table; no finding if it may."""
    refused = table_is_refused(plant)
    return [] if refused is None else [failed(_TABLE, refused)]


def rows_and_samples(sample: Sample, place: str = "") -> list[Finding]:
    """Say how many rows there are, how many samples of ``place`` are in none, and which rows have no samples."""
    table, counters = sample.table, sample.counters
    if table is None:
        return []
    n_rows = f"{place}{count(table.n_rows, 'row')} of {count(len(table.streams), 'stream')}"
    if counters.samples and counters.outside == counters.samples:
        message = f"{n_rows}, none of {count(counters.samples, 'sample')} lies in one: {_extents(table, sample)}"
        return [failed(_TABLE, message, _NAMES_AND_ZONE)]
    within, empty = _rows_within(table, sample)
    lie = "1 lies" if len(within) == 1 else f"{len(within)} lie"
    message = f"{n_rows}, {lie} within the samples' times; {counters.outside} of {counters.samples} samples are in none"
    if not empty:
        return [ok(_TABLE, message)]
    which = "1 row has" if len(empty) == 1 else f"{len(empty)} rows have"
    advice = f"are all recordings there? {_NAMES_AND_ZONE}"
    return [warning(_TABLE, f"{message}; {which} no samples, such as {empty[0]}", advice)]


def _rows_within(table: BatchTable, sample: Sample) -> tuple[list[Row], list[Row]]:
    """Return the rows of which samples may have been read, and those of them that are over without any sample."""
    found = {(sequence.stream, sequence.sequence) for sequence in sample.sequences}
    within, empty = [], []
    for stream in sample.newest_us:
        oldest_us, newest_us = sample.oldest_us[stream], sample.newest_us[stream]
        for row in table.of(stream).rows:
            end_us = newest_us if row.end_us is None else row.end_us
            if row.begin_us > newest_us or end_us <= oldest_us:
                continue
            within.append(row)
            if end_us < newest_us and (stream, row.sequence) not in found:
                empty.append(row)
    return within, empty


def _extents(table: BatchTable, sample: Sample) -> str:
    """Return which streams and times the rows and the samples have."""
    strange = sorted({*sample.newest_us} - {*table.streams})
    if len(strange) == len(sample.newest_us):
        return f"the rows are of {some_of(sorted(table.streams)) or 'no stream'}, the samples of {some_of(strange)}"
    stream = next(name for name in sample.newest_us if name in table.streams)
    rows = table.streams[stream].rows
    first, last = time_text(rows[0].begin_us), time_text(rows[-1].begin_us)
    newest = time_text(sample.newest_us[stream])
    return f"the rows of {stream} begin at {first}, the last one at {last}; its newest sample is of {newest}"
