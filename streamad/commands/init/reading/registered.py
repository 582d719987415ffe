"""Messages of a sample that name schemas of a registry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml
from pydantic import ValidationError

from streamad.errors import DecodeError, UsageError
from streamad.ingest.decode_values import serializer_advice
from streamad.ingest.schemas.framing import framed
from streamad.ingest.schemas.known import Schemas
from streamad.schemas.fetching import Fetcher, registry_of
from streamad.settings.schemas.registry import SchemaRegistrySettings
from streamad.system.clock import SystemClock
from streamad.types import Record

_GIVE_UP_US = 5_000_000
OPTION = "--registry"


class SampleSchemas:
    """The registry that the user has named, ``given`` as the config will name it, and what is known of its schemas."""

    def __init__(self, given: dict[str, Any], home: Path) -> None:
        self.given = given
        self._settings = SchemaRegistrySettings(**given)
        self._home = home
        self.known = Schemas(self._settings.url)

    @staticmethod
    def of(text: str | None, home: Path) -> SampleSchemas | None:
        """Return the registry of the option: a URL, or decode.registry as a mapping. Raises UsageError."""
        if text is None:
            return None
        try:
            given = yaml.safe_load(text) if text.lstrip().startswith("{") else {"url": text}
            return SampleSchemas(given, home)
        except yaml.YAMLError:
            raise UsageError(f"{OPTION} is no mapping: write a URL, or {{url: ..., username: ...}}") from None
        except ValidationError as error:
            # Without what was given: it may hold a secret.
            why = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
            raise UsageError(f"{OPTION}: {why}") from None

    @asynccontextmanager
    async def fetching(self) -> AsyncIterator[Fetcher]:
        """Yield what fetches schemas, inside one event loop. Raises ConfigError, PluginError."""
        registry = registry_of(self._settings, self._home)
        fetcher = Fetcher(registry, SystemClock(), _GIVE_UP_US, schemas=self.known)
        try:
            yield fetcher
        finally:
            await fetcher.close()

    def message_of(self, record: Record) -> Any:
        """Return the message of a framed record, as JSON has it; None if there is none."""
        try:
            found = framed(record)
            if found is None:
                return None
            message = self.known.known(found.schema, record.offset).reader.read(record.value, found)
        except DecodeError:
            return None
        return msgspec.to_builtins(message)


def why_registry(record: Record) -> str | None:
    """Return that a registry is needed to read a record, None if it is not."""
    advice = serializer_advice(record)
    if advice is None or "decode.registry" not in advice:
        return None
    return f"its messages are {advice.partition(':')[0]}: name its registry, as in {OPTION} https://HOST:8081"
