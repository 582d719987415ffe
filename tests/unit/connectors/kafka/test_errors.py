"""One line for every error of a broker: what, where, and what to do."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiokafka import errors

from streamad.telemetry.logs import configure_logs
from streamad_connectors.kafka.client.credentials import TokenError
from streamad_connectors.kafka.client.errors import ANSWERS, explain, is_retriable, why_failed
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, Place, tame_logs

SECRET = "hunter2-is-secret"


def client(*brokers: str, timeout: str = "2s", **security: Any) -> Client:
    options = KafkaSourceOptions.model_validate({"request_timeout": timeout, "security": security})
    return Client(Place(brokers or ("a:1", "b:2"), ("press",)), options)


LOGIN = {"protocol": "sasl_plaintext", "mechanism": "plain", "username": "worker", "password": {"env": "KAFKA_PW"}}


def plain_client(*brokers: str) -> Client:
    return client(*brokers, **LOGIN)


RIGHTS = [
    (errors.TopicAuthorizationFailedError, "read topic press", "grant READ and DESCRIBE on topic press"),
    (errors.TopicAuthorizationFailedError, "write topic alerts", "grant WRITE and DESCRIBE on topic alerts"),
    (errors.TopicAuthorizationFailedError, "describe topic press", "grant DESCRIBE on topic press"),
    (errors.TopicAuthorizationFailedError, "configure topics", "grant DESCRIBE_CONFIGS on topics"),
    (
        errors.TopicAuthorizationFailedError,
        "create topic alerts",
        "grant CREATE (on the topic or the cluster) on topic alerts",
    ),
    (errors.TopicAuthorizationFailedError, "", "grant DESCRIBE on the topic"),
    (errors.GroupAuthorizationFailedError, "read group g", "grant READ on group g"),
    (errors.GroupAuthorizationFailedError, "", "grant READ on the group"),
    (
        errors.TransactionalIdAuthorizationFailed,
        "write transactional id streamad:press:0:g",
        "grant WRITE and DESCRIBE on transactional id streamad:press:0:g",
    ),
    (errors.ClusterAuthorizationFailedError, "", "grant CREATE (before Kafka 3.0: IDEMPOTENT_WRITE) on the cluster"),
]


@pytest.mark.parametrize(("kind", "doing", "advice"), RIGHTS)
def test_a_missing_right_is_named(kind: type[Exception], doing: str, advice: str) -> None:
    assert explain(kind(), doing=doing) == f"not allowed: {advice}"
    assert explain(kind(), plain_client(), doing) == f"kafka a:1, b:2: not allowed of user worker: {advice}"
    assert not is_retriable(kind())


LINES = [
    (
        errors.UnknownTopicOrPartitionError(),
        "topic press does not exist: run `streamad topics create --config FILE`, or is its name mistyped?",
    ),
    (
        errors.MessageSizeTooLargeError(),
        "a message for topic press is longer than the topic takes: raise the topic's max.message.bytes, or lower the "
        "sink's max_message_bytes",
    ),
    (
        errors.CorruptRecordException(),
        "records of topic press are damaged, their checksum is wrong: restart; if it happens again, the broker's disk "
        "is damaged: restore them from a copy, or delete all records up to and including them, and continue with "
        "--accept-gap",
    ),
    (errors.InvalidTopicError(), "the broker does not take the name of topic press"),
    (errors.OffsetOutOfRangeError(), "the requested offset of topic press was deleted or never written"),
    (
        errors.NotEnoughReplicasError(),
        "topic press has fewer copies in sync than min.insync.replicas: nothing can be written until brokers are back",
    ),
    (errors.NotLeaderForPartitionError(), "topic press has no leader at the moment: is a broker down?"),
    (
        errors.GroupCoordinatorNotAvailableError(),
        "the coordinator of topic press is not available: is a broker down, or too few brokers for the internal topics "
        "(offsets.topic.replication.factor, transaction.state.log.replication.factor and .min.isr)?",
    ),
    (errors.ProducerFenced(), "another worker has taken topic press over"),
    (
        errors.InvalidTransactionTimeout(),
        "the transaction time-out is longer than the broker allows: lower transaction_timeout, or raise the broker's "
        "transaction.max.timeout.ms",
    ),
    (
        errors.InvalidSessionTimeoutError(),
        "the broker does not allow this session_timeout: see its group.min.session.timeout.ms and "
        "group.max.session.timeout.ms",
    ),
    (errors.InvalidReplicationFactorError(), "there are not enough brokers for this many copies: lower --replicas"),
    (errors.InvalidPartitionsError(), "topic press cannot have this number of partitions"),
    (errors.TopicAlreadyExistsError(), "topic press is there already"),
    (
        errors.UnsupportedVersionError(),
        "the broker is too old or too new for this client (tried with Kafka 3.9 and 4.3)",
    ),
    (errors.UnknownProducerId(), "the broker has forgotten the producer of topic press"),
    (
        errors.ConcurrentTransactions(),
        "the last transaction of topic press is still being ended: try again in a moment",
    ),
]


@pytest.mark.parametrize(("error", "line"), LINES)
def test_a_broker_s_answer_is_explained(error: Exception, line: str) -> None:
    assert explain(error, client(), "read topic press") == f"kafka a:1, b:2: {line}"
    assert explain(error, doing="topic press") == line


def test_every_answer_has_a_test() -> None:
    tested = tuple(type(error) for error, _ in LINES)
    assert [kinds for kinds, _ in ANSWERS if not set(kinds) & set(tested)] == []


@pytest.mark.parametrize("error", [TimeoutError(), errors.KafkaTimeoutError(), errors.RequestTimedOutError()])
def test_a_silent_broker_is_reported_with_the_time_waited(error: Exception) -> None:
    assert explain(error, client(), "read topic press") == "kafka a:1, b:2: no answer within 2 s to: read topic press"
    assert explain(error) == "no answer"


def test_what_aiokafka_wraps_is_found() -> None:
    wrapped = errors.KafkaError("Unexpected error during batch delivery")
    wrapped.__cause__ = errors.TopicAuthorizationFailedError()
    assert explain(wrapped, doing="write topic alerts") == "not allowed: grant WRITE and DESCRIBE on topic alerts"
    assert not is_retriable(wrapped)
    wrapped.__cause__ = errors.NotLeaderForPartitionError()
    assert is_retriable(wrapped)


def test_an_unknown_error_is_reported_by_its_first_line() -> None:
    assert explain(ValueError("odd\nmore"), client(), "join") == "kafka a:1, b:2: join: ValueError: odd"
    assert explain(ValueError()) == "ValueError"


def test_an_authentication_error_omits_the_broker_s_text() -> None:
    refused = errors.SaslAuthenticationFailed(f"bad password {SECRET}")
    assert explain(refused, plain_client()) == (
        "kafka a:1, b:2: authentication of user worker refused: check security (mechanism, user, secret)"
    )
    unsupported = errors.UnsupportedSaslMechanismError("<AIOKafkaConnection host=a port=1>")
    assert explain(unsupported, plain_client()) == "kafka a:1, b:2: the broker does not offer security.mechanism plain"
    assert explain(unsupported) == "the broker does not offer security.mechanism as configured"
    assert not is_retriable(refused)


def test_a_token_that_cannot_be_fetched_is_reported() -> None:
    assert explain(TokenError("token endpoint https://id/t refused: HTTP 401")) == (
        "no token to log in with: token endpoint https://id/t refused: HTTP 401"
    )
    assert is_retriable(TokenError("x"))


def test_tls_errors_are_distinguished() -> None:
    wrong = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    wrong.reason = "WRONG_VERSION_NUMBER"
    assert explain(wrong) == "the broker does not speak TLS on this port: check the port and security.protocol"
    alert = ssl.SSLError(1, "x")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert explain(alert) == (
        "TLS failed (tlsv13 alert certificate required): check security (cert_file, key_file, ca_file)"
    )
    untrusted = ssl.SSLCertVerificationError(1, "x")
    untrusted.verify_message = "self-signed certificate"
    assert explain(untrusted) == (
        "the broker's certificate is not trusted (self-signed certificate): check security.ca_file and the host's name"
    )
    assert not is_retriable(untrusted)


@pytest.mark.parametrize(
    "error",
    [
        errors.KafkaConnectionError("x"),
        errors.NodeNotReadyError("x"),
        errors.NoBrokersAvailable(),
        ConnectionRefusedError(),
        TimeoutError(),
        errors.RequestTimedOutError(),
        errors.KafkaTimeoutError(),
        errors.NotLeaderForPartitionError(),
        errors.GroupCoordinatorNotAvailableError(),
        errors.NotEnoughReplicasError(),
        errors.ConcurrentTransactions(),
        errors.BrokerNotAvailableError(),
    ],
)
def test_outages_may_be_tried_again(error: Exception) -> None:
    assert is_retriable(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownTopicOrPartitionError(),
        errors.ProducerFenced(),
        errors.MessageSizeTooLargeError(),
        errors.OffsetOutOfRangeError(),
        errors.InvalidReplicationFactorError(),
        errors.KafkaError("unknown"),
        ValueError(),
    ],
)
def test_refusals_may_not(error: Exception) -> None:
    assert not is_retriable(error)


# --- why no broker can be used ---


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.socket() as held:  # bound, but nothing listens
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@asynccontextmanager
async def listener(*, answer: bytes | None) -> AsyncIterator[str]:
    """A port that answers every connection with ``answer`` and closes it, or (None) stays silent."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is None:
            await done.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        done.set()
        server.close()
        await server.wait_closed()


