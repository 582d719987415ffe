"""Topics against real brokers: what is made, what is found wrong, which right is missing; nothing is disturbed."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.admin import CreateAclsRequest

from streamad.clock import SystemClock
from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.ports import TopicFinding, Topics
from streamad.types import Role
from streamad_connectors.kafka.options import Client, KafkaSinkOptions, KafkaSourceOptions, transactional_id_of
from streamad_connectors.kafka.sink import KafkaSink
from streamad_connectors.kafka.topics import KafkaTopics
from tests.support.kafka import Broker, create_topics, free_ports, produce, read_committed, scratch_folder, unique_name
from tests.support.runtime_cli import CliPlant

DAY_US = 86_400_000_000
PASSWORD = "hunter2-is-secret"


class Plant:
    """A source of some topics with sinks, all names unique; its topics are asked for as ``streamad topics`` does."""

    def __init__(self, bootstrap: str, *, n_inputs: int = 1, max_duration_us: int | None = DAY_US, **options: Any):
        self.bootstrap = bootstrap
        self.name = unique_name("plant")
        self.inputs = [f"{self.name}.in{i}" for i in range(n_inputs)]
        self.group = f"streamad.{self.name}"
        self.progress = [f"{self.group}.{topic}.progress" for topic in self.inputs]
        self.rest = f"{bootstrap}/{','.join(self.inputs)}"
        self.options = KafkaSourceOptions.model_validate({"request_timeout": "5s", **options})
        self.context = ConnectorContext(
            (),
            SystemClock(),
            plant=self.name,
            source_url=f"kafka://{self.rest}",
            source_options=options,
            max_duration_us=max_duration_us,
        )
        self.sink_topics: dict[Role, str] = {"alerts": f"{self.name}.alerts", "dead_letters": f"{self.name}.dead"}
        self.sink_options = KafkaSinkOptions()

    @property
    def transactional_id(self) -> str:
        return transactional_id_of(self.inputs[0], 0, self.group)

    @asynccontextmanager
    async def topics(self) -> AsyncIterator[Topics]:
        client = Client.of(self.rest, self.options, self.context, "source.url")
        sinks = {
            role: KafkaSink(topic if "/" in topic else f"/{topic}", self.sink_options, self.context)
            for role, topic in self.sink_topics.items()
        }
        keeper = KafkaTopics(client, client.place, self.group, sinks, self.context, self.options)
        try:
            yield keeper
        finally:
            await keeper.close()
            await keeper.close()
            for sink in sinks.values():
                await sink.close()

    async def create(self, partitions: int = 3, replicas: int = 1, *, dry_run: bool = False) -> list[TopicFinding]:
        async with self.topics() as topics:
            return list(await topics.create(partitions=partitions, replicas=replicas, dry_run=dry_run))

    async def check(self) -> list[TopicFinding]:
        async with self.topics() as topics:
            return list(await topics.check())


def texts(findings: Sequence[TopicFinding], topic: str, level: str = "error") -> list[str]:
    return [finding.text for finding in findings if (finding.level, finding.topic) == (level, topic)]


def errors_of(findings: Sequence[TopicFinding]) -> list[tuple[str, str]]:
    return [(finding.topic, finding.text) for finding in findings if finding.level == "error"]


@asynccontextmanager
async def admin_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def settings_of(bootstrap: str, topic: str) -> dict[str, str]:
    async with admin_of(bootstrap) as admin:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


async def sizes_of(bootstrap: str, topics: Sequence[str]) -> dict[str, int]:
    async with admin_of(bootstrap) as admin:
        return {entry["topic"]: len(entry["partitions"]) for entry in await admin.describe_topics(list(topics))}


async def topic_names(bootstrap: str) -> set[str]:
    async with admin_of(bootstrap) as admin:
        return set(await admin.list_topics())


# --- create ---


async def test_all_topics_are_made_as_they_should_be(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap, n_inputs=2)
    findings = await plant.create(partitions=3)
    names = [*plant.inputs, *plant.progress, f"{plant.name}.alerts", f"{plant.name}.dead"]
    assert [(finding.level, finding.topic) for finding in findings] == [("ok", name) for name in names]
    assert findings[0].text.startswith("made: 3 partitions, 1 copy, cleanup.policy=delete, retention.ms=")
    assert await sizes_of(kafka.bootstrap, names) == dict.fromkeys(names, 3)

    progress = await settings_of(kafka.bootstrap, plant.progress[1])
    assert progress["cleanup.policy"] == "compact"
    assert float(progress["min.cleanable.dirty.ratio"]) == 0.1
    assert (progress["segment.ms"], progress["segment.bytes"]) == ("3600000", "16777216")
    alerts, dead = [await settings_of(kafka.bootstrap, name) for name in names[-2:]]
    assert (alerts["retention.ms"], dead["retention.ms"]) == (str(30 * 86_400_000), str(14 * 86_400_000))


async def test_a_long_sequence_lets_the_input_be_kept_for_longer(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap, max_duration_us=10 * DAY_US)
    async with plant.topics() as topics:
        wanted = {topic.name: topic for topic in await topics.wanted()}
    assert wanted[plant.inputs[0]].settings["retention.ms"] == str(40 * 86_400_000)
    assert {topic.partitions for topic in wanted.values()} == {None}


async def test_what_is_there_gives_the_partitions_and_stays_as_it_is(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    kept = NewTopic(plant.inputs[0], 5, 1, topic_configs={"retention.ms": "172800001"})
    await create_topics(kafka.bootstrap, {plant.inputs[0]: kept})
    findings = await plant.create(partitions=3)
    assert texts(findings, plant.inputs[0], "ok") == ["input: 5 partitions, 1 copy"]
    assert await sizes_of(kafka.bootstrap, [plant.inputs[0], plant.progress[0], f"{plant.name}.alerts"]) == {
        plant.inputs[0]: 5,
        plant.progress[0]: 5,
        f"{plant.name}.alerts": 5,
    }
    assert (await settings_of(kafka.bootstrap, plant.inputs[0]))["retention.ms"] == "172800001"

    again = await plant.create(partitions=3)
    assert {finding.level for finding in again} == {"ok"}
    assert not any("made" in finding.text for finding in again)


async def test_a_dry_run_makes_nothing(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    before = await topic_names(kafka.bootstrap)
    findings = await plant.create(dry_run=True)
    assert len(findings) == 4
    assert all(finding.text.startswith("would be made: 3 partitions") for finding in findings)
    assert {name for name in await topic_names(kafka.bootstrap) - before if plant.name in name} == set()


async def test_too_many_copies_are_refused_and_nothing_is_made(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    for dry_run in (True, False):
        findings = await plant.create(replicas=3, dry_run=dry_run)
        assert {finding.text for finding in findings} == {
            f"kafka {kafka.bootstrap}: there are not enough brokers for this many copies: lower --replicas"
        }
    assert plant.inputs[0] not in await topic_names(kafka.bootstrap)


async def test_two_roles_may_share_a_topic_which_is_kept_for_the_longer(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    plant.sink_topics["late"] = plant.sink_topics["alerts"]
    async with plant.topics() as topics:
        (shared,) = [topic for topic in await topics.wanted() if topic.name == f"{plant.name}.alerts"]
    assert shared.role == "alerts, late"
    assert shared.settings["retention.ms"] == str(30 * 86_400_000)


# --- check ---


async def test_a_plant_that_was_just_made_is_right(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    await plant.create()
    findings = await plant.check()
    assert errors_of(findings) == []
    assert texts(findings, plant.progress[0], "ok") == ["progress: 3 partitions, 1 copy"]
    assert texts(findings, "(group)", "ok") == [f"allowed to read group {plant.group}"]
    assert texts(findings, "(transactions)", "ok") == [f"allowed to write transactional id {plant.transactional_id}"]
    assert texts(findings, "(cluster)", "warning") == [
        "all topics have one copy: when its broker is lost, so is what they hold"
    ]


async def test_missing_topics_are_told_and_not_made(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    findings = await plant.check()
    missing = "is missing; run streamad topics create --config FILE"
    assert errors_of(findings) == [
        (plant.inputs[0], f"input: {missing}"),
        (plant.progress[0], f"progress: {missing}"),
        (f"{plant.name}.alerts", f"alerts: {missing}"),
        (f"{plant.name}.dead", f"dead_letters: {missing}"),
    ]
    assert not any(plant.name in name for name in await topic_names(kafka.bootstrap))


async def test_nothing_is_made_by_asking_where_brokers_make_topics(own_broker: Callable[..., Broker]) -> None:
    broker = await asyncio.to_thread(own_broker, {"auto.create.topics.enable": "true"})
    plant = Plant(broker.bootstrap)
    findings = await plant.check()
    assert len(errors_of(findings)) == 4
    assert not any(plant.name in name for name in await topic_names(broker.bootstrap))
    (warned,) = texts(findings, "(cluster)", "warning")
    assert warned.startswith("auto.create.topics.enable=true: a mistyped topic is made silently")


async def found_with(kafka: Broker, topics: Mapping[str, int | NewTopic], plant: Plant) -> list[TopicFinding]:
    await create_topics(kafka.bootstrap, topics)
    await plant.create(partitions=2)
    return await plant.check()


def with_settings(name: str, n: int = 2, **settings: str) -> dict[str, NewTopic]:
    return {name: NewTopic(name, n, 1, topic_configs={key.replace("_", "."): value for key, value in settings.items()})}


async def test_a_progress_topic_with_other_partitions_is_an_error(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    findings = await found_with(
        kafka, {plant.inputs[0]: 3, **with_settings(plant.progress[0], cleanup_policy="compact")}, plant
    )
    (told,) = texts(findings, plant.progress[0])
    assert told.startswith("has 2 partitions, its input has 3: with another number of partitions begin under a new")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_progress_topic_that_is_deleted_from_is_an_error(kafka: Broker, policy: str) -> None:
    plant = Plant(kafka.bootstrap)
    findings = await found_with(kafka, with_settings(plant.progress[0], cleanup_policy=policy), plant)
    (told,) = texts(findings, plant.progress[0])
    assert told == f"has cleanup.policy={policy}, which deletes progress: set cleanup.policy=compact"


async def test_a_progress_topic_that_is_hardly_compacted_is_warned_of(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    findings = await found_with(kafka, with_settings(plant.progress[0], cleanup_policy="compact"), plant)
    (told,) = texts(findings, plant.progress[0], "warning")
    assert told == "is hardly ever compacted, so that a restart reads long: set segment.ms=3600000"


@pytest.mark.parametrize(
    ("kept_days", "level"), [(1, "error"), (1.01, "warning"), (1.99, "warning"), (2, None), (-1, None)]
)
async def test_records_must_be_kept_for_well_over_the_longest_sequence(
    kafka: Broker, kept_days: float, level: str | None
) -> None:
    plant = Plant(kafka.bootstrap, max_duration_us=DAY_US)
    kept_ms = int(kept_days * 86_400_000) if kept_days > 0 else -1
    findings = await found_with(kafka, with_settings(plant.inputs[0], retention_ms=str(kept_ms)), plant)
    told = [(finding.level, finding.text) for finding in findings if "keeps records" in finding.text]
    if level is None:
        assert told == []
    else:
        assert [each[0] for each in told] == [level]
        assert f"keeps records for {kept_days:.3g} d only, a sequence may last 1 d" in told[0][1]
        assert "set retention.ms to 345600000 or more" in told[0][1]


async def test_an_input_kept_by_size_or_compacted_is_warned_of(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap, n_inputs=2)
    topics = {
        **with_settings(plant.inputs[0], retention_bytes="1000000"),
        **with_settings(plant.inputs[1], cleanup_policy="compact"),
    }
    findings = await found_with(kafka, topics, plant)
    assert texts(findings, plant.inputs[0], "warning")[0].startswith("keeps 1000000 bytes of a partition at most")
    assert texts(findings, plant.inputs[1], "warning")[0].startswith("has cleanup.policy=compact: of each key only")


async def test_an_output_that_loses_messages_is_an_error(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    plant.sink_options = KafkaSinkOptions(max_message_bytes=50_001)
    topics = {
        **with_settings(f"{plant.name}.alerts", cleanup_policy="compact"),
        **with_settings(f"{plant.name}.dead", max_message_bytes="50000"),
    }
    findings = await found_with(kafka, topics, plant)
    assert texts(findings, f"{plant.name}.alerts")[0].startswith("has cleanup.policy=compact")
    assert texts(findings, f"{plant.name}.dead") == [
        "takes messages of up to 50000 bytes, here are some of up to 50001: raise its max.message.bytes, or lower the "
        "sink's max_message_bytes"
    ]


async def test_messages_longer_than_usual_get_a_topic_that_takes_them(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    plant.sink_options = KafkaSinkOptions(max_message_bytes=3_000_000)
    await plant.create()
    assert (await settings_of(kafka.bootstrap, f"{plant.name}.dead"))["max.message.bytes"] == "3000000"
    assert errors_of(await plant.check()) == []


async def test_a_sink_must_not_write_to_an_input_or_to_progress(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    plant.sink_topics = {"alerts": plant.inputs[0], "events": plant.progress[0]}
    made = await plant.create()
    checked = await plant.check()
    for findings in (made, checked):
        assert errors_of(findings) == [
            (plant.inputs[0], "is an input and the place of sinks.alerts at once: write to another topic"),
            (plant.progress[0], "is a progress topic and the place of sinks.events at once: write to another topic"),
        ]


async def test_a_sink_in_another_cluster_is_left_alone(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    plant.sink_topics["alerts"] = "elsewhere:9092/alerts"
    findings = await plant.create()
    assert texts(findings, "alerts", "warning")[0].startswith("sinks.alerts is at elsewhere:9092, another cluster")
    assert len([finding for finding in findings if finding.text.startswith("made")]) == 3


async def test_time_outs_that_the_broker_does_not_allow_are_errors(own_broker: Callable[..., Broker]) -> None:
    limits = {"transaction.max.timeout.ms": "5000", "group.min.session.timeout.ms": "16000"}
    broker = await asyncio.to_thread(own_broker, limits)
    plant = Plant(broker.bootstrap)
    await plant.create()
    told = texts(await plant.check(), "(cluster)")
    assert told == [
        "transaction_timeout is longer than the broker's transaction.max.timeout.ms=5000: lower it",
        "session_timeout must be 16 s to 1800 s for this broker (group.min.session.timeout.ms, "
        "group.max.session.timeout.ms)",
    ]


async def test_a_cluster_that_cannot_have_transactions_is_told(own_broker: Callable[..., Broker]) -> None:
    broker = await asyncio.to_thread(own_broker, {"transaction.state.log.replication.factor": "3"})
    plant = Plant(broker.bootstrap, request_timeout="2s")
    await plant.create()
    (told,) = texts(await plant.check(), "(transactions)")
    assert "the coordinator of transactional id" in told
    assert "transaction.state.log.replication.factor" in told


async def test_a_check_disturbs_no_worker(kafka: Broker) -> None:
    plant = Plant(kafka.bootstrap)
    await plant.create()
    await produce(kafka.bootstrap, plant.inputs[0], [b"one"])
    consumer = AIOKafkaConsumer(plant.inputs[0], bootstrap_servers=kafka.bootstrap, group_id=plant.group)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=plant.transactional_id)
    async with consumer, producer:
        await producer.begin_transaction()
        await producer.send_and_wait(f"{plant.name}.alerts", b"before")
        held = consumer.assignment()
        generation = consumer._coordinator.generation
        assert errors_of(await plant.check()) == []
        await producer.send_and_wait(f"{plant.name}.alerts", b"after")
        await producer.commit_transaction()
        assert (consumer.assignment(), consumer._coordinator.generation) == (held, generation)
        assert len(held) == 3
    committed = await read_committed(kafka.bootstrap, f"{plant.name}.alerts")
    assert sorted(record.value or b"" for record in committed) == [b"after", b"before"]
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap) as reader:
        for topic in (plant.progress[0], f"{plant.name}.dead"):
            ends = await reader.end_offsets([TopicPartition(topic, i) for i in range(3)])
            assert set(ends.values()) == {0}  # nothing was written to find out whether it may be


# --- brokers that are away ---


@pytest.mark.parametrize("is_listening", [False, True])
async def test_a_broker_that_is_away_is_one_clear_line_in_time(is_listening: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if is_listening:
            silent.listen()  # accepts and never answers
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        plant = Plant(address, request_timeout="500ms")
        began_s = time.monotonic()
        with pytest.raises(SourceError) as caught:
            await plant.check()
        assert time.monotonic() - began_s < 2
    said = "no answer within 0.5 s" if is_listening else "no broker can be reached: is it running"
    assert str(caught.value).startswith(f"kafka {address}: {said}")
    assert "\n" not in str(caught.value)


# --- rights and authentication ---


class SecuredBroker(Broker):
    """A broker with a second port where user "worker" logs in (PLAIN) and may do nothing but what it is granted.

    On that port OAUTHBEARER takes unsigned tokens (RFC 7515, A.5). A third port speaks TLS and wants our certificate:
    the broker's own, cert.pem and key.pem in ``certificates``.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "kafka")
        self.certificates = folder
        self.login_port, self.tls_port = free_ports(2)
        _make_certificate(folder)
        plain = f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.login_port}"
        plain += f",SSL://127.0.0.1:{self.tls_port}"
        self._settings |= {
            "listeners": f"{plain},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": plain,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL"
            ),
            "listener.name.ssl.ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": str(folder / "store.pem"),
            "listener.name.ssl.ssl.truststore.type": "PEM",
            "listener.name.ssl.ssl.truststore.location": str(folder / "cert.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_worker="{PASSWORD}";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:CN=127.0.0.1",
        }

    async def grant(self, resource: int, name: str, operation: int, *, prefix: bool = False) -> None:
        """Allow worker ``operation`` on ``name``: CreateAcls (KIP-290), by the numbers of its protocol."""
        async with admin_of(self.bootstrap) as admin:
            request = CreateAclsRequest(resource, name, 4 if prefix else 3, "User:worker", "*", operation, 3)
            answer = await admin._send_to_controller(request)
            assert answer.creation_responses[0][0] == 0


