from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from streamad.errors import DetectorError, OutputError
from streamad.ports import TrainingStep
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad import NeutralAD, training
from tests.unit.models.small import model, options, sines


def _fit(seed: int = 0, *, data: Any = None, progress: Any = None, resume: Path | None = None, **changes: Any) -> Any:
    detector = NeutralAD(options(**changes))
    return detector.fit(data or sines(), seed=seed, device="cpu", progress=progress, resume=resume)


def _same_weights(one: FittedModule, two: FittedModule) -> bool:
    other = two.model.state_dict()
    return all(torch.equal(value, other[name]) for name, value in one.model.state_dict().items())


def test_a_training_that_does_not_leave_its_start_is_remarked_on() -> None:
    assert _fit(epochs=20).summary.remarks == ()
    (remark,) = _fit(epochs=1, learning_rate=1e-7).summary.remarks
    assert "did not leave its start" in remark


def test_training_in_bfloat16_is_another_and_repeats_bit_by_bit_and_separates_anomalies() -> None:
    first = _fit(7, precision="bfloat16", epochs=20)
    assert _same_weights(first, _fit(7, precision="bfloat16", epochs=20))
    assert not _same_weights(first, _fit(7, epochs=20))
    assert first.summary.settings["precision"] == "bfloat16"
    assert {value.dtype for name, value in first.model.state_dict().items()} == {torch.float32}
    normal, odd = sines(seed=5), sines(seed=6)
    odd.values[:, 0] = odd.values[:, 0].mean()
    scores = [first.score(data.values, data.lengths).sum(axis=1) for data in (normal, odd)]
    assert np.median(scores[1]) > np.median(scores[0])


def test_training_lowers_the_loss_and_keeps_the_epoch_of_the_lowest() -> None:
    steps: list[TrainingStep] = []
    fitted = _fit(progress=steps.append, epochs=12, learning_rate=3e-3, scaling="standard")
    losses = [step.loss for step in steps]
    assert [step.epoch for step in steps] == list(range(1, 13))
    assert losses[0] == pytest.approx(1.0, abs=0.3)  # an untrained model is near the identity edge case
    assert min(losses) < 0.8 * losses[0]
    assert fitted.summary.best_loss == min(losses)
    assert fitted.summary.best_epoch == 1 + losses.index(min(losses))
    assert not fitted.model.training


def test_the_model_of_an_earlier_epoch_wins_if_its_loss_was_lower() -> None:
    steps: list[TrainingStep] = []
    fitted = _fit(progress=steps.append, epochs=6, learning_rate=0.2, scaling="standard")
    best = fitted.summary.best_epoch
    assert best < 6, "the learning rate is meant to be far too high"
    assert _same_weights(fitted, _fit(epochs=best, learning_rate=0.2, scaling="standard"))


def test_validation_loss_is_reported_and_its_sequences_are_not_trained_on() -> None:
    steps: list[TrainingStep] = []
    fitted = _fit(progress=steps.append, validation=0.25)
    assert all(step.validation_loss is not None and 0 < step.validation_loss < 3 for step in steps)
    assert fitted.summary.n_sequences == 18
    steps.clear()
    _fit(progress=steps.append, validation=0.0)
    assert all(step.validation_loss is None for step in steps)


def test_standard_scaling_is_learned_from_the_training_windows_and_none_is_identity() -> None:
    scaled = _fit(epochs=1, scaling="standard").model
    assert scaled.mean_C.numpy() == pytest.approx([100, 100, 100], abs=2.0)
    assert (1 / scaled.scale_C).numpy() == pytest.approx([3.5, 3.5, 3.5], abs=0.5)
    plain = _fit(epochs=1, scaling="none").model
    assert plain.mean_C.tolist() == [0, 0, 0]
    assert plain.scale_C.tolist() == [1, 1, 1]


def test_batch_is_a_quarter_unless_named() -> None:
    assert _fit(epochs=1).summary.settings["batch_size"] == 6
    assert _fit(epochs=1, batch_size=5).summary.settings["batch_size"] == 5
    assert _fit(epochs=1, batch_size=500).summary.settings["batch_size"] == 24


def test_the_summary_names_the_value_that_auto_chose() -> None:
    settings = _fit(epochs=1, embedding_dim="auto").summary.settings
    assert (settings["n_blocks"], settings["embedding_dim"], settings["seed"]) == (2, 64, 0)


def test_a_loss_that_diverges_is_an_error() -> None:
    with pytest.raises(DetectorError, match=r"diverged in epoch .* lower learning_rate"):
        _fit(learning_rate=1e30)


# --- interruption and resume ---------------------------------------------------------------------------------------


