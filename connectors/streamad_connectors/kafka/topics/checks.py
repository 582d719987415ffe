"""Findings about topics, brokers and rights, as pure functions of a cluster's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from aiokafka import errors

from streamad.messages import Role
from streamad.ports import Topic, TopicFinding
from streamad.settings.places import place_key
from streamad_connectors.kafka.client.admin import NewTopic, TopicState
from streamad_connectors.kafka.client.errors import PARTITIONS_ADDED, UNKNOWN_TOPIC, explain
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, transactional_id_of

CLUSTER = "(cluster)"
TRANSACTIONS = "(transactions)"
OTHER_BROKER = (
    "streamad needs it to give each sequence exactly one verdict; take a broker, version or tier that has it "
    "(docs/guide/kafka.md, Brokers)"
)
BROKER_SETTINGS = (
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "auto.create.topics.enable",
)
TOPIC_SETTINGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "segment.ms",
    "segment.bytes",
)
_DAY_MS = 86_400_000
_LARGE_SEGMENT_BYTES = 128 * 1024 * 1024
_SAFE_COPIES = 3
_LOOPBACK = ("localhost:", "127.", "[::1]:")
_NEWEST_COUNTS = ("feedback", "status")  # of each key


_ok, _warning, _error = (partial(TopicFinding, level) for level in ("ok", "warning", "error"))


def is_missing(state: TopicState | int) -> bool:
    """Return whether the topic does not exist."""
    return state == int(errors.UnknownTopicOrPartitionError.errno)


def existing(topic: Topic, state: TopicState | int, client: Client) -> list[TopicFinding]:
    """Return the state of a topic; nothing for a missing one."""
    if is_missing(state):
        return []
    if isinstance(state, int):
        text = explain(errors.for_code(state)(), client, f"describe topic {topic.name}")
        if state == errors.TopicAuthorizationFailedError.errno:
            text += ", or create the topic if it is missing (without the right nobody can tell)"
        return [_error(topic.name, text)]
    if topic.role == "progress" and topic.partitions not in (None, state.partitions):
        text = f"has {_count(state.partitions, 'partition')}, its input has {topic.partitions}: {PARTITIONS_ADDED}"
        return [_error(topic.name, text)]
    if topic.role == "claims" and state.partitions != 1:
        return [_error(topic.name, text) for text in claims_problems(topic.name, state.partitions, {}, client)]
    if not state.is_led:
        n = sum(leader < 0 for leader in state.leaders)
        return [_error(topic.name, f"{n} of {_count(state.partitions, 'partition')} have no leader: is a broker down?")]
    size = f"{_count(state.partitions, 'partition')}, {_count(state.copies, 'copy', 'copies')}"
    return [_ok(topic.name, f"{topic.role}: {size}")]


def created(topic: NewTopic, code: int, said: str, client: Client, *, dry_run: bool) -> TopicFinding:
    """Return the result of creating a topic; ``said`` is the broker's own text."""
    if code == 0:
        size = f"{_count(topic.partitions, 'partition')}, {_count(topic.replicas, 'copy', 'copies')}"
        return _ok(topic.name, f"{'would be made' if dry_run else 'made'}: {size}{_listed(topic.settings)}")
    kind = errors.for_code(code)
    if kind is errors.TopicAlreadyExistsError:
        return _ok(topic.name, "is there already (somebody else has just made it)")
    text = explain(kind(), client, f"create topic {topic.name}")
    is_clearer = said and kind in (errors.InvalidConfigurationError, errors.PolicyViolationError, errors.UnknownError)
    return _error(topic.name, said.splitlines()[0] if is_clearer else text)


def _listed(settings: Mapping[str, str]) -> str:
    return "".join(f", {name}={value}" for name, value in settings.items())


