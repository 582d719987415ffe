"""A model in MLflow: the version's own files beside the settings, and ``predict``, which judges with them."""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from streamad.errors import ArtifactError, InputError
from streamad.notebook.arguments import path as a_path
from streamad.notebook.arguments import refused
from streamad.notebook.config import plant_of, settings_from, settings_text
from streamad.notebook.fitting import model_of_version
from streamad.notebook.model import Model, write_version
from streamad.notebook.sequences import FrameColumns

try:
    import mlflow.pyfunc
    import pandas as pd
except ImportError as error:
    raise ImportError(
        f"streamad.mlflow needs mlflow and pandas ({error}): pip install 'streamad-monitor[mlflow]'"
    ) from error

_SETTINGS, _COLUMNS = "settings.yaml", "columns.json"


def save_model(model: Model, path: str | Path, **options: Any) -> None:
    """Save ``model`` for ``mlflow.pyfunc.load_model`` in the new folder ``path``.

    ``predict`` of what is loaded takes each form of X that ``Model`` takes, and returns a pandas data frame with a row
    for each sequence: ``sequence``, ``score``, ``p_value`` and ``decision`` ("normal", "anomalous", or "unscorable",
    with NaN as score and p). Its ``get_raw_model()`` is the ``Model``. Loading verifies the files' SHA-256, runs
    nothing pickled, and reads no variables of the environment. ``options`` are those of ``mlflow.pyfunc.save_model``,
    such as ``metadata``; a ``signature`` lets MLflow refuse all forms of X but its own.

    Raises InputError if ``path`` is in use.
    """
    if not isinstance(model, Model):
        raise refused("model", model, "what streamad.fit or streamad.load made")
    folder = a_path("path", path, "the path of a new folder")
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"path names {folder}, which is in use: give the path of a new folder")
    with tempfile.TemporaryDirectory(prefix="streamad-") as made:
        content = _written(model, Path(made) / "streamad")
        mlflow.pyfunc.save_model(str(folder), **content, **_with_requirements(model, options))


def log_model(model: Model, name: str = "model", **options: Any) -> Any:
    """Log ``model`` to MLflow under ``name``, in the active run or a new one, and return MLflow's ``ModelInfo``.

    ``mlflow.pyfunc.load_model(info.model_uri)`` loads it; see ``save_model``. ``options`` are those of
    ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.
    """
    if not isinstance(model, Model):
        raise refused("model", model, "what streamad.fit or streamad.load made")
    with tempfile.TemporaryDirectory(prefix="streamad-") as made:
        content = _written(model, Path(made) / "streamad")
        return mlflow.pyfunc.log_model(name=name, **content, **_with_requirements(model, options))


def _written(model: Model, folder: Path) -> dict[str, str]:
    """Write the model into ``folder`` and return the options that name it to MLflow."""
    write_version(folder / "registry", model)
    (folder / _SETTINGS).write_text(settings_text(model.settings), encoding="utf-8")
    (folder / _COLUMNS).write_bytes(msgspec.json.encode(model.columns))
    return {"loader_module": "streamad.mlflow", "data_path": str(folder)}


def _with_requirements(model: Model, options: dict[str, Any]) -> dict[str, Any]:
    """Return ``options`` with the packages to install, by whose versions scores are equal bit for bit."""
    if {"pip_requirements", "conda_env"} & options.keys():
        return options
    trained = {name: each for name, each in model.manifest.packages.items() if name in {"numpy", "torch"}}
    pins = [f"{name}=={each.partition('+')[0]}" for name, each in trained.items()]
    return {"pip_requirements": [f"streamad-monitor[mlflow]=={version('streamad-monitor')}", *pins], **options}


class _Served:
    """What ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the sequences' scores, p-values and decisions. Raises InputError."""
        verdicts = self._model.verdicts(model_input)
        return pd.DataFrame({
            "sequence": pd.Series([each.sequence for each in verdicts], dtype=object),
            "score": pd.Series([each.score for each in verdicts], dtype="float64"),
            "p_value": pd.Series([each.p_value for each in verdicts], dtype="float64"),
            "decision": pd.Series([each.decision for each in verdicts], dtype=object),
        })  # fmt: skip

    def get_raw_model(self) -> Model:
        """Return the model itself, for reasons and looks."""
        return self._model


def _load_pyfunc(data_path: str) -> _Served:
    """Load what ``save_model`` wrote; MLflow calls it. Raises ArtifactError for a file that is not the saved one."""
    folder = Path(data_path)
    try:
        settings = settings_from((folder / _SETTINGS).read_text(encoding="utf-8"))
        columns = msgspec.json.decode((folder / _COLUMNS).read_bytes(), type=FrameColumns)
        (home,) = (folder / "registry" / settings.model.name / "versions").iterdir()
    except (OSError, ValueError, InputError, msgspec.DecodeError) as error:
        raise ArtifactError(f"{folder} is not what save_model wrote: {error}") from error
    return _Served(model_of_version(plant_of(settings, folder), settings.model.name, home.name, columns))
