"""``streamad.evaluate`` and ``streamad.compare``: what models find of labelled sequences, in figures and a picture.

Shapes: N sequences, M models.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.errors import InputError, some_of
from streamad.judge.evaluation import Evaluation
from streamad.judge.evaluation import evaluate as figures_of
from streamad.judge.label_words import word_means
from streamad.language import percent, percents
from streamad.messages import Verdict
from streamad.notebook.arguments import items, refused, says
from streamad.notebook.fitting import fitted
from streamad.notebook.model import Model, sequences_for
from streamad.notebook.reasons import Plot
from streamad.notebook.sequences import Sequences
from streamad.pictures.drawing import check_extra
from streamad.pictures.ticks import log_ticks
from streamad.settings.learning import ModelSettings
from streamad.settings.plant_yaml import Settings

SIMPLE_KINDS: Final = ("pointwise", "pca", "nearest", "minirocket", "unfolded", "mpca")
"""The simple detectors that ``evaluate`` fits beside a model."""
_MISSING: Final = ("", "None", "nan", "NaT", "<NA>")
_Labels: TypeAlias = tuple[tuple[str, ...], npt.NDArray[np.bool_]]
"""The labels' names, and which mean anomalous."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """What a model finds of N labelled sequences; ``repr`` is a table, ``plot`` a picture.

    ``figures`` are AUC, detection and false-alarm rate with exact 95 % intervals, and those by label; ``beside`` has
    the figures of other models, by name. ``scores`` [N] and ``labels`` [N] are in the order of X.
    """

    name: str
    figures: Evaluation
    beside: Mapping[str, Evaluation]
    scores: npt.NDArray[np.float64]
    labels: tuple[str, ...]
    threshold: float
    false_alarm_rate: float

    def __repr__(self) -> str:
        found = self.figures
        lines = [
            f"{found.n_normal} normal and {found.n_anomalous} anomalous sequences, configured false-alarm rate "
            f"{self.false_alarm_rate:g}"
        ]
        rows = [("", "AUC", "found", "false alarms")]
        rows.append(_row(self.name, found))
        rows += [
            _label_row(each.label, each.auc, each.rate, each.interval) for each in found.by_label if each.is_anomalous
        ]
        rows += [_row(name, each) for name, each in self.beside.items()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        if found.n_unscorable:
            lines.append(f"{found.n_unscorable} sequences have no score and count as not found")
        return "\n".join(lines)

    def plot(self) -> Plot:
        """Draw each label's scores against the threshold. Needs matplotlib. Raises UsageError without it."""
        check_extra()
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
        from matplotlib.ticker import NullLocator  # noqa: PLC0415

        names = sorted(set(self.labels), key=lambda name: (_is_anomalous(name), name))
        figure = Figure(figsize=(7, 0.8 + 0.4 * len(names)), layout="constrained")
        axes = figure.add_subplot()
        spread = np.random.default_rng(0)
        for row, name in enumerate(names):
            own = self.scores[[place for place, label in enumerate(self.labels) if label == name]]
            heights = row + spread.uniform(-0.25, 0.25, len(own))
            axes.plot(own, heights, "o" if _is_anomalous(name) else "x", markersize=4, alpha=0.6)
        if np.isfinite(self.threshold):
            axes.axvline(self.threshold, color="black", linewidth=1, linestyle="--")
        if (self.scores[np.isfinite(self.scores)] > 0).all():
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            ticks = [tick for tick in log_ticks(np.log10(low), np.log10(high), 8) if low <= tick <= high]
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel(f"score of {self.name}; dashed: alerts from here on")
        return Plot(*(_saved(figure, kind) for kind in ("png", "svg")))


def _saved(figure: Any, kind: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=110)
    return content.getvalue()


def evaluate(
    model: Model, X: Any, labels: Iterable[object], *, training: Any = None, verbose: bool | None = None
) -> Evaluated:
    """Return what ``model`` finds of the sequences X with ``labels`` [N]: 0 and 1, booleans, or names of faults.

    Of a data frame the labels may go by ids: a mapping, or a pandas series whose index are the ids.
    Of names, the normal words of ``streamad replay --labels`` mean normal ("normal", "good", "ok", "pass", "healthy",
    "io"), all others anomalous. With ``training``, the normal sequences that the model was fitted
    on, the simple kinds of detectors are fitted on them too and stand beside it: what a few lines of numpy find.
    ``verbose`` prints a line for each of them on stderr (None: in a terminal and in a notebook).

    None of X should have trained the model. Raises InputError.
    """
    (model,) = _models("model", [model])
    names, is_anomalous = _labels(_in_order(labels, model, X))
    verdicts = _verdicts(model, X, names)
    beside = {}
    if training is not None:
        sequences, tells = _training(model, training), says(verbose)
        for number, kind in enumerate(SIMPLE_KINDS, start=1):
            if tells:
                print(f"beside it: {kind} ({number}/{len(SIMPLE_KINDS)})", file=sys.stderr)
            other = fitted(sequences, _of_kind(model.settings, kind), model.columns, says=False, is_proved=False)
            beside[kind] = _figures(_verdicts(other, X, names), is_anomalous, ())
    return _evaluated((model.settings.model.detector, model), verdicts, (names, is_anomalous), beside)


