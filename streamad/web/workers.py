"""What runs: the latest status of each worker, and the readings so far of open sequences. Kept in memory only.

Law: a worker that has written twice and goes on is never called silent, and one that is gone is called silent soon,
whatever its clock says.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from streamad.messages import OpenSequence, Running, WorkerStatus
from streamad.ports import Clock
from streamad.types import to_us

_MISSED = 3
"""So many intervals without a status are silence."""
_LATE_S = 2.0
_INTERVAL_S = (1.0, 3_600.0)
_FORGOTTEN_S = 86_400.0
_STEPS_S = ((120, 10), (7_200, 60), (172_800, 3_600))
"""How often the age of a silent worker is shown anew, up to which age."""
_OF_PROCESS = re.compile(r"(.+)-\d{3,}")
_LETTERS_US = 3_600_000_000
_MOST_WORKERS = 1_000
_MOST_BYTES = 32 << 20
_MOST_ENDED = 5
_MOST_CURVES = 4_000
_MOST_CURVES_CHARACTERS = 32_000_000


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as its last status says it, and how long ago that was written."""

    status: WorkerStatus
    silent_s: float
    has_new_letters: bool = False
    """Whether its dead letters have become more within the last hour."""

    @property
    def is_silent(self) -> bool:
        """Return whether it should have written long ago."""
        low, high = _INTERVAL_S
        interval_s = min(max(self.status.interval_s, low), high)
        return not self.status.stopped and self.silent_s > _MISSED * interval_s + _LATE_S

    @property
    def is_live(self) -> bool:
        """Return whether it runs, as far as one can tell."""
        return not self.status.stopped and not self.is_silent


@dataclass(slots=True)
class _Heard:
    """The last status of a worker, read at ``at_us`` of this machine's monotonic clock, ``age_us`` old by then.

    ``letters_us``: when its dead letters were seen to grow, None if they were not. ``n_bytes``: about its size.
    """

    status: WorkerStatus
    at_us: int
    age_us: int
    letters_us: int | None
    n_bytes: int


