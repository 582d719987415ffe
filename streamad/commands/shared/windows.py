"""Reads recordings into windows, with a progress bar, and judges them; for ``train`` and ``score``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from streamad.commands.shared.figures.labels import Labels
from streamad.commands.shared.figures.report import unreadable_text
from streamad.commands.shared.progress_bar import Bar
from streamad.errors import TrainingDataError
from streamad.ingest.windowing import Unscorable, to_window
from streamad.judge.routing import Router
from streamad.judge.scoring import ModelInService
from streamad.judge.verdicts import scored
from streamad.messages import Verdict
from streamad.plant import Plant
from streamad.ports import Source
from streamad.runtime.replay import read_sequences
from streamad.settings.plant_yaml import AlertSettings, Settings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, FloatArray, Window, WindowSet

_BATCH = 256


@dataclass(slots=True)
class Recordings:
    """The windows of the recordings of ``place`` with the model of each (``Router``), and the unscorable sequences."""

    counters: Counters
    sequences: list[FinishedSequence] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    unscorable: list[tuple[FinishedSequence, str]] = field(default_factory=list)
    place: str = ""
    labels: Labels | None = None
    not_normal: list[str] = field(default_factory=list)
    """The sequences that ``labels`` do not call normal, for people."""
    n_unlabelled: int = 0
    anomalous: Recordings | None = None
    """The sequences that ``labels`` call anomalous; None without labels."""

    def add(self, sequence: FinishedSequence, router: Router, settings: Settings) -> None:
        """Add a sequence, with its window and the name of its model or among the unscorable ones."""
        model = router.name_for(sequence.routes)
        window = to_window(sequence, settings.window, settings.channel_specs)
        if isinstance(model, Unscorable):
            self.unscorable.append((sequence, model.detail))
        elif isinstance(window, Unscorable):
            self.unscorable.append((sequence, window.detail))
        else:
            self.sequences.append(sequence)
            self.windows.append(window)
            self.models.append(model)

    def judged(
        self, indexes: Sequence[int], model: ModelInService, settings: AlertSettings, now_us: int
    ) -> list[Verdict]:
        """Return the verdict of ``model`` on each of the windows. Raises DetectorError."""
        verdicts = []
        for start in range(0, len(indexes), _BATCH):
            batch = indexes[start : start + _BATCH]
            windows = [self.windows[index] for index in batch]
            terms = model.scorer.score(
                np.stack([window.values for window in windows]),
                np.array([window.length for window in windows], dtype=np.int64),
            )
            verdicts += self.judged_by_terms(batch, terms, model, settings, now_us)
        return verdicts

    def judged_by_terms(
        self, indexes: Sequence[int], terms: FloatArray, model: ModelInService, settings: AlertSettings, now_us: int
    ) -> list[Verdict]:
        """Return the verdict of ``model`` on each of the windows, of which the ``terms`` [n, K] are known."""
        return [
            scored(
                self.sequences[index],
                self.windows[index],
                row,
                calibration=model.calibration,
                settings=settings,
                model=model.ref,
                now_us=now_us,
            )
            for index, row in zip(indexes, terms, strict=True)
        ]

    def indexes(self) -> dict[str, list[int]]:
        """Return the indexes of the windows of each model, by name."""
        found: dict[str, list[int]] = {}
        for index, name in enumerate(self.models):
            found.setdefault(name, []).append(index)
        return dict(sorted(found.items()))

    def window_sets(self) -> dict[str, WindowSet]:
        """Return the windows of each model as one set, by name. Raises TrainingDataError if there is none."""
        if not self.windows:
            raise TrainingDataError(self._why_empty())
        return {name: self._window_set(indexes) for name, indexes in self.indexes().items()}

    def _window_set(self, indexes: list[int]) -> WindowSet:
        windows = [self.windows[index] for index in indexes]
        sequences = [self.sequences[index] for index in indexes]
        return WindowSet(
            np.stack([window.values for window in windows]),
            np.array([window.length for window in windows], dtype=np.int64),
            tuple(map(training_id, sequences)),
        )

    def _why_empty(self) -> str:
        if self.unscorable:
            first, why = self.unscorable[0]
            return f"none of {len(self.unscorable)} sequences can be used; the first, {first.sequence}: {why}"
        if kinds := unreadable_text(self.counters.dead_letters):
            return f"no sequence in {self.place}: all messages are unreadable ({kinds}); see decode in the config"
        if self.not_normal and self.labels is not None:
            return (
                f"none of the {len(self.not_normal)} sequences is labelled normal: the recordings say "
                f"{self.not_normal[0]}, the labels {self.labels.example!r}"
            )
        if not self.counters.records:
            return (
                f"no record was read from {self.place}: is the path or URL right, and the range of --since and --until?"
            )
        return f"no sequence in {self.place}"


def training_id(sequence: FinishedSequence) -> str:
    """Return the id of a sequence among those that train."""
    return f"{sequence.stream}/{sequence.sequence}"


async def read_windows(
    plant: Plant, source: Source, place: str = "the recordings", *, labels: Labels | None = None
) -> Recordings:
    """Read a finite source of ``place`` and close it. Raises SourceError.

    With ``labels`` only the normal sequences are its windows; those of the ``anomalous`` ones lie beside.
    """
    recordings = Recordings(Counters(), place=place, labels=labels)
    if labels is not None:
        recordings.anomalous = Recordings(recordings.counters, place=place)
    router = Router.of(plant.settings)
    with Bar("reading") as bar:

        def show(counters: Counters, share: float | None) -> None:
            text = f"reading: {counters.samples} samples, {sum(counters.sequences.values())} sequences"
            bar.show(text, share or 0.0, None if share is None else 1.0)

        try:
            async for sequence in read_sequences(plant.settings, source, plant.clock, recordings.counters, show):
                label = None if labels is None else labels.of(sequence.stream, sequence.sequence)
                if labels is None or (label is not None and not label.is_anomalous):
                    recordings.add(sequence, router, plant.settings)
                    continue
                recordings.not_normal.append(f"{sequence.sequence!r} of stream {sequence.stream!r}")
                if label is None:
                    recordings.n_unlabelled += 1
                elif recordings.anomalous is not None:
                    recordings.anomalous.add(sequence, router, plant.settings)
        finally:
            await source.close()
    return recordings
