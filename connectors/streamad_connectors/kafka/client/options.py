"""Addresses and options of Kafka clients: URLs, option models, and the arguments that aiokafka's clients take."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from aiokafka.errors import KafkaError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from streamad.errors import ConfigError, Problem
from streamad.messages import message_types
from streamad.plugins import ConnectorContext, split_url
from streamad.settings.fields import Duration, Size
from streamad.telemetry.logs import get_logger
from streamad_connectors.kafka.client.credentials import Credentials, TokenSource
from streamad_connectors.kafka.client.msk import EXTRA_MISSING, has_signer
from streamad_connectors.kafka.client.security import Security

SCHEME = "kafka"
_MAX_NAME = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:@,\[\]]+):([0-9]{1,5})")
_HOUR = 3_600_000_000
FETCH_WAIT_MS = 250  # a broker answers a fetch at least this often


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts ``name`` for a topic (and for a group instance, KIP-345)."""
    return len(name) <= _MAX_NAME and name not in (".", "..") and _NAME.fullmatch(name) is not None


def _kafka_name(value: str) -> str:
    if not is_topic_name(value):
        raise ValueError(f"must be up to {_MAX_NAME} of letters, digits, '.', '_' and '-', and not '.' or '..'")
    return value


Name = Annotated[str, AfterValidator(_kafka_name)]


