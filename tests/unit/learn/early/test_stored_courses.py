"""A look at a stored course sees what one at the running sequence saw, bit for bit, however it is sampled."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from streamad.ingest.windowing import Unscorable, to_window
from streamad.judge.early.course import Course, course_of, look_at, n_seen_of, whole_course
from streamad.judge.early.packing import packed, unpacked
from streamad.judge.gate import make_window
from streamad.learn.early.stored import courses_of
from streamad.learn.process.service import stored_sequence
from streamad.learn.store.records import StoredSequence
from streamad.messages import Window as WindowMessage
from streamad.messages.accepting import accepted
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import ChannelSpec, FinishedSequence, FloatArray, Position
from tests.support.learning.inlier_cases import START_US, judged_as, store_of

NAN = float("nan")
SECOND = 1_000_000
CHANNELS = (ChannelSpec("every", "K"), ChannelSpec("slow"), ChannelSpec("held", fill="hold"))
CASES = [
    {"length": 48},
    {"length": 8, "longer": "truncate"},
    {"length": 8, "longer": "resample"},
    {"length": 48, "resample": {"period": "1s"}},
    {"length": 8, "longer": "truncate", "resample": {"period": "1s"}},
    {"length": 8, "longer": "resample", "resample": {"period": "700ms"}},
]


def settings_of(case: dict[str, Any]) -> WindowSettings:
    return WindowSettings.model_validate({"max_missing": 0.7, "min_samples": 1, **case})


def sequence_of(seed: int) -> FinishedSequence:
    """Even or odd times; channels of different rates, with gaps; some carry readings on or begin before a sample."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    steps = np.full(n - 1, SECOND) if seed % 2 else rng.integers(1, 2 * SECOND, n - 1)
    times_us = START_US + np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)
    values = rng.normal(5, 3, (n, 3)).astype(np.float32)
    values[rng.random((n, 3)) < np.array([(0, 0, 0), (0, 0.7, 0.9), (0.3, 0.5, 0.6)][seed % 3])] = NAN
    carried = np.where(rng.random(3) < 0.5, NAN, rng.normal(5, 3, 3)).astype(np.float32)
    return FinishedSequence(
        "s", str(seed), "marker", times_us, values, Position(seed, 0),
        carried=carried if rng.random() < 0.5 else None,
        begun_us=START_US - int(rng.choice([0, 3 * SECOND])) if rng.random() < 0.5 else None,
    )  # fmt: skip


def message_of(sequence: FinishedSequence, settings: WindowSettings) -> WindowMessage | None:
    window = to_window(sequence, settings, CHANNELS)
    if isinstance(window, Unscorable):
        return None
    verdict, _ = judged_as(sequence.first_position.offset, 3, 2, end_us=sequence.end_us, decision="learning")
    return make_window(verdict, window, CHANNELS, "accepted", "default", course=whole_course(sequence, settings))


def through_the_store(
    messages: Iterable[WindowMessage], settings: WindowSettings, folder: Path
) -> list[StoredSequence]:
    """The sequences as a training reads them: written by a worker, read and stored by the learner, read again."""
    store = store_of(folder, channels=CHANNELS, window=settings)
    for message in messages:
        received = msgspec.json.decode(msgspec.json.encode(message), type=WindowMessage)
        one = stored_sequence(received, CHANNELS, settings.length, START_US)
        assert isinstance(one, StoredSequence), one
        assert store.offer(one, "accepted")
    store.flush()
    found = store.read("accepted")
    store.close()
    return found


