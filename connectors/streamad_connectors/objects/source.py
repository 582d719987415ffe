"""Object stores as sources of recordings: the objects of a URL, read as files are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import ClassVar, cast
from urllib.parse import unquote

from pydantic import BaseModel

from streamad.errors import ConfigError, ObjectError, Problem, SourceError, StreamadError
from streamad.objects.stores import Bucket, open_bucket, split_root
from streamad.plugins import ConnectorContext
from streamad.settings.fields import SecretSource
from streamad.tables import ColumnBatch, TableLayout, Wanted
from streamad.types import SourceEvent
from streamad_connectors.files.finding import FoundFile
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.joined import JoinedFiles
from streamad_connectors.files.source import FileSource
from streamad_connectors.objects.copies import Copies, StoredObject
from streamad_connectors.objects.listing import Objects
from streamad_connectors.objects.options import HttpOptions, ObjectOptions


class ObjectSource(FileSource):
    """Reads recordings from an object store as ``FileSource`` reads files, and raises its errors with URLs.

    Partitions are named by the keys below the URL. The objects are listed once, each with its ETag; each is copied
    whole, of that version, while it is read.
    """

    options_model: type[BaseModel] = ObjectOptions
    scheme: ClassVar[str]

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        super().__init__(self._url(rest), options, context)
        self._given = rest
        try:
            self._bucket, self._key = self._opened(rest)
        except ObjectError as error:
            raise SourceError(str(error)) from None
        self._copies = Copies(self._bucket)
        self._found: list[FoundFile] | None = None
        self._only: str | None = None

    def _url(self, rest: str) -> str:
        return f"{self.scheme}://{rest}"

    def _opened(self, rest: str) -> tuple[Bucket, str]:
        root, key = split_root(self._url(rest))
        return open_bucket(root), key

    async def _events(self, wanted: Wanted | None) -> AsyncGenerator[SourceEvent | ColumnBatch, None]:
        """Yield what ``FileSource`` does, and remove all copies at the end."""
        try:
            with self._urls():
                async with aclosing(super()._events(wanted)) as events:
                    async for event in events:
                        yield event
        finally:
            await asyncio.to_thread(self._copies.close)

    async def resume(self, partition: str, offset: int, cursor: str) -> int:
        """Begin as ``FileSource.resume`` does."""
        with self._urls():
            return await super().resume(partition, offset, cursor)

    def check_cursors(self, cursors: Mapping[str, str | None]) -> None:
        """Check as ``FileSource.check_cursors`` does."""
        with self._urls():
            super().check_cursors(cursors)

    def files(self) -> list[FoundFile]:
        """Return the recordings of the URL, as they were listed first."""
        with self._urls():
            return super().files()

    def labels(self) -> Mapping[str, str]:
        """Return sequence id -> class label; all recordings that may have some are read."""
        with self._urls():
            return super().labels()

    def channel_names(self) -> tuple[str, ...] | None:
        """Return the channel names of recordings that have them; all of these are read."""
        with self._urls():
            return super().channel_names()

    def table_layout(self) -> TableLayout | None:
        """Return how the first CSV object looks to be laid out."""
        with self._urls():
            return super().table_layout()

    def _find(self) -> list[FoundFile]:
        if self._found is None:
            objects = Objects(self._bucket, self._key, self._options, self._copies)
            self._found = objects.find() if self._only is None else objects.only(self._only)
        return self._found

    def _joined_name(self) -> str:
        return self._rest.rstrip("/")

    def _partitions(self) -> dict[str, FoundFile | JoinedFiles]:
        found = super()._partitions()
        files = [file for each in found.values() for file in (each.files if isinstance(each, JoinedFiles) else [each])]
        self._copies.set_order([file.remote for file in files if isinstance(file.remote, StoredObject)])
        return found

    def _place(self, file: FoundFile) -> str:
        return self._bucket.url(file.remote.key) if isinstance(file.remote, StoredObject) else str(file.path.absolute())

    def _alone(self, partition: str | None) -> FileSource:
        alone = type(self)(self._given, self._options, self._context)
        alone._only = partition  # noqa: SLF001 - it is of this class
        return alone

    def _with_options(self, options: FileOptions) -> FileSource:
        return type(self)(self._given, options, self._context)

    @contextmanager
    def _urls(self) -> Iterator[None]:
        """Name objects by their URLs in errors, not by the paths of their copies."""
        try:
            yield
        except StreamadError as error:
            error.args = tuple(self._copies.named(text) if isinstance(text, str) else text for text in error.args)
            raise


class S3Source(ObjectSource):
    """Objects in S3, or in a store with its interface (AWS_ENDPOINT_URL)."""

    scheme = "s3"


class GoogleSource(ObjectSource):
    """Objects in Google Cloud Storage."""

    scheme = "gs"


class AzureSource(ObjectSource):
    """Objects in Azure: az://CONTAINER/KEY, of the account that AZURE_STORAGE_ACCOUNT_NAME names."""

    scheme = "az"


class AbfsSource(ObjectSource):
    """Objects in Azure: abfs://CONTAINER/KEY or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY."""

    scheme = "abfs"


class HttpsSource(ObjectSource):
    """One recording on a web server; servers do not list what they have."""

    options_model: type[BaseModel] = HttpOptions
    scheme = "https"

    def _opened(self, rest: str) -> tuple[Bucket, str]:
        folder, _, name = rest.rpartition("/")
        if not folder or not name:
            raise ObjectError("other", f"{self.scheme}://{rest}: name one file; a web server does not list its folders")
        options = cast("HttpOptions", self._options)
        query = options.query if isinstance(options.query, str) else self._secret("query", options.query)
        headers = {}
        if options.authorization is not None:
            headers["authorization"] = self._secret("authorization", options.authorization)
        key = unquote(name)
        if "/" in key or key in (".", ".."):
            raise ObjectError("other", f"{self.scheme}://{rest}: no file may have this name here; rename it")
        return open_bucket(f"{self.scheme}://{folder}", query=query.removeprefix("?"), headers=headers), key

    def _secret(self, option: str, source: SecretSource) -> str:
        if source.file is not None:
            source = SecretSource(file=self._context.base_dir / source.file)
        try:
            return source.resolve().get_secret_value()
        except ConfigError as error:
            raise ConfigError(
                [Problem(f"source.options.{option}", problem.message) for problem in error.problems]
            ) from None


class HttpSource(HttpsSource):
    """One recording on a web server without TLS, which sees no secret."""

    scheme = "http"

    def _secret(self, option: str, source: SecretSource) -> str:
        if not self._given_host_is_here():
            raise ConfigError(
                [Problem(f"source.options.{option}", "is secret, and http:// sends it openly: use https")]
            )
        return super()._secret(option, source)

    def _given_host_is_here(self) -> bool:
        host = self._rest.removeprefix("http://").partition("/")[0].rpartition(":")[0]
        return host in ("localhost", "127.0.0.1", "[::1]")
