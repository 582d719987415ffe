"""A partition's progress as records of a compacted topic: the records of a commit, and their reading at a restart.

Keys: ``p`` the partition's head; ``s:{stream}`` a stream's head; ``c:{stream}:{serial}`` and ``t:{stream}:{serial}``
the buckets of its closed ids and of its starts; ``x:{alert_id}`` a debt. A commit appends to the last bucket and
rewrites no other. Readers skip items of other kinds, which a later streamad may write.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition, errors

from streamad.errors import CheckpointError, SourceError
from streamad.messages import ModelRef
from streamad.partition_progress import Debt, Progress, ProgressUpdate, StreamProgress, merge
from streamad_connectors.kafka.client.admin import Admin, TopicState
from streamad_connectors.kafka.client.errors import explain, why_failed
from streamad_connectors.kafka.client.options import progress_topic_of
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.client.stopping import connected, discard

SCHEMA_VERSION = 1
# Most ids (about 30 bytes each) of a stream that a commit rewrites.
BUCKET_ENTRIES = 256
_HEAD, _STREAM, _CLOSED, _STARTS, _DEBT = b"p", b"s:", b"c:", b"t:", b"x:"
_ANY_KIND = re.compile(rb"[a-z]:")
_FETCH_BYTES = 8_000_000
_FETCH_WAIT_MS = 50
_READ_AT_ONCE = 8

V = TypeVar("V")
Entry: TypeAlias = tuple[str, V | None]


class Item(NamedTuple):
    """One record of the progress topic; a ``value`` of None is a tombstone."""

    key: bytes
    value: bytes | None


class Saved(NamedTuple):
    """A partition's stored progress, and the input's number of partitions at that time."""

    progress: Progress
    n_partitions: int


class OpenTransactionError(errors.KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """Raised when a transaction stays open in a partition of the progress topic, so that its end cannot be read."""

    def __init__(self, place: TopicPartition, offset: int) -> None:
        super().__init__(
            f"a transaction stays open in partition {place.partition} of {place.topic} from offset {offset} on and "
            "hides what was committed after it: end it with Kafka's kafka-transactions.sh (find-hanging, abort)"
        )


class _Version(msgspec.Struct, frozen=True):
    schema_version: int


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = SCHEMA_VERSION
    n_partitions: int
    progress: Progress


class _StreamHead(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's progress without its ids; id entries below the two serial numbers are forgotten."""

    progress: StreamProgress
    closed_from: int = 0
    starts_from: int = 0


_encoder = msgspec.msgpack.Encoder()
_version = msgspec.msgpack.Decoder(_Version)
_head = msgspec.msgpack.Decoder(_Head)
_stream_head = msgspec.msgpack.Decoder(_StreamHead)
_closed_bucket = msgspec.msgpack.Decoder(list[tuple[str, int | None]])
_debt = msgspec.msgpack.Decoder(Debt)
_starts_bucket = msgspec.msgpack.Decoder(list[tuple[str, tuple[int, int] | None]])


