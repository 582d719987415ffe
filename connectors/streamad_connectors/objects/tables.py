"""Tables as sources of recordings: the files of one version of a table, each read as a file."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from streamad.errors import SourceError
from streamad.safe_text import masked, one_line, text_of
from streamad.telemetry.logs import get_status_logger
from streamad_connectors.files.cursors import JoinedCursor, decode_cursor
from streamad_connectors.files.finding import FoundFile
from streamad_connectors.files.formats.known import format_named
from streamad_connectors.files.formats.reading import InterruptedReadError
from streamad_connectors.files.hive import Fields
from streamad_connectors.objects.options import ObjectOptions
from streamad_connectors.objects.source import ObjectSource

_REASON_CHARACTERS = 200


class TableOptions(ObjectOptions):
    """Options for reading a table: those of Parquet files, and which version of it."""

    version: int | None = Field(None, ge=0, description="the version (Iceberg: snapshot) to read; default the newest")


@dataclass(frozen=True, slots=True)
class LocalPart:
    """A file of a table on this machine, which is read where it is."""

    size: int
    mtime_ns: int
    tag: str
    content: str = ""

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Do nothing: the file is there."""
        yield


class TablePart(NamedTuple):
    """A file of a table: where it lies, its size and time of change, and the fields that its rows lack."""

    partition: str
    path: Path
    remote: Any
    fields: Fields


class TableSource(ObjectSource):
    """Reads the rows of one version of a table, the newest when it is asked first, file by file.

    A later version may hold the same rows in other files, so a checkpoint goes on with its own version alone.
    """

    options_model: type[BaseModel] = TableOptions
    _version: int | None = None

    @abstractmethod
    def _snapshot(self, version: int | None) -> tuple[int, list[TablePart]]:
        """Return the version of the table, the newest for None, and its files. Raises what the library does."""

    def check_cursors(self, cursors: Mapping[str, str | None]) -> None:
        """Raise SourceError if the checkpoint is of another version of the table."""
        super().check_cursors(cursors)
        for name, text in cursors.items():
            cursor = None if text is None else decode_cursor(text, name)
            current = cursor.current if isinstance(cursor, JoinedCursor) else cursor
            if current is not None and current.tag and current.tag != self._tag(self._version):
                raise SourceError(
                    f"{self._rest}: the checkpoint is of {current.tag} of the table, and this is "
                    f"{self._tag(self._version)}, which may hold the same rows in other files: set "
                    f"source.options.version: {current.tag.rpartition(' ')[2]}, or begin anew with another checkpoint"
                )

    def _tag(self, version: int | None) -> str:
        return f"version {version}"

    def _find(self) -> list[FoundFile]:
        if self._found is None:
            with self._one_line():
                self._version, parts = self._snapshot(self._version_wanted())
            get_status_logger().info("snapshot", table=self._rest, version=self._version, files=len(parts))
            if self._only is not None:
                parts = [part for part in parts if part.partition == self._only]
            if not parts:
                raise SourceError(f"{self._rest}: {self._tag(self._version)} of the table has no such files")
            paths = Counter(part.path for part in parts)
            if twice := [part.partition for part in parts if paths[part.path] > 1]:
                raise SourceError(f"{self._rest}: two files of the table would both be {twice[0]!a}; rename one")
            of = format_named("parquet")
            found = [FoundFile(part.path, part.partition, of, part.fields, part.remote) for part in parts]
            self._found = sorted(found, key=lambda file: file.partition.split("/"))
        return self._found

    def _version_wanted(self) -> int | None:
        assert isinstance(self._options, TableOptions)
        return self._options.version

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """Turn what the table's library raises into a SourceError of one line."""
        try:
            yield
        except (SourceError, InterruptedReadError):
            raise
        except Exception as error:  # noqa: BLE001 - the libraries raise what those below them do
            why = one_line(masked(text_of(error).partition("\n")[0]))[:_REASON_CHARACTERS] or type(error).__name__
            raise SourceError(f"{self._rest}: the table cannot be read ({why}); check its URL and version") from None