def settings(
    topic: Topic, values: Mapping[str, str], client: Client, max_duration_us: int | None, message_bytes: int
) -> list[TopicFinding]:
    """Return problems of a topic's settings; ``message_bytes``: size of the longest message written to it."""
    findings = []
    if topic.role == "claims":
        return [_error(topic.name, text) for text in claims_problems(topic.name, 1, values, client)]
    policy = {part.strip() for part in values.get("cleanup.policy", "delete").split(",")}
    if topic.role == "progress":
        findings += _progress(topic.name, policy, values)
    elif topic.role == "status":
        if "compact" not in policy:
            text = (
                f"has cleanup.policy={','.join(sorted(policy))}: it grows with every status, and a page reads all of "
                "them at its start; set cleanup.policy=compact,delete"
            )
            findings.append(_warning(topic.name, text))
    elif "compact" in policy and topic.role not in _NEWEST_COUNTS:
        text = "has cleanup.policy=compact: of each key only the newest message is kept; set cleanup.policy=delete"
        findings.append((_warning if topic.role == "input" else _error)(topic.name, text))
    if topic.role == "input":
        findings += _retention(topic.name, policy, values, max_duration_us)
    limit = int(values.get("max.message.bytes", message_bytes))
    if limit < message_bytes:
        text = f"takes messages of up to {limit} bytes, here are some of up to {message_bytes}: raise its "
        lower = "" if topic.role == "progress" else ", or lower the sink's max_message_bytes"
        findings.append(_error(topic.name, f"{text}max.message.bytes{lower}"))
    return findings


def _progress(name: str, policy: set[str], values: Mapping[str, str]) -> list[TopicFinding]:
    if policy != {"compact"}:
        text = f"has cleanup.policy={','.join(sorted(policy))}, which deletes progress: set cleanup.policy=compact"
        return [_error(name, text)]
    is_slow = int(values.get("segment.ms", 0)) > _DAY_MS
    if is_slow and int(values.get("segment.bytes", 0)) > _LARGE_SEGMENT_BYTES:
        text = "is hardly ever compacted, so that a restart reads long: set segment.ms=3600000"
        return [_warning(name, text)]
    return []


def claims_problems(name: str, n_partitions: int, values: Mapping[str, str], client: Client) -> list[str]:
    """Return what is wrong with a topic of claims, with the command that mends it; ``values`` are those known."""
    if n_partitions != 1:
        return [
            f"has {n_partitions} partitions, but claims need one order: stop the workers, delete it and run "
            "`streamad topics create --config FILE`"
        ]
    policy = {part.strip() for part in values.get("cleanup.policy", "compact").split(",")}
    if policy == {"compact"}:
        return []
    return [
        f"has cleanup.policy={','.join(sorted(policy))}, which deletes claims: a stream in two partitions may be "
        f"judged in parts: run `kafka-configs.sh --bootstrap-server {client.place.brokers[0]} --alter --entity-type "
        f"topics --entity-name {name} --add-config cleanup.policy=compact`"
    ]


