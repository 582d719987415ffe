"""Which plants' rows can be read by column; all others are read row by row, with the same result."""

from __future__ import annotations

from streamad.settings.plant_yaml import Settings


def why_rows(settings: Settings) -> str | None:
    """Return why rows of a table must be read one by one, None if they can be read by column."""
    decode, fields = settings.decode, settings.decode.fields
    if fields is None or fields.values is not None:
        return "the readings lie in an object, which no column holds"
    reasons = {
        "format names another one than tables have": decode.format not in ("auto", "msgpack"),
        "each message is one reading: its channel differs from row to row": fields.is_per_channel,
        "a part of a text names stream or sequence": fields.pattern is not None,
        "fields hold packed messages or lists": bool(fields.nested_fields) or decode.listed is not None,
        "a row may hold many samples": fields.step is not None,
        "rows with unknown columns are dead letters": not fields.ignore_unknown,
        "the time lies in several columns": len(fields.clock_fields) + len(fields.fractions) > 1,
        "the time is the record's own, which rows do not have": fields.is_of_record,
        "times count from a start, which is known once all before was taken": decode.counts_from_start,
        "readings have qualities": decode.quality is not None or any(each.quality for each in settings.channels),
        "words or states say where sequences begin": settings.boundaries is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
