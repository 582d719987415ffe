from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.paper.baselines.networks.goad import Goad, GoadNetwork, GoadOptions
from benchmarks.paper.baselines.networks.network import Network
from benchmarks.paper.baselines.networks.selection import hold_out
from streamad.errors import DetectorError
from streamad.ports import TrainingStep
from tests.support.detectors import ROWS, SEQUENCES


class Preferring(Goad):
    """GOAD that likes one reduced dimension, and notes what it was asked to judge."""

    preferred = 8
    judged: list[tuple[int, int]]

    def candidates(self, length: int) -> Sequence[int]:
        return 4, 8, 16

    def judge(self, network: Network, windows_BCL: Tensor, lengths_B: Tensor) -> float:
        reduced_dim = network.maps_DMR.shape[2]
        type(self).judged.append((reduced_dim, len(windows_BCL)))
        return float(reduced_dim == self.preferred)

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> GoadNetwork:
        if self.options.reduced_dim == 4:
            raise DetectorError("diverged")
        return super().build(n_channels, length, generator)


@pytest.fixture
def preferring() -> type[Preferring]:
    Preferring.judged = []
    return Preferring


def test_the_best_candidate_is_trained_on_all_windows(preferring: type[Preferring]) -> None:
    steps: list[TrainingStep] = []
    fitted = preferring(GoadOptions(epochs=2)).fit(SEQUENCES.normal, seed=0, device="cpu", progress=steps.append)
    assert fitted.summary.settings["reduced_dim"] == 8
    assert fitted.summary.n_sequences == len(SEQUENCES.normal)
    assert [step.epoch for step in steps] == [1, 2]


def test_candidates_are_judged_on_the_fifth_left_out_and_one_that_diverges_is_passed_over(
    preferring: type[Preferring],
) -> None:
    preferring(GoadOptions(epochs=1)).fit(SEQUENCES.normal, seed=0, device="cpu")
    assert preferring.judged == [(8, 10), (16, 10)]


def test_the_model_is_the_one_that_the_chosen_setting_gives(preferring: type[Preferring]) -> None:
    chosen = preferring(GoadOptions(epochs=2)).fit(SEQUENCES.normal, seed=3, device="cpu")
    told = Goad(GoadOptions(epochs=2, reduced_dim=8)).fit(SEQUENCES.normal, seed=3, device="cpu")
    data = SEQUENCES.anomalous
    assert np.array_equal(chosen.score(data.values, data.lengths), told.score(data.values, data.lengths))


def test_a_candidate_that_cannot_be_judged_is_not_the_best(preferring: type[Preferring]) -> None:
    class Doubtful(preferring):  # type: ignore[misc,valid-type]
        def judge(self, network: Network, windows_BCL: Tensor, lengths_B: Tensor) -> float:
            return float("nan") if network.maps_DMR.shape[2] == 8 else 0.0

    fitted = Doubtful(GoadOptions(epochs=1)).fit(SEQUENCES.normal, seed=0, device="cpu")
    assert fitted.summary.settings["reduced_dim"] == 16

    class Hopeless(Doubtful):
        def candidates(self, length: int) -> Sequence[int]:
            return 8, 8

    with pytest.raises(DetectorError, match="none of reduced_dim 8, 8 will do: reduced_dim 8 gives NaN"):
        Hopeless(GoadOptions(epochs=1)).fit(SEQUENCES.normal, seed=0, device="cpu")


def test_a_setting_that_is_given_is_not_searched(preferring: type[Preferring]) -> None:
    fitted = preferring(GoadOptions(epochs=1, reduced_dim=16)).fit(SEQUENCES.normal, seed=0, device="cpu")
    assert preferring.judged == []
    assert fitted.summary.settings["reduced_dim"] == 16


def test_if_no_candidate_can_be_trained_the_error_lists_them(preferring: type[Preferring]) -> None:
    class Hopeless(preferring):  # type: ignore[misc,valid-type]
        def candidates(self, length: int) -> Sequence[int]:
            return 4, 4

    with pytest.raises(DetectorError, match="none of reduced_dim 4, 4 will do: diverged"):
        Hopeless(GoadOptions(epochs=1)).fit(SEQUENCES.normal, seed=0, device="cpu")


def test_held_out_windows_are_a_fifth_and_none_of_those_trained_on() -> None:
    training, held = hold_out(ROWS.normal, seed=1)
    assert (len(training), len(held)) == (38, 10)
    assert sorted(training.ids + held.ids) == sorted(ROWS.normal.ids)
    assert hold_out(ROWS.normal, seed=1)[1].ids == held.ids
    assert hold_out(ROWS.normal, seed=2)[1].ids != held.ids


def test_below_ten_windows_nothing_can_be_spared() -> None:
    few = ROWS.normal.take([0, 1, 2])
    training, held = hold_out(few, seed=0)
    assert training.ids == held.ids == few.ids
