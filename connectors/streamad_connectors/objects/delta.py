"""Delta tables as sources: ``delta:PATH`` or ``delta:s3://BUCKET/TABLE``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from streamad.errors import ObjectError, SourceError
from streamad.objects.failures import one_line_errors
from streamad.objects.stores import SCHEMES, Bucket, client_of_environment, open_bucket, split_root
from streamad_connectors.objects.copies import StoredObject
from streamad_connectors.objects.tables import LocalPart, TablePart, TableSource

_PARTITION = "partition."


class DeltaSource(TableSource):
    """The rows of a Delta table, with its partition columns.

    Refused are tables whose files hold other rows or names: with deletion vectors in use, with mapped columns.
    """

    scheme = "delta"

    def _url(self, rest: str) -> str:
        return f"delta:{rest}"

    def _opened(self, rest: str) -> tuple[Bucket, str]:
        if not rest:
            raise ObjectError("other", "delta: names no table; write delta:PATH or delta:s3://BUCKET/TABLE")
        if rest.partition("://")[0] in SCHEMES:
            root, key = split_root(rest)
            return open_bucket(root), key.strip("/")
        return Bucket(str(self._context.base_dir / Path(rest).expanduser()), None), ""

    def _snapshot(self, version: int | None) -> tuple[int, list[TablePart]]:
        if importlib.util.find_spec("deltalake") is None:
            raise SourceError(f"{self._rest}: reading it needs deltalake: pip install 'streamad-monitor[delta]'")
        self._check_there()
        import deltalake  # noqa: PLC0415 - an extra
        import pyarrow  # noqa: PLC0415 - an extra

        options = None if self._bucket.store is None else client_of_environment(self._bucket.root)
        table = deltalake.DeltaTable(self._bucket.url(self._key), version=version, storage_options=options)
        self._check_plain(table, pyarrow)
        number = table.version()
        actions = pyarrow.table(table.get_add_actions(flatten=True))
        return number, [self._part(action, self._tag(number)) for action in actions.to_pylist()]

    def _check_there(self) -> None:
        """Raise SourceError unless the table has a log, in our own words for a store that refuses."""
        advice = "there is no Delta table (no folder _delta_log); check the path"
        if self._bucket.store is None:
            if not (Path(self._bucket.root) / "_delta_log").is_dir():
                raise SourceError(f"{self._rest}: {advice}")
            return
        import obstore  # noqa: PLC0415 - an extra

        try:
            with one_line_errors(self._bucket.url(self._key)):
                pages = iter(obstore.list(self._bucket.store, f"{self._key}/_delta_log".strip("/"), chunk_size=1))
                if next(pages, None) is None:
                    raise SourceError(f"{self._rest}: {advice}")
        except ObjectError as error:
            raise SourceError(str(error)) from None

    def _check_plain(self, table: Any, pyarrow: Any) -> None:
        features = set(table.protocol().reader_features or ())
        mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            raise SourceError(
                f"{self._rest}: the table maps the names of its columns (delta.columnMapping.mode), and "
                "its files hold others; write it anew without"
            )
        if "deletionVectors" in features and next(_batches(table, pyarrow), None) is not None:
            raise SourceError(
                f"{self._rest}: rows of the table are deleted by deletion vectors, and still in its "
                "files; rewrite these: REORG TABLE ... APPLY (PURGE)"
            )

    def _part(self, action: dict[str, Any], tag: str) -> TablePart:
        name = unquote(action["path"])
        if "://" in name or name.startswith("/") or ".." in name.split("/"):
            raise SourceError(f"{self._rest}: the table is a shallow clone: its file {name!a} lies elsewhere")
        columns = {key: value for key, value in action.items() if key.startswith(_PARTITION)}
        fields = tuple((key.removeprefix(_PARTITION), _text(value)) for key, value in columns.items())
        size, mtime_ns = action["size_bytes"], action["modification_time"] * 10**6
        if self._bucket.store is None:
            path = Path(self._bucket.root) / name
            return TablePart(name, path, LocalPart(size, mtime_ns, tag), fields)
        key = f"{self._key}/{name}".strip("/")
        remote = StoredObject(key, size, mtime_ns, tag, self._copies, is_pinned=False)
        return TablePart(name, self._copies.path(key), remote, fields)


def _batches(table: Any, pyarrow: Any) -> Iterator[Any]:
    for batch in pyarrow.RecordBatchReader.from_stream(table.deletion_vectors()):
        if batch.num_rows:
            yield batch


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
