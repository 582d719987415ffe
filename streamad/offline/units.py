"""Units of work: the partitions of the recordings, and which of them are done already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from streamad.errors import SourceError
from streamad.messages import Role
from streamad.offline.files import Made, file_of, made_of
from streamad.offline.models import ANY, digest_in_registry, digest_of_all
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.ports import PartitionedSource, Source
from streamad.ranges import Span
from streamad.safe_text import masked
from streamad.settings.places import OUTPUT_ROLES

Kind = Literal["score", "replay"]
_MATTERS = ("channels", "decode", "sequences", "window", "models", "alerts")
_OF_MODEL = ("name", "backend", "device")
WHOLE = "all"
"""The partition of a source that cannot be read in parts."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A partition to judge: its name and its content; a digest "" is unknown, so the unit is never kept."""

    partition: str
    digest: str
    n_bytes: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """What is done with every unit; it can be pickled.

    The input is ``url`` (None: the config's source) in ``span``. ``versions`` are those of the models by name, and
    ``config`` the digest of what the verdicts depend on.
    """

    kind: Kind
    plant: Plant
    url: str | None
    span: Span
    versions: Mapping[str, str]
    folder: Path
    config: str


def units_of(source: Source, url: str = "") -> list[Unit]:
    """Return the units of a finite source, in the order of reading; ``url`` tells one that has no parts from others.

    Raises SourceError.
    """
    if not isinstance(source, PartitionedSource):
        return [Unit(WHOLE, "", 0, masked(url))]
    return [Unit(name, *content) for name, content in source.partitions().items()]


def part_of(source: Source, unit: Unit) -> Source:
    """Return the source of one of the units of ``source``. Raises SourceError if it changed since it was listed."""
    if not isinstance(source, PartitionedSource):
        return source
    alone = source.only(unit.partition)
    if isinstance(alone, PartitionedSource) and alone.partitions()[unit.partition].digest != unit.digest:
        raise SourceError(f"{unit.partition}: changed since the recordings were listed; run again")
    return alone


def config_digest(kind: Kind, plant: Plant, url: str | None, span: Span, table: bytes = b"") -> str:
    """Return a digest of what verdicts depend on beside recordings and models; ``table`` is that of the batches.

    Sinks, limits of the runtime and secrets are no part of it; the release of streamad is.
    """
    settings = plant.settings
    content = settings.model_dump(mode="json", include={*_MATTERS})
    content["model"] = settings.model.model_dump(mode="json", include={*_OF_MODEL})
    options = masked("&".join(f"?{name}={value}" for name, value in sorted(settings.source.options.items())))
    in_url = masked("&".join(f"?{name}={value}" for name, value in sorted(_options(url or settings.source.url))))
    content["read"] = [kind, options, in_url, span.since_us, span.until_us, version("streamad-monitor")]
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode() + b"\0" + table).hexdigest()


def _options(url: str) -> Iterable[tuple[str, str]]:
    return split_url(url)[2].items()


class Kept:
    """Finds the units whose files were made of the same input, config and models."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._digests: dict[str, str] = {}

    def of(self, unit: Unit) -> Made | None:
        """Return what the files of ``unit`` were made of if a run would make the same, else None."""
        task = self._task
        roles: Sequence[Role] = ("verdicts",) if task.kind == "score" else OUTPUT_ROLES
        files = [file_of(task.folder, role, unit.partition, unit.place) for role in roles]
        if not unit.digest or (made := made_of(files[0])) is None or any(made_of(file) != made for file in files[1:]):
            return None
        is_same = (made.partition, made.input, made.config) == (unit.partition, unit.digest, task.config)
        return made if is_same and all(self._digest(name) == digest for name, digest in made.models.items()) else None

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            versions = self._task.versions
            is_any = name == ANY
            self._digests[name] = (
                digest_of_all(versions) if is_any else digest_in_registry(self._task.plant, name, versions.get(name))
            )
        return self._digests[name]