def _retention(
    name: str, policy: set[str], values: Mapping[str, str], max_duration_us: int | None
) -> list[TopicFinding]:
    if "delete" not in policy:
        return []
    findings = []
    kept_ms, needed_ms = int(values.get("retention.ms", -1)), -(-(max_duration_us or 0) // 1_000)
    if 0 <= kept_ms < 2 * needed_ms:
        text = (
            f"keeps records for {_time(kept_ms)} only, a sequence may last {_time(needed_ms)} (sequences.max_duration) "
            f"and is read again after a restart: set retention.ms to {4 * needed_ms} or more, or lower the limit"
        )
        findings.append((_error if kept_ms <= needed_ms else _warning)(name, text))
    if int(values.get("retention.bytes", -1)) >= 0:
        text = (
            f"keeps {values['retention.bytes']} bytes of a partition at most (retention.bytes), whatever their age: "
            "make sure that this is longer than sequences.max_duration"
        )
        findings.append(_warning(name, text))
    return findings


def copies(states: Sequence[TopicState], values: Mapping[str, Mapping[str, str]]) -> list[TopicFinding]:
    """Return warnings about topics that would not survive the loss of a broker."""
    findings = []
    single = [state.name for state in states if state.copies == 1]
    if single:
        which = "all topics have" if len(single) == len(states) else f"{', '.join(single)}: only"
        findings.append(_warning(CLUSTER, f"{which} one copy: the loss of its broker loses their records"))
    for state in states:
        least = int(values.get(state.name, {}).get("min.insync.replicas", 0))
        if 1 < state.copies < least:
            text = f"has {state.copies} copies, min.insync.replicas={least}: nothing can be written to it"
            findings.append(_error(state.name, text))
        elif 1 < state.copies == least:
            text = f"has min.insync.replicas={least} of {least} copies: no broker may be down"
            findings.append(_warning(state.name, text))
        elif state.copies >= _SAFE_COPIES and least == 1:
            text = "has min.insync.replicas=1: a message can be lost with one broker; set it to 2"
            findings.append(_warning(state.name, text))
        if state.in_sync < state.copies:
            text = f"has partitions with {state.in_sync} of {state.copies} copies in sync: is a broker down?"
            findings.append(_warning(state.name, text))
    return findings


def fewer_copies(states: Mapping[str, TopicState | int], replicas: int) -> list[TopicFinding]:
    """Return a warning if topics exist already with fewer copies than new ones get."""
    fewer = [state.name for state in states.values() if isinstance(state, TopicState) and state.copies < replicas]
    if not fewer:
        return []
    text = (
        f"fewer copies than {replicas}: {', '.join(fewer)}; existing topics stay as they are, "
        "add copies with Kafka's own kafka-reassign-partitions.sh"
    )
    return [_warning(CLUSTER, text)]


def broker(values: Mapping[str, str], options: KafkaSourceOptions) -> list[TopicFinding]:
    """Return problems of a broker's settings, such as time-outs that it does not allow."""
    findings = []
    least_ms = int(values.get("group.min.session.timeout.ms", 0))
    most_ms = int(values.get("group.max.session.timeout.ms", 2**31))
    if not least_ms <= options.session_timeout // 1_000 <= most_ms:
        text = f"session_timeout must be {least_ms / 1_000:g} s to {most_ms / 1_000:g} s for this broker"
        findings.append(_error(CLUSTER, text + " (group.min.session.timeout.ms, group.max.session.timeout.ms)"))
    if values.get("auto.create.topics.enable") == "true":
        text = (
            "auto.create.topics.enable=true: a mistyped topic is made silently, and a progress topic not compacted; "
            "make topics with streamad topics create before the first run"
        )
        findings.append(_warning(CLUSTER, text))
    return findings


def security(client: Client) -> list[TopicFinding]:
    """Return a warning about unencrypted secrets."""
    is_local = all(broker.startswith(_LOOPBACK) for broker in client.place.brokers)
    if client.options.security.protocol != "sasl_plaintext" or is_local:
        return []
    what = "the password" if client.options.security.mechanism == "plain" else "every message"
    return [_warning(CLUSTER, f"protocol sasl_plaintext sends {what} unencrypted: use sasl_ssl")]


def refusal(name: str, code: int, client: Client, doing: str) -> list[TopicFinding]:
    """Return the missing right; nothing if ``code`` is 0."""
    return [_error(name, explain(errors.for_code(code)(), client, doing))] if code else []


def transaction(step: str, code: int, topic: str, client: Client) -> TopicFinding:
    """Return whether the cluster holds transactions: ``code`` is its answer to ``step`` of an empty one."""
    if code == 0:
        return _ok(TRANSACTIONS, "opened and aborted an empty transaction")
    kind = errors.for_code(code)
    if kind is errors.TransactionalIdAuthorizationFailed:
        prefix = transactional_id_of(topic, "", "")[:-1]
        return _warning(TRANSACTIONS, f"cannot be tried: grant WRITE and DESCRIBE on transactional ids {prefix}*")
    if kind is errors.InvalidTransactionTimeout:
        return _error(TRANSACTIONS, explain(kind(), client))
    name = kind.message if kind is not errors.UnknownError else f"error {code}"
    return _error(TRANSACTIONS, f"the broker refuses transactions ({step}: {name}): {OTHER_BROKER}")


def missing(topic: Topic) -> TopicFinding:
    """Return the error of a missing topic."""
    return _error(topic.name, UNKNOWN_TOPIC)


def elsewhere(role: Role, client: Client) -> TopicFinding:
    """Return a warning about a sink on another cluster."""
    place = client.place
    text = (
        f"{place_key(role)} is at {', '.join(place.brokers)}, another cluster than the source: its topic is not "
        "checked or created here, and its messages are not part of the transactions (at least once)"
    )
    return _warning(place.topic, text)


def unseen(names: Sequence[str]) -> list[TopicFinding]:
    """Return a warning about settings that could not be read."""
    if not names:
        return []
    text = f"settings could not be checked, grant DESCRIBE_CONFIGS on: {', '.join(names)}"
    return [_warning(CLUSTER, text)]


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _time(ms: int) -> str:
    for unit, size in (("d", _DAY_MS), ("h", 3_600_000), ("min", 60_000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms / 1_000:g} s"
