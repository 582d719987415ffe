"""Fetching schemas: each once, and waiting for a registry that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamad.errors import ConfigError, SourceError
from streamad.ingest.schemas.known import ASK_AGAIN_US
from streamad.schemas.client import SchemaRegistry
from streamad.schemas.fetching import BACK, SILENT, Fetcher
from streamad.settings.schemas.registry import SchemaRegistrySettings
from streamad.types import Record
from tests.support.schemas.registry import HurriedClock, StubRegistry, stub_registry

GIVE_UP_US = 60_000_000


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with stub_registry() as registry:
        yield registry


class Fetching:
    def __init__(self, stub: StubRegistry) -> None:
        self.clock = HurriedClock(0)
        self.told: list[tuple[str, str]] = []
        registry = SchemaRegistry(SchemaRegistrySettings(url=stub.url, timeout="5s"), Path())
        self.fetcher = Fetcher(registry, self.clock, GIVE_UP_US, lambda *told: self.told.append(told))

    async def __aenter__(self) -> Fetching:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fetcher.close()

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told]


async def test_a_schema_is_asked_for_once(stub: StubRegistry) -> None:
    stub.add(7)
    async with Fetching(stub) as of:
        await asyncio.gather(of.fetcher.fetch([7, 8]), of.fetcher.fetch([8, 7]))
        await of.fetcher.fetch_for([Record(0, b"\0\0\0\0\7{}"), Record(1, b"{}"), Record(2, b"\0\0\0\0\7{}")])
        assert of.fetcher.schemas.get(7) is not None
        assert of.fetcher.schemas.get(8) is None
        assert stub.asked == ["/schemas/ids/7", "/schemas/ids/8"]
        stub.add(8)
        of.clock.advance(ASK_AGAIN_US / 1e6)
        await of.fetcher.fetch([7, 8])
        assert of.fetcher.schemas.get(8) is not None
        assert stub.asked[2:] == ["/schemas/ids/8"]
        assert not of.told


async def test_a_registry_that_is_away_is_waited_for_with_one_event_at_either_end(stub: StubRegistry) -> None:
    stub.add(7)
    stub.add(9)
    async with Fetching(stub) as of:
        stub.faults.extend(["500", "refused", "html"])
        await of.fetcher.fetch([7])
        assert of.kinds == [SILENT, BACK]
        assert "records that need them wait, up to 60 s" in of.told[0][1]
        assert of.told[1][1] == f"{stub.url} answers again"
        stub.faults.extend(["500"])  # once is no outage
        await of.fetcher.fetch([8])
        stub.faults.extend(["403", "401", "500"])  # it has answered before
        await of.fetcher.fetch([9])
        assert of.kinds == [SILENT, BACK] * 2
        assert of.fetcher.schemas.get(9) is not None


async def test_a_registry_that_stays_away_ends_the_run_in_one_line(stub: StubRegistry) -> None:
    stub.fault = "500"
    async with Fetching(stub) as of:
        with pytest.raises(
            SourceError, match=r"could not be asked for 6\d s \(decode.registry\): .* answered 500"
        ) as why:
            await of.fetcher.fetch([7])
        assert "\n" not in str(why.value)
        assert of.kinds == [SILENT]
        of.clock.advance(3600)
        stub.add(7)
        stub.fault = None
        stub.faults.append("500")  # what came before counts no more: nobody waited
        await of.fetcher.fetch([7])
        assert of.kinds == [SILENT, BACK]


async def test_a_login_refused_at_first_is_a_mistake_in_the_config(stub: StubRegistry) -> None:
    stub.fault = "401"
    async with Fetching(stub) as of:
        with pytest.raises(ConfigError, match=r"decode\.registry: .* answered 401"):
            await of.fetcher.fetch([7])
        assert not of.told
