"""The ports: the protocols of sources, sinks, committers, scorers, detectors and clocks.

Implementations live in the connectors and models packages, or in a third party's; they are found by entry point.
"""

from __future__ import annotations

__all__ = [
    "BackendDetector", "BackendExport", "Claim", "ClaimLog", "Clock", "Committer", "Detector", "DurableSink",
    "EndingSubscription", "Feed", "FeedRecord", "FittedDetector", "HoldingSubscription", "LabelledSource",
    "NamedChannels", "OwingSource", "OwnedSink", "Owner", "PartitionContent", "PartitionedSource", "PausableSource",
    "RangedSource", "ResumableSource", "Scorer", "SharedSource", "Sink", "SizedSource", "Source", "StoredMessage",
    "Subscription", "TailSubscription", "Topic", "TopicFinding", "Topics", "TrainingProgress", "TrainingStep",
    "TrainingSummary", "TransactionalSource",
]  # fmt: skip

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel

from streamad.messages import ModelRef, OutputRecord, Role
from streamad.partition_progress import Claim, Progress, ProgressUpdate
from streamad.types import (
    FeedRecord,
    FloatArray,
    IntArray,
    SourceEvent,
    StoredMessage,
    TrainingProgress,
    TrainingStep,
    TrainingSummary,
    WindowSet,
)


@runtime_checkable
class Clock(Protocol):
    """Time, injected everywhere so that tests control it."""

    def now_us(self) -> int:
        """Return wall-clock Unix time in microseconds."""

    def monotonic_us(self) -> int:
        """Return a clock that never goes back, in microseconds."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""


@runtime_checkable
class Source(Protocol):
    """Delivers records.

    Law: after ``seek(partition, o)`` the batches of that partition hold every record with offset >= o exactly once, in
    offset order, the same records for the same offsets at every reading; no record of a partition before its ``seek``.
    A finite source ends its iterator after the last ``PartitionEnded``.
    """

    options_model: type[BaseModel]

    def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield partitions and their records; reading ahead stops when the caller stops asking."""

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: the source's configured beginning); return the offset.

        May be called again for a partition that is being read. Raises SourceError if ``offset`` is gone.
        """

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


@runtime_checkable
class ResumableSource(Protocol):
    """A source whose batches carry a cursor: what it must know to notice that its records were replaced."""

    async def resume(self, partition: str, offset: int, cursor: str) -> int:
        """Begin ``partition`` at ``offset`` as ``Source.seek`` does, after reading went as far as ``cursor`` says.

        Raises SourceError if the records before the cursor are no longer those that were read.
        """

    def check_cursors(self, cursors: Mapping[str, str | None]) -> None:
        """Raise SourceError if a checkpoint with these cursors by partition excludes the present options."""


@runtime_checkable
class PausableSource(Protocol):
    """A source that goes on with its other partitions while one waits."""

    def pause(self, partition: str) -> None:
        """Deliver no more of ``partition`` until its next ``seek``."""


@runtime_checkable
class RangedSource(Protocol):
    """A source that can also read a range of time: without a group, without commits, with an end."""

    def between(self, since_us: int | None, until_us: int | None) -> Source:
        """Return a finite source of the records of ``since_us`` and later, before ``until_us``; None: no limit."""


@runtime_checkable
class TransactionalSource(Protocol):
    """A source that keeps the progress of its partitions itself, in one transaction with the output of its sinks."""

    def committer(self, sinks: Mapping[Role, Sink]) -> Committer:
        """Return the committer of this source; it writes to ``sinks`` and closes them."""

    def topics(self, sinks: Mapping[Role, Sink]) -> Topics:
        """Return the port that makes and checks the topics of this source and ``sinks``."""


@runtime_checkable
class OwingSource(Protocol):
    """A source that keeps the progress of its partitions itself, and so knows which models are still needed."""

    async def owed_models(self) -> Collection[ModelRef]:
        """Return the versions of models that open debts name, and that look at sequences which run.

        Nothing is written, no group is joined. Raises SourceError, CheckpointError if they cannot be read.
        """


class ClaimLog(Protocol):
    """The claims of all partitions of a group in one order, the same for all of its processes.

    ``outlives``: claims stay when the process that wrote them ends, or its partitions move.
    """

    outlives: bool

    async def catch_up(self) -> None:
        """Return once ``take`` gives every claim that lay there at the call. Raises SourceError, OutputError."""

    def write(self, claims: Sequence[Claim]) -> None:
        """Append ``claims``, in order and soon; ``take`` gives them back, among those of others."""

    def take(self) -> Sequence[tuple[int, Claim]]:
        """Return the claims that came since the last call, with their places in the log, which rise.

        A log that is compacted may lack all but the last claim of a stream and partition. Raises SourceError,
        OutputError once the log cannot be read or written.
        """

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


@runtime_checkable
class SharedSource(Protocol):
    """A source whose partitions are shared among processes: each knows only its own, and all of them the claims."""

    def claims(self, on_news: Callable[[], None]) -> ClaimLog:
        """Return the group's claims; ``on_news`` is called when ``take`` has something. ``close`` closes them, too."""


