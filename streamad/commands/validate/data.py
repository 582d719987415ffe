"""The data sets of an acceptance: their files with digests, their labels, and what may not be among them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from streamad.commands.shared.console import local_url
from streamad.commands.shared.figures.labels import Label, LabelOptions, Labels
from streamad.commands.shared.options import open_input
from streamad.errors import ConfigError, SourceError, StreamadError, UsageError
from streamad.judge.label_words import word_means
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.ports import PartitionedSource, Source
from streamad.safe_text import masked
from streamad.system.opening import open_regular
from streamad.system.rights import reason
from streamad.validation.expectations import DataSet
from streamad.validation.protocol import FileDigest

_SOURCE = "source"


class _File(Protocol):
    """One file of recordings; it can be read while it is held."""

    @property
    def path(self) -> Path: ...

    @property
    def partition(self) -> str: ...

    def held(self) -> AbstractContextManager[None]: ...


@runtime_checkable
class _Listed(Protocol):
    """A source that lists the files it reads."""

    def files(self) -> Sequence[_File]: ...


@dataclass(frozen=True, slots=True)
class SameLabel(Labels):
    """One label of all sequences."""

    label: Label = field(kw_only=True)

    def of(self, stream: str, sequence: str) -> Label | None:
        """Return it."""
        return self.label


@dataclass(frozen=True, slots=True)
class Given:
    """A data set as it was found: the absolute ``url`` of its recordings, its files, and its labels if it has any.

    ``others`` are files of its folder that are no recordings. ``by_file``: each file is a partition of its own.
    """

    wanted: DataSet
    url: str
    files: tuple[FileDigest, ...]
    labels: Labels | None
    labels_file: FileDigest | None
    others: tuple[str, ...]
    by_file: bool

    @property
    def kinds(self) -> dict[str, bool]:
        """Return its labels, and whether they mean a fault."""
        if isinstance(self.labels, SameLabel):
            found: Iterable[Label] = [self.labels.label]
        else:
            found = () if self.labels is None else self.labels.by_key.values()
        return {label.text: label.is_anomalous for label in sorted(found)}

    @property
    def labels_text(self) -> str:
        """Return where its labels come from."""
        if self.wanted.label is not None:
            return f"all sequences: {self.wanted.label}"
        if self.wanted.labels is None:
            return "none"
        return "in the recordings" if self.wanted.labels == _SOURCE else self.wanted.labels


def given(plant: Plant, wanted: DataSet, folder: Path) -> Given:
    """Return a data set; its paths are relative to ``folder``. Raises UsageError, SourceError, with its name."""
    try:
        return _given(plant, wanted, folder)
    except (SourceError, UsageError) as error:
        raise type(error)(f"data set {wanted.name}: {error}") from error
    except ConfigError as error:
        what = "; ".join(problem.message for problem in error.problems)
        raise UsageError(f"data set {wanted.name}: {masked(wanted.recordings)}: {what}") from error


def _given(plant: Plant, wanted: DataSet, folder: Path) -> Given:
    url = local_url(wanted.recordings, folder)
    source = open_input(plant, url)
    files, labels_file = files_of(plant, wanted, folder)
    labels: Labels | None = None
    if wanted.label is not None:
        labels = SameLabel({}, label=Label(wanted.label, word_means(wanted.label) is not False))
    elif wanted.labels is not None:
        where = wanted.labels
        if where != _SOURCE:
            where = str(folder / where)
        normal = None if wanted.normal is None else ",".join(wanted.normal) or "," * len(wanted.normal)
        options = LabelOptions(where, normal, wanted.label_id, wanted.label_column)
        labels = options.read(source, plant.settings.decode)
    return Given(wanted, url, files, labels, labels_file, _others(url, source), _is_by_file(source))


def files_of(plant: Plant, wanted: DataSet, folder: Path) -> tuple[tuple[FileDigest, ...], FileDigest | None]:
    """Return the files of recordings and that of labels as they are now. Raises UsageError, SourceError."""
    url = local_url(wanted.recordings, folder)
    files = digests_of(open_input(plant, url), url)
    if wanted.labels in (None, _SOURCE):
        return files, None
    return files, file_digest(folder / wanted.labels, wanted.labels)


def digests_of(source: Source, url: str) -> tuple[FileDigest, ...]:
    """Return the files that ``source`` reads. Raises UsageError if it reads none, SourceError."""
    if not isinstance(source, _Listed):
        raise UsageError(f"{masked(url)} is no file: name recordings, which have digests (streamad record)")
    found = []
    for file in source.files():
        with file.held():
            found.append(file_digest(file.path, file.partition))
    return tuple(found)


def file_digest(path: Path, name: str) -> FileDigest:
    """Return the digest of a file. Raises SourceError."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return FileDigest(masked(name), os.fstat(file.fileno()).st_size, digest)
    except OSError as error:
        raise SourceError(f"{path}: cannot read it ({reason(error, path, 'read')})") from error


def check_apart(found: Sequence[Given]) -> None:
    """Raise UsageError if two files have the same content: its sequences would count twice."""
    homes: dict[str, tuple[str, str]] = {}
    for each in found:
        name = each.wanted.name
        for file in each.files:
            if file.sha256 in homes:
                other, twin = homes[file.sha256]
                both = f"the data sets {other} and {name} both have the content of {file.name}"
                if other == name:
                    both = f"data set {name}: {twin} and {file.name} have the same content"
                raise UsageError(f"{both}: its sequences would count twice; leave it out once")
            homes[file.sha256] = name, file.name


def training_files(plant: Plant) -> dict[str, str] | str:
    """Return name by digest of the files that ``model.recordings`` names; why it is unknown, if it is."""
    recordings = plant.settings.model.recordings
    if recordings is None:
        return "model.recordings names no files"
    try:
        found = digests_of(open_input(plant, recordings), recordings)
    except StreamadError as error:
        return f"model.recordings cannot be read: {error}"
    return {file.sha256: file.name for file in found}


def _is_by_file(source: Source) -> bool:
    if not isinstance(source, PartitionedSource) or not isinstance(source, _Listed):
        return False
    return set(source.partitions()) == {file.partition for file in source.files()}


def _others(url: str, source: Source) -> tuple[str, ...]:
    """Return the names of files in a local folder that are not read."""
    scheme, rest, _ = split_url(url)
    if scheme != "file" or not Path(rest).is_dir() or not isinstance(source, _Listed):
        return ()
    read = {file.path.name for file in source.files()}
    return tuple(sorted(path.name for path in Path(rest).iterdir() if path.is_file() and path.name not in read))