class _InterruptAfter:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.seen: list[int] = []

    def __call__(self, step: TrainingStep) -> None:
        self.seen.append(step.epoch)
        if step.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_resumed_run_ends_exactly_as_the_uninterrupted_one(tmp_path: Path, epoch: int) -> None:
    resume = tmp_path / "deep" / "run.resume"
    with pytest.raises(KeyboardInterrupt):
        _fit(progress=_InterruptAfter(epoch), resume=resume, validation=0.25)
    rest = _InterruptAfter(-1)
    resumed = _fit(progress=rest, resume=resume, validation=0.25)
    assert rest.seen == list(range(epoch + 1, 5))
    whole = _fit(validation=0.25)
    assert _same_weights(resumed, whole)
    assert replace(resumed.summary, duration_s=0.0) == replace(whole.summary, duration_s=0.0)
    assert [path.name for path in resume.parent.iterdir()] == ["run.resume"]


def test_a_finished_run_is_returned_without_another_epoch(tmp_path: Path) -> None:
    resume = tmp_path / "run.resume"
    first = _fit(resume=resume)
    again = _InterruptAfter(-1)
    assert _same_weights(first, _fit(resume=resume, progress=again))
    assert again.seen == []


@pytest.mark.parametrize("other", [{"seed": 1}, {"learning_rate": 2e-3}, {"data": sines(seed=1)}])
def test_the_state_of_another_run_is_replaced(tmp_path: Path, other: dict[str, Any]) -> None:
    resume = tmp_path / "run.resume"
    _fit(resume=resume)
    steps = _InterruptAfter(-1)
    assert _same_weights(_fit(**other, resume=resume, progress=steps), _fit(**other))
    assert steps.seen == [1, 2, 3, 4]


@pytest.mark.parametrize("content", [b"", b"my precious notes", b"PK\x03\x04 half a zip"])
def test_a_foreign_resume_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    resume = tmp_path / "run.resume"
    resume.write_bytes(content)
    with pytest.raises(DetectorError, match="not a readable resume file"):
        _fit(resume=resume)
    assert resume.read_bytes() == content


def test_a_fifo_as_resume_file_blocks_no_training(tmp_path: Path) -> None:
    resume = tmp_path / "run.resume"
    os.mkfifo(resume)
    with pytest.raises(DetectorError, match="not a readable resume file"):
        _fit(resume=resume)


def test_a_resume_file_without_all_of_its_parts_is_refused(tmp_path: Path) -> None:
    resume = tmp_path / "run.resume"
    _fit(resume=resume)
    content = torch.load(resume, weights_only=True)
    del content["fingerprint"]
    torch.save(content, resume)
    with pytest.raises(DetectorError, match="not a resume file of this detector"):
        _fit(resume=resume)


def _rename_a_weight(content: dict[str, Any]) -> None:
    content["model"]["changed"] = content["model"].pop(next(iter(content["model"])))


def _reshape_a_moment(content: dict[str, Any]) -> None:
    state = content["optimizer"]["state"][0]
    state["exp_avg"] = state["exp_avg"].reshape(-1)


def _change_a_weight(content: dict[str, Any]) -> None:
    next(iter(content["model"].values())).reshape(-1)[0] += 1


def _change_the_rate(content: dict[str, Any]) -> None:
    content["optimizer"]["param_groups"][0]["lr"] *= 2


def _make_a_loss_text(content: dict[str, Any]) -> None:
    content["losses"][0] = str(content["losses"][0])


@pytest.mark.parametrize(
    "change", [_rename_a_weight, _reshape_a_moment, _change_a_weight, _change_the_rate, _make_a_loss_text]
)
def test_a_changed_resume_file_is_refused_and_left_alone(change: Any, tmp_path: Path) -> None:
    resume = tmp_path / "run.resume"
    _fit(resume=resume)
    content = torch.load(resume, weights_only=True)
    change(content)
    torch.save(content, resume)
    changed = resume.read_bytes()
    with pytest.raises(DetectorError, match="was changed since it was written: delete it or name another"):
        _fit(resume=resume)
    assert resume.read_bytes() == changed


def test_another_torch_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    resume = tmp_path / "weights.pt"
    torch.save({"weights": torch.zeros(3)}, resume)
    with pytest.raises(DetectorError, match="not a resume file of this detector"):
        _fit(resume=resume)
    assert torch.load(resume, weights_only=True)["weights"].tolist() == [0, 0, 0]


def test_a_resume_file_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OutputError, match="cannot write the resume file"):
        _fit(resume=tmp_path / "file" / "run.resume")


def test_a_batch_in_pieces_is_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sines(n_channels=2, length=9)
    whole = _fit(data=data, batch_size=24, epochs=3, learning_rate=1e-4)
    monkeypatch.setattr(training, "piece_size", lambda *_: 7)
    pieces = _fit(data=data, batch_size=24, epochs=3, learning_rate=1e-4)
    assert pieces.summary.best_loss == pytest.approx(whole.summary.best_loss, rel=1e-5)
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(pieces.model.state_dict()[name], value, atol=1e-5, rtol=1e-4)


def test_pieces_are_smaller_for_long_windows_larger_on_cuda_and_never_empty() -> None:
    sizes = [
        training.piece_size(model(3, length, n_transformations=11), 256, torch.device(device))
        for device in ("cpu", "cuda")
        for length in (30, 300, 30_000)
    ]
    assert sizes == [86, 8, 1, 5555, 555, 5]
