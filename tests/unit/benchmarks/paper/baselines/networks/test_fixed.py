from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.paper.baselines.networks.fixed import (
    N_VIEWS,
    FixedTransformations,
    FixedTransformationsNetwork,
    FixedTransformationsOptions,
    fixed_views,
)
from tests.support.detectors import SEQUENCES
from tests.unit.models.small import sines, windows


def options(**changes: Any) -> FixedTransformationsOptions:
    small = {"base_width": 8, "epochs": 12}
    return FixedTransformationsOptions.model_validate({**small, **changes})


SEQUENCE = [[1, 10], [2, 20], [3, 30], [4, 40]]


@pytest.mark.parametrize("padding", [0, 3])
def test_the_twelve_views_are_all_compositions_of_flips_and_shifts_and_padding_stays(padding: int) -> None:
    x_LC = torch.tensor(SEQUENCE + [[0, 0]] * padding)
    views_KLC = fixed_views(x_LC[:, None].float(), torch.tensor([4]))[:, :, 0]
    assert (views_KLC[:, 4:] == 0).all()
    as_lists = views_KLC[:, :4].tolist()
    assert len(as_lists) == N_VIEWS == len({str(view) for view in as_lists})
    assert as_lists[0] == SEQUENCE
    assert [[2, 20], [3, 30], [4, 40], [1, 10]] in as_lists  # a quarter earlier
    assert [[4, 40], [1, 10], [2, 20], [3, 30]] in as_lists  # a quarter later
    assert [[4, 40], [3, 30], [2, 20], [1, 10]] in as_lists  # time flipped
    assert [[10, 1], [20, 2], [30, 3], [40, 4]] in as_lists  # channels flipped
    assert [[10, 1], [40, 4], [30, 3], [20, 2]] in as_lists  # both, a quarter later


def test_each_sequence_of_a_batch_is_moved_by_a_quarter_of_its_own_length() -> None:
    padded = sines(5)
    values, lengths = torch.from_numpy(padded.values), torch.from_numpy(padded.lengths)
    views_KLBC = fixed_views(values.permute(2, 0, 1), lengths)
    assert len(set(lengths.tolist())) > 1
    for number, length in enumerate(lengths.tolist()):
        inside_LC = values[number, :, :length].T
        expected = [
            flipped.roll(shift, 0)
            for in_time in (inside_LC, inside_LC.flip(0))
            for flipped in (in_time, in_time.flip(1))
            for shift in (0, length // 4, -(length // 4))
        ]
        assert torch.equal(views_KLBC[:, :length, number], torch.stack(expected))


def test_an_untrained_classifier_is_about_as_good_as_guessing() -> None:
    net = FixedTransformationsNetwork(3, 16, options(), torch.Generator().manual_seed(0))
    with torch.no_grad():
        terms_BK = net(*windows(6))
    guessing = torch.log(torch.tensor(12.0))
    assert (terms_BK.mean(dim=1) - guessing).abs().max() < 0.1
    assert terms_BK.shape == (6, 12)


def test_in_bfloat16_it_is_trained_otherwise_and_kept_and_scored_in_float32() -> None:
    fitted = [
        FixedTransformations(options(precision=precision)).fit(SEQUENCES.normal, seed=0, device="cpu")
        for precision in ("bfloat16", "bfloat16", "float32")
    ]
    scores = [one.score(SEQUENCES.normal.values, SEQUENCES.normal.lengths) for one in fitted]
    assert (scores[0] == scores[1]).all()
    assert (scores[0] != scores[2]).any()
    assert scores[0] == pytest.approx(scores[2], abs=0.5)
    assert {value.dtype for value in fitted[0].model.parameters()} == {torch.float32}
    assert fitted[0].summary.settings["precision"] == "bfloat16"
