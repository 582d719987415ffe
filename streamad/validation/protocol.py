"""The acceptance protocol: its content, in one form for machines and for the page that people sign."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from streamad.validation.deciding import Basis, Outcome, Rate

PROTOCOL_SCHEMA: Final = 1
STATEMENT: Final = (
    "This protocol says what streamad found on the data named in it, with the model, config and versions named in it. "
    "It is no certificate, and no claim of compliance with any law, standard or guideline: whether it is enough is "
    "decided by those who sign it."
)
Part: TypeAlias = Literal["data", "rates", "equality"]


class FileDigest(msgspec.Struct, frozen=True):
    """A file by its name, size, and the hexadecimal sha256 of its content."""

    name: str
    n_bytes: int
    sha256: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One expectation beside what was found. ``says`` is what a reader must know of the outcome, "" if nothing.

    A rate has its ``rate``, ``share`` and 95 % ``interval``, its ``limit``, and what was compared with it
    (``decided_by``). ``n_needed``: how many sequences would show the limit, if the share stayed as it is.
    """

    part: Part
    what: str
    data: tuple[str, ...]
    expected: str
    found: str
    outcome: Outcome
    says: str = ""
    rate: Rate | None = None
    share: float | None = None
    interval: tuple[float, float] | None = None
    limit: float | None = None
    at_most: bool | None = None
    decided_by: Basis | None = None
    n_needed: int | None = None


class LabelCount(msgspec.Struct, frozen=True):
    """Sequences with one label, how many of them alerted, and how many had no score."""

    label: str
    is_fault: bool
    alerts: Rate
    share: float
    interval: tuple[float, float] | None
    n_unscorable: int
    auc: float | None


class WarningCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Warnings of running sequences: of normal ones, of faulty ones before their end, and how long before it.

    ``median_lead``: as a share of the usual length.
    """

    of_normal: Rate
    of_faulty: Rate
    median_lead_s: float | None
    median_lead: float | None
    median_delay_s: float | None
    n_before_onset: int


class DataFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A data set: its files, its labels, and what became of its sequences. ``lost``: of samples and records."""

    name: str
    recordings: str
    files: tuple[FileDigest, ...]
    labels: str
    labels_file: FileDigest | None
    n_records: int
    n_sequences: int
    decisions: dict[str, int]
    unscorable: dict[str, int]
    n_unlabelled: int
    lost: dict[str, str]
    by_label: tuple[LabelCount, ...]
    warnings: WarningCounts | None


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A version that judged. ``sha256`` is its digest in the decision log and in approvals."""

    name: str
    version: str
    sha256: str
    detector: str
    seed: int
    n_training: int
    n_calibration: int
    calibration: str
    trained_at: datetime
    trained_with: dict[str, str]
    files: tuple[FileDigest, ...]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The config, the expectations, and the versions of software.

    ``settings_sha256`` is of all settings in effect: the subject of the decision log's ``config`` entries, whose
    ``file`` is the digest of ``config``.
    ``overrides`` names the environment variables that changed settings.
    """

    config: FileDigest
    settings_sha256: str
    overrides: tuple[str, ...]
    expectations: FileDigest
    further: tuple[FileDigest, ...]
    seed: int
    versions: dict[str, str]
    system: str


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """The whole protocol. Two runs on the same inputs differ in ``created_at`` alone."""

    format: Literal["streamad-acceptance"] = "streamad-acceptance"
    schema_version: int = PROTOCOL_SCHEMA
    title: str
    plant: str
    passed: bool
    created_at: datetime
    statement: str = STATEMENT
    decided_by: Basis
    false_alarm_rate: float
    lines: tuple[Line, ...]
    data: tuple[DataFacts, ...]
    models: tuple[ModelFacts, ...]
    origin: Origin
    notes: tuple[str, ...]

    def of(self, part: Part) -> list[tuple[int, Line]]:
        """Return the lines of ``part`` with their numbers, which begin at 1."""
        return [(number, line) for number, line in enumerate(self.lines, start=1) if line.part == part]

    def count(self, outcome: Outcome) -> int:
        """Return how many lines have ``outcome``."""
        return sum(line.outcome == outcome for line in self.lines)


def encode_protocol(protocol: Protocol) -> bytes:
    """Return the protocol as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(protocol), indent=2) + b"\n"