class _Buckets(Generic[V]):
    """A dict stored as a list of entries, numbered from 0 and cut into buckets.

    An entry sets a key and moves it to the end, or deletes it (None). Entries below ``start`` are forgotten. A commit
    changes the last bucket and writes tombstones.
    """

    def __init__(self, start: int = 0, buckets: Mapping[int, list[Entry[V]]] | None = None) -> None:
        self.start = start
        self._live: dict[str, V] = {}
        self._serials: dict[str, int] = {}
        self._buckets: dict[int, list[Entry[V]]] = dict(sorted((buckets or {}).items()))
        self._end = start
        for first, entries in self._buckets.items():
            if first > self._end or not entries:
                raise ValueError(f"entries from {self._end} on are missing")
            for serial, (key, value) in enumerate(entries, first):
                if serial >= start:
                    self._set(serial, key, value)
            self._end = max(start, first + len(entries))

    @property
    def content(self) -> dict[str, V]:
        """The dict, in its order."""
        return self._live

    @property
    def firsts(self) -> list[int]:
        """The buckets' numbers."""
        return list(self._buckets)

    def update(self, new: Mapping[str, V]) -> dict[int, list[Entry[V]] | None]:
        """Become ``new``, order included; return changed buckets by number (None: to be deleted)."""
        start, entries = self._changes(new)
        if self._end - start + len(entries) > 2 * len(new) + BUCKET_ENTRIES:
            start, entries = self._end, list(new.items())  # too many dead entries: write all again
        self._forget_below(start)
        changed: dict[int, list[Entry[V]] | None] = {}
        for first, bucket in list(self._buckets.items()):
            if first + len(bucket) > start:
                break
            del self._buckets[first]
            changed[first] = None
        last = next(reversed(self._buckets), None)
        for key, value in entries:
            if last is None or len(self._buckets[last]) >= BUCKET_ENTRIES:
                last = self._end
                self._buckets[last] = []
            self._buckets[last].append((key, value))
            changed[last] = self._buckets[last]
            self._set(self._end, key, value)
            self._end += 1
        return changed

    def _changes(self, new: Mapping[str, V]) -> tuple[int, list[Entry[V]]]:
        """Return the number of the first entry to keep, and the entries to append."""
        keys, live = list(new), list(self._live)
        if not keys:
            return self._end, []
        start = self._serials.get(keys[0])
        if start is None or self._live[keys[0]] != new[keys[0]]:
            return self._end, list(new.items())
        first = live.index(keys[0])
        stays = len(live) - first
        # The usual case, ids forgotten in their order, is compared without a loop: 100,000 in 4 ms.
        if keys[:stays] == live[first:] and list(islice(new.values(), stays)) == list(
            islice(self._live.values(), first, None)
        ):
            return start, [(key, new[key]) for key in keys[stays:]]
        at = 0
        gone: list[Entry[V]] = []
        for key in islice(live, first, None):
            if at < len(keys) and keys[at] == key and new[key] == self._live[key]:
                at += 1
            elif key not in new:
                gone.append((key, None))
        return start, gone + [(key, new[key]) for key in keys[at:]]

    def _forget_below(self, start: int) -> None:
        self.start = start
        while self._live:
            oldest = next(iter(self._live))
            if self._serials[oldest] >= start:
                break
            del self._live[oldest], self._serials[oldest]

    def _set(self, serial: int, key: str, value: V | None) -> None:
        self._live.pop(key, None)
        self._serials.pop(key, None)
        if value is not None:
            self._live[key] = value
            self._serials[key] = serial


class _Stream:
    """The stored closed ids and starts of one stream."""

    def __init__(self, closed: _Buckets[int] | None = None, starts: _Buckets[tuple[int, int]] | None = None) -> None:
        self.closed = closed if closed is not None else _Buckets[int]()
        self.starts = starts if starts is not None else _Buckets[tuple[int, int]]()

    def write(self, name: bytes, progress: StreamProgress) -> Iterator[Item]:
        # The order of starts does not matter: unchanged ones come first, so that only changes are appended.
        stored, starts = self.starts.content, progress.starts
        stays = {key: value for key, value in stored.items() if starts.get(key) == value}
        yield from _bucket_items(_CLOSED, name, self.closed.update(progress.closed))
        yield from _bucket_items(_STARTS, name, self.starts.update(stays | starts))
        head = _StreamHead(
            progress=msgspec.structs.replace(progress, closed={}, starts={}),
            closed_from=self.closed.start,
            starts_from=self.starts.start,
        )
        yield Item(_STREAM + name, _encoder.encode(head))

    def delete(self, name: bytes) -> Iterator[Item]:
        yield from _bucket_items(_CLOSED, name, dict.fromkeys(self.closed.firsts))
        yield from _bucket_items(_STARTS, name, dict.fromkeys(self.starts.firsts))
        yield Item(_STREAM + name, None)


def _bucket_items(prefix: bytes, name: bytes, changed: Mapping[int, list[Entry[Any]] | None]) -> Iterator[Item]:
    for first, entries in changed.items():
        yield Item(b"%b%b:%d" % (prefix, name, first), None if entries is None else _encoder.encode(entries))


