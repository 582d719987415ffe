"""Reads labels of recordings: what each sequence is called, and which are normal."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import typer

from streamad.commands.shared.console import err, note
from streamad.errors import DecodeError, SourceError, UsageError
from streamad.ingest.decode_times import TimeReader
from streamad.judge.label_words import WORDS_TEXT, is_number, plain_label, word_means
from streamad.ports import LabelledSource, Source
from streamad.settings.decode import DecodeSettings
from streamad.system.opening import read_regular
from streamad.system.rights import reason

_SOURCE = "source"
_ID_COLUMN, _LABEL_COLUMN, _ONSET_COLUMN = "sequence", "label", "onset"

LabelsOption = Annotated[
    str | None,
    typer.Option(
        help="CSV file of labels with the columns sequence, label and optionally stream, or 'source' for the labels in "
        "the recordings (npz).",
    ),
]
NormalOption = Annotated[
    str | None,
    typer.Option(
        help="Labels that mean normal, separated by commas; all others mean anomalous. Without it 0 and 1 or common "
        "words decide, such as good and bad."
    ),
]
LabelIdOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the sequence's id in the CSV file. [default: that of decode.fields.sequence, else sequence]",
    ),
]
LabelColumnOption = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the label in the CSV file. [default: label]")
]

_MOST_BYTES = 1 << 28
_FILE_ENDING = re.compile(r"\.(csv|tsv|txt|jsonl|ndjson|parquet|pq)(\.gz)?$", re.IGNORECASE)
_LONGEST_SHOWN = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Key: TypeAlias = tuple[str | None, str]
"""Stream (None: any) and sequence id; ids are unique within a stream only."""


class Label(NamedTuple):
    """One label: its own ``text`` (1 for 1.0), which is foreign input, and what it means."""

    text: str
    is_anomalous: bool


class _Row(NamedTuple):
    """What a file says of a sequence, as it is written there."""

    label: str
    onset: str = ""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of sequences; never empty.

    ``by_start`` has those whose name is a time: stream (None: any) and microseconds since the Unix epoch. ``onsets``
    says when faults began, in such microseconds.
    """

    by_key: Mapping[_Key, Label]
    by_start: Mapping[tuple[str | None, int], Label] = field(default_factory=dict)
    onsets: Mapping[_Key, int] = field(default_factory=dict)

    def of(self, stream: str, sequence: str) -> Label | None:
        """Return the label of one sequence, None if it has none; the name of one without an id is its start."""
        for key in ((stream, sequence), (None, sequence)):
            if (label := self.by_key.get(key)) is not None:
                return label
        if not self.by_start or (start_us := _start_us(sequence)) is None:
            return None
        label = self.by_start.get((stream, start_us))
        return self.by_start.get((None, start_us)) if label is None else label

    def is_anomalous(self, stream: str, sequence: str) -> bool | None:
        """Return whether a sequence is anomalous by its label, None if it has none."""
        return None if (label := self.of(stream, sequence)) is None else label.is_anomalous

    def onset_us(self, stream: str, sequence: str) -> int | None:
        """Return when the fault of a sequence began, None if that is not known."""
        found = self.onsets.get((stream, sequence))
        return self.onsets.get((None, sequence)) if found is None else found

    @property
    def example(self) -> str:
        """Return the name of one labelled sequence, with its stream if labels name streams."""
        stream, sequence = next(iter(self.by_key))
        return sequence if stream is None else f"{stream}/{sequence}"


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """The options on labels of ``replay`` and ``train``, as given on the command line.

    ``where``: a CSV file, or "source" for the labels in the recordings. ``normal`` lists the labels that mean normal,
    "" if none does, None: by their words. ``id_column`` and ``label_column``: the file's columns, if they have other
    names. Raises UsageError for an option that has nothing to apply to.
    """

    where: str | None
    normal: str | None = None
    id_column: str | None = None
    label_column: str | None = None

    def __post_init__(self) -> None:
        of_file = {"--label-id": self.id_column, "--label-column": self.label_column}
        for name, value in {"--normal": self.normal, **of_file}.items():
            if value is not None and self.where is None:
                raise UsageError(f"{name} is about labels: name their file with --labels")
            if value is not None and name in of_file and self.where == _SOURCE:
                raise UsageError(f"{name} names a column of a CSV file, and --labels source reads none: leave it out")
        if (both := self.id_column or _ID_COLUMN) == self.label:
            raise UsageError(f"--label-id and --label-column: both are {both!r}, a column cannot be both")

    @property
    def label(self) -> str:
        """Return the column of the label."""
        return self.label_column or _LABEL_COLUMN

    def ids(self, decode: DecodeSettings) -> tuple[tuple[str, ...], ...]:
        """Return the columns that may make the sequence's id together, the first ones that are there do."""
        if self.id_column is not None:
            return ((self.id_column,),)
        fields = () if decode.fields is None else decode.fields.id_fields
        return tuple(dict.fromkeys([*([fields] if fields and self.label not in fields else []), (_ID_COLUMN,)]))

    def read(self, source: Source, decode: DecodeSettings, *, needs_normal: bool = False) -> Labels | None:
        """Return the labels of the CSV file or of the recordings, None if none are asked for.

        Without ``normal`` the words decide: ``word_means`` says which, as
        is any number beside a normal label; another word is an error. Names that are times are read as ``decode`` reads
        those of samples, also local ones. ``needs_normal``: it is an error if no label means normal. Raises
        SourceError, also if two names of one time have different labels.
        """
        if self.where is None:
            return None
        rows = _of_source(source) if self.where == _SOURCE else _of_csv(Path(self.where), self.ids(decode), self.label)
        meant = _meant(sorted({row.label for row in rows.values()}), self.normal)
        by_key = {key: Label(plain_label(row.label), meant[row.label]) for key, row in rows.items()}
        times = _times_of(decode)
        onsets = {key: at for key, row in rows.items() if row.onset and (at := _time_us(row.onset, times))}
        if decode.sequence_from == "file":
            by_key = _by_bare_name(by_key)
            onsets = {(stream, _FILE_ENDING.sub("", name)): at for (stream, name), at in onsets.items()}
        if all(meant.values()):
            n_labels = f"all {len(by_key)} labels mean anomalous"
            way_out = "if some are normal, name their labels with --normal"
            if needs_normal:
                raise SourceError(f"{n_labels}, and training needs normal sequences: {way_out}")
            err.print(note(f"{n_labels}; {way_out}"))
        return Labels(by_key, {} if decode.counts_from_start else _by_start(by_key, decode), onsets)


