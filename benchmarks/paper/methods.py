"""The methods of the study, and the settings that each has on a data set.

Deep baselines have the encoder of NeuTraL AD's preset, as in the paper, but RNN, LSTM-ED and GOAD, which have networks
of their own; whatever else they leave to their own defaults. Detectors are loaded when one is made: each is a module of
its own.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from benchmarks.paper.protocols import LARGE_TABLES, TABULAR
from benchmarks.paper.results_table import Cell
from streamad.errors import DetectorError, UsageError
from streamad.ports import Detector

Settings = dict[str, Any]


def _preset_of(dataset: str) -> Settings:
    from benchmarks.paper.neutral_ad_tabular.options import TABULAR_PRESETS  # noqa: PLC0415 - torch comes with it
    from streamad_models.neutral_ad.options import PRESETS  # noqa: PLC0415

    return (TABULAR_PRESETS if dataset in TABULAR else PRESETS)[dataset]


def _none(dataset: str) -> Settings:
    return {}


_PADDED: Final = ("spoken_arabic_digits", "character_trajectories")  # sequences of different lengths
_BFLOAT16: Final = ("spoken_arabic_digits", "character_trajectories")
"""Data sets on which a model takes minutes; bfloat16 halves that (python -m benchmarks.quality.precision).

EPSY stays in float32: its scores scatter so widely that a small loss would not show.
"""


def _neutral_ad(dataset: str) -> Settings:
    return {"preset": dataset} | _precision(dataset)


def _fixed(dataset: str) -> Settings:
    return _encoder(dataset) | _precision(dataset)


def _precision(dataset: str) -> Settings:
    return {"precision": "bfloat16"} if dataset in _BFLOAT16 else {}


def _encoder(dataset: str) -> Settings:
    """Return the sizes of the preset's encoder, and on a large table the preset's batch and epochs as well."""
    preset = _preset_of(dataset)
    if dataset not in TABULAR:
        return {name: preset[name] for name in ("n_blocks", "embedding_dim")}
    encoder = {
        "tabular_width": preset["encoder_width"],
        "embedding_dim": preset["embedding_dim"],
        "tabular_norm": preset.get("batch_norm", False),
    }
    return encoder | ({name: preset[name] for name in ("batch_size", "epochs")} if dataset in LARGE_TABLES else {})


def _encoder_and_batch(dataset: str) -> Settings:
    """Return the encoder's sizes, and on every table the preset's batch."""
    return _encoder(dataset) | ({"batch_size": _preset_of(dataset)["batch_size"]} if dataset in TABULAR else {})


def _drocc(dataset: str) -> Settings:
    settings = _encoder_and_batch(dataset)
    return settings | ({"warm_up_epochs": settings["epochs"] // 2} if dataset in LARGE_TABLES else {})


def _deep_svdd(dataset: str) -> Settings:
    """Return the encoder and batch; tables that are not standardised yet are, as published."""
    scaling = {"scaling": "standard"} if dataset in TABULAR and dataset not in LARGE_TABLES else {}
    return _encoder_and_batch(dataset) | scaling


def _dagmm(dataset: str) -> Settings:
    """Return NeuTraL AD's encoder, but on Arrhythmia the autoencoder that was published for it."""
    from benchmarks.paper.baselines.presets import DAGMM_TABLES  # noqa: PLC0415 - torch comes with it

    return _encoder(dataset) | dict(DAGMM_TABLES.get(dataset, {}))


def _goad(dataset: str) -> Settings:
    """Return the settings published for a table; for sequences the published network for all but small tables."""
    from benchmarks.paper.baselines.presets import (  # noqa: PLC0415 - torch comes with it
        GOAD_SEQUENCES,
        GOAD_TABLES,
    )

    return dict(GOAD_TABLES.get(dataset, GOAD_SEQUENCES))


def _learnable_views(dataset: str) -> Settings:
    preset = _preset_of(dataset)
    return {**_encoder(dataset), **{name: preset[name] for name in ("transformation", "n_transformations")}}


def _simclr(dataset: str) -> Settings:
    return {**_learnable_views(dataset), "temperature": _preset_of(dataset)["temperature"]}


@dataclass(frozen=True, slots=True)
class Method:
    """A detector and its settings on each data set; ``tabular`` is the detector for tables, "" if there is none.

    ``trains_many``: models of several sets of sequences and seeds can be trained at once (``models.together``).
    ``revision`` rises when a change of its code changes its results: cells of earlier ones are measured again.
    ``mended`` holds it for data sets that a change affects alone, such as those with padded windows.
    """

    detector: str
    settings: Callable[[str], Settings] = _none
    tabular: str = ""
    is_deterministic: bool = False
    trains_many: bool = False
    revision: int = 1
    mended: Mapping[str, int] = field(default_factory=dict)

    def revision_on(self, dataset: str) -> int:
        """Return the revision whose cells of ``dataset`` count."""
        return self.mended.get(dataset, self.revision)


_ESTIMATORS = "benchmarks.paper.baselines.estimators"
_NETWORKS = "benchmarks.paper.baselines.networks"


def _both(
    place: str, settings: Callable[[str], Settings] = _none, *, is_deterministic: bool = False, revision: int = 1
) -> Method:
    return Method(place, settings, place, is_deterministic, revision=revision)


