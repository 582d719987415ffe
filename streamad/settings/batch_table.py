"""``sequences.table``, the file of batches and its columns; and what of other ways to mark batches goes together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, field_validator, model_validator

from streamad.settings.boundaries import BoundaryRules, WhileSettings
from streamad.settings.decode import DecodeSettings
from streamad.settings.fields import URL_LIKE, ConfigSection


class TableSettings(ConfigSection):
    """A CSV file with a row for each batch; further columns may choose the model (`models.field`)."""

    file: Path
    """The CSV file: a row for each batch, its samples are those in [begin, end) of the stream."""
    stream: str = "stream"
    """Column of the stream; it may be absent if all rows are of `decode.default_stream`."""
    sequence: str | None = None
    """Column of the batch's id; null: `sequence` or `id`."""
    begin: str = "begin"
    """Column of the begin, read as times are (`decode.timezone`, `decode.time_format`)."""
    end: str = "end"
    """Column of the end; an empty one means that the batch runs still."""

    @field_validator("file")
    @classmethod
    def _is_a_file(cls, file: Path) -> Path:
        if URL_LIKE.match(str(file)):  # Path has made one slash of two
            raise ValueError(f"{str(file)!r} is no file: write the path of a CSV file, such as batches.csv")
        return file

    @model_validator(mode="after")
    def _columns_differ(self) -> TableSettings:
        columns = [column for column in (self.stream, self.sequence, self.begin, self.end) if column is not None]
        if len({*columns}) < len(columns):
            raise ValueError("stream, sequence, begin and end name one column twice")
        return self


def _section(value: Any) -> Any:
    """Return a path alone as the section that it stands for."""
    return {"file": value} if isinstance(value, str | Path) else value


_Written: TypeAlias = str | TableSettings | None
Table: TypeAlias = Annotated[TableSettings | None, BeforeValidator(_section, json_schema_input_type=_Written)]


def check_decode(decode: DecodeSettings) -> None:
    """Raise ValueError if samples read so cannot be found in a table."""
    if decode.counts_from_start:
        raise ValueError(
            f"the table's begin and end are dates, and decode.time is {decode.time}: write decode.time: absolute, or "
            "leave table out of end"
        )
    if decode.sequence_from != "message":
        raise ValueError(f"the table gives the ids: leave decode.sequence_from: {decode.sequence_from} out")
    if decode.fields is not None and (decode.fields.begin is not None or decode.fields.id_tag is not None):
        raise ValueError("the table says where each sequence begins: leave decode.fields.begin, and a tag as id, out")
    if decode.fields is not None and decode.fields.id_fields and "sequence" in decode.fields.model_fields_set:
        raise ValueError("the table gives the ids: write decode.fields.sequence: null")


def rules_of(decode: DecodeSettings, state: WhileSettings | None) -> BoundaryRules | None:
    """Return how states (``sequences.while``), words and tags say where sequences begin; None if none does."""
    by_begin = decode.fields is not None and decode.fields.begin is not None
    by_id_tag = decode.fields is not None and decode.fields.id_tag is not None
    if state is None and not by_begin and not by_id_tag:
        return None
    return BoundaryRules(state is not None and state.tag is not None, by_begin, by_id_tag)


def contradiction(
    decode: DecodeSettings, state: WhileSettings | None, *, has_table: bool, has_marker: bool, skips: bool
) -> str | None:
    """Return what does not go together with how sequences begin and end (``sequences``)."""
    fields, rules = decode.fields, rules_of(decode, state)
    by_begin = rules is not None and rules.by_begin
    has_end = fields is not None and (fields.has_end_word or (by_begin and fields.end is not None))
    has_readings = fields is not None and fields.is_per_channel
    found = {
        "while, decode.fields.begin and tags need absolute times, and decode.time counts from a sequence's start: "
        "write decode.time: absolute, or name an id or sequences.end: [restart] instead": rules is not None
        and decode.counts_from_start,
        "the table says where sequences begin: leave while, decode.fields.begin and the tag of the id out": has_table
        and rules is not None,
        "while and decode.fields.begin both say where a sequence begins: leave one of them out": by_begin
        and state is not None,
        "while: {tag: ...} is for messages of one reading each (decode.fields.channel): write field, not tag": (
            rules is not None and rules.by_tag and not has_readings
        ),
        "decode.fields.end says where a sequence ends, and end does not name marker: add it": has_end
        and not (has_marker or has_table),
        "decode.fields.begin opens the sequence of samples without an id: leave without_id: skip and "
        "decode.sequence_from out": by_begin and (skips or decode.sequence_from != "message"),
    }
    return next((text for text, is_so in found.items() if is_so), None)
