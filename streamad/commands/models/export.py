"""``streamad models export``: a version for other programs, as ONNX with a README of its inputs, or for MLflow."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from streamad.commands.shared.console import ConfigOption, out
from streamad.commands.shared.options import ModelOption
from streamad.commands.shared.plants import load_plant
from streamad.errors import PluginError, RegistryError, UsageError
from streamad.judge.calibration import Calibration
from streamad.language import percent
from streamad.learn.parts import registry_of
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.verify import verify_file
from streamad.outputs.stored import one_model
from streamad.plant import Plant
from streamad.system.files import write_atomically, writing

_ONNX = "onnxruntime"
_FILE, _SCORES, _README = "model.onnx", "calibration_scores.npy", "README.md"


def export(  # noqa: PLR0917 - the command's options
    folder: Annotated[Path, typer.Argument(help="Folder to write into; it is made.")],
    version: Annotated[str | None, typer.Argument(help="A version; default: the one in service.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="As ONNX.")] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="As a model of MLflow, of its flavor pyfunc.")] = False,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
) -> None:
    """Write a version for other programs: as an ONNX file, or as a model of MLflow.

    Beside the ONNX file lie its calibration scores and a README of its inputs; the version must have been trained with
    model.backend: onnxruntime (or auto, with onnxruntime installed). What MLflow loads gives score, p and decision of
    arrays and data frames, as streamad.mlflow.save_model says.

    Example: streamad models export --onnx for-the-edge
    """
    if onnx == mlflow:
        raise UsageError("export to which form? Give --onnx or --mlflow")
    plant = load_plant(config)
    name, registry = one_model(plant, model), registry_of(plant)
    chosen = registry.in_service(name) if version is None else registry.named(name, version)
    if mlflow:
        _save_for_mlflow(plant, name, chosen, folder)
    else:
        _write_onnx(plant, name, chosen, folder)


def _save_for_mlflow(plant: Plant, name: str, version: str, folder: Path) -> None:
    from streamad.notebook.fitting import model_of_version  # noqa: PLC0415 - both load much, and --onnx needs neither

    try:
        from streamad.mlflow import save_model  # noqa: PLC0415
    except ImportError as error:
        raise PluginError(str(error)) from error
    save_model(model_of_version(plant, name, version), folder)
    out.print(f"model {name} {version}: {folder}, for mlflow.pyfunc.load_model")


def _write_onnx(plant: Plant, name: str, chosen: str, folder: Path) -> None:
    registry = registry_of(plant)
    manifest = registry.manifest(name, chosen)
    if _FILE not in manifest.backends.get(_ONNX, ()):
        raise RegistryError(
            f"model {name} {chosen} has no ONNX file: set model.backend: onnxruntime in the config (it needs the extra "
            "onnxruntime), then train again"
        )
    home = registry.folder(name, chosen)
    verify_file(home, manifest, _FILE, f"model {name} {chosen}")
    rate = plant.settings.alerts.false_alarm_rate
    calibration = Calibration.from_terms(registry.calibration_terms(name, chosen), rate)
    scores, readme = io.BytesIO(), _readme(manifest, calibration, rate)
    np.save(scores, calibration.scores, allow_pickle=False)
    with writing(folder):
        if os.path.lexists(folder / _README) and not os.path.lexists(folder / _SCORES):
            raise UsageError(f"{folder / _README} is there and of no export: name a folder of its own")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _SCORES, scores.getvalue())  # first: it says that the README is of an export
        write_atomically(folder / _FILE, (home / _FILE).read_bytes())
        write_atomically(folder / _README, readme.encode())
    out.print(f"model {name} {chosen}: {folder / _FILE}, {_SCORES} and {_README}")


def _readme(manifest: Manifest, calibration: Calibration, rate: float) -> str:
    """Return what another program must know to score a sequence as streamad does."""
    form, n = manifest.window, calibration.n
    grid = (
        "its samples, at most L of them"
        if form.resample_period_us is None
        else f"a grid of one point each {form.resample_period_us / 1e6:g} s from its first sample on"
    )
    longer = {
        "truncate": "cut at L points",
        "resample": "squeezed onto L points, evenly spaced in time",
        "reject": "not scored",
    }[form.longer]
    rows = "\n".join(
        f"| {number} | {channel.name} | {channel.unit or '-'} |" for number, channel in enumerate(manifest.channels)
    )
    below = "" if calibration.tail == "empirical" else "; above the highest ones streamad extrapolates it"
    return f"""# Model {manifest.name} {manifest.version} ({manifest.detector.kind})

`{_FILE}` takes two inputs and gives one output:

| name | type | shape | meaning |
|---|---|---|---|
| windows | float32 | [B, {len(manifest.channels)}, {form.length}] | sequences, channels, L points, in the units below |
| lengths | int64 | [B] | points of each sequence; windows are 0 from there on |
| terms | float32 | [B, K] | the score of a sequence is the sum of its K terms |

A window holds {grid}. Longer sequences are {longer}. Missing values are interpolated over time between
a channel's readings, and held at the edges; with more than {percent(form.max_missing)} of a channel missing, or fewer
than {form.min_samples} samples, there is no score. Channels are not scaled: the model does that.

| index | channel | unit |
|---|---|---|
{rows}

`{_SCORES}` holds the {n} calibration scores, ascending. The p-value of a score s is
(1 + number of calibration scores >= s) / {n + 1}{below}.
At a false-alarm rate of {rate:g} a sequence alerts from a score of {calibration.alert_score(rate):.6g} on.
"""