def _make_certificate(folder: Path) -> None:
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "store.pem").write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())


def unsigned_token(user: str) -> str:
    """Return a token that says who we are and is signed by nobody."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
READ, WRITE, DESCRIBE = 3, 4, 8


@pytest.fixture(scope="module")
def secured(kafka_jars: Path) -> Iterator[SecuredBroker]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = scratch_folder()
    broker = SecuredBroker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder)


def worker(broker: SecuredBroker, password: str = "WORKER_PASSWORD", **security: Any) -> Plant:
    login = {"protocol": "sasl_plaintext", "mechanism": "plain", "username": "worker", "password": {"env": password}}
    return Plant(f"127.0.0.1:{broker.login_port}", security={**login, **security})


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_PASSWORD", PASSWORD)
    monkeypatch.setenv("WRONG_PASSWORD", f"not-{PASSWORD}")


async def eventually(check: Callable[[], Any], is_right: Callable[[list[TopicFinding]], bool]) -> list[TopicFinding]:
    """Check until rights that were just granted have reached the broker."""
    deadline_s = time.monotonic() + 10
    while not is_right(found := await check()) and time.monotonic() < deadline_s:  # noqa: ASYNC110 - only the broker knows
        await asyncio.sleep(0.1)
    return found


async def test_each_missing_right_is_named_until_none_is(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant = worker(secured)
    where = f"kafka {plant.bootstrap}: not allowed of user worker: grant "
    cannot_see = ", or make the topic where it is missing (without the right nobody can tell)"
    names = [plant.inputs[0], plant.progress[0], f"{plant.name}.alerts", f"{plant.name}.dead"]
    refused = [
        *((name, f"{where}DESCRIBE on topic {name}{cannot_see}") for name in names),
        ("(group)", f"{where}READ on group {plant.group}"),
        ("(transactions)", f"{where}WRITE and DESCRIBE on transactional id {plant.transactional_id}"),
    ]
    assert errors_of(await plant.check()) == refused
    made = await plant.create()
    assert [text for _, text in errors_of(made)] == [text for _, text in refused[:4]]

    await Plant.create(as_root(plant, secured))
    for name in names:
        await secured.grant(TOPIC, name, DESCRIBE)
    found = await eventually(plant.check, lambda found: len(texts(found, names[1])) == 2)
    assert texts(found, names[0]) == [f"{where}READ and DESCRIBE on topic {names[0]}"]
    assert texts(found, names[1]) == [
        f"{where}READ and DESCRIBE on topic {names[1]}",
        f"{where}WRITE and DESCRIBE on topic {names[1]}",
    ]
    assert texts(found, names[2]) == [f"{where}WRITE and DESCRIBE on topic {names[2]}"]

    await secured.grant(TOPIC, names[0], READ)
    await secured.grant(TOPIC, names[1], READ)
    for name in names[1:]:
        await secured.grant(TOPIC, name, WRITE)
    await secured.grant(GROUP, plant.group, READ)
    await secured.grant(TRANSACTIONAL_ID, f"streamad:{plant.inputs[0]}:", WRITE, prefix=True)
    found = await eventually(plant.check, lambda found: not errors_of(found))
    assert errors_of(found) == []
    (unseen,) = [text for text in texts(found, "(cluster)", "warning") if "DESCRIBE_CONFIGS" in text]
    assert unseen == f"settings could not be checked, grant DESCRIBE_CONFIGS on: {', '.join(names)}, the cluster"
    assert PASSWORD not in caplog.text
    assert "aiokafka" in caplog.text


def as_root(plant: Plant, secured: SecuredBroker) -> Plant:
    """The same plant through the port where nobody has to log in."""
    root = Plant(secured.bootstrap)
    root.name, root.inputs, root.group, root.progress = plant.name, plant.inputs, plant.group, plant.progress
    root.rest, root.sink_topics = f"{secured.bootstrap}/{','.join(plant.inputs)}", plant.sink_topics
    root.context = ConnectorContext(
        (), SystemClock(), plant=plant.name, source_url=f"kafka://{root.rest}", max_duration_us=DAY_US
    )
    return root


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"password": "WRONG_PASSWORD"},
            "authentication of user worker refused: check security (mechanism, user, secret)",
        ),
        ({"mechanism": "scram-sha-256"}, "the broker does not offer security.mechanism scram-sha-256"),
        ({"protocol": "sasl_ssl"}, "the broker ended the connection: is security.protocol right for this port?"),
    ],
)
async def test_a_login_that_fails_is_one_line_without_the_password(
    secured: SecuredBroker, changes: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant = worker(secured, **changes)
    with pytest.raises(SourceError) as caught:
        await plant.check()
    assert str(caught.value) == f"kafka {plant.bootstrap}: {said}"
    assert PASSWORD not in caplog.text + str(caught.value)


async def test_a_token_logs_in_as_its_subject(secured: SecuredBroker, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(unsigned_token("worker"), encoding="utf-8")
    security = {"protocol": "sasl_plaintext", "mechanism": "oauthbearer", "token": {"file": str(tmp_path / "token")}}
    plant = Plant(f"127.0.0.1:{secured.login_port}", security=security)
    await secured.grant(GROUP, plant.group, READ)
    found = await eventually(plant.check, lambda found: texts(found, "(group)", "ok") != [])
    assert texts(found, "(group)", "ok") == [f"allowed to read group {plant.group}"]
    assert len(texts(found, "(transactions)")) == 1


async def test_a_token_that_is_refused_or_missing_is_told(secured: SecuredBroker, tmp_path: Path) -> None:
    security = {"protocol": "sasl_plaintext", "mechanism": "oauthbearer", "token": {"file": str(tmp_path / "token")}}
    plant = Plant(f"127.0.0.1:{secured.login_port}", security=security)
    with pytest.raises(SourceError, match="no token to log in with: secret: cannot read a secret from"):
        await plant.check()
    (tmp_path / "token").write_text("not.a.token", encoding="utf-8")
    with pytest.raises(SourceError, match="it has most likely refused the token"):
        await plant.check()


def over_tls(secured: SecuredBroker, *names: str) -> Plant:
    files = {name: str(secured.certificates / f"{name.removesuffix('_file')}.pem") for name in names}
    security = {"protocol": "ssl", **files}
    if "ca_file" in files:
        security["ca_file"] = str(secured.certificates / "cert.pem")
    return Plant(f"127.0.0.1:{secured.tls_port}", security=security)


async def test_mutual_tls_works_with_a_broker(secured: SecuredBroker) -> None:
    plant = over_tls(secured, "ca_file", "cert_file", "key_file")
    assert errors_of(await plant.create()) == []
    assert errors_of(await plant.check()) == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            (),
            "the broker's certificate is not trusted (self-signed certificate): check security.ca_file and the host's",
        ),
        (
            ("ca_file",),
            "the broker ended the connection: does it want a certificate of ours (security.cert_file, key_file)",
        ),
    ],
)
async def test_tls_that_fails_is_one_clear_line(secured: SecuredBroker, names: tuple[str, ...], said: str) -> None:
    plant = over_tls(secured, *names)
    with pytest.raises(SourceError) as caught:
        await plant.check()
    assert str(caught.value).startswith(f"kafka {plant.bootstrap}: {said}")


# --- the command line ---


@pytest.fixture
def on_kafka(untrained_plant: CliPlant, kafka: Broker) -> tuple[CliPlant, str]:
    """A plant on disk whose source and alerts are topics that nobody has made, and the name of the input."""
    topic = unique_name("cli")
    untrained_plant.write_config(
        name=topic,
        source={"url": f"kafka://{kafka.bootstrap}/{topic}"},
        sinks={"alerts": f"kafka:///{topic}.alerts", "verdicts": f"kafka:///{topic}.verdicts"},
    )
    return untrained_plant, topic


def test_topics_are_made_and_checked_from_the_command_line(on_kafka: tuple[CliPlant, str]) -> None:
    plant, topic = on_kafka
    missing = plant("topics check")
    assert missing.code == 1
    assert f"error    {topic} " in missing.out
    assert "run streamad topics create --config FILE" in missing.out
    assert plant("topics create --dry-run", "--json").last_json["ok"]
    assert plant("topics check").code == 1

    made = plant("topics create --partitions 2", "--json")
    assert made.code == 0
    assert [each["topic"] for each in made.last_json["topics"]] == [
        topic,
        f"streamad.{topic}.{topic}.progress",
        f"{topic}.alerts",
        f"{topic}.verdicts",
    ]
    assert made.last_json["topics"][0]["text"].startswith("made: 2 partitions, 1 copy")
    checked = plant("topics check", "--json")
    assert (checked.code, checked.last_json["ok"]) == (0, True)
    assert {each["level"] for each in checked.last_json["topics"]} == {"ok", "warning"}


def test_a_plant_without_a_broker_keeps_no_topics(untrained_plant: CliPlant) -> None:
    for command in ("topics create", "topics check"):
        outcome = untrained_plant(command)
        outcome.assert_one_line_error("the source recordings keeps no topics", "kafka://host:port/topic", code=2)


def test_a_broker_that_is_away_is_one_line_on_the_command_line(on_kafka: tuple[CliPlant, str]) -> None:
    plant, topic = on_kafka
    plant.write_config(source={"url": f"kafka://127.0.0.1:9/{topic}"}, sinks={"alerts": "kafka:///alerts"})
    plant("topics check").assert_one_line_error("kafka 127.0.0.1:9: no broker can be reached")
    plant("topics create").assert_one_line_error("kafka 127.0.0.1:9: no broker can be reached")


async def _group_members(bootstrap: str, group: str) -> int:
    async with admin_of(bootstrap) as admin:
        (described,) = await admin.describe_consumer_groups([group])
    return len(described.groups[0][5])


def test_check_reads_a_broker_without_joining_its_group(on_kafka: tuple[CliPlant, str], kafka: Broker) -> None:
    plant, topic = on_kafka
    missing = plant("check --fast", "--json")
    assert missing.code == 1
    topics = [each for each in missing.last_json["checks"] if each["check"] == "topics"]
    assert f"{topic}: input: is missing; run streamad topics create --config FILE" in [
        each["message"] for each in topics if each["outcome"] == "failed"
    ]
    plant("topics create --partitions 2")
    empty = {each["check"]: each for each in plant("check --fast", "--json").last_json["checks"]}
    assert (empty["source"]["outcome"], empty["source"]["message"]) == ("warning", "no record in it yet")

    lines = (plant.folder / "recordings" / "day.jsonl").read_bytes().splitlines()
    asyncio.run(produce(kafka.bootstrap, topic, lines))
    found = {each["check"]: each for each in plant("check --fast", "--json").last_json["checks"]}
    assert found["source"]["outcome"] == "ok"
    assert found["source"]["message"].startswith("16 records, ")
    assert found["sequences"]["message"] == "16 sequences ended: 16 by marker"
    assert found["checkpoint"]["message"].startswith("none needed: the source keeps the progress")
    assert asyncio.run(_group_members(kafka.bootstrap, f"streamad.{topic}")) == 0
