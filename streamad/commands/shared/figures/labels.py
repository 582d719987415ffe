"""Reads labels of recordings: which sequences are normal."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import TypeAlias
from zoneinfo import ZoneInfo

from streamad.commands.shared.console import err, note
from streamad.errors import DecodeError, SourceError
from streamad.ingest.decode_times import TimeReader
from streamad.ports import LabelledSource, Source
from streamad.settings.plant_yaml import DecodeSettings
from streamad.system.opening import read_regular
from streamad.system.rights import reason

NORMAL = "0"

_MOST_BYTES = 1 << 28
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Key: TypeAlias = tuple[str | None, str]
"""Stream (None: any) and sequence id; ids are unique within a stream only."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of sequences, True for anomalous; never empty.

    ``by_start`` has those whose name is a time: stream (None: any) and microseconds since the Unix epoch.
    """

    by_key: Mapping[_Key, bool]
    by_start: Mapping[tuple[str | None, int], bool] = field(default_factory=dict)

    def is_anomalous(self, stream: str, sequence: str) -> bool | None:
        """Return the label of one sequence, None if it has none; the name of one without an id is its start."""
        for key in ((stream, sequence), (None, sequence)):
            if (truth := self.by_key.get(key)) is not None:
                return truth
        if not self.by_start or (start_us := _start_us(sequence)) is None:
            return None
        truth = self.by_start.get((stream, start_us))
        return self.by_start.get((None, start_us)) if truth is None else truth

    def is_normal(self, stream: str, sequence: str) -> bool:
        """Return whether a sequence has a label and is normal by it."""
        return self.is_anomalous(stream, sequence) is False

    @property
    def example(self) -> str:
        """Return the name of one labelled sequence, with its stream if labels name streams."""
        stream, sequence = next(iter(self.by_key))
        return sequence if stream is None else f"{stream}/{sequence}"


def read_labels(where: str, source: Source, normal: str | None = None, decode: DecodeSettings | None = None) -> Labels:
    """Read labels from a CSV file or ("source") the recordings; ``normal`` lists those that mean normal.

    The default of ``normal`` is 0; if no sequence has the label 0, all are anomalous, with a note on stderr.
    Names that are times are read as ``decode`` reads those of samples, also local ones. Raises SourceError, also if two
    names of one time have different labels.
    """
    labels = _of_source(source) if where == "source" else _of_csv(Path(where))
    normal_labels = {_plain(label) for label in (NORMAL if normal is None else normal).split(",")}
    known = sorted(set(labels.values()))
    unknown = normal_labels.difference(map(_plain, known))
    if unknown:
        listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        if normal is not None:
            raise SourceError(f"no sequence has the label {min(unknown)!r}; --normal must name some of: {listed}")
        err.print(
            note(
                f"no sequence has the label {NORMAL}, so all {len(labels)} count as anomalous; "
                f"if some are normal, name their labels with --normal: {listed}"
            )
        )
    by_key = {key: _plain(label) not in normal_labels for key, label in labels.items()}
    return Labels(by_key, {} if decode is None or decode.time == "relative" else _by_start(by_key, decode))


def _by_start(by_key: Mapping[_Key, bool], decode: DecodeSettings) -> Mapping[tuple[str | None, int], bool]:
    """Return the labels whose name is a time, by that time. Raises SourceError."""
    zone = None if decode.timezone is None else ZoneInfo(decode.timezone)
    times = TimeReader(decode.unit, relative=False, zone=zone, form=decode.time_format)
    found: dict[tuple[str | None, int], bool] = {}
    for (stream, name), is_anomalous in by_key.items():
        if decode.time_format is None and _is_short_number(name):
            continue  # an id: as a Unix time it would lie before 1974
        try:
            start_us = times.one(name)
        except DecodeError:
            continue  # an id
        if found.setdefault((stream, start_us), is_anomalous) != is_anomalous:
            raise SourceError(f"two labels of one start: {name!r} has another label under another name")
    return found


def _is_short_number(name: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,8}([.,][0-9]*)?", name.strip()) is not None


def _start_us(name: str) -> int | None:
    """Return the start that a sequence without an id is named by; None if ``name`` is an id."""
    try:
        start = datetime.fromisoformat(name)
    except ValueError:
        return None
    return None if start.tzinfo is None else (start - _EPOCH) // timedelta(microseconds=1)


def _plain(label: str) -> str:
    """Return ``label`` with 1.0 as 1."""
    label = label.strip()
    try:
        number = float(label)
    except ValueError:
        return label
    return str(int(number)) if number.is_integer() else str(number)


def _of_source(source: Source) -> Mapping[_Key, str]:
    labels = source.labels() if isinstance(source, LabelledSource) else {}
    if not labels:
        raise SourceError("the recordings carry no labels: give a CSV file with the columns sequence and label")
    return {(None, sequence): label for sequence, label in labels.items()}


def _of_csv(path: Path) -> Mapping[_Key, str]:
    try:
        with StringIO(read_regular(path, most_bytes=_MOST_BYTES).decode("utf-8-sig"), newline="") as file:
            header = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(",;\t", key=header.count))
            missing = {"sequence", "label"} - set(reader.fieldnames or ())
            if missing:
                there = ", ".join(reader.fieldnames or ()) or "none"
                raise SourceError(f"{path}: no column {' and '.join(sorted(missing))} (columns: {there})")
            labels: dict[_Key, str] = {}
            for row in reader:
                stream, sequence, label = ((row.get(name) or "").strip() for name in ("stream", "sequence", "label"))
                if labels.setdefault((stream or None, sequence), label) != label:
                    raise SourceError(f"{path}: line {reader.line_num}: {sequence!r} has another label above")
            if not labels:
                raise SourceError(f"{path}: holds no labels")
            return labels
    except OSError as error:
        raise SourceError(f"{path}: cannot read the labels ({reason(error, path, 'read')})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path}: is not a CSV file in UTF-8 ({error})") from error
