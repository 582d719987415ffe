"""The ports: what the application asks of sources, sinks, committers, scorers, detectors and clocks.

Implementations live in the connectors and models packages, or in a third party's; they are found by entry point.
"""

from __future__ import annotations

__all__ = [
    "Clock",
    "Committer",
    "Detector",
    "DurableSink",
    "Feed",
    "FeedRecord",
    "FittedDetector",
    "LabelledSource",
    "NamedChannels",
    "RangedSource",
    "Scorer",
    "Sink",
    "Source",
    "StoredMessage",
    "Subscription",
    "Topic",
    "TopicFinding",
    "Topics",
    "TrainingProgress",
    "TrainingStep",
    "TrainingSummary",
    "TransactionalSource",
]

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

from streamad.messages import OutputRecord, Role
from streamad.progress import Progress, ProgressUpdate
from streamad.types import FloatArray, IntArray, SourceEvent, WindowSet


@runtime_checkable
class Clock(Protocol):
    """Time, injected everywhere so that tests own it."""

    def now_us(self) -> int:
        """Return wall-clock Unix time in microseconds."""
        ...

    def monotonic_us(self) -> int:
        """Return a clock that never goes back, in microseconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


@runtime_checkable
class Source(Protocol):
    """Where records come from.

    Law: after ``seek(partition, o)`` the batches of that partition hold every record with offset >= o exactly once, in
    offset order, the same records for the same offsets at every reading; nothing of a partition before its ``seek``.
    A finite source ends its iterator after the last ``PartitionEnded``.
    """

    options_model: type[BaseModel]

    def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield partitions and their records; the consumer's pull is the back-pressure."""
        ...

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: where the source is configured to begin); return where that is.

        May be called again for a partition that is being read. Raises SourceError where ``offset`` is gone.
        """
        ...

    async def close(self) -> None:
        """Release what is held; safe to call twice."""
        ...


@runtime_checkable
class RangedSource(Protocol):
    """A source that can read a range of time offline: without a group, without commits, with an end."""

    def between(self, since_us: int | None, until_us: int | None) -> Source:
        """Return a finite source of the records from ``since_us`` on and before ``until_us`` (None: all there is now).

        Times are those of the records, Unix microseconds.
        """
        ...


@runtime_checkable
class TransactionalSource(Protocol):
    """A source that keeps the progress of its partitions itself, in one transaction with what goes to its own sinks."""

    def committer(self, sinks: Mapping[Role, Sink]) -> Committer:
        """Return the committer of this source; it writes to ``sinks`` and closes them."""
        ...

    def topics(self, sinks: Mapping[Role, Sink]) -> Topics:
        """Return the keeper of the topics that this source and ``sinks`` need."""
        ...


class TopicFinding(NamedTuple):
    """What was found or done about one topic."""

    level: Literal["ok", "warning", "error"]
    topic: str
    text: str


class Topic(NamedTuple):
    """A topic as it should be: what for, how many partitions (None: as it is), its settings."""

    name: str
    role: str
    partitions: int | None
    settings: Mapping[str, str]


class Topics(Protocol):
    """Makes and checks the topics of a plant."""

    async def wanted(self) -> Sequence[Topic]:
        """Return the topics of the plant, as they should be. Raises SourceError."""
        ...

    async def create(self, *, partitions: int, replicas: int, dry_run: bool = False) -> Sequence[TopicFinding]:
        """Make what is missing, the input with ``partitions``; return what was done. Raises SourceError."""
        ...

    async def check(self) -> Sequence[TopicFinding]:
        """Return what is right and wrong: missing topics, partition counts, retention, compaction, rights."""
        ...

    async def close(self) -> None:
        """Release what is held; safe to call twice."""
        ...


class FeedRecord(NamedTuple):
    """A raw message for a source's place: what a plant's own producer would send.

    ``offset`` is where it lay before, for feeds that keep it (recordings); the others count anew.
    """

    value: bytes
    key: bytes | None = None
    timestamp_us: int | None = None
    offset: int | None = None


@runtime_checkable
class Feed(Protocol):
    """Brings raw messages to where a source reads them: simulator and tests in the part of the plant."""

    options_model: type[BaseModel]

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Take ``records`` in order; those of one key stay in order. Raises OutputError."""
        ...

    async def flush(self) -> None:
        """Return once all are there. Raises OutputError."""
        ...

    async def close(self) -> None:
        """Release what is held; safe to call twice."""
        ...


class StoredMessage(NamedTuple):
    """A message as a sink's system keeps it: its JSON and its place there, as text."""

    value: bytes
    place: str


