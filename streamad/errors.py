"""The one error tree: everything streamad raises on purpose derives from StreamadError."""

from __future__ import annotations

__all__ = [
    "ArtifactError",
    "CheckpointError",
    "ClockError",
    "ConfigError",
    "DecodeError",
    "DetectorError",
    "DoubtfulError",
    "EncodingError",
    "ExecutorError",
    "InputError",
    "ObjectError",
    "ObjectFailure",
    "OutputError",
    "PartitionLost",
    "PluginError",
    "Problem",
    "RegistryError",
    "SchemaError",
    "SourceError",
    "StalledError",
    "StoreError",
    "StreamadError",
    "TakenOverError",
    "TrainingDataError",
    "UsageError",
    "some_of",
]

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

from streamad.safe_text import masked

_NAMES_SHOWN = 10
_PROBLEMS_SHOWN = 20


def some_of(names: Collection[object]) -> str:
    """Return the first ten names, and how many more there are: a plant may have 49,000 channels."""
    shown = ", ".join(str(name) for name in islice(names, _NAMES_SHOWN))
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown


class StreamadError(Exception):
    """Base of every error that streamad raises on purpose; its text is one line that says what to do.

    Secrets in it are masked: an error may go to a terminal, a log, an event or a file.
    """

    exit_code = 1

    def __init__(self, text: str = "") -> None:
        super().__init__(masked(text))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a config: where (dotted path and line in the file) and what."""

    path: str
    message: str
    line: int | None = None

    def __post_init__(self) -> None:
        for name in ("path", "message"):
            object.__setattr__(self, name, masked(getattr(self, name)))

    def __str__(self) -> str:
        where = self.path or "(file)"
        return f"{where} (line {self.line}): {self.message}" if self.line else f"{where}: {self.message}"


class ConfigError(StreamadError):
    """Raised when the configuration is wrong; holds every problem found, and its text the first twenty."""

    exit_code = 2

    def __init__(self, problems: list[Problem], *, source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        head = f"{source}: " if source else ""
        count = f"{len(problems)} problems" if len(problems) != 1 else "1 problem"
        lines = [str(problem) for problem in problems[:_PROBLEMS_SHOWN]]
        if len(problems) > _PROBLEMS_SHOWN:
            lines.append(f"and {len(problems) - _PROBLEMS_SHOWN} more")
        super().__init__(head + count + "".join(f"\n  {line}" for line in lines))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders; Exception would call __init__ with the text alone.
        return _config_error, (list(self.problems), self.source)


def _config_error(problems: list[Problem], source: str) -> ConfigError:
    return ConfigError(problems, source=source)


class UsageError(StreamadError):
    """Raised when options of a command contradict each other or the input."""

    exit_code = 2


class InputError(StreamadError, ValueError):
    """Raised when what a caller of the Python interface passes cannot be used, with the form that can."""


class PluginError(StreamadError):
    """Raised when no plug-in has a URL scheme or kind, or when one cannot be loaded."""

    exit_code = 2


class SourceError(StreamadError):
    """Raised when an input cannot be opened or read at all (one bad record is a dead letter instead)."""


class TakenOverError(SourceError):
    """Raised when another reader of the group has, or may have, what this one was reading alone."""


class EncodingError(SourceError):
    """Raised when a source's text is not in the configured encoding; ``likely`` is the one that it seems to have."""

    def __init__(self, message: str, likely: str) -> None:
        super().__init__(message)
        self.likely = likely

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodingError, (str(self), self.likely)


ObjectFailure: TypeAlias = Literal["absent", "missing", "refused", "changed", "exists", "away", "other"]
"""Why a request to an object store failed: no such bucket; no such object; no rights; another version is there; a first
version is there already; no answer, or one that may come later; another reason."""


class ObjectError(StreamadError):
    """Raised when an object store refuses, or lacks, what was asked of it; ``kind`` says why."""

    def __init__(self, kind: ObjectFailure, message: str) -> None:
        self.kind: ObjectFailure = kind
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectError, (self.kind, str(self))


class OutputError(StreamadError):
    """Raised when an output cannot be written: no permission, full disk, vanished folder."""


class DoubtfulError(OutputError):
    """Raised when it is not known whether something was written, as no answer came."""


class CheckpointError(StreamadError):
    """Raised when progress cannot be restored or does not fit the outputs on disk."""


class ClockError(StreamadError):
    """Raised when the machine's clock shows a time that has passed."""


class PartitionLost(StreamadError):  # noqa: N818 - a signal: the pipeline restores the partition
    """Raised when a commit failed, is in doubt, or another owner has taken the partition over.

    The receiver drops all state of the partition and restores it from its progress; ``fenced``: another owner commits
    for it now.
    """

    def __init__(self, partition: str, message: str, *, fenced: bool = False) -> None:
        self.partition = partition
        self.fenced = fenced
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _partition_lost, (self.partition, str(self), self.fenced)


def _partition_lost(partition: str, message: str, fenced: bool) -> PartitionLost:
    return PartitionLost(partition, message, fenced=fenced)


class StalledError(StreamadError):
    """Raised when waiting work makes no progress for too long: the process ends, and its supervisor restarts it."""


class DecodeError(StreamadError):
    """Raised inside the decoder for one unreadable record; becomes a dead letter, never a crash.

    ``kind`` is a stable identifier for counters; the text describes the error.
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return DecodeError, (self.kind, str(self))


class SchemaError(StreamadError):
    """Raised when a registered schema cannot be read: damaged, too large, or of a form that is not supported."""


class TrainingDataError(StreamadError):
    """Raised when a training set cannot give a model: too few sequences, constant channels, not finite."""


class DetectorError(StreamadError):
    """Raised when a detector's settings contradict each other or training diverges."""


class ArtifactError(StreamadError):
    """Raised when a model artifact is damaged, foreign, or does not fit the plant; it never goes into service."""


class RegistryError(StreamadError):
    """Raised when the model registry lacks what was asked for or a compare-and-swap lost its race."""


class StoreError(StreamadError):
    """Raised when an inlier store cannot be read or written: no permission, full disk, no network, foreign content."""


class ExecutorError(StreamadError):
    """Raised when workers in other processes or on other machines cannot be started, or are lost for good."""
