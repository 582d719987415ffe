"""``streamad train``: learn what normal looks like."""

from __future__ import annotations

__all__ = ["train"]

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from streamad.commands._common import (
    ConfigOption,
    JsonOption,
    Plant,
    err,
    load_whole_plant,
    out,
    print_json,
    run_async,
)
from streamad.commands._input import FromOption, SinceOption, UntilOption, input_url, open_input, span_now
from streamad.commands._labels import NORMAL, read_labels
from streamad.commands._windows import Recordings, read_windows
from streamad.errors import DetectorError
from streamad.judge.calibration import certifiable_rate
from streamad.learn.manifest import Manifest
from streamad.learn.training import FitStep, promotion_doubt, train_model
from streamad.wiring import detector_for, registry_of


def train(
    recordings: Annotated[
        str | None,
        typer.Argument(help="Recordings of normal sequences: path or URL. Default: model.recordings, else the source."),
    ] = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    from_url: FromOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    labels: Annotated[
        str | None,
        typer.Option(help="CSV with sequence, label, perhaps stream (or 'source'): train on the normal ones only."),
    ] = None,
    normal: Annotated[str, typer.Option(help="Labels that mean normal, separated by commas.")] = NORMAL,
    promote: Annotated[bool, typer.Option(help="Put the new version into service.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Train a model on recordings of normal sequences and put it into service.

    A part of the recordings is held out to calibrate the false-alarm rate (with fewer than 150: scores out of fold).
    Ctrl-C loses nothing: the same command goes on where it stopped.
    """
    plant = load_whole_plant(config)
    detector = detector_for(plant.settings)
    registry = registry_of(plant.settings, plant.base_dir)
    url = input_url(recordings, from_url) or plant.settings.model.recordings
    source = open_input(plant, url, span_now(plant, since, until))
    keep = None if labels is None else read_labels(labels, source, normal).is_normal
    data = run_async(read_windows(plant, source, keep=keep))
    windows = data.window_set()
    _warn(data, plant)
    if url is None:
        err.print(f"training on {escape(plant.settings.source.url)} (the source; model.recordings is not set)")
    started = time.perf_counter()
    with _Bar(as_json) as bar:
        version = train_model(
            windows,
            detector,
            settings=plant.settings,
            registry=registry,
            clock=plant.clock,
            progress=bar.on_step,
            promote=promote,
        )
    manifest = registry.manifest(plant.settings.model.name, version)
    promoted = registry.current(manifest.name) == version
    if as_json:
        print_json({"model": manifest.name, "version": version, "promoted": promoted, "metrics": manifest.metrics})
    else:
        _print_result(manifest, promoted, plant.settings.alerts.false_alarm_rate, time.perf_counter() - started)
    if promote and not promoted:
        doubt = promotion_doubt(manifest.metrics)
        raise DetectorError(f"version {version} was not put into service: {doubt or 'another one was promoted'}")


def _warn(data: Recordings, plant: Plant) -> None:
    for sequence, why in data.unscorable[:5]:
        err.print(f"[yellow]left out[/] {sequence.stream} {sequence.sequence}: {why}")
    if len(data.unscorable) > 5:
        err.print(f"[yellow]left out[/] {len(data.unscorable) - 5} more")
    if data.counters.dead_letters:
        kinds = ", ".join(f"{count} {kind}" for kind, count in data.counters.dead_letters.items())
        err.print(f"[yellow]unreadable messages[/]: {kinds}")
    if data.counters.late_samples:
        err.print(
            f"[yellow]{data.counters.late_samples} samples came too late[/] and are not learned from; "
            "see sequences.allowed_lateness"
        )


def _print_result(manifest: Manifest, promoted: bool, rate: float, took_s: float) -> None:
    metrics = manifest.metrics
    how = "held out" if metrics.method == "split" else "scored out of fold"
    out.print(
        f"model {manifest.name} {manifest.version}: trained on {metrics.n_training} sequences in "
        f"{manifest.training.duration_s:.0f} s ({took_s:.0f} s in all), calibrated on {metrics.n_calibration} {how}; "
        + ("now in service" if promoted else "not in service")
    )
    if metrics.score_quantiles["0.75"] < metrics.training_median <= metrics.score_quantiles["1"]:
        out.print(
            "[yellow]note[/]: the model's own training sequences score above most calibration scores, so normal "
            "sequences may alert too often: train for more epochs or on more recordings"
        )
    if rate < certifiable_rate(metrics.n_calibration):
        out.print(
            f"[yellow]note[/]: {metrics.n_calibration} calibration sequences certify a false-alarm rate of "
            f"{certifiable_rate(metrics.n_calibration):.3f} at best; {rate:g} is extrapolated"
        )


class _Bar:
    """Shows fits and epochs with loss and the time that remains; one line per fit where there is no terminal."""

    def __init__(self, as_json: bool) -> None:
        self._quiet = as_json
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=err,
            disable=as_json or not err.is_terminal,
        )
        self._task = self._progress.add_task("training", total=None, loss="")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        if kind is KeyboardInterrupt:
            err.print("interrupted: the same command goes on from here")

    def on_step(self, step: FitStep) -> None:
        epoch = step.step
        what = "training" if step.phase == "final" else f"calibrating {step.fit}/{step.n_fits - 1}"
        loss = f"loss {epoch.loss:.4f}"
        if epoch.validation_loss is not None:
            loss += f", validation {epoch.validation_loss:.4f}"
        done = (step.fit - 1) * epoch.n_epochs + epoch.epoch
        self._progress.update(
            self._task,
            total=step.n_fits * epoch.n_epochs,
            completed=done,
            description=f"{what}: epoch {epoch.epoch}/{epoch.n_epochs}",
            loss=loss,
        )
        if not self._quiet and not err.is_terminal and epoch.epoch in (1, epoch.n_epochs):
            err.print(f"{what}: epoch {epoch.epoch}/{epoch.n_epochs}, {loss}")
