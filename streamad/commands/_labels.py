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
    normal_labels = {label.strip() for label in normal.split(",")}
    if labels and normal_labels.isdisjoint(labels.values()):
        known = ", ".join(sorted(set(labels.values()))[:20])
        raise SourceError(f"no sequence has a label that means normal ({normal}); labels here: {known}; see --normal")
    return {sequence: label not in normal_labels for sequence, label in labels.items()}


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
            return {row["sequence"]: (row["label"] or "").strip() for row in reader}
    except OSError as error:
        raise SourceError(f"{path}: cannot read the labels ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path}: is not a CSV file in UTF-8 ({error})") from error