def same(one: FloatArray, other: FloatArray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_look_at_the_stored_course_sees_what_one_at_the_running_sequence_saw(
    case: dict[str, Any], tmp_path: Path
) -> None:
    settings = settings_of(case)
    messages = {seed: message_of(sequence_of(seed), settings) for seed in range(100)}
    kept = {message.verdict_id: seed for seed, message in messages.items() if message is not None}
    stored = courses_of(through_the_store(filter(None, messages.values()), settings, tmp_path))
    assert stored.keys() == kept.keys()
    n_looks = 0
    for name, course in stored.items():
        sequence = sequence_of(kept[name])
        n_points = n_seen_of(sequence, settings)
        assert (len(course), course.values.shape[1]) == (n_points, min(n_points, settings.length))
        for n in range(2, min(n_points, settings.length) + 1):
            # The running sequence: the samples that were there once the point was passed, and one behind it.
            last = n if settings.resample is None else _n_until(sequence, n, settings)
            so_far = replace(sequence, times_us=sequence.times_us[: last + 1], values=sequence.values[: last + 1])
            live = look_at(course_of(so_far, settings, n), n, settings, CHANNELS)
            ours = look_at(course, n, settings, CHANNELS)
            assert (live is None) == (ours is None)
            if live is not None and ours is not None:
                n_looks += 1
                assert same(live.values, ours.values)
                assert live.length == ours.length
    assert n_looks > 200


def _n_until(sequence: FinishedSequence, n: int, settings: WindowSettings) -> int:
    """Return how many samples lie at or before the n-th point of the grid."""
    assert settings.resample is not None
    at_us = sequence.start_us + (n - 1) * settings.resample.period
    return int(np.searchsorted(sequence.times_us, at_us, side="right"))


def test_a_record_of_even_samples_costs_next_to_nothing_more() -> None:
    rng = np.random.default_rng(0)
    times_us = START_US + np.arange(500, dtype=np.int64) * SECOND
    values = rng.normal(0, 1, (500, 3)).astype(np.float32)
    sequence = FinishedSequence("s", "1", "marker", times_us, values, Position(0, 0))
    for case in ({"length": 512}, {"length": 512, "resample": {"period": "1s"}}):
        message = message_of(sequence, settings_of(case))
        assert message is not None
        assert len(message.course or "") < 100
        assert len(message.values) == 500 * 3 * 16 // 3


def test_a_course_takes_no_more_than_its_window_and_the_length_of_the_whole_is_kept() -> None:
    rng = np.random.default_rng(0)
    times_us = START_US + np.arange(5_000, dtype=np.int64) * SECOND
    values = rng.normal(0, 1, (5_000, 3)).astype(np.float32)
    values[rng.random((5_000, 3)) < 0.4] = NAN
    sequence = FinishedSequence("s", "1", "marker", times_us, values, Position(0, 0))
    settings = settings_of({"length": 64, "longer": "resample"})
    course = whole_course(sequence, settings)
    assert (course.values.shape, len(course)) == ((3, 64), 4_999)
    message = message_of(sequence, settings)
    assert message is not None
    assert len(message.course or "") < 1.1 * len(message.values)


def test_readers_of_the_outputs_do_not_keep_courses() -> None:
    verdict, window = judged_as(1, 3, 4, end_us=START_US, decision="normal")
    course = Course(window.values[:, :3], np.ones((3, 3), np.bool_))
    message = make_window(verdict, window, CHANNELS, "accepted", "default", course=course)
    plain = make_window(verdict, window, CHANNELS, "accepted", "default")
    assert accepted(message) == plain
    assert b"course" not in msgspec.json.encode(plain)


def raw(whole: int, n: int, rest: bytes = b"") -> bytes:
    return zlib.compress(whole.to_bytes(4, "little") + n.to_bytes(4, "little") + rest)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "damaged"),
        (b"no zlib", "damaged"),
        (zlib.compress(b"1234"), "damaged"),
        (raw(9, 9, b"\0" * 200), "up to 8"),
        (raw(3, 4, b"\0" * 200), "up to 8"),
        (raw(4, 4, b"\0" * 12), "cut"),
        (raw(4, 4, b"\0" * 12 + b"\xff\xf0" + b"\0\0" + b"\0" * 4), "more or fewer"),
        (raw(4, 4, b"\0" * 12 + b"\xff\xf0" + b"\xff\xf0" + b"\0" * 46), "more or fewer"),
        (raw(2**32 - 1, 4, b"\0" * 16), "up to 8"),
        (raw(4, 4, struct.pack("<3f", 0, float("inf"), 0) + b"\0" * 4), "are none"),
        (raw(4, 4, b"\0" * 12 + b"\x40\0" * 2 + struct.pack("<f", float("inf"))), "are none"),
        (raw(4, 4, b"\0" * 12 + b"\x40\0" * 2 + struct.pack("<f", float("nan"))), "are none"),
        (zlib.compress(b"\0" * 50_000_000), "cut"),
    ],
)
def test_what_is_no_course_is_refused_and_takes_no_memory(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpacked(content, np.zeros((3, 8), np.float32), 8)
    verdict, window = judged_as(1, 3, 8, end_us=START_US, decision="normal")
    message = make_window(verdict, window, CHANNELS, "accepted", "default")
    damaged = msgspec.structs.replace(message, course=b64encode(content or b"-").decode())
    refused = stored_sequence(damaged, CHANNELS, 8, START_US)
    assert isinstance(refused, str)
    assert refused.startswith("its values do not fit")


def test_a_course_before_the_second_sample_is_empty() -> None:
    course = Course(np.empty((3, 0), np.float32), np.empty((3, 0), np.bool_), 0)
    window = np.ones((3, 1), np.float32)
    assert len(unpacked(packed(course, window), window, 8)) == 0