class ClientOptions(BaseModel):
    """Options of every client of a cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    several_topics: ClassVar[bool] = False

    brokers: str | None = Field(
        default=None, description="host:port[,host:port...] if the URL names none; default: those of the plant's source"
    )
    security: Security = Field(default_factory=Security, description="encryption and authentication")
    client_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=_MAX_NAME,
        description="name in the broker's logs; default streamad.{plant}",
    )
    request_timeout: Duration = Field(
        default=10_000_000, ge=100_000, le=_HOUR, description="longest wait for a broker's answer"
    )


class KafkaSourceOptions(ClientOptions):
    """Options of a source: reading, and the sharing of partitions among workers."""

    several_topics: ClassVar[bool] = True

    group: Name | None = Field(default=None, description="consumer group; default streamad.{plant}")
    start: Literal["earliest", "latest"] = Field(
        default="earliest", description="where to begin a partition without progress"
    )
    instance: Name | None = Field(
        default=None,
        description="static membership (KIP-345): this worker's own id, so that a quick restart moves no partition",
    )
    session_timeout: Duration = Field(
        default=15_000_000, ge=1_000_000, le=_HOUR, description="a worker silent for this long loses its partitions"
    )
    heartbeat_interval: Duration = Field(
        default=1_000_000,
        ge=100_000,
        le=_HOUR,
        description="interval of heartbeats, in which others notice a clean stop; at most session_timeout / 3",
    )
    rebalance_timeout: Duration = Field(
        default=60_000_000, ge=1_000_000, le=_HOUR, description="longest wait for all workers in a rebalance"
    )
    transaction_timeout: Duration = Field(
        default=10_000_000,
        ge=1_000_000,
        le=_HOUR,
        description="the broker aborts a dead worker's transaction after this long",
    )
    give_up_after: Duration = Field(
        default=600_000_000,
        ge=1_000_000,
        description="exit when no broker has answered for this long (a supervisor restarts)",
    )
    accept_gap: bool = Field(
        default=False, description="go on if unread records are already deleted; default: exit with an error"
    )
    fetch_bytes: Size = Field(
        default=1_000_000, ge=1_000, le=2**31 - 1, description="most bytes of a partition in one fetch"
    )
    retention_check: Duration = Field(
        default=30_000_000,
        ge=1_000_000,
        description="interval of comparing the age of unread records with the retention",
    )

    @model_validator(mode="after")
    def _beats_often_enough(self) -> KafkaSourceOptions:
        if self.heartbeat_interval * 3 > self.session_timeout:
            raise ValueError("heartbeat_interval must be at most a third of session_timeout")
        return self


class KafkaSinkOptions(ClientOptions):
    """Options of a sink."""

    max_message_bytes: Size = Field(
        default=900_000,
        ge=10_000,
        le=2**31 - 1,
        description="a longer message is refused; a topic takes 1 MB by default",
    )
    schema_ids: dict[str, Annotated[int, Field(ge=1, lt=2**31)]] = Field(
        default={},
        description="by type of message, such as {alert: 17}: the id of its JSON Schema in a Schema Registry, for the "
        "header __value_schema_id; default: no header",
    )

    @field_validator("schema_ids")
    @classmethod
    def _known_types(cls, ids: dict[str, int]) -> dict[str, int]:
        if unknown := sorted(ids.keys() - message_types().keys()):
            raise ValueError(f"no message is a {unknown[0]!r}: {', '.join(message_types())}")
        return ids


class KafkaFeedOptions(ClientOptions):
    """Options of a feed."""

    give_up_after: Duration = Field(
        default=600_000_000,
        ge=1_000_000,
        description="fail when nothing was delivered for this long; at the start, an absent broker is an error at once",
    )
    label_header: str | None = Field(default=None, description="header for the records' labels; default: not kept")


class KafkaSubscriptionOptions(ClientOptions):
    """Options of a subscription."""

    group: Name | None = Field(
        default=None, description="consumer group that remembers the position; default: no position is kept"
    )
    start: Literal["earliest", "latest"] | None = Field(
        default=None, description="where to begin the first time; default: earliest with a group, latest without"
    )
    principal_header: str | None = Field(
        default=None,
        min_length=1,
        max_length=_MAX_NAME,
        description="header in which the broker or a proxy, not the sender, writes who sent a message; default: none",
    )
    exclusive: bool = Field(
        default=False,
        description="one member of the group reads all partitions; the others wait until it has left",
    )

    @model_validator(mode="after")
    def _has_a_group(self) -> Self:
        if self.exclusive and self.group is None:
            raise ValueError("exclusive is for the readers of one group: name it, too")
        return self


_Options = TypeVar("_Options", bound=ClientOptions)


@dataclass(frozen=True)
class Place:
    """Topics of a cluster and its bootstrap brokers (host:port), at least one of each."""

    brokers: tuple[str, ...]
    topics: tuple[str, ...]

    @property
    def topic(self) -> str:
        """The first topic; only a source has more."""
        return self.topics[0]


def place_of(rest: str, options: ClientOptions, context: ConnectorContext, where: str = "url") -> Place:
    """Return the place that ``rest`` ("host:port,host:port/topic,topic") names.

    Brokers in the URL win over ``options.brokers``, and these over the brokers of the plant's source. Raises
    ConfigError with all problems.
    """
    hosts, slash, path = rest.partition("/")
    if "@" in rest:
        text = "holds an '@': user and password go into the option security, never into the URL"
        raise ConfigError([Problem(where, text)])
    url = f"{SCHEME}://{rest}"
    problems = []
    topics = _names(path) if slash else ()
    if not topics:
        problems.append(f"{url} names no topic: write {SCHEME}://host:port/topic")
    brokers = (
        _names(hosts if slash or ":" in hosts else "") or _names(options.brokers or "") or _source_brokers(context)
    )
    if not brokers and slash:
        problems.append(
            f"{url} names no broker: write {SCHEME}://host:port/topic"
            + (" (the plant's source is no Kafka either)" if where != "source.url" and context.source_url else "")
        )
    problems += [wrong for broker in brokers if (wrong := _broker_problem(broker)) is not None]
    problems += _topic_problems(topics, options, context)
    if problems:
        raise ConfigError([Problem(where, text) for text in problems])
    return Place(brokers, topics)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _broker_problem(broker: str) -> str | None:
    match = _HOST.fullmatch(broker)
    if "@" in broker:
        return "a broker holds an '@': user and password go into the option security, never into a list of brokers"
    if match is None:
        lacks_port = re.fullmatch(r"[^\s/:@,\[\]]+:?|\[[^\]]*\]", broker) is not None
        return (
            f"broker {broker!r} {'lacks its port' if lacks_port else 'is no host:port'}: write for example broker:9092"
        )
    return None if 0 < int(match.group(1)) < 65_536 else f"broker {broker!r}: a port is 1 to 65535"


def _topic_problems(topics: tuple[str, ...], options: ClientOptions, context: ConnectorContext) -> list[str]:
    problems = [
        f"no topic can be called {name!r}: up to {_MAX_NAME} of letters, digits, '.', '_' and '-'"
        for name in topics
        if not is_topic_name(name)
    ]
    twice = sorted({name for name in topics if topics.count(name) > 1})
    if twice:
        problems.append(f"topic named twice: {', '.join(twice)}")
    if len(topics) > 1 and not options.several_topics:
        problems.append(f"only a source takes several topics, here are {len(topics)}: {', '.join(topics)}")
    if isinstance(options, KafkaSourceOptions) and not problems:
        names = [progress_topic_of(group_of(options, context), topic) for topic in topics]
        too_long = [name for name in names if not is_topic_name(name)]
        problems += [f"the name of its progress topic is too long, choose a shorter group: {name}" for name in too_long]
        if not is_topic_name(claims := claims_topic_of(group_of(options, context))):
            problems.append(f"the name of its claims topic is too long, choose a shorter group: {claims}")
    return problems


def _source(context: ConnectorContext) -> tuple[str, KafkaSourceOptions] | None:
    # Wrong options are reported by the source itself.
    if context.source_url is None:
        return None
    scheme, rest, in_url = split_url(context.source_url)
    if scheme != SCHEME:
        return None
    try:
        return rest, KafkaSourceOptions.model_validate({**context.source_options, **in_url})
    except ValidationError:
        return rest, KafkaSourceOptions()


def _source_brokers(context: ConnectorContext) -> tuple[str, ...]:
    source = _source(context)
    if source is None:
        return ()
    rest, options = source
    return _names(rest.partition("/")[0]) or _names(options.brokers or "")


def with_source_defaults(options: _Options, context: ConnectorContext, place: Place | None = None) -> _Options:
    """Return ``options`` with unset ones taken from the plant's source, if both are of the same cluster.

    The same cluster: ``place`` (or ``options.brokers``) names no broker of its own, or one of the source's.
    """
    source = _source(context)
    ours = set(place.brokers) if place is not None else set(_names(options.brokers or ""))
    if source is None or (ours and not ours & set(_source_brokers(context))):
        return options
    defaults = source[1]
    unset = (defaults.model_fields_set & ClientOptions.model_fields.keys()) - options.model_fields_set - {"brokers"}
    return options.model_copy(update={name: getattr(defaults, name) for name in unset})


def group_of(options: KafkaSourceOptions, context: ConnectorContext) -> str:
    """Return the consumer group of the plant's workers."""
    return options.group if options.group is not None else f"streamad.{context.plant}"


