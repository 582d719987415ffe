"""Topics against real brokers: what is made, what is found wrong, which right is missing; nothing is disturbed."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streamad.errors import SourceError
from streamad.messages import Role
from streamad.ports import TopicFinding
from streamad_connectors.kafka.client.options import KafkaSinkOptions
from tests.support.kafka.broker import (
    Broker,
    Message,
    admin_of,
    create_topics,
    new_broker,
    produce,
    read_committed,
    unique_name,
)
from tests.support.kafka.topics import DAY_US, TopicsPlant, errors_of, texts
from tests.support.runtime.cli import CliPlant
from tests.support.waiting import IN_TIME_S, LIMIT_S

HISTORY: tuple[Role, ...] = ("alerts", "attributions", "verdicts", "windows", "events")
UNSUITABLE = {
    "auto.create.topics.enable": "true",
    "group.min.session.timeout.ms": "16000",
    "transaction.state.log.replication.factor": "3",
}


@pytest.fixture(scope="module")
def unsuitable(kafka_jars: Path) -> Iterator[Broker]:
    """A broker whose settings do not suit us."""
    with new_broker(UNSUITABLE) as broker:
        yield broker


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
    plant = TopicsPlant(kafka.bootstrap, n_inputs=2)
    findings = await plant.create(partitions=3)
    names = [*plant.inputs, *plant.progress, plant.claims, f"{plant.name}.alerts", f"{plant.name}.dead"]
    assert [(finding.level, finding.topic) for finding in findings] == [("ok", name) for name in names]
    assert findings[0].text.startswith("made: 3 partitions, 1 copy, cleanup.policy=delete, retention.ms=")
    assert await sizes_of(kafka.bootstrap, names) == {**dict.fromkeys(names, 3), plant.claims: 1}
    assert (await settings_of(kafka.bootstrap, plant.claims))["cleanup.policy"] == "compact"

    progress = await settings_of(kafka.bootstrap, plant.progress[1])
    assert progress["cleanup.policy"] == "compact"
    assert float(progress["min.cleanable.dirty.ratio"]) == 0.1
    assert (progress["segment.ms"], progress["segment.bytes"]) == ("3600000", "16777216")
    alerts, dead = [await settings_of(kafka.bootstrap, name) for name in names[-2:]]
    assert (alerts["retention.ms"], dead["retention.ms"]) == (str(30 * 86_400_000), str(14 * 86_400_000))


async def test_a_long_sequence_lets_the_input_be_kept_for_longer(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap, max_duration_us=10 * DAY_US)
    async with plant.topics() as topics:
        wanted = {topic.name: topic for topic in await topics.wanted()}
    assert wanted[plant.inputs[0]].settings["retention.ms"] == str(40 * 86_400_000)
    assert {topic.partitions for name, topic in wanted.items() if name != plant.claims} == {None}


async def test_what_is_there_gives_the_partitions_and_stays_as_it_is(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
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
    plant = TopicsPlant(kafka.bootstrap)
    before = await topic_names(kafka.bootstrap)
    findings = await plant.create(dry_run=True)
    assert len(findings) == 5
    assert all(finding.text.startswith("would be made: ") for finding in findings)
    assert {name for name in await topic_names(kafka.bootstrap) - before if plant.name in name} == set()


async def test_too_many_copies_are_refused_and_nothing_is_made(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    for dry_run in (True, False):
        findings = await plant.create(replicas=3, dry_run=dry_run)
        assert {finding.text for finding in findings} == {
            f"kafka {kafka.bootstrap}: there are not enough brokers for this many copies: lower --replicas"
        }
    assert plant.inputs[0] not in await topic_names(kafka.bootstrap)


async def test_two_roles_may_share_a_topic_which_is_kept_for_the_longer(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics["late"] = plant.sink_topics["alerts"]
    async with plant.topics() as topics:
        (shared,) = [topic for topic in await topics.wanted() if topic.name == f"{plant.name}.alerts"]
    assert shared.role == "alerts, late"
    assert shared.settings["retention.ms"] == str(30 * 86_400_000)


async def test_history_lengthens_what_the_page_looks_back_on_and_nothing_else(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    for role in HISTORY:
        plant.sink_topics[role] = f"{plant.name}.{role}"
    await plant.create(history_ms=90 * DAY_US // 1_000)
    kept = {
        role: (await settings_of(kafka.bootstrap, name))["retention.ms"] for role, name in plant.sink_topics.items()
    }
    assert {kept.pop(role) for role in HISTORY} == {str(90 * 86_400_000)}
    assert kept == {"dead_letters": str(14 * 86_400_000)}
    shorter = TopicsPlant(kafka.bootstrap)
    await shorter.create(history_ms=DAY_US // 1_000)  # never less than without
    assert (await settings_of(kafka.bootstrap, f"{shorter.name}.alerts"))["retention.ms"] == str(30 * 86_400_000)


async def test_a_status_topic_that_is_not_compacted_is_warned_of(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics["status"] = f"{plant.name}.status"
    findings = await found_with(kafka, with_settings(f"{plant.name}.status", cleanup_policy="delete"), plant)
    assert texts(findings, f"{plant.name}.status", "warning") == [
        "has cleanup.policy=delete: it grows with every status, and a page reads all of them at its start; set "
        "cleanup.policy=compact,delete"
    ]
    other = TopicsPlant(kafka.bootstrap)
    other.sink_topics["status"] = f"{other.name}.status"
    await other.create()
    assert texts(await other.check(), f"{other.name}.status", "warning") == []


async def test_windows_are_kept_for_a_week(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics["windows"] = f"{plant.name}.windows"
    await plant.create()
    windows = await settings_of(kafka.bootstrap, f"{plant.name}.windows")
    assert (windows["cleanup.policy"], windows["retention.ms"]) == ("delete", str(30 * 86_400_000))
    assert errors_of(await plant.check()) == []


async def test_existing_topics_with_fewer_copies_than_requested_are_reported(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    await plant.create()
    (told,) = texts(await plant.create(replicas=3), "(cluster)", "warning")
    names = told.removeprefix("fewer copies than 3: ").partition(";")[0].split(", ")
    assert {plant.inputs[0], plant.progress[0], plant.claims} < set(names)
    assert texts(await plant.create(), "(cluster)", "warning") == []


# --- check ---


async def test_a_plant_that_was_just_made_is_right(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    await plant.create()
    findings = await plant.check()
    assert errors_of(findings) == []
    assert texts(findings, plant.progress[0], "ok") == ["progress: 3 partitions, 1 copy"]
    assert texts(findings, "(group)", "ok") == [f"allowed to read group {plant.group}"]
    assert texts(findings, "(transactions)", "ok") == [
        f"allowed to write transactional id {plant.transactional_id}",
        "opened and aborted an empty transaction",
    ]
    assert texts(findings, "(cluster)", "warning") == [
        "all topics have one copy: the loss of its broker loses their records"
    ]


async def test_missing_topics_are_reported_and_not_made(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    findings = await plant.check()
    missing = "does not exist: run `streamad topics create --config FILE`, or is its name mistyped?"
    assert errors_of(findings) == [
        (plant.inputs[0], missing),
        (plant.progress[0], missing),
        (plant.claims, missing),
        (f"{plant.name}.alerts", missing),
        (f"{plant.name}.dead", missing),
    ]
    assert not any(plant.name in name for name in await topic_names(kafka.bootstrap))


async def test_nothing_is_made_by_asking_where_brokers_make_topics(unsuitable: Broker) -> None:
    plant = TopicsPlant(unsuitable.bootstrap, request_timeout="2s")
    findings = await plant.check()
    assert len([topic for topic, _ in errors_of(findings) if plant.name in topic]) == 5
    assert not any(plant.name in name for name in await topic_names(unsuitable.bootstrap))
    (warned,) = texts(findings, "(cluster)", "warning")
    assert warned.startswith("auto.create.topics.enable=true: a mistyped topic is made silently")


async def found_with(kafka: Broker, topics: Mapping[str, int | NewTopic], plant: TopicsPlant) -> list[TopicFinding]:
    await create_topics(kafka.bootstrap, topics)
    await plant.create(partitions=2)
    return await plant.check()


def with_settings(name: str, n: int = 2, **settings: str) -> dict[str, NewTopic]:
    return {name: NewTopic(name, n, 1, topic_configs={key.replace("_", "."): value for key, value in settings.items()})}


async def test_a_progress_topic_with_other_partitions_is_an_error(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    findings = await found_with(
        kafka, {plant.inputs[0]: 3, **with_settings(plant.progress[0], cleanup_policy="compact")}, plant
    )
    (told,) = texts(findings, plant.progress[0])
    assert told.startswith("has 2 partitions, its input has 3: go on under a new group")


@pytest.mark.parametrize(
    ("policy", "level", "text"),
    [
        ("delete", "error", "has cleanup.policy=delete, which deletes progress: set cleanup.policy=compact"),
        (
            "compact,delete",
            "error",
            "has cleanup.policy=compact,delete, which deletes progress: set cleanup.policy=compact",
        ),
        ("compact", "warning", "is hardly ever compacted, so that a restart reads long: set segment.ms=3600000"),
    ],
)
async def test_a_progress_topic_that_is_deleted_from_or_hardly_compacted_is_reported(
    kafka: Broker, policy: str, level: str, text: str
) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    findings = await found_with(kafka, with_settings(plant.progress[0], cleanup_policy=policy), plant)
    assert texts(findings, plant.progress[0], level) == [text]


@pytest.mark.parametrize(
    ("kept_days", "level"), [(1, "error"), (1.01, "warning"), (1.99, "warning"), (2, None), (-1, None)]
)
async def test_records_must_be_kept_for_well_over_the_longest_sequence(
    kafka: Broker, kept_days: float, level: str | None
) -> None:
    plant = TopicsPlant(kafka.bootstrap, max_duration_us=DAY_US)
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
    plant = TopicsPlant(kafka.bootstrap, n_inputs=2)
    topics = {
        **with_settings(plant.inputs[0], retention_bytes="1000000"),
        **with_settings(plant.inputs[1], cleanup_policy="compact"),
    }
    findings = await found_with(kafka, topics, plant)
    assert texts(findings, plant.inputs[0], "warning")[0].startswith("keeps 1000000 bytes of a partition at most")
    assert texts(findings, plant.inputs[1], "warning")[0].startswith("has cleanup.policy=compact: of each key only")


async def test_an_output_that_loses_messages_is_an_error(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
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
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_options = KafkaSinkOptions(max_message_bytes=3_000_000)
    await plant.create()
    assert (await settings_of(kafka.bootstrap, f"{plant.name}.dead"))["max.message.bytes"] == "3000000"
    assert errors_of(await plant.check()) == []


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_topic_of_claims_that_is_deleted_from_is_an_error_with_the_command(kafka: Broker, policy: str) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    (text,) = texts(await found_with(kafka, with_settings(plant.claims, 1, cleanup_policy=policy), plant), plant.claims)
    assert text.startswith(f"has cleanup.policy={policy}, which deletes claims: ")
    assert text.endswith(
        f"run `kafka-configs.sh --bootstrap-server {kafka.bootstrap} --alter --entity-type topics "
        f"--entity-name {plant.claims} --add-config cleanup.policy=compact`"
    )


async def test_a_topic_of_claims_has_one_partition(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    (text,) = texts(
        await found_with(kafka, with_settings(plant.claims, 3, cleanup_policy="compact"), plant), plant.claims
    )
    assert text.startswith("has 3 partitions, but claims need one order: stop the workers, delete it and run `streamad")


async def test_a_sink_must_not_write_to_an_input_or_to_progress(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics = {"alerts": plant.inputs[0], "events": plant.progress[0]}
    made = await plant.create()
    checked = await plant.check()
    for findings in (made, checked):
        assert errors_of(findings) == [
            (plant.inputs[0], "is an input and the place of sinks.alerts at once: write to another topic"),
            (plant.progress[0], "is a progress topic and the place of sinks.events at once: write to another topic"),
        ]


async def test_a_sink_in_another_cluster_is_left_alone(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics["alerts"] = "elsewhere:9092/alerts"
    findings = await plant.create()
    assert texts(findings, "alerts", "warning")[0].startswith("sinks.alerts is at elsewhere:9092, another cluster")
    assert len([finding for finding in findings if finding.text.startswith("made")]) == 4


async def test_time_outs_and_transactions_that_the_broker_does_not_allow_are_errors(unsuitable: Broker) -> None:
    plant = TopicsPlant(unsuitable.bootstrap, request_timeout="2s")
    await plant.create()
    found = await plant.check()
    assert texts(found, "(cluster)") == [
        "session_timeout must be 16 s to 1800 s for this broker (group.min.session.timeout.ms, "
        "group.max.session.timeout.ms)",
    ]
    (told,) = texts(found, "(transactions)")
    assert "the coordinator of transactional id" in told
    assert "transaction.state.log.replication.factor" in told


async def test_a_transaction_that_may_take_longer_than_the_broker_allows_is_an_error(kafka: Broker) -> None:
    found = await TopicsPlant(kafka.bootstrap, transaction_timeout="16m").check()  # the broker's limit: 15 min
    assert texts(found, "(transactions)") == [
        f"kafka {kafka.bootstrap}: the transaction time-out is longer than the broker allows: lower "
        "transaction_timeout, or raise the broker's transaction.max.timeout.ms"
    ]


async def test_checks_disturb_neither_a_worker_nor_each_other(kafka: Broker) -> None:
    """All at once, in the midst of a worker's transaction: a check's has the same group and coordinators."""
    plant = TopicsPlant(kafka.bootstrap)
    await plant.create()
    await produce(kafka.bootstrap, plant.inputs[0], [b"one"])
    consumer = AIOKafkaConsumer(
        plant.inputs[0], bootstrap_servers=kafka.bootstrap, group_id=plant.group, enable_auto_commit=False
    )
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=plant.transactional_id)
    async with consumer, producer:
        await producer.begin_transaction()
        await producer.send_and_wait(f"{plant.name}.alerts", b"before")
        await producer.send_offsets_to_transaction({TopicPartition(plant.inputs[0], 0): 1}, plant.group)
        held = consumer.assignment()
        coordinator = consumer._coordinator  # noqa: SLF001 - its generation is published nowhere
        generation = coordinator.generation
        for found in await asyncio.gather(*(plant.check() for _ in range(3))):
            assert errors_of(found) == []
            assert texts(found, "(transactions)", "ok")[-1] == "opened and aborted an empty transaction"
        await producer.send_and_wait(f"{plant.name}.alerts", b"after")
        await producer.commit_transaction()
        async with asyncio.timeout(LIMIT_S):  # markers follow a commit
            while await consumer.committed(TopicPartition(plant.inputs[0], 0)) != 1:  # noqa: ASYNC110 - only the broker knows
                await asyncio.sleep(0.02)
        assert (consumer.assignment(), coordinator.generation) == (held, generation)
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
        plant = TopicsPlant(address, request_timeout="500ms")
        began_s = time.monotonic()
        with pytest.raises(SourceError) as caught:
            await plant.check()
        assert time.monotonic() - began_s < IN_TIME_S
    said = "no answer within 0.5 s" if is_listening else "no broker can be reached: is it running"
    assert str(caught.value).startswith(f"kafka {address}: {said}")
    assert "\n" not in str(caught.value)


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
    kept = (f"streamad.{topic}.{topic}.progress", f"streamad.{topic}.claims")
    names = (topic, *kept, f"{topic}.alerts", f"{topic}.verdicts")
    hint = f"run `streamad topics create --config {plant.config}`, or is its name mistyped?"
    assert missing.out.splitlines()[0] == f"error    {', '.join(names)}  does not exist: {hint}"
    assert missing.out.count("topics create") == 1
    assert plant("topics create --dry-run", "--json").last_json["ok"]
    assert plant("topics check").code == 1

    made = plant("topics create --partitions 2", "--json")
    assert made.code == 0
    assert [each["topic"] for each in made.last_json["topics"]] == [
        topic,
        *kept,
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
        outcome.assert_one_line_error("the source recordings has no topics", "kafka://host:port/topic", code=2)


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
    (told,) = [each["message"] for each in topics if each["outcome"] == "failed"]
    kept = f"streamad.{topic}.{topic}.progress, streamad.{topic}.claims"
    assert told.startswith(f"{topic}, {kept}, {topic}.alerts, {topic}.verdicts: does not ")
    assert f"topics create --config {plant.config}`" in told
    assert not {"sinks.alerts", "sinks.verdicts"} & {each["check"] for each in missing.last_json["checks"]}
    plant("topics create --partitions 2")
    plant.write_config(
        name=topic,
        source={"url": f"kafka://{kafka.bootstrap}/{topic}"},
        sinks={"alerts": f"kafka:///{topic}.alertz", "verdicts": f"kafka:///{topic}.verdicts"},
    )
    mistyped = plant("check --fast", "--json").last_json["checks"]
    told = {each["check"] for each in mistyped}
    assert "sinks.verdicts" in told
    assert "sinks.alerts" not in told
    plant.write_config(
        name=topic,
        source={"url": f"kafka://{kafka.bootstrap}/{topic}"},
        sinks={"alerts": f"kafka:///{topic}.alerts", "verdicts": f"kafka:///{topic}.verdicts"},
    )
    empty = {each["check"]: each for each in plant("check --fast", "--json").last_json["checks"]}
    assert (empty["source"]["outcome"], empty["source"]["message"]) == ("warning", "no record in it yet")

    lines = (plant.folder / "recordings" / "day.jsonl").read_bytes().splitlines()
    messages = [Message(line, json.loads(line)["stream"].encode()) for line in lines]
    asyncio.run(produce(kafka.bootstrap, topic, messages))
    found = {each["check"]: each for each in plant("check --fast", "--json").last_json["checks"]}
    assert found["source"]["outcome"] == "ok"
    assert found["source"]["message"].startswith("16 records, ")
    assert found["sequences"]["message"] == "16 sequences ended: 16 by marker"
    assert found["checkpoint"]["message"].startswith(
        "none needed: progress and outputs are one transaction of the source"
    )
    assert asyncio.run(_group_members(kafka.bootstrap, f"streamad.{topic}")) == 0