METHODS: Final[dict[str, Method]] = {
    "neutral_ad": Method(
        "streamad_models.neutral_ad:NeutralAD",
        _neutral_ad,
        "benchmarks.paper.neutral_ad_tabular.detector:NeutralADTabular",
        trains_many=True,
    ),
    "oc_svm": _both(f"{_ESTIMATORS}.shallow:OneClassSvm", is_deterministic=True),
    "isolation_forest": _both(f"{_ESTIMATORS}.shallow:IsolationForest"),
    "lof": _both(f"{_ESTIMATORS}.shallow:LocalOutlierFactor", is_deterministic=True),
    "nearest": _both(f"{_ESTIMATORS}.nearest:NearestNeighbour", is_deterministic=True),
    "minirocket": Method(f"{_ESTIMATORS}.minirocket:MiniRocketNearest"),
    "rockad": Method(f"{_ESTIMATORS}.rockad:Rockad"),
    "deep_svdd": _both(f"{_NETWORKS}.deep_svdd:DeepSvdd", _deep_svdd),
    "drocc": _both(f"{_NETWORKS}.drocc:Drocc", _drocc),
    "dagmm": _both(f"{_NETWORKS}.dagmm:Dagmm", _dagmm),
    "goad": _both(f"{_NETWORKS}.goad:Goad", _goad, revision=3),
    "rnn": Method(f"{_NETWORKS}.rnn:Rnn"),
    "lstm_ed": Method(f"{_NETWORKS}.lstm_ed:LstmEncoderDecoder"),
    "fixed_transformations": Method(
        f"{_NETWORKS}.fixed:FixedTransformations", _fixed, revision=2, mended=dict.fromkeys(_PADDED, 3)
    ),
    "transformation_prediction": Method(
        f"{_NETWORKS}.other_losses:TransformationPrediction", _learnable_views, revision=2
    ),
    "simclr": Method(f"{_NETWORKS}.other_losses:SimClr", _simclr),
}
_OF_SEVERAL: Final = ("n_vs_rest", "sweep")
_SHORTENED: Final = ("neutral_ad", "fixed_transformations")
_EPOCHS: Final = 100  # published for all data sets of sequences
_SHORT_EPOCHS: Final = 20
_SHORT_BATCH: Final = {"spoken_arabic_digits": (256, 9), "character_trajectories": (64, 19)}  # of n normal classes
_PEERS = ("nearest", "minirocket", "rockad")
_LOSSES = ("transformation_prediction", "simclr")
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "all": tuple(METHODS),
    "printed": tuple(name for name in METHODS if name not in (*_PEERS, *_LOSSES)),
    "peers": _PEERS,
    "losses": _LOSSES,
}


def fits(method: str, dataset: str) -> bool:
    """Return whether ``method`` can train on the data set: some are for sequences alone."""
    return dataset not in TABULAR or bool(METHODS[method].tabular)


def shortened(cell: Cell) -> Settings:
    """Return the settings that shorten n-vs-rest on SAD and CT: as published a model takes up to 19 and 30 minutes.

    About as many steps of Adam as published (400), but of batches of a twentieth of the sequences instead of a quarter,
    hence a fifth of the epochs. As small a batch moves NATOPS by -2.0 ± 2.4 points (18 pairs), RS by -1.6 ± 1.6 (12).
    """
    if cell.protocol not in _OF_SEVERAL or cell.method not in _SHORTENED or cell.dataset not in _SHORT_BATCH:
        return {}
    batch_size, n_classes = _SHORT_BATCH[cell.dataset]
    return {"epochs": _SHORT_EPOCHS, "batch_size": batch_size * len(cell.normal) // n_classes}


def length_of_training(cell: Cell) -> float:
    """Return the study's epochs as a share of the published ones: 1 if not shortened."""
    return _SHORT_EPOCHS / _EPOCHS if shortened(cell) else 1.0


def trains_many(method: str, dataset: str) -> bool:
    """Return whether several models of ``method`` can be trained at once on the data set."""
    return METHODS[method].trains_many and dataset not in TABULAR


def missing_module(method: str, dataset: str) -> str | None:
    """Return the missing module that ``method`` needs, None if it is there; the module is not loaded."""
    module = _place(method, dataset)[0]
    return None if importlib.util.find_spec(module) else module


def make(method: str, dataset: str, changes: Mapping[str, Any] | None = None) -> Detector:
    """Return the detector with its settings for ``dataset`` and ``changes`` to them.

    Raises UsageError if the method is not for this data set, DetectorError if its module or class is missing or
    refuses the settings.
    """
    if not fits(method, dataset):
        raise UsageError(f"{method} is for sequences, and {dataset} is a table: choose other methods")
    module, name = _place(method, dataset)
    try:
        kind = getattr(importlib.import_module(module), name)
        settings = {**METHODS[method].settings(dataset), **(changes or {})}
        detector: Detector = kind(kind.options_model.model_validate(settings))
    except (ImportError, AttributeError) as error:
        raise DetectorError(f"{method} cannot be had ({module}:{name}): {error}") from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise DetectorError(f"{method} refuses its settings for {dataset}: {where}: {problem['msg']}") from error
    return detector


def _place(method: str, dataset: str) -> tuple[str, str]:
    known = METHODS[method]
    module, _, name = (known.tabular if dataset in TABULAR else known.detector).partition(":")
    return module, name
