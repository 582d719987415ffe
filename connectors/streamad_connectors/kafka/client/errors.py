"""Errors of brokers as one line of advice: the problem, the broker, and the remedy; never a secret."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator, Sequence

from aiokafka import errors
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.protocol.metadata import MetadataRequest

from streamad_connectors.kafka.client.credentials import TokenError
from streamad_connectors.kafka.client.options import Client
from streamad_connectors.kafka.client.security import Security

_AUTHENTICATION = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.SaslAuthenticationFailed,
    errors.IllegalSaslStateError,
)
_UNREACHABLE = (errors.KafkaConnectionError, errors.NodeNotReadyError, errors.NoBrokersAvailable)
_TIMEOUT = (TimeoutError, errors.KafkaTimeoutError, errors.RequestTimedOutError)
_ENDED = (errors.KafkaConnectionError, ConnectionResetError, ConnectionAbortedError)
# The one way out, wherever it shows: the topic and its producers stay as they are, and the monitor's owner can take it.
PARTITIONS_ADDED = (
    "go on under a new group with start: latest (source.options), after `streamad topics create --config FILE`; "
    "docs/guide/kafka.md, Partitions were added"
)
UNKNOWN_TOPIC = "does not exist: run `streamad topics create --config FILE`, or is its name mistyped?"

# Errors of a broker that mean the same for every request; {what} is "topic alerts", "group g", or "it".
ANSWERS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((errors.UnknownTopicOrPartitionError,), "{what} " + UNKNOWN_TOPIC),
    (
        (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.RecordTooLargeError),
        "a message for {what} is longer than the topic takes: raise the topic's max.message.bytes, "
        "or lower the sink's max_message_bytes",
    ),
    (
        (errors.CorruptRecordException,),
        "records of {what} are damaged, their checksum is wrong: restart; if it happens again, the broker's disk "
        "is damaged: restore them from a copy, or delete all records up to and including them, and continue with "
        "--accept-gap",
    ),
    ((errors.InvalidTopicError,), "the broker does not take the name of {what}"),
    ((errors.OffsetOutOfRangeError,), "the requested offset of {what} was deleted or never written"),
    (
        (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError),
        "{what} has fewer copies in sync than min.insync.replicas: nothing can be written until brokers are back",
    ),
    (
        (errors.LeaderNotAvailableError, errors.NotLeaderForPartitionError, errors.ReplicaNotAvailableError),
        "{what} has no leader at the moment: is a broker down?",
    ),
    (
        (errors.GroupCoordinatorNotAvailableError, errors.NotCoordinatorForGroupError, errors.GroupLoadInProgressError),
        "the coordinator of {what} is not available: is a broker down, or too few brokers for the internal topics "
        "(offsets.topic.replication.factor, transaction.state.log.replication.factor and .min.isr)?",
    ),
    (
        (errors.ProducerFenced, errors.InvalidProducerEpoch, errors.TransactionCoordinatorFenced),
        "another worker has taken {what} over",
    ),
    (
        (errors.InvalidTransactionTimeout,),
        "the transaction time-out is longer than the broker allows: lower transaction_timeout, "
        "or raise the broker's transaction.max.timeout.ms",
    ),
    (
        (errors.InvalidSessionTimeoutError,),
        "the broker does not allow this session_timeout: see its group.min.session.timeout.ms and "
        "group.max.session.timeout.ms",
    ),
    ((errors.InvalidReplicationFactorError,), "there are not enough brokers for this many copies: lower --replicas"),
    ((errors.InvalidPartitionsError,), "{what} cannot have this number of partitions"),
    ((errors.TopicAlreadyExistsError,), "{what} is there already"),
    (
        (errors.UnsupportedVersionError, errors.UnrecognizedBrokerVersion, errors.IncompatibleBrokerVersion),
        "the broker is too old or too new for this client (tried with Kafka 3.9 and 4.3)",
    ),
    ((errors.UnknownProducerId, errors.InvalidProducerIdMapping), "the broker has forgotten the producer of {what}"),
    ((errors.ConcurrentTransactions,), "the last transaction of {what} is still being ended: try again in a moment"),
)

# Action -> the rights that it needs (Kafka's documentation, "Protocols: operations and resources").
_RIGHTS = {
    "read": "READ and DESCRIBE",
    "write": "WRITE and DESCRIBE",
    "create": "CREATE (on the topic or the cluster)",
    "describe": "DESCRIBE",
    "configure": "DESCRIBE_CONFIGS",
}
_ACTIONS = re.compile(rf"({'|'.join(_RIGHTS)}) (.+)")


def explain(error: BaseException, client: Client | None = None, doing: str = "") -> str:
    """Return one line with the meaning of ``error`` and its remedy.

    ``doing`` names the action: "read topic press", "write topic alerts", "create topic alerts", "read group g",
    "write transactional id t", or only a thing ("topic press"). The line uses it to name the missing right.
    """
    for cause in _chain(error):
        text = _access_text(cause, client, doing) or _answer_text(cause, client, doing)
        if text is not None:
            return _where(client) + text
    text = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return f"{_where(client)}{doing + ': ' if doing else ''}{text}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    # aiokafka wraps the error of a background task into a plain KafkaError.
    seen = 0
    current: BaseException | None = error
    while current is not None and seen < 10:
        yield current
        current, seen = current.__cause__, seen + 1


def _access_text(error: BaseException, client: Client | None, doing: str) -> str | None:
    trouble = client.trouble if client is not None and isinstance(error, _UNREACHABLE) else None
    if isinstance(error, TokenError) or trouble is not None:
        return f"no token to log in with: {trouble or error}"
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return f"the broker does not offer security.mechanism {_mechanism(client)}"
    if isinstance(error, _AUTHENTICATION):
        return f"authentication{_user(client)} refused: check security (mechanism, user, secret)"
    if isinstance(error, (ssl.SSLError, ssl.CertificateError)):
        return _tls_text(error)
    return _missing_right(error, client, doing)


def _answer_text(error: BaseException, client: Client | None, doing: str) -> str | None:
    if isinstance(error, _UNREACHABLE):
        return "no broker can be reached: is it running, are address, port and protocol right?"
    if isinstance(error, _TIMEOUT):
        seconds = f" within {client.request_timeout_s:g} s" if client is not None else ""
        return f"no answer{seconds}{f' to: {doing}' if doing else ''}"
    for kinds, text in ANSWERS:
        if isinstance(error, kinds):
            return text.format(what=_thing(doing))
    return str(error.strerror or error) if isinstance(error, OSError) else None


# Error -> the missing right if ``doing`` names no action, and its resource.
_REFUSALS: dict[type[BaseException], tuple[str, str]] = {
    errors.TopicAuthorizationFailedError: ("DESCRIBE", "topic"),
    errors.GroupAuthorizationFailedError: ("READ", "group"),
    errors.TransactionalIdAuthorizationFailed: ("WRITE and DESCRIBE", "transactional id"),
    errors.ClusterAuthorizationFailedError: ("CREATE (before Kafka 3.0: IDEMPOTENT_WRITE)", "cluster"),
}


def _missing_right(error: BaseException, client: Client | None, doing: str) -> str | None:
    if type(error) not in _REFUSALS:
        return None
    rights, resource = _REFUSALS[type(error)]
    match = _ACTIONS.fullmatch(doing)
    if match is not None and resource == "topic":
        rights = _RIGHTS[match.group(1)]
    return f"not allowed{_user(client)}: grant {rights} on {_thing(doing) if doing else f'the {resource}'}"


def _tls_text(error: ssl.SSLError | ssl.CertificateError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or "unknown reason"
        return f"the broker's certificate is not trusted ({why}): check security.ca_file and the host's name"
    reason = str(getattr(error, "reason", None) or "").replace("_", " ").lower()
    if "wrong version number" in reason or "record layer" in reason:
        return "the broker does not speak TLS on this port: check the port and security.protocol"
    return f"TLS failed{f' ({reason})' if reason else ''}: check security (cert_file, key_file, ca_file)"


def _mechanism(client: Client | None) -> str:
    return str(client.options.security.mechanism) if client is not None else "as configured"


def _where(client: Client | None) -> str:
    return f"kafka {', '.join(client.place.brokers)}: " if client is not None else ""


def _user(client: Client | None) -> str:
    name = client.options.security.username if client is not None else None
    return f" of user {name}" if name is not None else ""


def _thing(doing: str) -> str:
    match = _ACTIONS.fullmatch(doing)
    return match.group(2) if match is not None else (doing or "it")


def is_retriable(error: BaseException) -> bool:
    """Return whether the same call may succeed later: after an outage, an election or a time-out, not a refusal."""
    if isinstance(error, (ssl.SSLError, errors.UnknownTopicOrPartitionError)):
        return False  # for aiokafka a missing topic is retriable: it may be under construction
    if isinstance(error, errors.KafkaError):
        cause = error.__cause__
        if type(error) is errors.KafkaError and cause is not None:
            return is_retriable(cause)
        return bool(error.retriable) or isinstance(
            error, (errors.ConcurrentTransactions, errors.KafkaTimeoutError, errors.BrokerNotAvailableError)
        )
    return isinstance(error, OSError)  # and TimeoutError, which is one


async def why_failed(error: BaseException, client: Client, doing: str = "") -> str:
    """Return the line of ``explain``; if no broker could be reached, try each to find out why.

    aiokafka's own error only says that no broker can be reached. Takes one request time-out at most. Raises
    ConfigError if a secret or a certificate cannot be read.
    """
    if not isinstance(error, errors.KafkaConnectionError):
        return explain(error, client, doing)
    return _where(client) + _unreachable_text(await _troubles(client) or [errors.NodeNotReadyError()], client)


async def why_silent(client: Client) -> str | None:
    """Return why no broker of ``client`` can be used, without their addresses; None if one answers.

    Takes as long as ``why_failed`` and raises the same errors.
    """
    troubles = await _troubles(client)
    return _unreachable_text(troubles, client) if troubles else None


def _unreachable_text(troubles: Sequence[BaseException], client: Client) -> str:
    chosen = next((error for error in troubles if not _is_outage(error)), troubles[0])
    if isinstance(chosen, _ENDED) and client.trouble is None:
        return _ended_text(client.options.security)
    return explain(errors.KafkaConnectionError() if _is_outage(chosen) else chosen, client).removeprefix(_where(client))


async def _troubles(client: Client) -> list[BaseException]:
    """Try the brokers one after the other; return their errors, an empty list if one answers."""
    arguments = client.kwargs()
    servers = arguments.pop("bootstrap_servers")
    for name in ("retry_backoff_ms", "metadata_max_age_ms"):
        del arguments[name]
    troubles: list[BaseException] = []
    try:
        async with asyncio.timeout(client.request_timeout_s):
            for host, port, _ in collect_hosts(servers):
                try:
                    connection = await create_conn(host, port, **arguments)
                    try:
                        answer = await connection.send(MetadataRequest([]))
                    finally:
                        connection.close()
                except (OSError, errors.KafkaError) as error:
                    troubles.append(error)
                else:
                    if answer.brokers:
                        return []
                    # aiokafka decodes a broker's refusal of a token as an empty answer.
                    troubles.append(errors.KafkaConnectionError())
    except TimeoutError as error:
        troubles.append(error)
    return troubles


def _is_outage(error: BaseException) -> bool:
    if isinstance(error, (ssl.SSLError, *_ENDED)):
        return False
    return isinstance(error, (OSError, *_UNREACHABLE, *_TIMEOUT))


def _ended_text(security: Security) -> str:
    # In TLS 1.3 a client learns only after the handshake that its certificate is missing; SASL and TLS ports close a
    # plain-text connection without an answer.
    hints = {
        "plaintext": "does this port require TLS or a login (security.protocol)?",
        "ssl": "does it require a client certificate (security.cert_file, key_file) or a login (protocol sasl_ssl)?",
    }
    login = "is security.protocol right for this port?"
    if security.mechanism == "aws_msk_iam":
        login = (
            "it has most likely refused the AWS credentials: are they expired, for this region and account, and "
            "allowed kafka-cluster:Connect?"
        )
    elif security.mechanism == "oauthbearer":
        login = "it has most likely refused the token: is it meant for this broker, and still valid?"
    return f"the broker ended the connection: {hints.get(security.protocol, login)}"
