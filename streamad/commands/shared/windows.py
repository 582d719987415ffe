"""Reads recordings into windows for ``train``, and judges those that labels call anomalous."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from rich.table import Table

from streamad.commands.shared.console import Bar, count, note, out, print_table, wrapped
from streamad.commands.shared.figures.labels import Labels
from streamad.commands.shared.figures.losses import unreadable_text
from streamad.commands.shared.figures.report import add_evaluation, compared, print_by_label
from streamad.commands.shared.recurring import Place
from streamad.errors import TrainingDataError
from streamad.ingest.table.reading import read_table
from streamad.ingest.windowing import Unscorable, judged_window
from streamad.judge.bank import Router
from streamad.judge.calibration import CalibrationMethod
from streamad.judge.early.course import Course, whole_course
from streamad.judge.evaluation import Evaluation
from streamad.judge.scoring import TOGETHER, ModelInService, id_with_start
from streamad.judge.verdicts import scored, unscorable
from streamad.learn.parts import registry_of, versions_of
from streamad.messages import ModelRef, Verdict
from streamad.plant import Plant
from streamad.ports import Source
from streamad.runtime.recordings import read_by_partition
from streamad.schemas.fetching import fetching
from streamad.settings.outputs import AlertSettings
from streamad.settings.plant_yaml import Settings
from streamad.system.threads import judging_on_one_thread
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, FloatArray, Window, WindowSet, from_us


class LeftOut(NamedTuple):
    """A sequence that cannot be scored, and its model, None if it has none."""

    sequence: FinishedSequence
    why: str
    model: str | None


@dataclass(slots=True)
class Recordings:
    """The windows of the recordings of ``place`` with the model of each (``Router``), and the unscorable sequences."""

    counters: Counters
    sequences: list[FinishedSequence] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """The place of each of the ``sequences``."""
    windows: list[Window] = field(default_factory=list)
    courses: list[Course] = field(default_factory=list)
    """The courses of the ``sequences``, if looks at running sequences are wanted (``alerts.early``)."""
    models: list[str] = field(default_factory=list)
    unscorable: list[LeftOut] = field(default_factory=list)
    place: str = ""
    labels: Labels | None = None
    not_normal: list[str] = field(default_factory=list)
    """The sequences that ``labels`` do not call normal, for people."""
    n_unlabelled: int = 0
    anomalous: Recordings | None = None
    """The sequences that ``labels`` call anomalous; None without labels."""

    def add(self, sequence: FinishedSequence, place: Place, router: Router, settings: Settings) -> None:
        """Add a sequence of ``place``, with its window and the name of its model or among the unscorable ones."""
        model = router.name_for(sequence.routes)
        window = judged_window(sequence, settings, settings.channel_specs)
        if isinstance(model, Unscorable):
            self.unscorable.append(LeftOut(sequence, model.detail, None))
        elif isinstance(window, Unscorable):
            self.unscorable.append(LeftOut(sequence, window.detail, model))
        else:
            self.sequences.append(sequence)
            self.places.append(place)
            self.windows.append(window)
            if settings.alerts.early is not None:
                self.courses.append(whole_course(sequence, settings.window))
            self.models.append(model)

    def judged(
        self, indexes: Sequence[int], model: ModelInService, settings: AlertSettings, now_us: int
    ) -> list[Verdict]:
        """Return the verdict of ``model`` on each of the windows. Raises DetectorError."""
        verdicts = []
        for start in range(0, len(indexes), TOGETHER):
            batch = indexes[start : start + TOGETHER]
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

    def training_ids(self) -> list[str]:
        """Return the id of each sequence among those that train.

        It has its start if the plant uses the id again, one sequence after the other in a partition.
        """
        ids = [f"{each.stream}/{each.sequence}" for each in self.sequences]
        places: dict[str, list[int]] = {}
        for place, name in enumerate(ids):
            places.setdefault(name, []).append(place)
        for name, found in places.items():
            if len(found) > 1 and self._follow(found):
                for place in found:
                    ids[place] = id_with_start(name, from_us(self.sequences[place].start_us))
        return ids

    def _follow(self, places: list[int]) -> bool:
        """Return whether the sequences at ``places`` lie one after the other in one partition."""
        times = sorted((self.sequences[place].start_us, self.sequences[place].end_us) for place in places)
        follow = all(end_us < start_us for (_, end_us), (start_us, _) in pairwise(times))
        return follow and len({self.places[place].partition for place in places}) == 1

    def window_sets(self) -> dict[str, WindowSet]:
        """Return the windows of each model as one set, by name. Raises TrainingDataError if there is none."""
        if not self.windows:
            raise TrainingDataError(self._why_empty())
        ids = self.training_ids()
        return {name: self._window_set(indexes, ids) for name, indexes in self.indexes().items()}

    def _window_set(self, indexes: list[int], ids: list[str]) -> WindowSet:
        windows = [self.windows[index] for index in indexes]
        return WindowSet(
            np.stack([window.values for window in windows]),
            np.array([window.length for window in windows], dtype=np.int64),
            tuple(ids[index] for index in indexes),
        )

    def courses_by_id(self) -> dict[str, Course] | None:
        """Return the courses of all windows by their ids among those that train; None if none are wanted."""
        return dict(zip(self.training_ids(), self.courses, strict=True)) if self.courses else None

    def _why_empty(self) -> str:
        if self.unscorable:
            first, n = self.unscorable[0], len(self.unscorable)
            return f"none of {n} sequences can be used; the first, {first.sequence.sequence}: {first.why}"
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
            bar.show(text, share)

        try:
            table = read_table(plant.settings, plant.base_dir)
            async with fetching(plant) as fetcher:
                async for partition, closed in read_by_partition(
                    plant.settings, source, plant.clock, recordings.counters, show, table=table, fetcher=fetcher
                ):
                    sequence = closed.sequence
                    place_of = Place(partition, sequence.stream, closed.key)
                    label = None if labels is None else labels.of(sequence.stream, sequence.sequence)
                    if labels is None or (label is not None and not label.is_anomalous):
                        recordings.add(sequence, place_of, router, plant.settings)
                        continue
                    recordings.not_normal.append(f"{sequence.sequence!r} of stream {sequence.stream!r}")
                    if label is None:
                        recordings.n_unlabelled += 1
                    elif recordings.anomalous is not None:
                        recordings.anomalous.add(sequence, place_of, router, plant.settings)
        finally:
            await source.close()
    return recordings


def detection_of(plant: Plant, data: Recordings, ref: ModelRef, calibrating: Sequence[str]) -> Evaluation | None:
    """Return how the version ``ref`` judges the anomalous sequences of its model; None if ``data`` has none.

    Beside them stand the normal ones with the ids ``calibrating`` [n], with the scores that calibrated it: their order
    is that of its calibration terms [n, K]. The version is loaded and judges as for ``replay``. Raises ArtifactError,
    RegistryError, DetectorError.
    """
    labels, anomalous, settings = data.labels, data.anomalous, plant.settings
    if labels is None or anomalous is None:
        return None
    indexes = anomalous.indexes().get(ref.name, [])
    without_score = [each for each in anomalous.unscorable if each.model == ref.name]
    if not indexes and not without_score:
        return None
    now_us, places = plant.clock.now_us(), {name: n for n, name in enumerate(data.training_ids())}
    terms = registry_of(plant).calibration_terms(ref.name, ref.version)
    with judging_on_one_thread():
        model = versions_of(plant, ref.name).load(ref.version)
        verdicts = anomalous.judged(indexes, model, settings.alerts, now_us)
    verdicts += [unscorable(each.sequence, Unscorable(each.why), now_us, model.ref) for each in without_score]
    verdicts += data.judged_by_terms([places[each] for each in calibrating], terms, model, settings.alerts, now_us)
    return compared(verdicts, labels, normal_calibrated=True)


def print_detection(evaluation: Evaluation, ref: ModelRef, method: CalibrationMethod, configured_rate: float) -> None:
    """Print what ``detection_of`` returned, and of which normal sequences its false-alarm rate is."""
    n_anomalous = count(evaluation.n_anomalous, "sequence")
    out.print(
        wrapped(f"model {ref.name} {ref.version} judges {n_anomalous} whose labels mean anomalous; none trained it:")
    )
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    add_evaluation(table, evaluation, configured_rate, "normal that set the threshold")
    print_table(table)
    print_by_label(evaluation)
    which = "held out of training" if method == "split" else "scored out of fold, by models that did not see them"
    out.print(
        note(
            f"the normal sequences above are the {evaluation.n_normal} {which}. Their scores set the threshold, so the "
            "false-alarm rate above follows the configured one and is no estimate. To measure it, replay other normal "
            "recordings."
        )
    )


def without_model(data: Recordings, names: Collection[str]) -> int:
    """Return how many anomalous sequences belong to none of the models ``names``."""
    if data.anomalous is None:
        return 0
    found = [*data.anomalous.models, *(each.model for each in data.anomalous.unscorable)]
    return sum(name not in names for name in found)
