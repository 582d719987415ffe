"""What needs several brokers to be seen: copies, leaders, plain passwords on a network."""

from __future__ import annotations

import pytest
from aiokafka import errors

from streamad.ports import Topic
from streamad_connectors.kafka.client.admin import NewTopic, TopicState
from streamad_connectors.kafka.client.errors import PARTITIONS_ADDED
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, Place
from streamad_connectors.kafka.topics import checks


def client(*brokers: str, **security: object) -> Client:
    return Client(Place(brokers, ("in",)), KafkaSourceOptions.model_validate({"security": security}))


def state(
    name: str = "in", *, copies: int = 3, in_sync: int | None = None, leaders: tuple[int, ...] = (1, 2)
) -> TopicState:
    return TopicState(name, leaders, copies, copies if in_sync is None else in_sync)


@pytest.mark.parametrize(
    ("copies", "least", "said"),
    [
        (1, 1, ("warning", "(cluster)", "all topics have one copy: the loss of its broker loses their records")),
        (2, 1, None),
        (2, 2, ("warning", "in", "has min.insync.replicas=2 of 2 copies: no broker may be down")),
        (2, 3, ("error", "in", "has 2 copies, min.insync.replicas=3: nothing can be written to it")),
        (3, 1, ("warning", "in", "has min.insync.replicas=1: a message can be lost with one broker; set it to 2")),
        (3, 2, None),
        (3, 3, ("warning", "in", "has min.insync.replicas=3 of 3 copies: no broker may be down")),
    ],
)
def test_copies_must_outlive_a_broker(copies: int, least: int, said: tuple[str, str, str] | None) -> None:
    found = checks.copies([state(copies=copies)], {"in": {"min.insync.replicas": str(least)}})
    assert [tuple(finding) for finding in found] == ([said] if said else [])


def test_a_topic_with_one_copy_among_others_is_named() -> None:
    (found,) = checks.copies([state(), state("alone", copies=1)], {})
    assert found.text == "alone: only one copy: the loss of its broker loses their records"


def test_copies_that_lag_behind_are_warned_of() -> None:
    (found,) = checks.copies([state(in_sync=2)], {"in": {"min.insync.replicas": "2"}})
    assert found == ("warning", "in", "has partitions with 2 of 3 copies in sync: is a broker down?")


def test_partitions_without_a_leader_are_an_error() -> None:
    topic = Topic("in", "input", 3, {})
    (found,) = checks.existing(topic, state(leaders=(1, -1, -1)), client("a:1"))
    assert found == ("error", "in", "2 of 3 partitions have no leader: is a broker down?")
    assert not state(leaders=(1, -1)).is_led


@pytest.mark.parametrize(
    ("mechanism", "brokers", "said"),
    [
        ("plain", ("broker:9092",), "protocol sasl_plaintext sends the password unencrypted: use sasl_ssl"),
        (
            "scram-sha-512",
            ("localhost:1", "b:2"),
            "protocol sasl_plaintext sends every message unencrypted: use sasl_ssl",
        ),
        ("plain", ("localhost:9092", "127.0.0.1:9093", "[::1]:9094"), None),
    ],
)
def test_a_login_in_plain_text_is_warned_of_beyond_this_machine(
    mechanism: str, brokers: tuple[str, ...], said: str | None
) -> None:
    login = {"protocol": "sasl_plaintext", "mechanism": mechanism, "username": "u", "password": {"env": "X"}}
    found = checks.security(client(*brokers, **login))
    assert [finding.text for finding in found] == ([said] if said else [])
    assert checks.security(client("broker:9092")) == []


def test_the_reason_of_a_topic_policy_is_passed_on() -> None:
    new = NewTopic("alerts", 3, 3, {})
    policy = errors.PolicyViolationError.errno
    found = checks.created(new, policy, "topics need an owner\nat x.y", client("a:1"), dry_run=False)
    assert found == ("error", "alerts", "topics need an owner")
    raced = checks.created(new, errors.TopicAlreadyExistsError.errno, "exists", client("a:1"), dry_run=False)
    assert raced.level == "ok"


def test_a_progress_topic_after_partitions_were_added_names_the_way_out() -> None:
    topic = Topic("g.in.progress", "progress", 3, {})
    (found,) = checks.existing(topic, state(leaders=(1, 1)), client("a:1"))
    assert found == ("error", "g.in.progress", f"has 2 partitions, its input has 3: {PARTITIONS_ADDED}")
