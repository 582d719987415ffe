"""Reads the truth about recordings: which sequences are normal."""

from __future__ import annotations

__all__ = ["read_labels"]

import csv
from collections.abc import Mapping
from pathlib import Path

from streamad.errors import SourceError
from streamad.ports import LabelledSource, Source


def read_labels(where: str, source: Source, normal: str) -> dict[str, bool]:
    """Return sequence id -> is anomalous, from a CSV file or ("source") the recordings; raises SourceError."""
    labels = _of_source(source) if where == "source" else _of_csv(Path(where))
    normal_labels = {_plain(label) for label in normal.split(",")}
    known = sorted(set(labels.values()))
    unknown = normal_labels.difference(map(_plain, known))
    if unknown:
        listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        raise SourceError(f"no sequence has the label {min(unknown)!r}; --normal must name some of: {listed}")
    return {sequence: _plain(label) not in normal_labels for sequence, label in labels.items()}


def _plain(label: str) -> str:
    """Return ``label`` so that 1 and 1.0 are the same."""
    label = label.strip()
    try:
        number = float(label)
    except ValueError:
        return label
    return str(int(number)) if number.is_integer() else str(number)


def _of_source(source: Source) -> Mapping[str, str]:
    labels = source.labels() if isinstance(source, LabelledSource) else {}
    if not labels:
        raise SourceError("the recordings carry no labels: give a CSV file with the columns sequence and label")
    return labels


def _of_csv(path: Path) -> Mapping[str, str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = {"sequence", "label"} - set(reader.fieldnames or ())
            if missing:
                raise SourceError(f"{path}: no column {' and '.join(sorted(missing))}")
            labels: dict[str, str] = {}
            for row in reader:
                sequence, label = (row["sequence"] or "").strip(), (row["label"] or "").strip()
                if labels.setdefault(sequence, label) != label:
                    raise SourceError(f"{path}: line {reader.line_num}: {sequence!r} has another label before")
            if not labels:
                raise SourceError(f"{path}: holds no labels")
            return labels
    except OSError as error:
        raise SourceError(f"{path}: cannot read the labels ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path}: is not a CSV file in UTF-8 ({error})") from error