def _meant(known: Sequence[str], normal: str | None) -> dict[str, bool]:
    """Return which of the labels ``known`` mean anomalous: all but those listed in ``normal``; None: by their words."""
    listed = ", ".join(_cut(label) or "''" for label in known[:20]) + (", ..." if len(known) > 20 else "")
    if normal is None:
        return _by_word(known, listed)
    named = {plain_label(label) for label in normal.split(",")} if normal.strip() else set()
    if unknown := named.difference(map(plain_label, known)):
        raise SourceError(f"no sequence has the label {_cut(min(unknown))!r}; --normal must name some of: {listed}")
    return {label: plain_label(label) not in named for label in known}


def _by_word(known: Sequence[str], listed: str) -> dict[str, bool]:
    """Return which of the labels ``known`` mean anomalous. Raises SourceError for one that means neither."""
    meant = {label: word_means(label) for label in known}
    has_normal = False in meant.values()
    for label in known:
        if meant[label] is None and has_normal and is_number(label):
            meant[label] = True
    found = {label: means for label, means in meant.items() if means is not None}
    if unknown := [label for label in known if label not in found]:
        raise SourceError(
            f"the label {_cut(unknown[0])!r} says neither normal nor anomalous; accepted are 0 and 1, {WORDS_TEXT}; "
            f"for others --normal must name some of: {listed}; or '' if none of them is normal"
        )
    return found


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST_SHOWN else f"{label[:_LONGEST_SHOWN]}..."


def _by_bare_name(by_key: Mapping[_Key, Label]) -> dict[_Key, Label]:
    """Return the labels with names of files as ids: without the ending, said once. Raises SourceError."""
    found: dict[_Key, Label] = {}
    cut: list[str] = []
    for (stream, name), label in by_key.items():
        bare = _FILE_ENDING.sub("", name)
        if bare != name:
            cut.append(name)
        if found.setdefault((stream, bare), label) != label:
            raise SourceError(f"two labels of one sequence: {name!r} has another label under another name")
    if cut:
        err.print(note(f"labels name files, such as {_cut(cut[0])}: their endings are left out, as in sequences' ids"))
    return found


