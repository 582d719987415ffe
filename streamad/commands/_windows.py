"""Reads recordings into windows, with progress; for ``train`` and ``score``."""

from __future__ import annotations

__all__ = ["Recordings", "read_windows"]

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from rich.progress import Progress, SpinnerColumn, TextColumn

from streamad.commands._common import Plant, err
from streamad.errors import TrainingDataError
from streamad.ingest.windowing import Unscorable, to_window
from streamad.metrics import Counters
from streamad.ports import Source
from streamad.replay import read_sequences
from streamad.types import FinishedSequence, Window, WindowSet


@dataclass(slots=True)
class Recordings:
    """The windows of recordings, and the sequences that have none, with the reason."""

    counters: Counters
    sequences: list[FinishedSequence] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    unscorable: list[tuple[FinishedSequence, str]] = field(default_factory=list)

    def window_set(self) -> WindowSet:
        """Return all windows as one set; raises TrainingDataError where there is none."""
        if not self.windows:
            raise TrainingDataError(self._why_empty())
        return WindowSet(
            np.stack([window.values for window in self.windows]),
            np.array([window.length for window in self.windows], dtype=np.int64),
            tuple(f"{sequence.stream}/{sequence.sequence}" for sequence in self.sequences),
        )

    def _why_empty(self) -> str:
        if self.unscorable:
            first, why = self.unscorable[0]
            return f"none of {len(self.unscorable)} sequences can be used; the first, {first.sequence}: {why}"
        if self.counters.dead_letters:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.counters.dead_letters.items())
            return f"no sequence in the recordings: all messages are unreadable ({kinds}); see decode in the config"
        return "no sequence in the recordings"


async def read_windows(plant: Plant, source: Source, *, keep: Callable[[str, str], bool] | None = None) -> Recordings:
    """Read a finite source; ``keep`` says of stream and sequence id whether to keep it. Raises SourceError."""
    recordings = Recordings(Counters())
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("reading")

        def tell(counters: Counters, share: float | None) -> None:
            done = sum(counters.sequences.values())
            part = "" if share is None else f"{share:.0%}, "
            progress.update(task, description=f"reading: {part}{counters.samples} samples, {done} sequences")

        try:
            async for sequence in read_sequences(plant.settings, source, plant.clock, recordings.counters, tell):
                if keep is not None and not keep(sequence.stream, sequence.sequence):
                    continue
                window = to_window(sequence, plant.settings.window, plant.settings.channel_specs)
                if isinstance(window, Unscorable):
                    recordings.unscorable.append((sequence, window.detail))
                else:
                    recordings.sequences.append(sequence)
                    recordings.windows.append(window)
        finally:
            await source.close()
    return recordings
