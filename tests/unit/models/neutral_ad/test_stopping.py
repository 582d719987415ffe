from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from streamad.ports import TrainingStep
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.neutral_ad.options import PRESETS
from streamad_models.neutral_ad.training import read_snapshot, remarks_on_stop, stop_reason, write_snapshot
from tests.unit.models.small import options, sines

FALLING = [1.0 - 0.011 * i for i in range(60)]
STILL = [0.5, *[0.4] * 10]


def _fit(*, progress: Any = None, resume: Path | None = None, **changes: Any) -> Any:
    return NeutralAD(options(**changes)).fit(sines(), seed=0, device="cpu", progress=progress, resume=resume)


def _same(one: Any, other: Any) -> bool:
    weights = other.model.state_dict()
    return all(torch.equal(value, weights[name]) for name, value in one.model.state_dict().items())


# --- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ([], None),
        (FALLING, None),
        (STILL, None),  # ten epochs ago it was still 0.5
        ([*STILL, 0.4], "patience"),
        ([*STILL, 0.391], "patience"),
        ([*STILL, 0.38], None),
        ([*STILL, 9.0], "patience"),  # a leap upwards is no fall
        ([1.0] * 50, None),  # has not left its start: deep encoders wait there
    ],
)
def test_a_loss_stands_still_if_ten_epochs_lower_it_by_less_than_a_hundredth(losses: list[float], reason: Any) -> None:
    assert stop_reason(options(epochs=100, patience=10), losses, 0.0) == reason
    assert stop_reason(options(epochs=100, patience=None), losses, 0.0) is None


def test_a_time_limit_holds_at_an_epochs_end_and_the_first_epoch_is_always_trained() -> None:
    limited = options(epochs=5, time_limit_s=10.0)
    assert stop_reason(limited, [], 11.0) is None
    assert stop_reason(limited, [1.0], 9.9) is None
    assert stop_reason(limited, [1.0], 10.0) == "time_limit"
    assert stop_reason(limited, [1.0] * 5, 10.0) == "epochs"


def test_only_a_time_limit_is_remarked_on() -> None:
    limited = options(epochs=5, time_limit_s=1.5)
    assert remarks_on_stop("patience", [0.5], limited) == ()
    (remark,) = remarks_on_stop("time_limit", [0.9, 0.52], limited)
    assert "time limit of 1.5 s, after epoch 2 of at most 5 (loss 0.520)" in remark


# --- the training ---------------------------------------------------------------------------------------------------


def test_plain_options_stop_at_a_still_loss_and_presets_never() -> None:
    assert NeutralADOptions().patience == 10
    assert {NeutralADOptions.from_preset(name).patience for name in PRESETS} == {None}


def test_a_training_whose_loss_stands_still_says_where_it_stopped_and_why() -> None:
    steps: list[TrainingStep] = []
    summary = _fit(epochs=80, learning_rate=3e-3, progress=steps.append).summary
    assert summary.n_epochs == len(steps) < 80
    assert summary.settings["stopped_by"] == "patience"
    assert [step.is_last for step in steps] == [False] * (len(steps) - 1) + [True]
    losses = [step.loss for step in steps]
    assert min(losses[:-10]) - min(losses) < 0.01 <= min(losses[:-11]) - min(losses[:-1])


def test_until_it_stops_it_is_the_training_without_patience() -> None:
    """The stop changes no step: the same epochs give the same weights, bit by bit."""
    stopped = _fit(epochs=80, learning_rate=3e-3)
    assert _same(stopped, _fit(epochs=stopped.summary.n_epochs, learning_rate=3e-3, patience=None))


def test_a_preset_is_its_settings_spelled_out_bit_by_bit() -> None:
    """Written down here again, so that a change of the defaults cannot reach the paper's model."""
    spelled: dict[str, Any] = {
        "transformation": "feed_forward",
        "n_transformations": 11,
        "temperature": 0.1,
        "scaling": "none",
        "epochs": 12,
        "learning_rate": 1e-3,
        "weight_decay": 1e-5,
        "batch_size": "quarter",
        "validation": 0.0,
        "patience": None,
        "time_limit_s": None,
        "embedding_dim": 64,
        "n_blocks": 3,
        "base_width": 32,
        "precision": "float32",
    }
    data = sines(16, 2, 30)
    preset = NeutralAD(NeutralADOptions.from_preset("racket_sports", epochs=12))
    fitted = preset.fit(data, seed=3, device="cpu")
    assert _same(fitted, NeutralAD(NeutralADOptions(**spelled)).fit(data, seed=3, device="cpu"))
    assert spelled == preset.options.model_dump(exclude={"preset"})
    assert fitted.summary.n_epochs == 12


def test_a_time_limit_ends_the_fit_and_the_manifest_says_so() -> None:
    fitted = _fit(time_limit_s=1e-9)
    assert (fitted.summary.n_epochs, fitted.summary.settings["stopped_by"]) == (1, "time_limit")
    assert "time limit" in fitted.summary.remarks[-1]


# --- after an interruption ------------------------------------------------------------------------------------------


class _InterruptAfter:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, step: TrainingStep) -> None:
        if step.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("before_the_end", [1, 5, 12])
def test_a_resumed_training_stops_at_the_same_epoch_with_the_same_weights(tmp_path: Path, before_the_end: int) -> None:
    changes: dict[str, Any] = {"epochs": 80, "learning_rate": 3e-3}
    whole, resume = _fit(**changes), tmp_path / "run.resume"
    with pytest.raises(KeyboardInterrupt):
        _fit(**changes, resume=resume, progress=_InterruptAfter(whole.summary.n_epochs - before_the_end))
    resumed = _fit(**changes, resume=resume)
    assert _same(resumed, whole)
    assert replace(resumed.summary, duration_s=0.0) == replace(whole.summary, duration_s=0.0)
    again = _fit(**changes, resume=resume, progress=_InterruptAfter(whole.summary.n_epochs))
    assert _same(again, whole)


def test_the_time_before_an_interruption_counts_towards_the_limit(tmp_path: Path) -> None:
    resume = tmp_path / "run.resume"
    limited: dict[str, Any] = {"epochs": 4, "time_limit_s": 3600.0}
    with pytest.raises(KeyboardInterrupt):
        _fit(**limited, resume=resume, progress=_InterruptAfter(2))
    snapshot = read_snapshot(resume, torch.load(resume, weights_only=True)["fingerprint"])
    assert snapshot is not None
    write_snapshot(resume, replace(snapshot, duration_s=3599.9999))
    summary = _fit(**limited, resume=resume).summary
    assert (summary.n_epochs, summary.settings["stopped_by"]) == (3, "time_limit")
    assert summary.duration_s >= 3600.0
