"""The laws that every baseline keeps, on small sequences and on a table's rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from benchmarks.paper.baselines.estimators.minirocket import MiniRocketNearest, MiniRocketOptions
from benchmarks.paper.baselines.estimators.nearest import NearestNeighbour
from benchmarks.paper.baselines.estimators.rockad import Rockad, RockadOptions
from benchmarks.paper.baselines.estimators.shallow import (
    IsolationForest,
    IsolationForestOptions,
    LocalOutlierFactor,
    OneClassSvm,
)
from benchmarks.paper.baselines.networks.dagmm import Dagmm
from benchmarks.paper.baselines.networks.deep_svdd import DeepSvdd
from benchmarks.paper.baselines.networks.drocc import Drocc
from benchmarks.paper.baselines.networks.fixed import FixedTransformations
from benchmarks.paper.baselines.networks.goad import Goad
from benchmarks.paper.baselines.networks.lstm_ed import LstmEncoderDecoder
from benchmarks.paper.baselines.networks.other_losses import SimClr, TransformationPrediction
from benchmarks.paper.baselines.networks.rnn import Rnn
from streamad.errors import TrainingDataError
from streamad.testing import check_detector
from tests.support.detectors import ROWS, SEQUENCES, Case, sequences
from tests.unit.models.small import PARAMETRISATIONS

Make: TypeAlias = Callable[[], Any]

ENCODER = {"embedding_dim": 8, "base_width": 8, "tabular_width": 16}
DROCC = {**ENCODER, "learning_rate": 1e-2, "ascent_steps": 3}
FEW = Case(sequences(20), sequences(4, anomalous=True))  # Python computes the features of aeon's kernels slowly
VIEWS = {"base_width": 8, "n_transformations": 4}


def detector(kind: Any, **options: Any) -> Make:
    return lambda: kind(kind.options_model.model_validate(options))


LAWS: dict[str, tuple[Make, Case]] = {
    "deep_svdd": (detector(DeepSvdd, **ENCODER, epochs=4), SEQUENCES),
    "deep_svdd rows": (detector(DeepSvdd, **ENCODER, epochs=4), ROWS),
    "drocc": (detector(Drocc, **DROCC, epochs=5), SEQUENCES),
    "drocc rows": (detector(Drocc, **DROCC, epochs=40), ROWS),  # rows take longer to tell apart
    "dagmm": (detector(Dagmm, epochs=15, batch_size=16, n_components=4), SEQUENCES),
    "dagmm rows": (detector(Dagmm, epochs=15, batch_size=16), ROWS),
    "dagmm table": (
        detector(Dagmm, table=True, table_widths=(10,), n_components=2, epochs=60, batch_size=16),
        ROWS,
    ),
    "goad": (detector(Goad, epochs=3), SEQUENCES),
    "goad rows": (detector(Goad, epochs=3, n_maps=32), ROWS),
    "goad five layers": (detector(Goad, epochs=3, n_maps=32, n_layers=5, feature_dim=16), ROWS),
    "rnn": (detector(Rnn, hidden_dim=8, epochs=6), SEQUENCES),
    "lstm_ed": (detector(LstmEncoderDecoder, hidden_dim=8, epochs=6), SEQUENCES),
    "fixed": (detector(FixedTransformations, base_width=8, epochs=12), SEQUENCES),
    **{
        f"prediction {form}": (detector(TransformationPrediction, **VIEWS, epochs=10, transformation=form), SEQUENCES)
        for form in PARAMETRISATIONS
    },
    "oc_svm": (OneClassSvm, SEQUENCES),
    "oc_svm rows": (OneClassSvm, ROWS),
    "isolation_forest": (lambda: IsolationForest(IsolationForestOptions(n_trees=50)), SEQUENCES),
    "isolation_forest rows": (lambda: IsolationForest(IsolationForestOptions(n_trees=50)), ROWS),
    "lof": (LocalOutlierFactor, SEQUENCES),
    "lof rows": (LocalOutlierFactor, ROWS),
    "nearest": (NearestNeighbour, SEQUENCES),
    "nearest rows": (NearestNeighbour, ROWS),
    "minirocket": (lambda: MiniRocketNearest(MiniRocketOptions(n_features=168)), FEW),
    "rockad": (lambda: Rockad(RockadOptions(n_kernels=6, n_estimators=3)), FEW),
}


@pytest.mark.parametrize(("make", "case"), LAWS.values(), ids=LAWS)
def test_it_keeps_the_laws_of_a_detector(make: Make, case: Case, tmp_path: Path) -> None:
    check_detector(make, **case._asdict(), folder=tmp_path)


@pytest.mark.parametrize("form", PARAMETRISATIONS)
def test_simclr_keeps_the_laws_but_that_of_direction(form: str, tmp_path: Path) -> None:
    """Few of these anomalies score higher; test_other_losses.py shows the reason."""
    make = detector(SimClr, **VIEWS, embedding_dim=8, epochs=5, reference_size=16, transformation=form)
    check_detector(make, **SEQUENCES._asdict(), folder=tmp_path, min_auc=0.0)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (LstmEncoderDecoder, "the LSTM encoder-decoder needs at least 2 steps"),
        (Rnn, "the recurrent density model needs at least 2 steps"),
        (TransformationPrediction, "at least 2 steps"),
        (SimClr, "at least 2 steps"),
        (FixedTransformations, "a shift by a quarter needs at least 4 steps"),
        (MiniRocketNearest, "MiniRocket needs at least 9 steps"),
        (Rockad, "ROCKET needs at least 11 steps"),
    ],
)
def test_windows_that_are_too_short_are_refused(kind: Make, reason: str) -> None:
    with pytest.raises(TrainingDataError, match=f"windows of length 1: .*{reason}"):
        kind().fit(ROWS.normal, seed=0, device="cpu")


@pytest.mark.parametrize(
    ("make", "share"),
    [
        (detector(DeepSvdd, **ENCODER, epochs=20), 0.5),  # windows are drawn to the centre
        (detector(Goad, epochs=30, reduced_dim=16), 0.7),  # maps are recognised
        (detector(FixedTransformations, base_width=8, epochs=30), 0.2),  # views are recognised
        (detector(TransformationPrediction, **VIEWS, epochs=60, learning_rate=3e-3), 0.05),  # as proposition 1 lets it
        (detector(SimClr, **VIEWS, embedding_dim=8, epochs=30), 0.8),
    ],
    ids=["deep_svdd", "goad", "fixed", "prediction", "simclr"],
)
def test_training_lowers_the_loss(make: Make, share: float) -> None:
    losses: list[float] = []
    make().fit(SEQUENCES.normal, seed=0, device="cpu", progress=lambda step: losses.append(step.loss))
    assert sum(losses[-5:]) < share * sum(losses[:5])