class ProgressLog:
    """The progress of one partition as records.

    Law: reading the last item of each key gives ``streamad.partition_progress.merge`` of all written updates.
    """

    def __init__(self, partition: str) -> None:
        self._partition = partition
        self._streams: dict[str, _Stream] = {}

    @classmethod
    def read(cls, partition: str, items: Iterable[Item]) -> tuple[ProgressLog, Saved | None]:
        """Return the log and the progress in ``items``, None if there are none.

        Raises CheckpointError if they are damaged, or written by another program or a newer streamad.
        """
        log = cls(partition)
        last = dict(items)
        found = {key: value for key, value in last.items() if value is not None}
        try:
            return log, log._read(found)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CheckpointError(
                f"the progress of {partition} cannot be decoded ({error}): something else wrote to its progress "
                "topic; delete the topic and create it again, or choose another group, to start over"
            ) from error

    def _read(self, found: dict[bytes, bytes]) -> Saved | None:
        if not found:
            return None
        if _HEAD not in found:
            raise ValueError("the partition's own record is missing")
        raw = found.pop(_HEAD)
        version = _version.decode(raw).schema_version
        if version != SCHEMA_VERSION:
            raise CheckpointError(
                f"the progress of {self._partition} was written by another version of streamad (format {version}, "
                f"here {SCHEMA_VERSION}): go on with that version"
            )
        head = _head.decode(raw)
        if head.progress.partition != self._partition:
            raise ValueError(f"it is that of {head.progress.partition}")
        debts = self._read_debts({key: found.pop(key) for key in [*found] if key.startswith(_DEBT)})
        streams = self._read_streams(found)
        return Saved(msgspec.structs.replace(head.progress, streams=streams, debts=debts), head.n_partitions)

    @staticmethod
    def _read_debts(found: Mapping[bytes, bytes]) -> dict[str, Debt]:
        """Return the debts, the oldest first."""
        debts = sorted(map(_debt.decode, found.values()), key=lambda debt: (debt.alert.created_at, debt.alert.alert_id))
        if {_DEBT + debt.alert.alert_id.encode() for debt in debts} != found.keys():
            raise ValueError("debts and their keys differ")
        return {debt.alert.alert_id: debt for debt in debts}

    def _read_streams(self, found: dict[bytes, bytes]) -> dict[str, StreamProgress]:
        heads: dict[str, _StreamHead] = {}
        closed: dict[str, dict[int, list[Entry[int]]]] = {}
        starts: dict[str, dict[int, list[Entry[tuple[int, int]]]]] = {}
        for key, value in found.items():
            if key.startswith(_STREAM):
                heads[key.removeprefix(_STREAM).decode()] = _stream_head.decode(value)
                continue
            if not key.startswith((_CLOSED, _STARTS)) and _ANY_KIND.match(key):
                continue
            owner, colon, first = key[2:].rpartition(b":")
            if not colon or not first.isdigit() or not key.startswith((_CLOSED, _STARTS)):
                raise ValueError(f"unknown key {key[:80]!r}")
            if key.startswith(_CLOSED):
                closed.setdefault(owner.decode(), {})[int(first)] = _closed_bucket.decode(value)
            else:
                starts.setdefault(owner.decode(), {})[int(first)] = _starts_bucket.decode(value)
        if ownerless := (closed.keys() | starts.keys()) - heads.keys():
            raise ValueError(f"ids of an unknown stream {min(ownerless)!r}")
        streams = {}
        for name, head in heads.items():
            stream = _Stream(_Buckets(head.closed_from, closed.get(name)), _Buckets(head.starts_from, starts.get(name)))
            self._streams[name] = stream
            streams[name] = msgspec.structs.replace(
                head.progress, closed=dict(stream.closed.content), starts=dict(stream.starts.content)
            )
        return streams

    def write(self, update: ProgressUpdate, n_partitions: int) -> list[Item]:
        """Return the records of ``update``, to be committed together; ``n_partitions`` is the input's.

        If that commit fails, read the log again.
        """
        items: list[Item] = []
        for name, progress in update.streams.items():
            if progress is None:
                stream = self._streams.pop(name, None)
                items += stream.delete(name.encode()) if stream is not None else ()
            else:
                items += self._streams.setdefault(name, _Stream()).write(name.encode(), progress)
        for name, debt in update.debts.items():
            items.append(Item(_DEBT + name.encode(), None if debt is None else _encoder.encode(debt)))
        alone = msgspec.structs.replace(update, streams={}, debts={})
        head = _Head(n_partitions=n_partitions, progress=merge(None, alone))
        items.append(Item(_HEAD, _encoder.encode(head)))
        return items


