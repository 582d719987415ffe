"""The ports: what the application asks of sources, sinks, committers, scorers, detectors and clocks.

Implementations live in the connectors and models packages, or in a third party's; they are found by entry point.
"""

from __future__ import annotations

__all__ = [
    "Clock",
    "Committer",
    "Detector",
    "DurableSink",
    "FittedDetector",
    "LabelledSource",
    "NamedChannels",
    "Scorer",
    "Sink",
    "Source",
    "TrainingProgress",
    "TrainingStep",
    "TrainingSummary",
]

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

from streamad.progress import Progress, ProgressUpdate
from streamad.types import FloatArray, IntArray, OutputRecord, SourceEvent, WindowSet


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

    async def seek(self, partition: str, offset: int | None) -> None:
        """Begin ``partition`` at ``offset`` (None: where the source is configured to begin)."""
        ...

    async def close(self) -> None:
        """Release what is held; safe to call twice."""
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
        """Return the last committed progress of ``partition``; None at the first start."""
        ...

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        """Commit ``outputs`` and ``update`` as one."""
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
    """What the manifest keeps of a training run."""

    n_sequences: int
    n_epochs: int
    best_epoch: int
    best_loss: float
    duration_s: float
    device: str
    settings: Mapping[str, Any] = field(default_factory=dict)


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