async def why_unreachable(of: Client) -> str:
    return await why_failed(errors.KafkaConnectionError("Unable to bootstrap"), of, "read topic press")


async def test_a_port_where_nothing_listens_is_reported() -> None:
    with closed_port() as port:
        assert await why_unreachable(client(port)) == (
            f"kafka {port}: no broker can be reached: is it running, are address, port and protocol right?"
        )


async def test_a_silent_port_is_reported_within_the_time_out() -> None:
    async with listener(answer=None) as port:
        began_s = asyncio.get_running_loop().time()
        text = await why_unreachable(client(port, timeout="200ms"))
        assert asyncio.get_running_loop().time() - began_s < 5
    assert text.startswith(f"kafka {port}: no broker can be reached")


@pytest.mark.parametrize(
    ("security", "hint"),
    [
        ({}, "does this port require TLS or a login (security.protocol)?"),
        ({**LOGIN}, "is security.protocol right for this port?"),
    ],
)
async def test_a_broker_that_hangs_up_gets_a_hint(
    security: dict[str, Any], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PW", SECRET)
    async with listener(answer=b"") as port:
        assert (
            await why_unreachable(client(port, **security)) == f"kafka {port}: the broker ended the connection: {hint}"
        )


async def test_tls_to_a_port_without_it_is_reported_even_if_another_broker_is_down() -> None:
    async with listener(answer=b"plain text, whatever it means\n") as port:
        with closed_port() as closed:
            text = await why_unreachable(client(closed, port, protocol="ssl"))
    assert text.endswith("the broker does not speak TLS on this port: check the port and security.protocol")


# --- the log ---


def test_requests_with_passwords_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    tame_logs()
    with caplog.at_level(logging.DEBUG, logger="aiokafka"):
        logging.getLogger("aiokafka.conn").debug("Request to a:1: SaslAuthenticateRequest(%r)", SECRET)
        logging.getLogger("aiokafka.conn").info("Authenticated as worker")
    assert SECRET not in caplog.text
    assert "Authenticated as worker" in caplog.text


def test_a_warning_of_aiokafka_is_logged_once_at_higher_verbosity(capsys: pytest.CaptureFixture[str]) -> None:
    tame_logs()
    tame_logs()
    try:
        for verbosity, times in ((0, 0), (1, 1)):
            configure_logs(verbosity)
            logging.getLogger("aiokafka").error("Unable connect to a:1\nmore")
            printed = capsys.readouterr().err
            assert printed.count("Unable connect to a:1") == times
            assert "more" not in printed
    finally:
        configure_logs(0)


async def test_an_error_that_aiokafka_leaves_in_a_future_of_its_own_is_a_line_and_any_other_has_its_traceback(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    tame_logs()
    try:
        configure_logs(1)
        for error in (errors.ProducerFenced("a newer producer"), ValueError("ours")):
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            del future
            gc.collect()
    finally:
        configure_logs(0)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["ours"]
    assert "a newer producer" in capsys.readouterr().err
