"""Reads recordings into windows, with a progress bar; for ``train`` and ``score``."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamad.commands.shared.figures.labels import Labels
from streamad.commands.shared.figures.report import unreadable_text
from streamad.commands.shared.progress_bar import Bar
from streamad.errors import TrainingDataError
from streamad.ingest.windowing import Unscorable, to_window
from streamad.judge.routing import Router
from streamad.plant import Plant
from streamad.ports import Source
from streamad.runtime.replay import read_sequences
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, Window, WindowSet


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
            tuple(f"{sequence.stream}/{sequence.sequence}" for sequence in sequences),
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


async def read_windows(
    plant: Plant, source: Source, place: str = "the recordings", *, labels: Labels | None = None
) -> Recordings:
    """Read a finite source of ``place`` and close it; with ``labels`` the normal sequences only. Raises SourceError."""
    recordings = Recordings(Counters(), place=place, labels=labels)
    router = Router.of(plant.settings)
    with Bar("reading") as bar:

        def show(counters: Counters, share: float | None) -> None:
            text = f"reading: {counters.samples} samples, {sum(counters.sequences.values())} sequences"
            bar.show(text, share or 0.0, None if share is None else 1.0)

        try:
            async for sequence in read_sequences(plant.settings, source, plant.clock, recordings.counters, show):
                if labels is not None and not labels.is_normal(sequence.stream, sequence.sequence):
                    recordings.not_normal.append(f"{sequence.sequence!r} of stream {sequence.stream!r}")
                    continue
                model = router.name_for(sequence.routes)
                window = to_window(sequence, plant.settings.window, plant.settings.channel_specs)
                if isinstance(model, Unscorable):
                    recordings.unscorable.append((sequence, model.detail))
                elif isinstance(window, Unscorable):
                    recordings.unscorable.append((sequence, window.detail))
                else:
                    recordings.sequences.append(sequence)
                    recordings.windows.append(window)
                    recordings.models.append(model)
        finally:
            await source.close()
    return recordings
