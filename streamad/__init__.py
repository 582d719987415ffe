"""streamad monitors whole sensor sequences: calibrated alerts with reasons, from recordings or live streams.

``fit`` and ``load`` make a ``Model`` of arrays or data frames (docs/guide/python.md); ``subscribe`` reads the messages
of a running plant; ``evaluate`` and ``compare`` say what a model finds. The command line is ``streamad``.
"""

from __future__ import annotations

__all__ = ["Model", "compare", "evaluate", "fit", "load", "subscribe"]

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamad.notebook.evaluating import compare, evaluate
    from streamad.notebook.fitting import fit, load
    from streamad.notebook.model import Model
    from streamad.outputs.subscribing import subscribe

_PLACES = {
    "Model": "streamad.notebook.model",
    "compare": "streamad.notebook.evaluating",
    "evaluate": "streamad.notebook.evaluating",
    "fit": "streamad.notebook.fitting",
    "load": "streamad.notebook.fitting",
    "subscribe": "streamad.outputs.subscribing",
}


def __getattr__(name: str) -> Any:
    """Import the public names at their first use, so that the command line does not wait for them."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, which are imported at their first use, and the modules that are imported."""
    there = (name for name, value in globals().items() if name.startswith("__") or isinstance(value, ModuleType))
    return sorted({*there, *__all__})