def compare(models: Mapping[str, Model] | Iterable[Model], X: Any, labels: Iterable[object]) -> Evaluated:
    """Return what each of ``models`` finds of the sequences X with ``labels`` [N]; the first is the one that is drawn.

    A list names them by their kind of detector. Raises InputError.
    """
    if isinstance(models, Mapping):
        named = dict(zip(models, _models("models", models.values()), strict=True))
    else:
        several = enumerate(_models("models", models), start=1)
        named = {f"{number}: {each.settings.model.detector}": each for number, each in several}
    if not named:
        raise InputError("compare takes at least one model")
    names, is_anomalous = _labels(_in_order(labels, next(iter(named.values())), X))
    verdicts = {str(name): _verdicts(model, X, names) for name, model in named.items()}
    (first, model), *_ = named.items()
    others = {name: _figures(found, is_anomalous, ()) for name, found in verdicts.items() if name != str(first)}
    return _evaluated((str(first), model), verdicts[str(first)], (names, is_anomalous), others)


def _models(name: str, models: Any) -> list[Model]:
    """Return the models. Raises InputError for anything else."""
    found = items(name, models, "models that streamad.fit or streamad.load made")
    for each in found:
        if not isinstance(each, Model):
            raise refused(name, each, "what streamad.fit or streamad.load made")
    return found


def _training(model: Model, training: Any) -> Sequences:
    """Return the sequences of ``training``. Raises InputError."""
    try:
        return sequences_for(model, training)
    except InputError as error:
        raise InputError(f"training: {error}") from error


def _of_kind(settings: Settings, kind: str) -> Settings:
    """Return the settings of a model of another kind, with its own options, on the same windows."""
    plain = ModelSettings(detector=kind, references=())
    own = {field: getattr(settings.model, field) for field in ("seed", "device", "calibration", "folds")}
    alerts = settings.alerts.model_copy(update={"early": None})
    return settings.model_copy(update={"model": plain.model_copy(update=own), "alerts": alerts, "models": None})


def _evaluated(
    named: tuple[str, Model], verdicts: Sequence[Verdict], labels: _Labels, beside: Mapping[str, Evaluation]
) -> Evaluated:
    (name, model), (names, is_anomalous) = named, labels
    scores = np.array([np.nan if each.score is None else each.score for each in verdicts])
    figures = _figures(verdicts, is_anomalous, names)
    return Evaluated(name, figures, beside, scores, names, model.threshold, model.false_alarm_rate)


def _figures(verdicts: Sequence[Verdict], is_anomalous: npt.NDArray[np.bool_], names: Sequence[str]) -> Evaluation:
    alerts = [each.decision == "anomalous" for each in verdicts]
    return figures_of([each.score for each in verdicts], alerts, is_anomalous, names)


def _verdicts(model: Model, X: Any, names: Sequence[str]) -> list[Verdict]:
    verdicts = model.verdicts(X)
    if len(verdicts) != len(names):
        raise InputError(f"X has {len(verdicts)} sequences, and there are {len(names)} labels")
    return verdicts


def _in_order(labels: Any, model: Model, X: Any) -> Any:
    """Return labels that go by the ids of a data frame in the order of X, and others as they are. Raises InputError."""
    if hasattr(type(labels), "columns"):
        raise InputError(f"labels is a data frame with {some_of(list(map(str, labels.columns)))}: give one column")
    index = labels if isinstance(labels, Mapping) else getattr(labels, "index", None)
    if not hasattr(type(X), "columns") or not isinstance(index, Iterable) or hasattr(index, "step"):  # a RangeIndex
        return labels
    values = labels.values() if isinstance(labels, Mapping) else labels
    by_id = dict(zip(map(str, index), values, strict=True))
    ids = [each.sequence for each in sequences_for(model, X)]
    missing = [each for each in ids if each not in by_id]
    if len(missing) == len(ids) and labels is not index:  # an index of something else
        return labels
    if missing:
        raise InputError(f"labels has none for the sequence {some_of(missing)}: give one for each id of X")
    return [by_id[each] for each in ids]


def _labels(labels: Iterable[object]) -> _Labels:
    """Return the labels' names and which mean anomalous."""
    form = "one for each sequence: 0 and 1, booleans, or names"
    try:
        given = np.asarray(items("labels", labels, form))
    except ValueError:  # nested
        given = np.empty((0, 0))
    if given.dtype == np.object_ and all(isinstance(each, Number | np.bool_) for each in given.flat):
        numbers = [each if each in (0, 1) else np.nan for each in given.flat]  # a whole number may be of any size
        given = np.array(numbers, dtype=np.float64).reshape(given.shape)
    if given.ndim != 1 or not len(given):
        raise refused("labels", labels, form)
    if given.dtype.kind in "biuf":
        if not np.isin(given, (0, 1)).all():
            raise InputError("labels as numbers are 0 (normal) and 1 (anomalous), as predict gives them")
        is_anomalous = given.astype(np.bool_)
        return tuple("anomalous" if each else "normal" for each in is_anomalous), is_anomalous
    names = tuple(str(each) for each in given)
    if missing := [place for place, name in enumerate(names) if name in _MISSING]:
        raise InputError(f"labels: sequence {missing[0]} has none ({names[missing[0]]!r}): leave such sequences out")
    return names, np.array([_is_anomalous(name) for name in names], dtype=np.bool_)


def _is_anomalous(name: str) -> bool:
    return word_means(name) is not False and name.strip().casefold() != "false"


def _row(name: str, found: Evaluation) -> tuple[str, str, str, str]:
    return (
        name,
        "" if found.auc is None else f"{found.auc:.3f}",
        _rate(found.detection_rate, found.detection_interval),
        _rate(found.false_alarm_rate, found.false_alarm_interval),
    )


def _label_row(
    label: str, auc: float | None, rate: float, interval: tuple[float, float] | None
) -> tuple[str, str, str, str]:
    return f"  {label}", "" if auc is None else f"{auc:.3f}", _rate(rate, interval), ""


def _rate(rate: float | None, interval: tuple[float, float] | None) -> str:
    if rate is None:
        return ""
    within = "" if interval is None else f" ({percents(*interval)})"
    return f"{percent(rate, 1)}{within}"
