"""A detector whose training tests can hold, break and follow: what happens goes to a journal, one JSON line each.

It scores as ``mean_square`` does and learns nothing, but is resumable, epoch by epoch.
"""

from __future__ import annotations

__all__ = ["Paced", "PacedOptions"]

import json
import os
import signal
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.system.files import write_atomically
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_test_detector import MeanSquare

_LOOK_S = 0.005


class PacedOptions(BaseModel):
    """``hold``: while this file is there, a fit waits before each epoch after the first ``free_epochs``.

    ``hold_export``: the same for the export. ``failure``: what goes wrong after the first epoch.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    journal: Path
    effort: Literal["quick", "normal"] = "quick"
    epochs: int = 4
    free_epochs: int = 1
    hold: Path | None = None
    hold_export: Path | None = None
    failure: Literal["none", "error", "exit", "kill", "stubborn", "chatter"] = "none"


class Paced(MeanSquare):
    """The detector behind the kind ``paced``."""

    options_model: type[BaseModel] = PacedOptions

    def __init__(self, options: PacedOptions) -> None:
        super().__init__()
        self.paced = options

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> _Fitted:
        options = self.paced
        done = json.loads(resume.read_text())["epoch"] if resume is not None and resume.exists() else 0
        _say(options, "fit", epoch=done, n=len(data), effort=options.effort)
        for epoch in range(done + 1, options.epochs + 1):
            if epoch > options.free_epochs:
                _wait_while(options.hold, stubborn=options.failure == "stubborn")
            if resume is not None:
                write_atomically(resume, json.dumps({"epoch": epoch}).encode())
            _say(options, "epoch", epoch=epoch)
            if progress is not None:
                progress(TrainingStep(epoch, options.epochs, 1.0 / epoch))
            _fail(options)
        _say(options, "fitted")
        summary = TrainingSummary(len(data), options.epochs, options.epochs, 0.0, 0.0, "cpu")
        return _Fitted(self, data, summary)


class _Fitted:
    def __init__(self, detector: Paced, training: WindowSet, summary: TrainingSummary) -> None:
        self._detector, self._training, self.summary = detector, training, summary

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        terms: FloatArray = ((windows.astype("f8") ** 2).sum(axis=2) / lengths.clip(1)[:, None]).astype("f4")
        return terms

    def training_scores(self) -> FloatArray:
        return self.score(self._training.values, self._training.lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        _say(self._detector.paced, "export")
        _wait_while(self._detector.paced.hold_export)
        (folder / "shape.json").write_text(json.dumps(self._training.values.shape[1:]))
        return ("shape.json",)


def _fail(options: PacedOptions) -> None:
    match options.failure:
        case "error":
            raise RuntimeError("the detector is\nbroken")
        case "exit":
            raise SystemExit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "chatter":
            print("x" * 300_000, flush=True)
            os.write(2, b"y" * 300_000)


def _wait_while(path: Path | None, *, stubborn: bool = False) -> None:
    while path is not None and path.exists():
        try:
            time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            if not stubborn:
                raise


def _say(options: PacedOptions, what: str, **more: int) -> None:
    threads = os.environ.get("OMP_NUM_THREADS")
    entry = {"what": what, "pid": os.getpid(), "nice": os.nice(0), "threads": threads, **more}
    if hasattr(os, "sched_getscheduler"):
        entry["policy"] = os.sched_getscheduler(0)
    with options.journal.open("a") as file:
        file.write(json.dumps(entry) + "\n")