class TopicFinding(NamedTuple):
    """A finding or an action about one topic."""

    level: Literal["ok", "warning", "error"]
    topic: str
    text: str


class Topic(NamedTuple):
    """A topic as it should be: its purpose, number of partitions (None: any), and settings."""

    name: str
    role: str
    partitions: int | None
    settings: Mapping[str, str]


class Topics(Protocol):
    """Makes and checks the topics of a plant."""

    async def wanted(self) -> Sequence[Topic]:
        """Return the topics of the plant as they should be. Raises SourceError."""

    async def create(
        self, *, partitions: int, replicas: int, history_ms: int = 0, dry_run: bool = False
    ) -> Sequence[TopicFinding]:
        """Make missing topics, the input with ``partitions``; return what was done. Raises SourceError.

        New topics of verdicts, alerts, attributions, windows and events keep messages for at least ``history_ms``.
        """

    async def check(self) -> Sequence[TopicFinding]:
        """Return findings about missing topics, partition counts, retention, compaction and rights."""

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


@runtime_checkable
class Feed(Protocol):
    """Writes raw messages to the place that a source reads; simulator, recorder and tests use it."""

    options_model: type[BaseModel]

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Take ``records``; those of one key stay in order. Raises OutputError."""

    async def flush(self) -> None:
        """Return once all taken records are there. Raises OutputError."""

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


@runtime_checkable
class Subscription(Protocol):
    """Reads the committed messages of a sink; a group remembers how far they were read.

    Without a group reading begins with the messages that come from now on.
    """

    options_model: type[BaseModel]

    def messages(self) -> AsyncIterator[StoredMessage]:
        """Yield messages, endlessly; asking for the next one marks the one before as done. Raises SourceError."""

    def done(self) -> None:
        """Mark the message yielded last as done, if no further one is asked for."""

    async def close(self) -> None:
        """Store how far it was read and release all resources; safe to call twice. Raises SourceError."""


@runtime_checkable
class EndingSubscription(Subscription, Protocol):
    """A subscription that can end, for a reader that must not leave what lies there.

    Law: after ``end_with_present``, ``messages`` yields every message that was there at the call, and then ends.
    """

    def end_with_present(self) -> None:
        """Let ``messages`` end after what is there now; later messages may be left. Safe to call twice."""

    async def n_present(self) -> int | None:
        """Return how many of those are not done (Kafka: or more), None if unknown; call it after ``messages`` ended."""


@runtime_checkable
class TailSubscription(EndingSubscription, Protocol):
    """A subscription for a writer that looks for its own last message, also behind or in an open transaction."""

    def end_with_last(self, n: int) -> None:
        """Let ``messages`` yield the last ``n``, or more, of what is there now, and end; call it before them."""


@runtime_checkable
class HoldingSubscription(Subscription, Protocol):
    """A subscription for a reader that reads ahead: messages are done later than the next one is asked for.

    Law: after ``hold`` a message is done by ``release`` alone, and a group begins with the first one not released.
    """

    def hold(self) -> None:
        """Hold every message from now on until ``release``; call it before ``messages``."""

    def release(self, n: int) -> None:
        """Mark the ``n`` oldest of the messages held as done."""


@runtime_checkable
class ExclusiveSubscription(HoldingSubscription, Protocol):
    """A subscription that one reader of a group has at a time: ``messages`` raises TakenOverError once another may.

    A yielded message is this reader's only if ``is_ours`` says so after that.
    """

    async def taken(self) -> bool:
        """Return True once this reader has it, False if ``messages`` ends before that; wait for either."""

    async def is_ours(self) -> bool:
        """Ask the place itself whether this reader still has it; an absent one is waited for. Raises SourceError."""


@runtime_checkable
class LabelledSource(Protocol):
    """A source whose recordings carry class labels."""

    def labels(self) -> Mapping[str, str]:
        """Return sequence id -> class label."""


@runtime_checkable
class SizedSource(Protocol):
    """A source that knows whether it has an end and how much of it was read, otherwise than by offsets."""

    def share_read(self) -> float | None:
        """Return the share from 0 to 1, for the time left: 0 while it cannot be told. None if there is no end."""


class PartitionContent(NamedTuple):
    """What a partition holds: a text that changes whenever its records may have changed, and its size in bytes.

    ``place`` tells it from partitions of the same name in other sources, "" if the name does.
    """

    digest: str
    n_bytes: int
    place: str = ""


@runtime_checkable
class PartitionedSource(Protocol):
    """A finite source whose partitions can be read alone, one here and one in another process or on another machine.

    Law: ``only`` gives the same records at the same offsets as the whole source, and ends.
    """

    def partitions(self) -> Mapping[str, PartitionContent]:
        """Return the content of each partition by its name, in the order of reading. Raises SourceError."""

    def only(self, partition: str) -> Source:
        """Return a source of ``partition`` alone, without looking for the others."""


@runtime_checkable
class NamedChannels(Protocol):
    """A source whose recordings name the channels once, not in every message."""

    def channel_names(self) -> tuple[str, ...] | None:
        """Return the names in the order of the messages' values, None if the recordings have none or differ."""


