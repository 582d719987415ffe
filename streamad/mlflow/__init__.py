"""The detector as a model of MLflow, of the flavor ``pyfunc`` (extra ``mlflow``)."""

from __future__ import annotations

__all__ = ["log_model", "save_model"]

from streamad.mlflow.flavor import _load_pyfunc, log_model, save_model  # noqa: F401 - MLflow's name
