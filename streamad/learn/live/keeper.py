"""Judged sequences in a model's own thread: gate, inlier store, drift. A failing store never raises here."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from streamad.drift.monitor import Drift
from streamad.drift.plant_watch import PlantWatch
from streamad.errors import StoreError
from streamad.judge.gate import gate
from streamad.learn.store.records import Inliers, Mark, StoredSequence
from streamad.messages import ModelRef, Share, Verdict
from streamad.ports import Clock
from streamad.settings.learning import LearningSettings
from streamad.types import Window

WARM_UP_BYTES = 1 << 28
"""A larger reserve is not shown to the drift monitor at the start."""
WAITING_BYTES = 1 << 28
"""Memory for the windows that wait while the store cannot be opened."""


@dataclass(frozen=True, slots=True)
class ToKeep:
    """A judged sequence, and the champion when its verdict was committed."""

    verdict: Verdict
    window: Window
    champion: ModelRef | None
    stored_us: int


@dataclass(frozen=True, slots=True)
class NewChampion:
    """The sequences that follow are judged by another model."""


Item: TypeAlias = ToKeep | NewChampion


def drop_oldest(items: deque[Item]) -> int:
    """Drop the oldest sequence of ``items``, but no change of the model; return how many were dropped, 1 or 0."""
    place = next((i for i, item in enumerate(items) if isinstance(item, ToKeep)), None)
    if place is None:
        return 0
    del items[place]
    if 0 < place < len(items) and isinstance(items[place], NewChampion):
        del items[place]
    return 1


@dataclass(slots=True)
class Work:
    """The result of one turn of the thread.

    ``kept``: sequences taken into each share in this turn; ``held``: sequences in each share after it; ``n_waiting``:
    sequences that wait for the store to open; ``n_dropped``: sequences lost since the beginning, because the store was
    away for too long. ``failure``: the store cannot be read or written.
    """

    kept: Counter[Share] = field(default_factory=Counter)
    held: Counter[Share] = field(default_factory=Counter)
    n_waiting: int = 0
    n_dropped: int = 0
    drifts: list[Drift] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failure: StoreError | None = None


class Keeper:
    """Passes judged sequences through the gate into ``store`` and to ``plant``; one caller at a time.

    ``plant`` first sees the reserve of former runs, which is kept whatever the decision, so that a restart forgets
    neither usual values nor a change of the plant. (A reserve of more than 256 MiB is skipped.) ``champion`` returns
    the model in service. While the store cannot be opened, the newest ``limit`` sequences wait here.
    """

    def __init__(
        self,
        store: Inliers,
        settings: LearningSettings,
        clock: Clock,
        plant: PlantWatch,
        champion: Callable[[], ModelRef | None],
    ) -> None:
        n_kept = settings.max_accepted + settings.max_reserve + settings.max_aside
        self.limit = max(1, min(n_kept, WAITING_BYTES // store.window_bytes))
        self._store = store
        self._settings = settings
        self._clock = clock
        self._plant = plant
        self._champion = champion
        self._unflushed: Counter[Share] = Counter()
        self._is_open = False
        self._failures: dict[Callable[[], None], StoreError] = {}
        self._retry_us = clock.monotonic_us()
        self._waiting: deque[tuple[StoredSequence, Share]] = deque(maxlen=self.limit)
        self._known_problems: set[str] = set()
        self._n_dropped = 0
        self.n_taken = 0
        """Sequences taken so far."""

    def work(self, items: Sequence[Item], *, flush: bool) -> Work:
        """Take ``items`` in order; ``flush`` makes them durable and, before the first model, counts again."""
        work = Work()
        if not self._failures or flush or self._clock.monotonic_us() >= self._retry_us:
            self._reach(self._open)
        is_cold = not items and self._champion() is None  # other workers may have stored enough for a first training
        if self._is_open and flush and (is_cold or self._store.open in self._failures):
            self._reach(self._store.open)
        for item in items:
            self._take(item, work)
        if self._is_open:
            self._offer(work)
            if flush:
                self._reach(self._flush)
            work.problems = self._new_problems()
            work.held = Counter(self._store.counts()) + self._unflushed
        work.n_waiting = len(self._waiting)
        work.n_dropped = self._n_dropped + self._store.n_dropped
        work.failure = next(iter(self._failures.values()), None)
        return work

    @property
    def n_unwritten(self) -> int:
        """Return how many sequences wait for their shard, or for the store to open; safe while ``work`` runs."""
        return len(self._waiting) + self._unflushed.total()

    def kept_since(self, since_us: int) -> int:
        """Return how many sequences within the bounds ended since ``since_us``, of any decision. Raises StoreError."""
        self._open()
        return self._store.count_since(since_us)

    def accepted_since(self, stored_us: int) -> int:
        """Return how many accepted sequences any worker stored after ``stored_us``. Raises StoreError."""
        self._open()
        return sum(not one.only_marked for one in self._store.read("accepted", stored_after_us=stored_us))

    def mark(self, mark: Mark) -> None:
        """Store an operator's mark, durable at once. Raises StoreError."""
        self._open()
        self._store.mark(mark)
        self._reach(self._store.tidy_marks)

    def _reach(self, step: Callable[[], None]) -> None:
        """Take a step that needs the storage; its failure is remembered until the same step succeeds."""
        try:
            step()
        except StoreError as error:
            self._failures[step] = error
            self._retry_us = self._clock.monotonic_us() + self._settings.flush_interval
        else:
            self._failures.pop(step, None)

    def _open(self) -> None:
        if not self._is_open:
            self._store.open()
            self._warm_up()
            self._is_open = True

    def _warm_up(self) -> None:
        if self._store.counts()["reserve"] * self._store.window_bytes > WARM_UP_BYTES:
            return
        champion = self._champion()
        for sequence in self._store.read("reserve"):
            if sequence.only_marked:  # words must not change what is usual
                continue
            is_champions = champion is not None and sequence.model_version == champion.version
            p_value = sequence.p_value if is_champions else None
            self._plant.add(sequence.time_us, sequence.window, p_value, is_alert=sequence.decision == "anomalous")

    def _take(self, item: Item, work: Work) -> None:
        if isinstance(item, NewChampion):
            self._plant.restart()
            return
        self.n_taken += 1
        verdict = item.verdict
        share = gate(verdict, settings=self._settings, champion=item.champion)
        if share is not None:
            self._n_dropped += len(self._waiting) == self.limit
            self._waiting.append((_stored(item), share))
        p_value = verdict.p_value if verdict.model == item.champion else None
        is_alert = verdict.decision == "anomalous"
        work.drifts += self._plant.add(_end_us(verdict), item.window, p_value, is_alert=is_alert)

    def _offer(self, work: Work) -> None:
        while self._waiting:
            sequence, share = self._waiting.popleft()
            if self._store.offer(sequence, share):
                work.kept[share] += 1
                self._unflushed[share] += 1

    def _flush(self) -> None:
        self._store.flush()
        self._unflushed.clear()

    def _new_problems(self) -> list[str]:
        found = [problem for problem in self._store.problems if problem not in self._known_problems]
        self._known_problems.update(found)
        return found


def _end_us(verdict: Verdict) -> int:
    return round(verdict.end_time.timestamp() * 1e6)


def _stored(item: ToKeep) -> StoredSequence:
    verdict = item.verdict
    return StoredSequence(
        id=verdict.verdict_id,
        stream=verdict.stream,
        sequence=verdict.sequence,
        time_us=_end_us(verdict),
        stored_us=item.stored_us,
        window=item.window,
        decision=verdict.decision,
        score=verdict.score,
        p_value=verdict.p_value,
        model_version=verdict.model.version if verdict.model is not None else None,
    )
