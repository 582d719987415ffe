"""The backends that may serve a version: which are tried, in which order, and which are refused."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from streamad.errors import ArtifactError
from streamad.judge.scoring import ModelInService
from streamad.learn.registry.manifest import Manifest
from streamad.messages import ModelRef
from streamad.plugins import failure_of
from streamad.ports import BackendDetector, Detector, Scorer
from streamad.telemetry.events import Emit
from streamad.telemetry.logs import get_logger
from streamad.types import FloatArray, IntArray

TORCHSCRIPT: Final = "torchscript"
"""The backend that every version has; a detector that knows no others is said to be served by it, too."""
AUTO: Final = "auto"
TRIAL_WINDOWS: Final = 16
"""Windows of a trial at most: those of a chunk, which each backend computes at once."""
_TRIAL_S: Final = 0.2  # of all backends together
_LEAST_TURNS: Final = 2
_MARGIN: Final = 1.1  # times as fast is faster: a busy machine disturbs the shortest of many turns by less
_PACKAGES: Final = {TORCHSCRIPT: "torch", "onnxruntime": "onnxruntime", "openvino": "openvino"}


@dataclass(frozen=True, slots=True)
class RefusedBackend:
    """A backend that must not serve a version, and why, in one line."""

    backend: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The scorer that serves, its backend, those that were refused, and how ``auto`` chose, if it measured."""

    scorer: Scorer
    backend: str
    refused: tuple[RefusedBackend, ...] = ()
    choice: str = ""

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


@dataclass(frozen=True, slots=True)
class Order:
    """The backends to try, those that are refused already, and in a line how the first one was chosen, if measured."""

    backends: tuple[str, ...]
    refused: tuple[RefusedBackend, ...] = ()
    choice: str = ""


def by_speed(
    backends: tuple[str, ...],
    load: Callable[[str], Scorer],
    windows: FloatArray,
    lengths: IntArray,
    label: str,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Order:
    """Return the candidates with the one first that scores ``windows`` fastest; ``load`` loads and verifies each.

    TorchScript is not timed where it is the last: of such kinds it was nowhere the fastest, and torch takes seconds and
    600 MB to import. Of two that are nearly as fast the one that the kind prefers is first. One that fails is refused.
    """
    timed = backends[:-1] if backends[-1] == TORCHSCRIPT else backends
    if len(timed) < 2:
        return Order(backends)
    scorers: dict[str, Scorer] = {}
    refused = []
    for backend in timed:
        try:
            scorers[backend] = load(backend)
        except ArtifactError as error:
            refused.append(_refused(backend, error, label))
    untimed = backends[len(timed) :]
    if len(scorers) < 2:
        return Order((*scorers, *untimed), tuple(refused))
    taken = _shortest_turns(scorers, windows, lengths, clock, refused)
    if len(taken) < 2:
        return Order((*taken, *untimed), tuple(refused))
    preferred, fastest = next(iter(taken)), min(taken, key=taken.__getitem__)
    first = fastest if taken[fastest] * _MARGIN < taken[preferred] else preferred
    others = sorted(taken.keys() - {first}, key=taken.__getitem__)
    times = ", ".join(f"{each} {1e3 * taken[each] / len(windows):.2g} ms" for each in (first, *others))
    return Order((first, *others, *untimed), tuple(refused), f"a window takes {times}")


def _shortest_turns(
    scorers: Mapping[str, Scorer],
    windows: FloatArray,
    lengths: IntArray,
    clock: Callable[[], float],
    refused: list[RefusedBackend],
) -> dict[str, float]:
    """Return the seconds of each scorer's shortest turn: other programs only make turns longer.

    Those that fail are ``refused``: the windows are more than a probe's, and scorers are foreign code.
    """
    shortest = dict.fromkeys(scorers, math.inf)
    turns, end_s = 0, clock() + _TRIAL_S
    while shortest and (turns < _LEAST_TURNS or clock() < end_s):
        for name in list(shortest):
            began_s = clock()
            try:
                scorers[name].score(windows, lengths)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is, the others may serve
                del shortest[name]
                refused.append(RefusedBackend(name, f"cannot score {len(windows)} windows ({failure_of(error)})"))
                continue
            shortest[name] = min(shortest[name], clock() - began_s)
        turns += 1
    return shortest


def _refused(backend: str, error: ArtifactError, label: str) -> RefusedBackend:
    return RefusedBackend(backend, str(error).removeprefix(f"{label}: "))


def serve(order: Order, load: Callable[[str], Scorer], label: str) -> Served:
    """Return the scorer of the first backend of ``order`` that ``load`` loads and verifies, and the refused ones.

    Raises ArtifactError if none of them may serve.
    """
    refused = list(order.refused)
    last: ArtifactError | None = None
    for backend in order.backends:
        try:
            return Served(load(backend), backend, tuple(refused), order.choice)
        except ArtifactError as error:
            last = error
            refused.append(_refused(backend, error, label))
    if len(refused) == 1:
        raise ArtifactError(f"{label}: {refused[0].reason}") from last
    reasons = "; ".join(f"{each.backend}: {each.reason}" for each in refused)
    raise ArtifactError(f"{label}: no backend serves: {reasons}") from last


def tell_backend(model: ModelInService, emit: Emit) -> None:
    """Emit an event for each backend that must not serve ``model``, which goes into service; log how one was chosen."""
    if model.choice:
        get_logger().info(
            "backend", model=model.ref.name, version=model.ref.version, backend=model.backend, why=model.choice
        )
    for line in model.refused:
        emit("backend_refused", line, model=model.ref)
