from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.models import together as together_module
from benchmarks.models.together import Member, StackedModels, fit_ensemble
from streamad.errors import DetectorError, TrainingDataError
from streamad.ports import TrainingStep
from streamad_models.neutral_ad import NeutralAD
from streamad_models.neutral_ad.model import NeutralADModel
from tests.unit.models.small import PARAMETRISATIONS, model, options, sines, windows


def _gap(one: Any, other: Any) -> float:
    """The largest difference of the two models' terms on windows that neither saw."""
    data = sines(20, seed=9)
    return float(np.abs(one.score(data.values, data.lengths) - other.score(data.values, data.lengths)).max())


# --- the computation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize("length", [2, 5, 16])
def test_terms_and_gradients_are_those_of_each_model_alone(parametrisation: str, length: int) -> None:
    models = [model(3, length, seed=seed, transformation=parametrisation) for seed in range(3)]
    for index, one in enumerate(models):
        one.mean_C.fill_(0.1 * index)
        one.scale_C.fill_(1.0 + index)
    stacked = StackedModels(models, torch.device("cpu"))
    x_EBCL = torch.stack([windows(6, 3, length, seed=seed)[0] for seed in range(3)])
    lengths_EB = torch.randint(1, length + 1, (3, 6), generator=torch.Generator().manual_seed(0))
    found_EBK = stacked.terms(x_EBCL, lengths_EB)
    stacked.add_gradients(found_EBK.sum())
    for index, one in enumerate(models):
        expected = one(x_EBCL[index], lengths_EB[index])
        expected.sum().backward()
        torch.testing.assert_close(found_EBK[index], expected, atol=1e-5, rtol=1e-5)
        gradients = stacked.weights_of(index, stacked.gradients_EP)
        for name, weight in one.named_parameters():
            torch.testing.assert_close(gradients[name], weight.grad, atol=2e-5, rtol=1e-3)


def test_in_bfloat16_too_terms_are_those_of_each_model_alone() -> None:
    models = [model(seed=seed, precision="bfloat16").train() for seed in range(2)]
    x_BCL, lengths_B = windows(6)
    stacked = StackedModels(models, torch.device("cpu"))
    found_EBK = stacked.terms(x_BCL.expand(2, -1, -1, -1), lengths_B.expand(2, -1))
    for index, one in enumerate(models):
        torch.testing.assert_close(found_EBK[index], one(x_BCL, lengths_B), atol=0.02, rtol=0.02)
        assert not torch.equal(found_EBK[index], one.eval()(x_BCL, lengths_B))


# --- training -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_members_end_as_if_each_had_been_trained_alone(parametrisation: str) -> None:
    """Up to rounding, which Adam magnifies where a gradient is nearly 0: measured by what training changes at all."""
    chosen = options(transformation=parametrisation, learning_rate=1e-4, epochs=3)
    untrained = chosen.model_copy(update={"learning_rate": 1e-12})
    shared = sines(24)
    members = [Member(shared, 0), Member(shared, 1), Member(sines(24, seed=5), 2)]
    together = fit_ensemble(members, chosen, device="cpu")
    for member, fitted in zip(members, together, strict=True):
        alone = NeutralAD(chosen).fit(member.data, seed=member.seed, device="cpu")
        before = NeutralAD(untrained).fit(member.data, seed=member.seed, device="cpu")
        assert _gap(fitted, alone) < 1e-3 * _gap(before, alone)
        assert fitted.summary.best_loss == pytest.approx(alone.summary.best_loss, rel=1e-3)
        assert fitted.summary.best_epoch == alone.summary.best_epoch
        assert fitted.summary.settings == alone.summary.settings
        assert fitted.summary.n_sequences == alone.summary.n_sequences


def test_a_member_with_fewer_and_smaller_batches_waits_for_the_others() -> None:
    chosen = options(learning_rate=1e-4, epochs=3)
    members = [Member(sines(11), 0), Member(sines(40, seed=3), 1)]  # 5 batches of 2, 4 of 10
    for member, fitted in zip(members, fit_ensemble(members, chosen, device="cpu"), strict=True):
        assert _gap(fitted, NeutralAD(chosen).fit(member.data, seed=member.seed, device="cpu")) < 1e-4
    assert [fitted.summary.settings["batch_size"] for fitted in fit_ensemble(members, chosen, device="cpu")] == [2, 10]


