"""The options of the file source; every value may come as text from a URL's query."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, model_validator

from streamad.settings.fields import ConfigSection, Duration, Size


def _split(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, (list, tuple)):
        return tuple(str(part) for part in value)
    return (str(value),)


def _delimiter(value: Any) -> Any:
    return {"tab": "\t", "\\t": "\t"}.get(value, value) if isinstance(value, str) else value


def _known_encoding(value: str) -> str:
    try:
        "".encode(value)
    except LookupError:
        raise ValueError(f"{value!r} is no text encoding: write for example utf-8, cp1252 or utf-16") from None
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]


class FileOptions(ConfigSection):
    """Options for reading recordings from files; each names its formats."""

    format: str = Field(
        "auto", description="jsonl, ndjson, records, csv, parquet or npz; auto: by the ending of the file's name"
    )
    files: Literal["joined", "separate"] = Field(
        "separate",
        description="separate: every file is a partition of its own; joined: one partition, one file after the other, "
        "so that a sequence may begin in one file and end in the next",
    )
    order: Literal["name", "time"] = Field(
        "name", description="joined: by names with numbers compared as numbers, or by the time of change"
    )
    at_end: Literal["hold", "judge"] | None = Field(
        None,
        description="what happens at the end to sequences still open: judge, or hold until the next run brings the "
        "rest; default hold for joined files in streamad run, else judge",
    )
    links: Literal["inside", "anywhere"] = Field(
        "inside",
        description="where links in a folder or pattern may lead: inside it, or anywhere; then whoever writes there "
        "has any file read that streamad may read",
    )
    follow: bool = Field(
        False,
        description="jsonl, csv: go on with what is appended, with new files and with rotated ones, until stopped",
    )
    follow_interval: Duration = Field(
        500_000, ge=1_000, le=5_000_000, description="follow: how often to look for something new"
    )
    sort: bool = Field(
        False,
        description="csv, parquet, jsonl: sort the records of each file by time, for exports that are out of order",
    )
    max_record_bytes: Size = Field(
        16 * 1024 * 1024,
        ge=1,
        description="jsonl, csv: lines longer than this are cut one byte above it, so that they become dead letters; "
        "records: lines of twice this length are refused",
    )
    max_decompressed_bytes: Size = Field(
        1 << 30,
        ge=1 << 20,
        description="npz, parquet: memory that the arrays of a file (npz) or a row group (parquet) may take once "
        "unpacked; what declares more ends the run before it is unpacked",
    )
    delimiter: Annotated[Literal["auto", ",", ";", "\t", "|"], BeforeValidator(_delimiter)] = Field(
        "auto",
        description="csv: what separates cells: , ; | or tab; auto takes the one that a first line sep=; names, else "
        "the one that splits the header most",
    )
    header: int | None = Field(
        None, ge=1, description="csv: the line that names the columns, from 1; default the first that is not blank"
    )
    first_row: int | None = Field(
        None, ge=2, description="csv: the line of the first row; default the one after the header"
    )
    decimal: Literal[".", ","] = Field(".", description="csv: the decimal mark of numbers; default decode.decimal")
    encoding: Annotated[str, AfterValidator(_known_encoding)] = Field(
        "utf-8-sig", description="csv: text encoding, for example cp1252 or utf-16"
    )
    text: Names = Field(
        (),
        description="csv: columns (comma list) kept as text although they look like numbers, such as ids 1.10 and 1.1",
    )
    split: Literal["train", "test", "all"] = Field("all", description="npz: which part of the recordings to read")
    classes: Names = Field(
        (), description="npz: keep only these classes (comma list of numbers or names); empty keeps all"
    )
    period: Duration = Field(1_000_000, ge=1, description="npz: duration of one sample, such as 20ms; default 1s")
    pause: Duration | None = Field(
        None, ge=0, description="npz: time between two sequences; default ten times the period"
    )
    start: AwareDatetime = Field(
        datetime(2026, 1, 1, tzinfo=UTC), description="npz: time of the first sample, RFC 3339"
    )
    stream: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$",
        description="npz: name of the stream; default the file's name without its ending",
    )

    @property
    def lines(self) -> str:
        """Return the options that say which lines of CSV are rows, as text; "" if none does."""
        given = {"header": self.header, "first_row": self.first_row}
        return " and ".join(f"{name}: {line}" for name, line in given.items() if line is not None)

    @model_validator(mode="after")
    def _check_lines(self) -> Self:
        if self.header is not None and self.first_row is not None and self.first_row <= self.header:
            raise ValueError(f"first_row: {self.first_row} must lie below header: {self.header}")
        return self

    @model_validator(mode="after")
    def _check_follow(self) -> Self:
        if "follow_interval" in self.model_fields_set and "follow" not in self.model_fields_set:
            raise ValueError("follow_interval is for follow: true; leave it out")
        if not self.follow:
            return self
        if self.sort:
            raise ValueError("sort is for finished files, follow for files that grow; leave one out")
        if self.at_end is not None:
            raise ValueError("at_end is for recordings that end, not for follow: true; leave it out")
        if "order" in self.model_fields_set and self.files != "joined":
            raise ValueError("order is for files: joined only; leave it out")
        if not _is_one_byte(self.encoding):
            raise ValueError(f"follow needs an encoding with line ends of one byte, not {self.encoding}; write utf-8")
        return self


def _is_one_byte(encoding: str) -> bool:
    """Return whether a line feed is one byte, the same as in ASCII."""
    return "a\n".encode(encoding).endswith(b"a\n")
