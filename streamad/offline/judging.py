"""Judges whole sequences in batches, in the order in which they end, with as much memory as a batch takes.

The last digits of a score may depend on which windows are scored together. So batches end with their partition, and the
verdicts on a partition are the same, bit for bit, whichever other ones are read beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from streamad.errors import ArtifactError, RegistryError
from streamad.ingest.table.rows import BatchTable
from streamad.ingest.windowing import Unscorable, judged_window
from streamad.judge.bank import Router
from streamad.judge.scoring import TOGETHER, ModelInService, together
from streamad.judge.verdicts import moments_of, scored, unscorable
from streamad.messages import Verdict
from streamad.offline.models import Models
from streamad.plant import Plant
from streamad.ports import Source
from streamad.runtime.recordings import read_by_partition
from streamad.schemas.fetching import fetching
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, Window

_MOST_BYTES: Final = 1 << 26
"""Samples and windows that wait for their batch take no more than this, and one sequence."""
_MOST_WAITING: Final = 1 << 14

ShowProgress = Callable[[Counters, float | None], None]
"""Is told the counters and the share of the source that was read, None if that is unknown."""


class _Waiting(NamedTuple):
    sequence: FinishedSequence
    window: Window | Unscorable
    model: str | None


@dataclass(slots=True)
class _Batch:
    """The sequences of a partition that wait to be judged, and how many each of their models scores together."""

    items: list[_Waiting] = field(default_factory=list)
    together: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.items) >= min(_MOST_WAITING, sum(self.together.values()) or TOGETHER)


class SequenceJudge:
    """Judges sequences, each by its own model; the verdicts on a partition come in the order of its sequences.

    A sequence whose model cannot be used is unscorable, with the model's error, which ``errors`` has by name.
    """

    def __init__(self, plant: Plant, models: Models) -> None:
        self.decisions: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        """Why sequences have no window or no model."""
        self.names: set[str] = set()
        """The models that sequences belong to."""
        self.errors: dict[str, ArtifactError | RegistryError] = {}
        self.n_scored = 0
        self.n_known = 0
        """Judged sequences that trained or calibrated their model."""
        self._plant = plant
        self._models = models
        self._router = Router.of(plant.settings)
        self._batches: dict[str, _Batch] = {}
        self._n_bytes = 0

    def check_models(self) -> None:
        """Raise the error of a model if there are sequences with a window, and none of them has a usable model."""
        if self.errors and not self.n_scored:
            raise self.errors[min(self.errors)]

    def add(self, partition: str, sequence: FinishedSequence) -> list[Verdict]:
        """Take a sequence; return the verdicts of a batch that is full with it. Raises DetectorError."""
        settings = self._plant.settings
        model = self._router.name_for(sequence.routes)
        window = judged_window(sequence, settings, settings.channel_specs)
        batch = self._batches.setdefault(partition, _Batch())
        if isinstance(model, Unscorable):
            batch.items.append(_Waiting(sequence, model, None))
        else:
            batch.items.append(_Waiting(sequence, window, model))
            if model not in batch.together:
                batch.together[model] = self._n_together(model)
        self._n_bytes += _size(batch.items[-1])
        if self._n_bytes >= _MOST_BYTES:
            return self.finish()
        return self.end(partition) if batch.is_full else []

    def end(self, partition: str) -> list[Verdict]:
        """Return the verdicts on the sequences of ``partition`` that wait. Raises DetectorError."""
        batch = self._batches.pop(partition, None)
        if batch is None:
            return []
        self._n_bytes -= sum(map(_size, batch.items))
        return self._verdicts(batch.items)

    def finish(self) -> list[Verdict]:
        """Return the verdicts on all sequences that wait. Raises DetectorError."""
        return [verdict for partition in [*self._batches] for verdict in self.end(partition)]

    def _verdicts(self, items: list[_Waiting]) -> list[Verdict]:
        now_us = self._plant.clock.now_us()
        found: dict[int, Verdict] = {}
        places: dict[str, list[int]] = {}
        for place, each in enumerate(items):
            if each.model is not None:
                self.names.add(each.model)
            if isinstance(each.window, Unscorable):
                self.reasons[each.window.reason] += 1
                found[place] = unscorable(each.sequence, each.window, now_us, self._models.ref_of(each.model))
            elif each.model is not None:
                places.setdefault(each.model, []).append(place)
        for name, of in sorted(places.items()):
            try:
                verdicts = self._judged(self._models.get(name), [items[place] for place in of], now_us)
            except (ArtifactError, RegistryError) as error:
                self.errors[name] = error
                verdicts = [unscorable(items[place].sequence, Unscorable(str(error)), now_us) for place in of]
            found.update(zip(of, verdicts, strict=True))
        judged = [found[place] for place in range(len(items))]
        self.decisions.update(verdict.decision for verdict in judged)
        return judged

    def _judged(self, model: ModelInService, items: list[_Waiting], now_us: int) -> list[Verdict]:
        verdicts: list[Verdict] = []
        n = together(model)
        for begin in range(0, len(items), n):
            batch = items[begin : begin + n]
            windows = [each.window for each in batch if isinstance(each.window, Window)]
            lengths = np.array([window.length for window in windows], dtype=np.int64)
            terms = model.scorer.score(np.stack([window.values for window in windows]), lengths)
            for each, window, row, found in zip(batch, windows, terms, moments_of(windows), strict=True):
                verdicts.append(
                    scored(
                        each.sequence,
                        window,
                        row,
                        calibration=model.calibration,
                        settings=self._plant.settings.alerts,
                        model=model.ref,
                        now_us=now_us,
                        found=found,
                    )
                )
        self.n_scored += len(verdicts)
        self.n_known += sum(model.knows(verdict) for verdict in verdicts if verdict.score is not None)
        return verdicts

    def _n_together(self, name: str) -> int:
        try:
            return together(self._models.get(name))
        except (ArtifactError, RegistryError):
            return TOGETHER


def _size(item: _Waiting) -> int:
    window = item.window.values.nbytes if isinstance(item.window, Window) else 0
    return window + item.sequence.values.nbytes + item.sequence.times_us.nbytes


async def judged(
    plant: Plant,
    source: Source,
    judge: SequenceJudge,
    counters: Counters,
    show: ShowProgress | None = None,
    *,
    table: BatchTable | None = None,
) -> AsyncGenerator[list[Verdict]]:
    """Yield the verdicts on the sequences of a finite ``source`` in batches, and close it.

    ``table`` is that of ``sequences.table``. Raises SourceError, DetectorError.
    """
    ended: list[str] = []
    try:
        async with fetching(plant) as fetcher:
            found = read_by_partition(
                plant.settings,
                source,
                plant.clock,
                counters,
                show,
                table=table,
                on_end=ended.append,
                fetcher=fetcher,
            )
            async with aclosing(found):
                async for partition, closed in found:
                    while ended:
                        yield judge.end(ended.pop(0))
                    yield judge.add(partition, closed.sequence)
        yield judge.finish()
    finally:
        await source.close()
