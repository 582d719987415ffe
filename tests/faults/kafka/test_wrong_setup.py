"""Topics, partitions, names and rights that are not as they should be: one clear line and an exit code, in time."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import NewPartitions, NewTopic

from streamad_connectors.kafka.client.errors import PARTITIONS_ADDED
from tests.support.kafka.broker import Broker, admin_of, configure, create_topics, running
from tests.support.kafka.faults import KafkaPlants, finish, until_verdicts
from tests.support.kafka.plant import KafkaPlant, traffic
from tests.support.kafka.workers import Worker
from tests.support.ports import free_port
from tests.support.waiting import IN_TIME_S, LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

PASSWORD = "right-password"


async def last_line(worker: Worker, timeout_s: float = LIMIT_S) -> str:
    """Wait for ``worker`` to fail, and return the one line that it says to people."""
    assert await worker.wait(timeout_s) == 1, worker.said()[-3000:]
    said = [text for text in worker.said().splitlines() if text and not text.startswith("{")]
    assert "Traceback" not in worker.said(), worker.said()[-3000:]
    errors = [text for text in said if text.startswith("error")]
    assert len(errors) == 1, worker.said()[-3000:]
    return " ".join(said[said.index(errors[0]) :])


async def with_admin(plant: KafkaPlant, *, add_partitions: int | None = None, delete: str | None = None) -> None:
    async with admin_of(plant.bootstrap) as admin:
        if add_partitions is not None:
            await admin.create_partitions({plant.topic: NewPartitions(add_partitions)})
        if delete is not None:
            await admin.delete_topics([delete])


# --- how many partitions ---


async def test_partitions_added_while_stopped_are_refused_with_how_to_go_on(kafka: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=2)
    await plant.feed(traffic(61, partitions=2, streams=4, sequences=4).messages)
    await finish(plant, plant.start())
    await with_admin(plant, add_partitions=3)
    line = await last_line(plant.start())
    # The line of the new partition, or of one that has progress already.
    lines = (
        f"{plant.progress} has 2 partitions, but {plant.topic} has 3: keys may have moved",
        f"{plant.topic} has 3 partitions, but 2 when its progress was committed: keys have moved",
    )
    assert any(text in line for text in lines)
    assert PARTITIONS_ADDED in re.sub(r"--config \S+plant\.yaml|--config plant\.yaml", "--config FILE", line)


async def test_partitions_added_while_it_runs_end_it_with_how_to_go_on(kafka: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=2)
    await plant.feed(traffic(62, partitions=2, streams=4, sequences=4).messages)
    worker = plant.start()
    await until_verdicts(plant, 1)
    await with_admin(plant, add_partitions=3)
    line = await last_line(worker)  # aiokafka asks for the metadata every 5 s
    assert f"topic {plant.topic} has more partitions than the 2 it had" in line
    assert PARTITIONS_ADDED in re.sub(r"--config \S+plant\.yaml|--config plant\.yaml", "--config FILE", line)
    difference = await plant.difference(await plant.expected())
    assert not difference.repeated
    assert not difference.foreign


@pytest.mark.parametrize("n", [1, 3])
async def test_a_progress_topic_of_another_count_is_refused(kafka: Broker, plants: KafkaPlants, n: int) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=2)
    await with_admin(plant, delete=plant.progress)
    await asyncio.sleep(1)
    compact = {"cleanup.policy": "compact"}
    await create_topics(kafka.bootstrap, {plant.progress: NewTopic(plant.progress, n, 1, topic_configs=compact)})
    await plant.feed(traffic(63, partitions=2, streams=4, sequences=4).messages)
    line = await last_line(plant.start())
    assert f"{plant.progress} has {n} partition" in line
    assert "streamad topics create" in line


# --- topics that are not there ---


@pytest.mark.parametrize("which", ["input", "progress", "claims", "verdicts"])
async def test_a_missing_topic_is_named_with_the_command_that_makes_it(
    kafka: Broker, plants: KafkaPlants, which: str
) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=2)
    names = {"input": plant.topic, "progress": plant.progress, "claims": plant.claims}
    names["verdicts"] = plant.output("verdicts")
    if which != "input":
        await plant.feed(traffic(64, partitions=2, streams=4, sequences=4).messages)
    await with_admin(plant, delete=names[which])
    line = await last_line(plant.start())
    assert names[which] in line
    assert "streamad topics create" in line


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_topic_of_claims_that_deletes_them_is_refused_with_the_command(
    kafka: Broker, plants: KafkaPlants, policy: str
) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=1)
    await configure(kafka.bootstrap, plant.claims, {"cleanup.policy": policy})
    await plant.feed(traffic(68, partitions=1, streams=2, sequences=4).messages)
    refused = plant.start()
    line = await last_line(refused)
    assert f"topic {plant.claims} has cleanup.policy={policy}, which deletes claims" in line
    assert f"--entity-name {plant.claims} --add-config cleanup.policy=compact`" in line
    await configure(kafka.bootstrap, plant.claims, {"cleanup.policy": "compact"})
    await finish(plant, plant.start())


async def test_an_input_topic_deleted_while_it_is_read_ends_it(kafka: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=2)
    await plant.feed(traffic(65, partitions=2, streams=4, sequences=4).messages)
    worker = plant.start()
    await until_verdicts(plant, 1)
    await with_admin(plant, delete=plant.topic)
    line = await last_line(worker)
    assert plant.topic in line


# --- who we are ---


async def test_an_instance_id_used_twice_ends_one_and_repeats_nothing(kafka: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(kafka.bootstrap)
    flow = plant.flow(traffic(66, partitions=4, streams=40, sequences=40), per_s=250)
    both = [plant.start("same"), plant.start("same")]
    async with asyncio.timeout(LIMIT_S):
        while all(worker.is_running for worker in both):  # noqa: ASYNC110 - processes, not tasks
            await asyncio.sleep(0.05)
    ended = [worker for worker in both if not worker.is_running]
    for worker in ended:
        line = await last_line(worker)
        assert "same instance id" in line or "instance id 'same' is used by another process" in line
    for worker in both:
        worker.end()
    await flow.cut()
    await finish(plant, plant.start("other"))


# --- who may not, or does not answer ---


async def test_an_unreachable_broker_is_reported_within_the_request_time_out(
    kafka: Broker, plants: KafkaPlants
) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=1)
    plant.bootstrap = f"127.0.0.1:{free_port()}"
    plant.write_config()
    line = await last_line(plant.start(), IN_TIME_S)
    assert plant.bootstrap in line
    assert "is it running" in line


async def test_a_broker_that_accepts_connections_and_never_answers_is_reported_in_time(
    kafka: Broker, plants: KafkaPlants
) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=1)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        plant.bootstrap = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        plant.write_config()
        line = await last_line(plant.start(), IN_TIME_S)
    assert plant.bootstrap in line


@pytest.fixture
def login_broker(kafka_jars: Path) -> Iterator[tuple[Broker, str]]:
    """A broker, and where on it user "worker" logs in with PLAIN."""
    login_port = free_port()

    def with_login(folder: Path) -> Broker:
        broker = Broker(folder / "kafka")
        listeners = f"PLAINTEXT://127.0.0.1:{broker.port},SASL_PLAINTEXT://127.0.0.1:{login_port}"
        login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_worker="{PASSWORD}";'
        broker.settings |= {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        }
        return broker

    with running(with_login) as broker:
        yield broker, f"127.0.0.1:{login_port}"


async def test_a_wrong_password_ends_the_run_at_once_and_the_right_one_is_accepted(
    login_broker: tuple[Broker, str], plants: KafkaPlants
) -> None:
    security = {
        "protocol": "sasl_plaintext",
        "mechanism": "plain",
        "username": "worker",
        "password": {"file": "password"},
    }
    broker, login = login_broker
    plant = await plants.make(broker.bootstrap, partitions=1, options={"security": security})
    plant.bootstrap = login
    plant.write_config()
    wrong = "not-the-password"
    (plant.folder / "password").write_text(wrong)
    refused = plant.start()
    line = await last_line(refused)
    assert "security" in line
    assert "worker" in line
    assert wrong not in refused.said()

    (plant.folder / "password").write_text(PASSWORD)
    accepted = plant.start()
    plant.bootstrap = broker.bootstrap  # for the test's own clients, which have no login
    await plant.feed(traffic(67, partitions=1, streams=2, sequences=4).messages)
    await finish(plant, accepted)
    assert PASSWORD not in accepted.said()
