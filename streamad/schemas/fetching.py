"""Fetches schemas before the decoder needs them, and waits for a registry that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from streamad.errors import ConfigError, PluginError, Problem, SourceError
from streamad.ingest.schemas.framing import SchemaKey
from streamad.ingest.schemas.known import Schemas
from streamad.ingest.schemas.used import UsedSchemas
from streamad.plant import Plant
from streamad.ports import Clock
from streamad.settings.schemas.registry import SchemaRegistrySettings
from streamad.system.tasks import Backoff
from streamad.telemetry.logs import get_status_logger
from streamad.types import Record

if TYPE_CHECKING:
    from streamad.schemas.client import SchemaRegistry

SILENT, BACK = "schema_registry_silent", "schema_registry_back"
_FIRST_PAUSE_US: Final = 200_000
_LONGEST_PAUSE_US: Final = 5_000_000
_TELL_AFTER: Final = 2
"""A first failure may be a connection that was closed meanwhile."""


class Tell(Protocol):
    """Tells the operator of an event: ``EventLog.emit``."""

    def __call__(self, kind: str, message: str) -> object:
        """Tell."""


class Fetcher:
    """Fetches schemas of ``registry`` into ``schemas``; one at a time, each once.

    While the registry is away it asks again and again, up to ``give_up_us``; ``tell`` is called when that begins and
    when it is over.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        clock: Clock,
        give_up_us: int,
        tell: Tell | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        self.schemas = schemas or Schemas(registry.place)
        self._registry = registry
        self._clock = clock
        self._give_up_us = give_up_us
        self._tell = tell or _log
        self._one_at_a_time = asyncio.Lock()
        self._n_waiting = 0
        self._has_answered = False
        self._failures = 0
        self._failing_us = 0

    async def fetch(self, wanted: Collection[SchemaKey]) -> None:
        """Return once each of ``wanted`` is known or refused.

        Raises SourceError once the registry was away for too long, ConfigError if it refuses the first request.
        """
        if not wanted:
            return
        if not self._n_waiting:
            self._failing_us = self._clock.monotonic_us()  # nobody has asked before
        self._n_waiting += 1
        try:
            for schema in wanted:
                async with self._one_at_a_time:
                    if not self.schemas.is_settled(schema, self._clock.monotonic_us()):
                        await self._ask(schema)
        finally:
            self._n_waiting -= 1

    async def fetch_for(self, records: Iterable[Record]) -> None:
        """Fetch what ``records`` need, none of which was read before. Raises as ``fetch``."""
        await self.fetch(UsedSchemas(self.schemas, "").wanted(records, self._clock.monotonic_us()))

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        await self._registry.close()

    async def _ask(self, schema: SchemaKey) -> None:
        from streamad.schemas.client import LoginRefusedError, RegistryAwayError, SchemaAbsentError  # noqa: PLC0415 - an extra

        backoff = Backoff(_FIRST_PAUSE_US, _LONGEST_PAUSE_US)
        while True:
            try:
                answer = await self._registry.schema(schema)
            except SchemaAbsentError as absent:
                self._answered()
                self.schemas.refuse(schema, str(absent), self._clock.monotonic_us())
                return
            except LoginRefusedError as refused:
                if not self._has_answered:
                    raise ConfigError([Problem("decode.registry", str(refused))]) from None
                self._failed(str(refused))
            except RegistryAwayError as away:
                self._failed(str(away))
            else:
                self._answered()
                now_us = self._clock.monotonic_us()
                # A schema of 4 MB compiles for seconds.
                await asyncio.to_thread(self.schemas.learn, schema, answer.schema, answer.digest, now_us)
                return
            await self._clock.sleep(backoff.pause_us / 1e6)
            backoff.failed()

    def _answered(self) -> None:
        if self._failures >= _TELL_AFTER:
            self._tell(BACK, f"{self.schemas.place} answers again")
        self._has_answered, self._failures = True, 0

    def _failed(self, why: str) -> None:
        now_us = self._clock.monotonic_us()
        if not self._failures:
            self._failing_us = now_us
        self._failures += 1
        if self._failures == _TELL_AFTER:
            limit_s = self._give_up_us / 1e6
            self._tell(SILENT, f"schemas cannot be asked: {why}: records that need them wait, up to {limit_s:g} s")
        if now_us - self._failing_us > self._give_up_us:
            raise SourceError(
                f"schemas could not be asked for {(now_us - self._failing_us) / 1e6:.0f} s (decode.registry): {why}"
            )


def _log(kind: str, message: str) -> None:
    get_status_logger().warning(kind, message=message)


def fetcher_of(plant: Plant, tell: Tell | None = None, *, give_up_us: int | None = None) -> Fetcher | None:
    """Make what fetches a plant's schemas, None without ``decode.registry``. Raises ConfigError, PluginError.

    ``give_up_us`` replaces that of the config.
    """
    settings = plant.settings.decode.registry
    if settings is None:
        return None
    registry = registry_of(settings, plant.base_dir)
    return Fetcher(registry, plant.clock, settings.give_up_after if give_up_us is None else give_up_us, tell)


@asynccontextmanager
async def fetching(plant: Plant, *, give_up_us: int | None = None) -> AsyncIterator[Fetcher | None]:
    """Yield ``fetcher_of`` a plant, and close it."""
    fetcher = fetcher_of(plant, give_up_us=give_up_us)
    try:
        yield fetcher
    finally:
        if fetcher is not None:
            await fetcher.close()


async def check_registry(plant: Plant) -> str | None:
    """Ask the registry of a plant for what all have; return its address, None if the plant has none.

    Raises SourceError, ConfigError, PluginError.
    """
    settings = plant.settings.decode.registry
    if settings is None:
        return None
    registry = registry_of(settings, plant.base_dir)
    from streamad.schemas.client import LoginRefusedError, RegistryAwayError, SchemaAbsentError  # noqa: PLC0415

    try:
        await registry.check()
    except (LoginRefusedError, RegistryAwayError, SchemaAbsentError) as error:
        raise SourceError(str(error)) from None
    finally:
        await registry.close()
    return registry.place


def registry_of(settings: SchemaRegistrySettings, base_dir: Path) -> SchemaRegistry:
    """Make the client of a registry. Raises ConfigError, PluginError."""
    try:
        from streamad.schemas.client import SchemaRegistry  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PluginError("decode.registry needs httpx2: pip install 'streamad-monitor[registry]'") from error
    return SchemaRegistry(settings, base_dir)
