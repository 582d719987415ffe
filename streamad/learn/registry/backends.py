"""The backends that may serve a version: which are tried, in which order, and which are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from streamad.errors import ArtifactError
from streamad.judge.scoring import ModelInService
from streamad.learn.registry.manifest import Manifest
from streamad.messages import ModelRef
from streamad.ports import BackendDetector, Detector, Scorer
from streamad.telemetry.events import Emit

TORCHSCRIPT: Final = "torchscript"
"""The backend that every version has; a detector that knows no others is said to be served by it, too."""
AUTO: Final = "auto"
_PACKAGES: Final = {TORCHSCRIPT: "torch", "onnxruntime": "onnxruntime", "openvino": "openvino"}


@dataclass(frozen=True, slots=True)
class RefusedBackend:
    """A backend that must not serve a version, and why, in one line."""

    backend: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The scorer that serves, its backend, and those that were tried before it and refused."""

    scorer: Scorer
    backend: str
    refused: tuple[RefusedBackend, ...] = ()

    def refusals(self, model: ModelRef) -> tuple[str, ...]:
        """Return a line for each refused backend of ``model``."""
        of, serves = f"{model.name} {model.version}", f"{self.backend} serves"
        return tuple(f"{each.backend} does not serve {of}: {each.reason}; {serves}" for each in self.refused)


def is_installed(backend: str) -> bool:
    """Return whether the package of ``backend`` is installed."""
    return find_spec(_PACKAGES[backend]) is not None


def exportable(chosen: str, detector: Detector) -> tuple[str, ...]:
    """Return the backends that a training exports for: the ``chosen`` one; of auto, all that are installed."""
    if chosen != AUTO:
        return () if chosen == TORCHSCRIPT else (chosen,)
    return tuple(each for each in _fastest_first(detector) if each != TORCHSCRIPT and is_installed(each))


def candidates(chosen: str, device: str, detector: Detector, manifest: Manifest) -> tuple[str, ...]:
    """Return the backends to try, in their order: the ``chosen`` one, then the detector's, the fastest first.

    A backend that was not chosen counts if it is installed and the version has its files. All but TorchScript serve on
    the CPU. TorchScript is always among them, at the latest as the last.
    """
    exported = (TORCHSCRIPT, *manifest.backends) if device in ("auto", "cpu") else (TORCHSCRIPT,)
    there = [each for each in _fastest_first(detector) if each in exported and is_installed(each)]
    first = () if chosen == AUTO else (chosen,)
    return tuple(dict.fromkeys((*first, *there, TORCHSCRIPT)))


def _fastest_first(detector: Detector) -> tuple[str, ...]:
    return detector.backends if isinstance(detector, BackendDetector) else (TORCHSCRIPT,)


def serve(order: Sequence[str], load: Callable[[str], Scorer], label: str) -> Served:
    """Return the scorer of the first backend of ``order`` that ``load`` loads and verifies, and the refused ones.

    Raises ArtifactError if none of them may serve.
    """
    refused: list[RefusedBackend] = []
    last: ArtifactError | None = None
    for backend in order:
        try:
            return Served(load(backend), backend, tuple(refused))
        except ArtifactError as error:
            last = error
            refused.append(RefusedBackend(backend, str(error).removeprefix(f"{label}: ")))
    if len(refused) == 1:
        raise ArtifactError(f"{label}: {refused[0].reason}") from last
    reasons = "; ".join(f"{each.backend}: {each.reason}" for each in refused)
    raise ArtifactError(f"{label}: no backend serves: {reasons}") from last


def emit_refused(model: ModelInService, emit: Emit) -> None:
    """Emit an event for each backend that must not serve ``model``, which goes into service."""
    for line in model.refused:
        emit("backend_refused", line, model=model.ref)