def progress_topic_of(group: str, topic: str) -> str:
    """Return the compacted topic with the progress of ``group`` in ``topic``."""
    return f"{group}.{topic}.progress"


def claims_topic_of(group: str) -> str:
    """Return the compacted topic in which the partitions of ``group`` claim their streams."""
    return f"{group}.claims"


def transactional_id_of(topic: str, number: int | str, group: str) -> str:
    """Return the id of a partition's transactional producer; the newest holder of an id fences the others (KIP-98)."""
    return f"streamad:{topic}:{number}:{group}"


def partition_name(topic: str, number: int) -> str:
    """Return the name of a partition in all of streamad."""
    return f"{topic}-{number}"


@dataclass(frozen=True)
class Client:
    """A place with all that a connection needs; secrets are read only when ``kwargs`` is called."""

    place: Place
    options: ClientOptions
    base_dir: Path = field(default_factory=Path)
    name: str = "streamad"
    security_path: str = "security"  # its path in the config, for errors
    label: str | None = None  # what its records have as theirs (``ConnectorContext.label``)
    _tokens: TokenSource | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, rest: str, options: ClientOptions, context: ConnectorContext, where: str = "url") -> Client:
        """Return the client of a URL's ``rest``, with defaults from the plant's source. Raises ConfigError."""
        if not __debug__:  # without its assertions aiokafka's transactions fail silently
            text = "Kafka needs Python's assertions: run without python -O, and unset PYTHONOPTIMIZE"
            raise ConfigError([Problem(where, text)])
        place = place_of(rest, options, context, where)
        own, options = options, with_source_defaults(options, context, place)
        is_source = where == "source.url" or options.security is not own.security
        security_path = "source.options.security" if is_source else "security"
        if options.security.mechanism == "aws_msk_iam" and not has_signer():
            raise ConfigError([Problem(f"{security_path}.mechanism", EXTRA_MISSING)])
        name = options.client_id or f"streamad.{context.plant}"
        return cls(place, options, context.base_dir, name, security_path, context.label)

    def __post_init__(self) -> None:
        security = self.options.security
        if security.uses_tokens:
            object.__setattr__(self, "_tokens", TokenSource(self._credentials, self.request_timeout_s))

    @property
    def _credentials(self) -> Credentials:
        return Credentials(self.options.security, self.base_dir, self.security_path)

    @property
    def request_timeout_s(self) -> float:
        """Longest wait for an answer, in seconds."""
        return self.options.request_timeout / 1_000_000

    @property
    def connect_timeout_s(self) -> float:
        """Longest wait for the first answer, in seconds: one time-out for each bootstrap broker."""
        return self.request_timeout_s * len(self.place.brokers)

    @property
    def trouble(self) -> str | None:
        """The error of the last token request (aiokafka does not report it), without any secret."""
        return self._tokens.trouble if self._tokens is not None else None

    def at(self, topic: str) -> Client:
        """Return this client for another topic."""
        return replace(self, place=Place(self.place.brokers, (topic,)))

    def same_cluster(self, other: Client) -> bool:
        """Return whether both share a bootstrap broker, so that one transaction can write to both."""
        return bool(set(self.place.brokers) & set(other.place.brokers))

    def kwargs(self) -> dict[str, Any]:
        """Return arguments that all clients of aiokafka take. They hold the secrets: never log them.

        Raises ConfigError if a secret or a certificate cannot be read.
        """
        tame_logs()
        security = self.options.security
        arguments: dict[str, Any] = {
            "bootstrap_servers": list(self.place.brokers),
            "client_id": self.name,
            "request_timeout_ms": self.options.request_timeout // 1_000,
            "retry_backoff_ms": 20,
            "metadata_max_age_ms": 5_000,
            "security_protocol": security.protocol.upper(),
        }
        if security.encrypts:
            arguments["ssl_context"] = self._credentials.tls()
        if security.mechanism is not None:
            arguments["sasl_mechanism"] = "OAUTHBEARER" if security.uses_tokens else security.mechanism.upper()
        if self._tokens is not None:
            arguments["sasl_oauth_token_provider"] = self._tokens
        elif security.password is not None:
            arguments["sasl_plain_username"] = security.username
            arguments["sasl_plain_password"] = self._credentials.secret("password")
        return arguments

    def consumer_kwargs(self) -> dict[str, Any]:
        """Return ``kwargs`` for reading clients: committed records only, no offsets committed or chosen by aiokafka."""
        return {
            **self.kwargs(),
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
        }


def tame_logs() -> None:
    """Send aiokafka's warnings to our log and keep its requests out of every log; may be called again."""
    logger = logging.getLogger("aiokafka")
    if not any(isinstance(handler, _Forwarding) for handler in logger.handlers):
        logger.addHandler(_Forwarding(logging.WARNING))
    logging.getLogger("aiokafka.conn").addFilter(_without_requests)
    logging.getLogger("asyncio").addFilter(_in_a_line)


class _Forwarding(logging.Handler):
    """Logs warnings of aiokafka as information: those that matter also reach us as errors, with advice."""

    def emit(self, record: logging.LogRecord) -> None:
        get_logger().info("aiokafka", message=record.getMessage().partition("\n")[0])


def _without_requests(record: logging.LogRecord) -> bool:
    # At level DEBUG a connection logs every request, passwords and tokens included.
    return record.levelno > logging.DEBUG


def _in_a_line(record: logging.LogRecord) -> bool:
    """Log an error that aiokafka has left in a future of its own as a line; any other one keeps its traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, KafkaError) or "never retrieved" not in record.getMessage():
        return True
    get_logger().info("aiokafka", message=f"{type(error).__name__}: {error}".partition("\n")[0])
    return False
