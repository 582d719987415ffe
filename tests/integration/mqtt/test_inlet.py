"""The bridge's side that reads, against a real mosquitto: what is not released comes again, and nothing else does."""

from __future__ import annotations

import asyncio
import gc
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamad.errors import ConfigError, OutputError, SourceError
from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad.types import FeedRecord
from streamad_connectors.mqtt import MqttFeed, MqttInlet, MqttsInlet
from streamad_connectors.mqtt.options import MqttInletOptions, MqttOptions
from tests.support.mosquitto import LEFT_OPEN, Mosquitto, mosquitto, tool
from tests.support.ports import free_port
from tests.support.runtime.pipeline import until
from tests.support.waiting import LIMIT_S

TOPICS = "plant/{stream}/+"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker") as running:
        yield running


def inlet_of(broker: Mosquitto, topics: str = TOPICS, kind: type[MqttInlet] = MqttInlet, **options: Any) -> MqttInlet:
    context = ConnectorContext((), SystemClock(), Path())
    return kind(f"{broker.address}/{topics}", MqttInletOptions.model_validate(options), context)


class Reading:
    """Takes the messages of an inlet, and keeps their values in order."""

    def __init__(self, inlet: MqttInlet) -> None:
        self.inlet = inlet
        self.records: list[FeedRecord] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self.inlet.messages():
            self.records.append(record)

    @property
    def values(self) -> list[int]:
        return [int(record.value) for record in self.records]

    async def until(self, n: int) -> None:
        await until(lambda: len(self.records) >= n or self.task.done())
        assert len(self.records) >= n or self.task.result() is None

    async def told(self) -> None:
        """Return once the broker has read what was sent to it: it answers in order."""
        connection = self.inlet._connection  # noqa: SLF001 - no other question has an answer
        assert connection is not None
        await self.inlet._subscribe(connection)  # noqa: SLF001

    async def connected(self, n: int = 1) -> None:
        await until(lambda: self.inlet.counts.connections >= n or self.task.done())
        if self.task.done():
            self.task.result()


@asynccontextmanager
async def reading(inlet: MqttInlet) -> AsyncIterator[Reading]:
    found = Reading(inlet)
    try:
        yield found
    finally:
        inlet.stop()
        await asyncio.wait([found.task])
        await inlet.close()


def numbers(first: int, after: int) -> list[str]:
    return [str(number) for number in range(first, after)]


async def test_what_is_not_released_comes_again_to_the_next_bridge_and_nothing_else(broker: Mosquitto) -> None:
    async with reading(inlet_of(broker)) as first:
        await first.connected()
        broker.publish("plant/r1/a", numbers(0, 15))
        await first.until(15)
        assert [(record.key, record.label) for record in first.records] == [(b"r1", "plant/r1/a")] * 15
        first.inlet.release(5)
    broker.publish("plant/r1/a", numbers(15, 30))
    async with reading(inlet_of(broker)) as second:
        await second.until(25)
        assert second.values == list(range(5, 30))
        second.inlet.release(25)
    async with reading(inlet_of(broker)) as third:
        await third.connected()
        broker.publish("plant/r1/a", ["30"])
        await third.until(1)
        assert third.values == [30]
        third.inlet.release(1)


@pytest.mark.parametrize("qos", ["0", "1"])
async def test_no_more_is_in_flight_than_there_is_room_for(broker: Mosquitto, qos: str) -> None:
    async with reading(inlet_of(broker, receive_maximum=7)) as found:
        await found.connected()
        broker.publish("plant/r1/a", numbers(0, 60), "-q", qos)
        released = 0
        while released < 60:
            await found.until(released + 1)
            assert found.inlet.counts.in_flight <= 14
            n = min(3, len(found.records) - released)
            found.inlet.release(n)
            released += n
        assert found.values == list(range(60))


@pytest.mark.parametrize("when", ["before", "away", "after"])
async def test_a_broker_that_restarts_in_order_gives_each_message_once(broker: Mosquitto, when: str) -> None:
    with capture_logs() as logs:
        async with reading(inlet_of(broker)) as found:
            await found.connected()
            broker.publish("plant/r1/a", numbers(0, 10))
            await found.until(10)
            if when == "before":
                found.inlet.release(10)
                await found.told()
            broker.stop()
            await until(lambda: not found.inlet.is_connected)
            if when == "away":
                found.inlet.release(10)  # safe, but there is nobody to tell
            broker.start()
            await found.connected(2)
            broker.publish("plant/r1/a", numbers(10, 20))
            await found.until(20)
            assert found.values == list(range(20))
            found.inlet.release(10 if when != "after" else 20)
            broker.publish("plant/r1/a", numbers(20, 40))  # there is room: the first ones were acknowledged
            await found.until(40)
            assert found.values == list(range(40))
            assert found.inlet.counts.sessions_lost == 0
            found.inlet.release(20)
            await found.told()
    async with reading(inlet_of(broker)) as again:  # all was acknowledged, also what came twice
        await again.connected()
        broker.publish("plant/r1/a", ["40"])
        await again.until(1)
        assert again.values == [40]
        again.inlet.release(1)
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "the broker is away: waiting",
        "the broker is back, with the session",
    ]