@runtime_checkable
class Subscription(Protocol):
    """Reads a sink's messages back, each once it is committed, and remembers in its group how far it was read.

    Without a group nothing is remembered, and reading begins with what comes from now on.
    """

    options_model: type[BaseModel]

    def messages(self) -> AsyncIterator[StoredMessage]:
        """Yield messages, endlessly; asking for the next one says that the one before is done. Raises SourceError."""
        ...

    def done(self) -> None:
        """Say that the message yielded last is done, where none is asked for any more."""
        ...

    async def close(self) -> None:
        """Remember how far it was read and release what is held; safe to call twice. Raises SourceError."""
        ...


@runtime_checkable
class LabelledSource(Protocol):
    """A source whose recordings carry class labels."""

    def labels(self) -> Mapping[str, str]:
        """Return sequence id -> class label."""
        ...


@runtime_checkable
class NamedChannels(Protocol):
    """A source whose recordings name the channels once, not in every message."""

    def channel_names(self) -> tuple[str, ...] | None:
        """Return the names in the order of the messages' values, None where the recordings have none or differ."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Where messages go. ``write`` may buffer; ``flush`` returns when they are out of our hands."""

    options_model: type[BaseModel]

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Take ``records`` in order. Raises OutputError."""
        ...

    async def flush(self) -> None:
        """Return once all taken records are safe as far as this sink can promise. Raises OutputError."""
        ...

    async def close(self) -> None:
        """Release what is held; safe to call twice."""
        ...


@runtime_checkable
class DurableSink(Sink, Protocol):
    """A sink that can be cut back, so that a local checkpoint gives exactly-once output."""

    async def position(self) -> int:
        """Return the durable length in bytes; call after ``flush``."""
        ...

    async def truncate(self, position: int) -> None:
        """Cut back to ``position`` bytes; raises CheckpointError where fewer are there."""
        ...


@runtime_checkable
class Committer(Protocol):
    """Makes outputs and progress durable together: all of a commit is there after a crash, or nothing of it."""

    async def restore(self, partition: str) -> Progress | None:
        """Take ``partition`` over from any former owner and return its last committed progress; None at first.

        From then on no former owner can commit for it. Raises PartitionLost where it must be tried again,
        CheckpointError where the progress does not fit.
        """
        ...

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        """Commit ``outputs`` and ``update`` as one; one call at a time for a partition, several for different ones.

        Raises PartitionLost where the commit failed or is in doubt: the partition must be restored. Raises OutputError
        where trying again cannot help.
        """
        ...

    async def release(self, partition: str) -> None:
        """Give ``partition`` up: nothing more is committed for it until it is restored. Never raises."""
        ...

    async def close(self) -> None:
        """Release what is held; safe to call twice."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """A model in service. Thread-safe for one caller at a time; pure: a window's terms never depend on its batch."""

    @property
    def window_shape(self) -> tuple[int, int]:
        """Return (C, L)."""
        ...

    @property
    def n_terms(self) -> int:
        """Return K."""
        ...

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms float32 [B, K] of ``windows`` float32 [B, C, L] (engineering units), ``lengths`` int64 [B].

        The score is their sum; higher is more anomalous.
        """
        ...


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One epoch done: ``epoch`` counts from 1; losses are mean scores per window."""

    epoch: int
    n_epochs: int
    loss: float
    validation_loss: float | None = None


TrainingProgress: TypeAlias = Callable[[TrainingStep], None]


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What the manifest keeps of a training run; ``remarks``: a sentence for each thing that its user ought to know."""

    n_sequences: int
    n_epochs: int
    best_epoch: int
    best_loss: float
    duration_s: float
    device: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@runtime_checkable
class FittedDetector(Protocol):
    """A trained model that has not been exported yet."""

    @property
    def summary(self) -> TrainingSummary:
        """Return what the training did."""
        ...

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return terms float32 [B, K], as ``Scorer.score`` will after export."""
        ...

    def export(self, folder: Path) -> tuple[str, ...]:
        """Write the model's files into ``folder`` and return their names."""
        ...


@runtime_checkable
class Detector(Protocol):
    """A kind of model: trains on windows, and loads what it exported. Constructed with its validated options."""

    options_model: type[BaseModel]

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedDetector:
        """Train on ``data``, deterministic per seed; ``resume`` names a file for saving and continuing a run.

        Raises TrainingDataError where the data cannot give a model, DetectorError where training diverges.
        """
        ...

    def load(self, folder: Path, *, device: str) -> Scorer:
        """Load an exported model whose files were verified. Raises ArtifactError."""
        ...
