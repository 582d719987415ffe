"""Small stores and sequences for the tests of the inlier store: two channels, windows of six samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamad.judge.verdicts import alert_id
from streamad.learn.store.bounds import bounds_of
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import StoredSequence
from streamad.messages import SHARES, Share, Verdict
from streamad.ports import Clock
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, Position, Window, from_us

CHANNELS = (ChannelSpec("temp_c", "degC"), ChannelSpec("flow"))
C, L = 2, 6
WINDOW = WindowSettings(length=L)
START_US = 1_767_225_600_000_000  # where a ManualClock begins
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


def sequence_of(i: int, *, time_s: float | None = None, sequence_id: str | None = None, **more: Any) -> StoredSequence:
    """The i-th sequence: ended in second i (or ``time_s``), its values say which it is."""
    values = np.zeros((C, L), np.float32)
    length = 2 + i % (L - 1)
    values[:, :length] = i + np.arange(length) / 8
    fields: dict[str, Any] = {
        "id": sequence_id if sequence_id is not None else f"id-{i:06d}",
        "stream": f"s{i % 3}",
        "sequence": f"B-{i}",
        "time_us": START_US + round((i if time_s is None else time_s) * SECOND_US),
        "stored_us": START_US + i * SECOND_US,
        "window": Window(values, length),
        "decision": "normal",
        "score": i / 3,
        "p_value": 0.5,
        "model_version": "0001",
    }
    return StoredSequence(**{**fields, **more})


def judged_as(
    number: int, n_channels: int, length: int, *, end_us: int, level: float = 0.0, **fields: Any
) -> tuple[Verdict, Window]:
    """The verdict of sequence ``number`` of stream "s" with ``fields``, and its window around ``level``."""
    rng = np.random.default_rng(number)
    values = level + rng.normal(0, 1, (n_channels, 1)) + rng.normal(0, 0.1, (n_channels, length))
    given: dict[str, Any] = {
        "verdict_id": alert_id("s", f"B-{number}", Position(number, 0), 0),
        "stream": "s",
        "sequence": f"B-{number}",
        "reason": "marker",
        "start_time": from_us(end_us - 500_000),
        "end_time": from_us(end_us),
        "n_samples": length,
        "created_at": from_us(end_us),
    }
    return Verdict(**{**given, **fields}), Window(values.astype(np.float32), length)


def store_of(
    base: Path,
    *,
    model: str = "default",
    channels: tuple[ChannelSpec, ...] = CHANNELS,
    window: WindowSettings = WINDOW,
    clock: Clock | None = None,
    limits: Mapping[Share, int] | None = None,
    max_age: str = "90d",
    opens: bool = True,
) -> InlierStore:
    """A learner's store in ``base``, opened unless ``opens`` is false; no sequence is of the future by its clock."""
    bounds = bounds_of(LearningSettings.model_validate({"max_age": max_age}))
    store = InlierStore(
        base / "inliers.sqlite3",
        model,
        channels=channels,
        window=window,
        bounds={share: replace(one, limit=(limits or {}).get(share, one.limit)) for share, one in bounds.items()},
        clock=clock or ManualClock(START_US + 400 * DAY_US),
    )
    if opens:
        store.open()
    return store


def add(store: InlierStore, numbers: Iterable[int], share: Share = "accepted", *, every: int = 0) -> None:
    """Offer the sequences with these numbers; flush after ``every`` of them, and at the end."""
    for n, i in enumerate(numbers, start=1):
        store.offer(sequence_of(i), share)
        if every and n % every == 0:
            store.flush()
    store.flush()


def numbers(store: InlierStore, share: Share = "accepted") -> list[int]:
    return [int(one.id[3:]) for one in store.read(share)]


def ids(sequences: list[StoredSequence]) -> list[str]:
    return [one.id for one in sequences]


def all_ids(store: InlierStore) -> list[str]:
    """Every id in any share, as storage says, repeated where it is there more than once."""
    return sorted(one.id for share in SHARES for one in store.read(share))


def same(first: StoredSequence, second: StoredSequence) -> bool:
    """Are the two equal to the last bit?"""
    fields = [name for name in first.__slots__ if name != "window"]
    return (
        all(getattr(first, name) == getattr(second, name) for name in fields)
        and first.window.length == second.window.length
        and first.window.values.dtype == second.window.values.dtype
        and np.array_equal(first.window.values, second.window.values)
    )