async def test_a_session_that_is_gone_is_one_warning_and_old_acknowledgements_hit_no_new_message(
    tmp_path: Path,
) -> None:
    with mosquitto(tmp_path / "broker") as broker:
        broker.configure("persistence false")
        broker.stop()
        broker.start()
        with capture_logs() as logs:
            async with reading(inlet_of(broker)) as found:
                await found.connected()
                broker.publish("plant/r1/a", numbers(0, 5))
                await found.until(5)
                broker.stop()
                await until(lambda: not found.inlet.is_connected)
                broker.start()
                await found.connected(2)
                broker.publish("plant/r1/a", numbers(5, 10))  # their packets have the numbers of the first five
                await found.until(10)
                found.inlet.release(5)
                assert found.inlet.counts.sessions_lost == 1
        assert sum("lost the session" in line["event"] for line in logs) == 1
        async with reading(inlet_of(broker)) as again:
            await again.until(5)
            assert again.values == [5, 6, 7, 8, 9]


async def test_two_bridges_of_the_same_session_do_not_fight_for_ever(broker: Mosquitto) -> None:
    async with reading(inlet_of(broker)) as first:
        await first.connected()
        async with reading(inlet_of(broker)) as second:
            await asyncio.wait({first.task, second.task}, return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
            ended = first.task if first.task.done() else second.task
            with pytest.raises(SourceError, match=r"another client with the client_id streamad[0-9a-f]+ takes over"):
                ended.result()


async def test_retained_messages_are_not_taken_twice(broker: Mosquitto) -> None:
    broker.publish("plant/r1/a", ["1"], "-r")
    for sent in ("2", "3"):
        async with reading(inlet_of(broker)) as found:
            await found.connected()
            broker.publish("plant/r1/a", [sent], "-r")
            await found.until(1)
            assert found.values == [int(sent)]
            found.inlet.release(1)


async def test_what_the_broker_says_it_dropped_is_shown_when_it_rises(broker: Mosquitto) -> None:
    with capture_logs() as logs:
        async with reading(inlet_of(broker)) as found:
            await found.connected()
            found.inlet._count_dropped(b"7")  # noqa: SLF001 - clients cannot publish below $SYS
            found.inlet._count_dropped(b"9")  # noqa: SLF001
    assert [line["dropped"] for line in logs if "dropped" in line] == [2]
    assert found.inlet.counts.broker_dropped == 9


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    """A file in which the user ada has the password "right"."""
    path = tmp_path / "passwords"
    subprocess.run([tool("mosquitto_passwd"), "-b", "-c", str(path), "ada", "right"], check=True)
    return path


async def test_wrong_inputs_are_one_line(tmp_path: Path, passwords: Path) -> None:
    (tmp_path / "secret").write_text("wrong\n")
    away = Mosquitto(tmp_path / "away", port=free_port())
    with mosquitto(tmp_path / "broker", f"password_file {passwords}") as broker:
        wrong = {"username": "ada", "password": {"file": str(tmp_path / "secret")}}
        for inlet, said in (
            (inlet_of(away), r"mqtt 127.0.0.1:\d+: cannot be reached \(Connection refused\)"),
            (inlet_of(broker), r"refuses: (user or password is wrong|this user may not connect)"),
            (inlet_of(broker, security=wrong), r"refuses: (user or password is wrong|this user may not connect)"),
        ):
            async with reading(inlet) as found:
                with pytest.raises(SourceError, match=said) as caught:
                    await asyncio.wait_for(asyncio.shield(found.task), LIMIT_S)
            assert "\n" not in str(caught.value)
            assert "wrong\n" not in str(caught.value)
        (tmp_path / "secret").write_text("right\n")
        async with reading(inlet_of(broker, security=wrong)) as found:
            await found.connected()


@pytest.mark.filterwarnings(LEFT_OPEN)
async def test_a_broker_without_tls_is_one_line(broker: Mosquitto) -> None:
    async with reading(inlet_of(broker, kind=MqttsInlet)) as found:
        with pytest.raises(SourceError, match="no TLS there"):
            await asyncio.wait_for(asyncio.shield(found.task), LIMIT_S)
    del found
    gc.collect()


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("host", "a topic is missing"),
        ("host/plant/#/a", "# stands for all levels behind it"),
        ("host/plant/a+", r"\+ stands for a whole level"),
        ("host/plant/{line}", "is no part"),
        ("host/plant/{stream}/{stream}", "names {stream} twice"),
        ("host/plant/r{stream}", "a whole level"),
        ("host/$share/g/plant", "shared subscription"),
        ("ada:secret@host/plant", "security.username"),
        ("host:0/plant", "is no broker"),
    ],
)
def test_a_wrong_url_says_what_is_wrong_without_a_secret(rest: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        MqttInlet(rest, MqttInletOptions(), ConnectorContext((), SystemClock(), Path()))
    assert "secret" not in str(caught.value)


async def test_the_feed_publishes_by_key_and_says_when_the_broker_is_gone(broker: Mosquitto) -> None:
    context = ConnectorContext((), SystemClock(), Path())
    feed = MqttFeed(f"{broker.address}/plant/{{stream}}/samples", MqttOptions(receive_maximum=3), context)
    async with reading(inlet_of(broker)) as found:
        await found.connected()
        await feed.send([FeedRecord(str(number).encode(), b"r%d" % (number % 2)) for number in range(10)])
        await feed.flush()
        await found.until(10)
        assert sorted(found.values) == list(range(10))
        assert {record.label for record in found.records} == {"plant/r0/samples", "plant/r1/samples"}
        found.inlet.release(10)
        broker.stop()
        with pytest.raises(OutputError, match="messages are not acknowledged"):
            await feed.send([FeedRecord(b"1", b"r1")] * 5)
        await feed.close()
