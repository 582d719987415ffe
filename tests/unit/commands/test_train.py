"""streamad train: what the progress bar shows, on a terminal and without one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from streamad.commands.shared.console import Bar
from streamad.commands.train import FitsShown
from streamad.learn.training.fits import FitStep
from streamad.ports import TrainingStep


def steps(n_fits: int, n_epochs: int) -> list[FitStep]:
    """Every epoch of a training whose loss is the number of epochs that remain."""
    n = n_fits * n_epochs
    return [
        FitStep(
            "final" if i // n_epochs == n_fits - 1 else "calibration",
            i // n_epochs + 1,
            n_fits,
            TrainingStep(i % n_epochs + 1, n_epochs, float(n - i - 1), 9.5 if i == 4 else None),
        )
        for i in range(n)
    ]


def shown(
    monkeypatch: pytest.MonkeyPatch,
    n_steps: int,
    *,
    terminal: bool,
    as_json: bool = False,
    of: Sequence[FitStep] | None = None,
) -> str:
    """What stands on stderr after ``n_steps`` of 3 fits with 2 epochs (or ``of``), each of which takes 20 s."""
    now_s, steps_of = 0.0, of or steps(3, 2)
    console = Console(
        file=StringIO(),
        force_terminal=terminal,
        color_system=None,
        width=200,
        soft_wrap=True,
        highlight=False,
        get_time=lambda: now_s,
    )
    monkeypatch.setattr("streamad.commands.shared.console.err", console)
    with Bar("training", quiet=as_json, is_kept=True) as bar:
        fits = FitsShown(bar)
        for step in steps_of[:n_steps]:
            now_s += 20.0
            fits.add(step)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("n_steps", "words"),
    [
        (2, ("calibrating 1/2: epoch 2, the last", "loss 4.0000 ", "33%", "0:01:20")),
        (3, ("calibrating 2/2: epoch 1 of at most 2", "loss 3.0000 ", "50%", "0:01:00")),
        (5, ("training: epoch 1 of at most 2", "loss 1.0000, validation 9.5000 ", "83%", "0:00:20")),
        (6, ("training: epoch 2, the last", "loss 0.0000 ", "100%", "0:00:00")),
    ],
)
def test_the_bar_shows_fit_epoch_loss_and_the_time_that_remains(
    monkeypatch: pytest.MonkeyPatch, n_steps: int, words: tuple[str, ...]
) -> None:
    text = re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", shown(monkeypatch, n_steps, terminal=True))
    last = text.replace("\r", "\n").strip().splitlines()[-1]
    for word in words:
        assert word in last, last


def test_after_the_last_fit_the_proof_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    of = [*steps(3, 2), FitStep("proof", 3, 3, TrainingStep(0, 0, 0.0))]
    last = shown(monkeypatch, 7, terminal=False, of=of).splitlines()[-1]
    assert last == "proof: a new process loads the version as streamad run does"


def test_without_a_terminal_each_fit_prints_its_first_and_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 6, terminal=False).splitlines() == [
        "calibrating 1/2: epoch 1 of at most 2, loss 5.0000",
        "calibrating 1/2: epoch 2, the last, loss 4.0000",
        "calibrating 2/2: epoch 1 of at most 2, loss 3.0000",
        "calibrating 2/2: epoch 2, the last, loss 2.0000",
        "training: epoch 1 of at most 2, loss 1.0000, validation 9.5000",
        "training: epoch 2, the last, loss 0.0000",
    ]


def test_fits_that_stop_early_count_as_whole_ones_and_set_the_length_of_those_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two fits of at most 100 epochs; both stop after the fourth."""
    early = [
        FitStep("final" if fit == 2 else "calibration", fit, 2, TrainingStep(epoch, 100, 0.5, is_last=epoch == 4))
        for fit in (1, 2)
        for epoch in (1, 2, 3, 4)
    ]
    for n_steps, words in {
        2: ("calibrating 1/1: epoch 2 of at most 100", " 1%"),
        4: ("calibrating 1/1: epoch 4, the last", "50%"),
        6: ("training: epoch 2 of at most 100", "75%", "0:00:40"),
        8: ("training: epoch 4, the last", "100%", "0:00:00"),
    }.items():
        text = re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", shown(monkeypatch, n_steps, terminal=True, of=early))
        last = text.replace("\r", "\n").strip().splitlines()[-1]
        assert all(word in last for word in words), last


@pytest.mark.parametrize("terminal", [True, False])
def test_with_json_it_is_silent(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    assert shown(monkeypatch, 6, terminal=terminal, as_json=True) == ""