def test_each_member_keeps_its_own_best_epoch() -> None:
    """Steps so small that chance decides which epoch is best: the one whose left-out window is the worst."""
    members = [Member(sines(11), seed) for seed in range(4)]  # 5 batches of 2
    together = fit_ensemble(members, options(learning_rate=1e-6, epochs=6), device="cpu")
    best = [fitted.summary.best_epoch for fitted in together]
    assert min(best) < 6
    assert len(set(best)) > 1
    for index, epoch in enumerate(best):
        until_then = fit_ensemble(members, options(learning_rate=1e-6, epochs=epoch), device="cpu")[index]
        assert until_then.summary.best_epoch == epoch
        assert _gap(together[index], until_then) == 0.0
        if epoch < 6:
            steps: list[TrainingStep] = []
            NeutralAD(options(learning_rate=1e-6, epochs=6)).fit(
                members[index].data, seed=members[index].seed, device="cpu", progress=steps.append
            )
            assert min(steps, key=lambda step: step.loss).epoch == epoch


def test_pieces_change_nothing_but_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, members = options(learning_rate=1e-4, epochs=2), [Member(sines(40), seed) for seed in range(2)]
    whole = fit_ensemble(members, chosen, device="cpu")
    monkeypatch.setattr(together_module, "piece_size", lambda *_: 6)
    for one, other in zip(whole, fit_ensemble(members, chosen, device="cpu"), strict=True):
        assert _gap(one, other) < 1e-4


def test_validation_shares_are_left_out_as_alone() -> None:
    chosen = options(learning_rate=1e-4, epochs=2, validation=0.25)
    fitted = fit_ensemble([Member(sines(24), 3)], chosen, device="cpu")[0]
    assert fitted.summary.n_sequences == 18
    assert _gap(fitted, NeutralAD(chosen).fit(sines(24), seed=3, device="cpu")) < 1e-4


def test_members_export_progress_and_the_same_seed_give_the_same_bits(tmp_path: Path) -> None:
    steps: list[TrainingStep] = []
    members = [Member(sines(24), seed) for seed in range(2)]
    before = torch.get_rng_state()
    first = fit_ensemble(members, options(), device="cpu", progress=steps.append)
    assert torch.equal(torch.get_rng_state(), before)
    assert [(step.epoch, step.n_epochs) for step in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert _gap(first[1], fit_ensemble(members, options(), device="cpu")[1]) == 0.0
    first[1].export(tmp_path)
    assert _gap(first[1], NeutralAD().load(tmp_path, device="cpu")) < 1e-5
    assert isinstance(first[1].model, NeutralADModel)


def test_windows_of_different_shapes_are_refused() -> None:
    with pytest.raises(DetectorError, match=r"\(3, 16\), \(3, 20\)"):
        fit_ensemble([Member(sines(), 0), Member(sines(length=20), 0)], options(), device="cpu")


def test_a_member_whose_data_cannot_train_is_refused() -> None:
    with pytest.raises(TrainingDataError, match="at least 8"):
        fit_ensemble([Member(sines(), 0), Member(sines(5), 0)], options(), device="cpu")


def test_a_loss_that_diverges_names_the_member() -> None:
    with pytest.raises(DetectorError, match=r"member 0 diverged in epoch \d: lower learning_rate"):
        fit_ensemble([Member(sines(), 0)], options(learning_rate=1e30), device="cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_ensemble_on_cuda_ends_as_on_the_cpu() -> None:
    chosen, members = options(learning_rate=3e-4, epochs=2), [Member(sines(24), seed) for seed in range(3)]
    on_cpu = fit_ensemble(members, chosen, device="cpu")
    for one, other in zip(on_cpu, fit_ensemble(members, chosen, device="cuda"), strict=True):
        assert _gap(one, other) < 1e-3


def test_a_member_that_stands_still_keeps_its_model_while_the_others_train_on() -> None:
    chosen = options(epochs=60, learning_rate=3e-3, patience=4)
    members = [Member(sines(12), 0), Member(sines(24, seed=3), 1)]
    together = [fitted.summary for fitted in fit_ensemble(members, chosen, device="cpu")]
    alone = [NeutralAD(chosen).fit(each.data, seed=each.seed, device="cpu").summary for each in members]
    assert [each.settings["stopped_by"] for each in together] == ["patience", "patience"]
    assert len({each.n_epochs for each in together}) == 2
    for one, other in zip(together, alone, strict=True):
        assert abs(one.n_epochs - other.n_epochs) <= 3  # rounding moves the losses a little
        assert one.best_epoch <= one.n_epochs


def test_the_time_limit_is_that_of_the_whole_computation() -> None:
    members = [Member(sines(), seed) for seed in range(2)]
    steps: list[TrainingStep] = []
    fitted = fit_ensemble(members, options(time_limit_s=1e-9), device="cpu", progress=steps.append)
    assert [step.is_last for step in steps] == [True]
    assert [each.summary.n_epochs for each in fitted] == [1, 1]
    assert "time limit" in fitted[1].summary.remarks[-1]