class Workers:
    """The workers that the role ``status`` names; one thread takes messages, any number look.

    A status that comes in its time counts from then on by this machine's clock. Only of one read at once, as at the
    start, does its date say how old it is.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: dict[str, _Heard] = {}
        self._curves: dict[tuple[str, str], Running] = {}  # the one heard last is the last
        self._n_characters = 0
        self._n_bytes = 0
        self._left_out_us: int | None = None
        self._shown: tuple[object, ...] = ()
        self.number = 0
        """Grows with everything that a page would show differently."""

    def take(self, message: WorkerStatus | Running) -> None:
        """Take up a message."""
        with self._lock:
            if isinstance(message, Running):
                self._take_curve(message)
            else:
                self._take_status(message)
            self.number += 1

    def replace(self, instance: str, messages: Iterable[WorkerStatus | Running]) -> None:
        """Take up all that is there of a worker; other readings of it are gone."""
        with self._lock:
            self._drop_all(instance)
        for message in messages:
            if message.instance == instance:
                self.take(message)

    def forget(self, instance: str) -> None:
        """Forget a worker whose status was removed."""
        with self._lock:
            self._forget(instance)
            self.number += 1

    def remove(self, key: str) -> None:
        """Forget what was written to the topic under ``key``: a worker, or its readings of one stream."""
        with self._lock:
            if key in self._heard:
                self._forget(key)
            else:
                self._drop(next((each for each in self._curves if "/".join(each) == key), ("", "")))
            self.number += 1

    @property
    def left_out(self) -> str | None:
        """Return why not all workers are known, None if they are."""
        with self._lock:
            at_us = self._left_out_us
        if at_us is None or self._clock.monotonic_us() - at_us > _LETTERS_US:
            return None
        return (
            f"more than {_MOST_WORKERS:,} workers write a status, or more than {_MOST_BYTES >> 20} MB of it: those "
            "that ended or were heard longest ago are left out. Look who may write to sinks.status"
        )

    def _take_status(self, status: WorkerStatus) -> None:
        now_us = self._clock.monotonic_us()
        known = self._heard.pop(status.instance, None)
        self._n_bytes -= 0 if known is None else known.n_bytes
        age_us = max(0, self._clock.now_us() - to_us(status.created_at))
        if known is not None:
            waited_us = now_us - known.at_us
            between_us = to_us(status.created_at) - to_us(known.status.created_at)
            if between_us <= 0:  # its clock was set back, or it is another process
                between_us = round(min(max(status.interval_s, _INTERVAL_S[0]), _INTERVAL_S[1]) * 1e6)
            if 2 * waited_us >= between_us:  # it came in its time, so it is no old one
                age_us = 0
        letters_us = None
        if known is not None and known.status.started_at == status.started_at:
            letters_us = now_us if status.dead_letters > known.status.dead_letters else known.letters_us
        n_bytes = len(msgspec.json.encode(status))
        self._heard[status.instance] = _Heard(status, now_us, age_us, letters_us, n_bytes)
        self._n_bytes += n_bytes
        while len(self._heard) > _MOST_WORKERS or self._n_bytes > _MOST_BYTES:
            gone = next((each.status.instance for each in self._workers() if not each.is_live), None)
            self._forget(next(iter(self._heard)) if gone is None else gone)
            self._left_out_us = now_us

    def _take_curve(self, curve: Running) -> None:
        key = curve.instance, curve.stream
        self._drop(key)
        self._curves[key] = curve
        self._n_characters += len(curve.values)
        while len(self._curves) > _MOST_CURVES or self._n_characters > _MOST_CURVES_CHARACTERS:
            self._drop(next(iter(self._curves)))

    def _drop(self, key: tuple[str, str]) -> None:
        curve = self._curves.pop(key, None)
        self._n_characters -= 0 if curve is None else len(curve.values)

    def _drop_all(self, instance: str) -> None:
        for key in [key for key in self._curves if key[0] == instance]:
            self._drop(key)

    def _forget(self, instance: str) -> None:
        known = self._heard.pop(instance, None)
        self._n_bytes -= 0 if known is None else known.n_bytes
        self._drop_all(instance)

    def look(self) -> bool:
        """Return whether a page would show a worker differently than at the last look, by the passing of time alone.

        It has fallen silent, its silence has grown visibly, or it was forgotten.
        """
        with self._lock:
            workers = self._workers()
            is_any_live = any(each.is_live for each in workers)
            now_us = self._clock.monotonic_us()
            for each in workers:
                unheard_us = now_us - self._heard[each.status.instance].at_us  # its own date may be wrong
                is_over = each.status.stopped or unheard_us > _FORGOTTEN_S * 1e6
                if is_over and is_any_live:  # else the last ones say since when nothing runs
                    self._forget(each.status.instance)
            shown = tuple((each.status.instance, _silence(each)) for each in self._workers())
            has_changed = shown != self._shown
            self._shown = shown
            self.number += has_changed
        return has_changed

    def _workers(self) -> list[Worker]:
        now_us = self._clock.monotonic_us()
        return [
            Worker(
                each.status,
                (now_us - each.at_us + each.age_us) / 1e6,
                each.letters_us is not None and now_us - each.letters_us < _LETTERS_US,
            )
            for each in self._heard.values()
        ]

    def seen(self) -> list[Worker]:
        """Return the workers that run or should run, by name; if there are none, those that were heard last."""
        with self._lock:
            workers = self._workers()
        live = [each for each in workers if each.is_live]
        silent = [each for each in workers if each.is_silent and each.silent_s <= _FORGOTTEN_S]
        expected = live + [each for each in silent if not any(_follows(one, each) for one in live)]
        if expected:
            return sorted(expected, key=lambda each: each.status.instance)
        return sorted(workers, key=lambda each: each.silent_s)[:_MOST_ENDED]

    def open(self) -> list[OpenSequence]:
        """Return what the workers that run have open: by rising p-value, then those that began last first."""
        found = [one for worker in self.seen() if worker.is_live for one in worker.status.open]
        newest = sorted(found, key=lambda one: one.start_time, reverse=True)
        return sorted(
            newest, key=lambda one: (2.0, 0.0) if one.looked is None else (one.looked.p_value, -one.looked.largest[-1])
        )

    def running(self, stream: str) -> tuple[Running, WorkerStatus] | None:
        """Return the readings so far of a stream's open sequence, and the status that names it; None without both."""
        live = {each.status.instance: each.status for each in self.seen() if each.is_live}
        with self._lock:
            curves = [each for each in reversed(self._curves.values()) if each.stream == stream]
        for curve in curves:
            status = live.get(curve.instance)
            if status is not None and any(
                (one.stream, one.sequence) == (stream, curve.sequence) for one in status.open
            ):
                return curve, status
        return None


def _silence(worker: Worker) -> tuple[int, int] | None:
    """Return what differs whenever the age of a silent worker is shown anew; None if it is not silent."""
    if not worker.is_silent:
        return None
    step_s = next((step_s for until_s, step_s in _STEPS_S if worker.silent_s < until_s), 86_400)
    return step_s, int(worker.silent_s // step_s)


def _follows(live: Worker, silent: Worker) -> bool:
    """Return whether ``live`` is what was started in place of ``silent``: on the same machine, and later.

    That shows only in the default names, of machine and process.
    """
    ours, theirs = (_OF_PROCESS.fullmatch(each.status.instance) for each in (live, silent))
    is_same_machine = ours is not None and theirs is not None and ours[1] == theirs[1]
    return is_same_machine and live.status.started_at > silent.status.created_at