def needed_models(items: Iterable[Item]) -> set[ModelRef]:
    """Return the versions that debts and looks among ``items`` name, of any partition.

    Raises CheckpointError if they are damaged.
    """
    needed: set[ModelRef] = set()
    try:
        for key, value in items:
            if value is not None and key.startswith(_DEBT):
                needed.add(_debt.decode(value).alert.model)
            elif value is not None and key.startswith(_STREAM):
                needed |= {looks.model for looks in _stream_head.decode(value).progress.looks.values()}
    except (msgspec.MsgspecError, RecursionError) as error:
        text = f"a record of the progress topic cannot be decoded ({error}): did another program write it?"
        raise CheckpointError(text) from error
    return needed


async def read_items(kwargs: Mapping[str, Any], topic: str, partition: int, timeout_s: float) -> list[Item]:
    """Return the last committed record of each key of a partition, as of a moment without an open transaction.

    If nobody writes to it any more, that is its end: it waits for the markers of its last transaction. ``kwargs`` are
    those of a reading client. Raises KafkaError, and TimeoutError if nothing moves for ``timeout_s``;
    OpenTransactionError if a transaction stays open for so long.
    """
    consumer = AIOKafkaConsumer(
        **kwargs, group_id=None, fetch_max_wait_ms=_FETCH_WAIT_MS, max_partition_fetch_bytes=_FETCH_BYTES
    )
    try:
        return await _read_to_the_end(consumer, TopicPartition(topic, partition), timeout_s)
    finally:
        await discard(consumer)


async def _read_to_the_end(consumer: AIOKafkaConsumer, place: TopicPartition, timeout_s: float) -> list[Item]:
    loop = asyncio.get_running_loop()
    consumer.assign([place])
    async with asyncio.timeout(timeout_s):
        await connected(consumer.start())
        position = (await consumer.beginning_offsets([place]))[place]
    consumer.seek(place, position)
    last: dict[bytes, bytes | None] = {}
    moved_s, moved_ms = loop.time(), 0
    while True:
        answered_ms = consumer.last_poll_timestamp(place) or 0
        batches = await consumer.getmany(place, timeout_ms=2 * _FETCH_WAIT_MS)
        last |= {record.key or b"": record.value for record in batches.get(place, ())}
        before, position = position, await consumer.position(place)
        stable, end = consumer.last_stable_offset(place), consumer.highwater(place)
        is_closed = stable is not None and stable == end  # no transaction is open there
        if position > before:  # past markers and aborted records as well
            moved_s, moved_ms = loop.time(), consumer.last_poll_timestamp(place) or 0
        if is_closed and (position >= end or (position == before and answered_ms > moved_ms)):
            break  # the latter: the broker has nothing more here, compaction removed the last records
        if loop.time() - moved_s > timeout_s:
            raise TimeoutError if is_closed or stable is None else OpenTransactionError(place, stable)
    return [Item(key, value) for key, value in last.items()]


# --- beside the workers: nothing is fenced, written or joined ---


async def owed_models(state: SourceState) -> set[ModelRef]:
    """Return the versions of models that debts and looks in the progress topics name.

    A topic that is not there owes nothing.

    Raises SourceError, CheckpointError.
    """
    client = state.client
    topics = [progress_topic_of(state.group, topic) for topic in client.place.topics]
    doing = f"read topic {', '.join(topics)}"
    try:
        async with Admin(client) as admin:
            states = await admin.describe(topics)
        places = []
        for topic, topic_state in states.items():
            if isinstance(topic_state, TopicState):
                places += [(topic, number) for number in range(topic_state.partitions)]
            elif topic_state != errors.UnknownTopicOrPartitionError.errno:
                raise SourceError(explain(errors.for_code(topic_state)(topic), client, f"read topic {topic}"))
        turns = asyncio.Semaphore(_READ_AT_ONCE)

        async def owed(topic: str, partition: int) -> set[ModelRef]:
            async with turns:
                items = await read_items(client.consumer_kwargs(), topic, partition, client.request_timeout_s)
            return needed_models(items)

        found = await asyncio.gather(*(owed(*place) for place in places), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
    except (errors.KafkaError, OSError) as error:  # TimeoutError is an OSError
        raise SourceError(await why_failed(error, client, doing)) from error
    return {model for each in found if isinstance(each, set) for model in each}