@runtime_checkable
class Sink(Protocol):
    """Takes messages. ``write`` may buffer; ``flush`` returns when they are stored."""

    options_model: type[BaseModel]

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Take ``records`` in order. Raises OutputError."""

    async def flush(self) -> None:
        """Return once all taken records are as safe as this sink can make them. Raises OutputError."""

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


@runtime_checkable
class DurableSink(Sink, Protocol):
    """A sink that can be cut back, so that a local checkpoint gives exactly-once output."""

    async def position(self) -> int:
        """Return the durable length in bytes; call after ``flush``."""

    async def truncate(self, position: int) -> None:
        """Cut back to ``position`` bytes; raises CheckpointError if fewer are there."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The checkpoint whose commits a sink holds: its id and its folder, both "" for a run without a checkpoint."""

    checkpoint: str
    folder: str


@runtime_checkable
class OwnedSink(DurableSink, Protocol):
    """A durable sink that remembers which checkpoint wrote to it last, so that no other one cuts its messages off."""

    async def owner(self) -> Owner | None:
        """Return who claimed the sink last, None if nobody did. Raises OutputError."""

    async def claim(self, owner: Owner) -> None:
        """Remember ``owner``, durably, before it writes. Raises OutputError."""


@runtime_checkable
class Committer(Protocol):
    """Makes outputs and progress durable together: after a crash all of a commit is there, or nothing."""

    @property
    def max_item_bytes(self) -> int | None:
        """Return how large an item of the progress (a debt) may be at most; None: as large as any."""

    async def owing(self) -> Mapping[str, Progress]:
        """Return the progress of partitions with debts that no source may assign again, such as of a file that is gone.

        Only where one process holds all partitions; otherwise each is paid by whoever restores it. Raises
        CheckpointError, OutputError.
        """

    async def restore(self, partition: str) -> Progress | None:
        """Take ``partition`` over from any former owner and return its last committed progress; None at first.

        From then on no former owner can commit for it. Raises PartitionLost if it must be tried again, CheckpointError
        if the progress does not fit.
        """

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        """Commit ``outputs`` and ``update`` as one; one call at a time for a partition, several for different ones.

        Raises PartitionLost if the commit failed or is in doubt: the partition must be restored. Raises OutputError if
        trying again cannot help.
        """

    async def release(self, partition: str) -> None:
        """Give ``partition`` up: no further commit until it is restored. Never raises."""

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


@runtime_checkable
class Scorer(Protocol):
    """A model in service. One call at a time, from any thread; pure: a window's terms never depend on its batch."""

    @property
    def window_shape(self) -> tuple[int, int]:
        """Return (C, L)."""

    @property
    def n_terms(self) -> int:
        """Return K."""

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms float32 [B, K] of ``windows`` float32 [B, C, L] (engineering units), ``lengths`` int64 [B].

        The score is their sum; higher is more anomalous.
        """


@runtime_checkable
class FittedDetector(Protocol):
    """A trained model that has not been exported yet."""

    @property
    def summary(self) -> TrainingSummary:
        """Return the summary of the training."""

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return terms float32 [B, K], as ``Scorer.score`` will after export."""

    def training_scores(self) -> FloatArray:
        """Return the terms float32 [N, K] of the N windows given to ``fit``, in their order.

        Law: each as if it were not in the model's reference set. A model without one (a network) scores them as they
        are. So a copy of a training window in training scores about as it would later, and an outlier there is high.
        """

    def export(self, folder: Path) -> tuple[str, ...]:
        """Write the model's files into ``folder`` and return their names."""


@runtime_checkable
class BackendExport(Protocol):
    """A trained model that can also be exported for a backend without torch (``model.backend``)."""

    def export_for(self, backend: str, folder: Path) -> tuple[str, ...]:
        """Write the backend's files into ``folder`` and return their names. Raises DetectorError, OutputError."""


@runtime_checkable
class BackendDetector(Protocol):
    """A detector whose models a backend without torch can serve.

    ``backends`` names those that it knows, "torchscript" (``Detector.load``) among them, the fastest first.
    """

    backends: tuple[str, ...]

    def load_by(self, backend: str, folder: Path, *, device: str) -> Scorer:
        """Load what ``BackendExport.export_for`` wrote; it is verified already. Raises ArtifactError."""


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

        ``data.units`` may be empty: a detector must do without. Raises TrainingDataError if the data cannot give a
        model, DetectorError if training diverges.
        """

    def load(self, folder: Path, *, device: str) -> Scorer:
        """Load an exported model; its files are verified already. Raises ArtifactError."""