def _by_start(by_key: Mapping[_Key, Label], decode: DecodeSettings) -> Mapping[tuple[str | None, int], Label]:
    """Return the labels whose name is a time, by that time. Raises SourceError."""
    times = _times_of(decode)
    found: dict[tuple[str | None, int], Label] = {}
    for (stream, name), label in by_key.items():
        if decode.time_format is None and _is_short_number(name):
            continue  # an id: as a Unix time it would lie before 1974
        if (start_us := _time_us(name, times)) is None:
            continue  # an id
        if found.setdefault((stream, start_us), label) != label:
            raise SourceError(f"two labels of one start: {name!r} has another label under another name")
    return found


def _times_of(decode: DecodeSettings) -> TimeReader:
    """Return what reads times as those of samples, also local ones."""
    zone = None if decode.timezone is None else ZoneInfo(decode.timezone)
    return TimeReader(decode.unit, relative=False, zone=zone, form=decode.time_format)


def _time_us(text: str, times: TimeReader) -> int | None:
    """Return the time that ``text`` is; None if it is none."""
    try:
        return times.one(text)
    except DecodeError:
        return None


def _is_short_number(name: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,8}([.,][0-9]*)?", name.strip()) is not None


def _start_us(name: str) -> int | None:
    """Return the start that a sequence without an id is named by; None if ``name`` is an id."""
    try:
        start = datetime.fromisoformat(name)
    except ValueError:
        return None
    return None if start.tzinfo is None else (start - _EPOCH) // timedelta(microseconds=1)


def _of_source(source: Source) -> Mapping[_Key, _Row]:
    labels = source.labels() if isinstance(source, LabelledSource) else {}
    if not labels:
        raise SourceError("the recordings carry no labels: give a CSV file with the columns sequence and label")
    return {(None, sequence): _Row(label) for sequence, label in labels.items()}


def _of_csv(path: Path, ids: tuple[tuple[str, ...], ...], label_column: str) -> Mapping[_Key, _Row]:
    try:
        with StringIO(read_regular(path, most_bytes=_MOST_BYTES).decode("utf-8-sig"), newline="") as file:
            header = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(",;\t", key=header.count))
            names = list(reader.fieldnames or ())
            id_columns = next((of for of in ids if set(of) <= set(names)), ())
            if not id_columns or label_column not in names:
                raise SourceError(f"{path}: {_unfit(names, id_columns, ids, label_column)}")
            if twice := [name for name in ("stream", *id_columns, label_column) if names.count(name) > 1]:
                raise SourceError(f"{path}: has the column {twice[0]} twice: remove or rename one")
            labels: dict[_Key, _Row] = {}
            for row in reader:
                stream, label, *parts = (
                    (row.get(name) or "").strip() for name in ("stream", label_column, *id_columns)
                )
                sequence = "/".join(parts)  # as the decoder joins them
                one = _Row(label, (row.get(_ONSET_COLUMN) or "").strip())
                if labels.setdefault((stream or None, sequence), one).label != label:
                    raise SourceError(f"{path}: line {reader.line_num}: {sequence!r} has another label above")
            if not labels:
                raise SourceError(f"{path}: holds no labels")
            return labels
    except OSError as error:
        raise SourceError(f"{path}: cannot read the labels ({reason(error, path, 'read')})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path}: is not a CSV file in UTF-8 ({error})") from error


def _unfit(
    names: Sequence[str], id_columns: tuple[str, ...], ids: tuple[tuple[str, ...], ...], label_column: str
) -> str:
    """Return which columns a table lacks of the id (if it has none of ``ids``) and the label, and what to write."""
    lacking, options = [], []
    others = [name for name in names if name and name not in {"stream", *id_columns, label_column}]
    if not id_columns:
        lacking.append(f"of the id ({' or '.join(' and '.join(of) for of in ids)})")
        options.append(f"--label-id {shlex.quote(others[0]) if others else 'COLUMN'}")
    if label_column not in names:
        lacking.append(f"of the label ({label_column})")
        last = others[-1:] if len(others) >= len(options) + 1 else []
        options.append(f"--label-column {shlex.quote(last[0]) if last else 'COLUMN'}")
    there = ", ".join(names) or "none"
    return f"no column {' and '.join(lacking)} (columns: {there}): name those that it has, such as {' '.join(options)}"
