"""How a version that ``train`` has published judges the labelled recordings, with the figures of ``replay``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.table import Table

from streamad.commands.shared.console import count, judging_on_one_thread, note, out, print_table, wrapped
from streamad.commands.shared.figures.by_label import print_by_label
from streamad.commands.shared.figures.report import add_evaluation, compared
from streamad.commands.shared.windows import Recordings, training_id
from streamad.ingest.windowing import Unscorable
from streamad.judge.calibration import CalibrationMethod
from streamad.judge.evaluation import Evaluation
from streamad.judge.routing import Router
from streamad.judge.verdicts import unscorable
from streamad.learn.parts import registry_of, versions_of
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings


def detection_of(plant: Plant, data: Recordings, ref: ModelRef, calibrating: Sequence[str]) -> Evaluation | None:
    """Return how the version ``ref`` judges the anomalous sequences of its model; None if ``data`` has none.

    Beside them stand the normal ones with the ids ``calibrating`` [n], with the scores that calibrated it: their order
    is that of its calibration terms [n, K]. The version is loaded and judges as for ``replay``. Raises ArtifactError,
    RegistryError, DetectorError.
    """
    labels, anomalous, settings = data.labels, data.anomalous, plant.settings
    if labels is None or anomalous is None:
        return None
    router = Router.of(settings)
    indexes = anomalous.indexes().get(ref.name, [])
    without_score = [each for each in anomalous.unscorable if router.name_for(each[0].routes) == ref.name]
    if not indexes and not without_score:
        return None
    now_us, places = plant.clock.now_us(), {training_id(each): n for n, each in enumerate(data.sequences)}
    terms = registry_of(plant).calibration_terms(ref.name, ref.version)
    with judging_on_one_thread():
        model = versions_of(plant, ref.name).load(ref.version)
        verdicts = anomalous.judged(indexes, model, settings.alerts, now_us)
    verdicts += [unscorable(sequence, Unscorable(why), now_us, model.ref) for sequence, why in without_score]
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


def without_model(data: Recordings, names: Collection[str], settings: Settings) -> int:
    """Return how many anomalous sequences belong to none of the models ``names``."""
    if data.anomalous is None:
        return 0
    router = Router.of(settings)
    sequences = [*data.anomalous.sequences, *(sequence for sequence, _ in data.anomalous.unscorable)]
    found = [router.name_for(sequence.routes) for sequence in sequences]
    return sum(isinstance(name, Unscorable) or name not in names for name in found)
