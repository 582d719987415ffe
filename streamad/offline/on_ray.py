"""Judges units on Ray: an actor a core, on this machine or on a cluster. Ray is an extra, imported here alone."""

from __future__ import annotations

import os
import secrets
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from streamad.errors import ExecutorError, PluginError, StreamadError
from streamad.offline.executors import KILLS, Share, killed_text, largest_first
from streamad.offline.units import Task, Unit
from streamad.offline.work import Outcome, Worker
from streamad.plugins import failure_of
from streamad.system.files import writing
from streamad.system.threads import LoneThread

_ANSWER_S: Final = 60.0
"""A machine or a head that says nothing for so long is gone: Ray's client itself waits for ever."""
_LOOK_S: Final = 1.0
_LEAST_STORE_BYTES: Final = 80 << 20
_DISTRIBUTION: Final = "streamad-monitor"


def need_ray() -> Any:
    """Return the module ``ray``. Raises PluginError if it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns about the coming default
    os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")  # else its bars replace print in this whole process
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PluginError(f"--on ray needs Ray ({error}): pip install 'streamad-monitor[ray]'") from error
    return ray


@contextmanager
def connected(address: str | None, n: int | None = None) -> Iterator[Any]:
    """Yield the module ``ray``, connected to ``address``: ray://HOST:PORT, or None.

    None is the Ray of this process, else that of RAY_ADDRESS, else a new one on this machine with ``n`` cores.
    Raises ExecutorError, PluginError.
    """
    ray = need_ray()
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is not None:
        options["address"] = address
    elif "RAY_ADDRESS" not in os.environ:
        options |= {"include_dashboard": False, "object_store_memory": _LEAST_STORE_BYTES}
        options |= {"address": "local", "_node_ip_address": "127.0.0.1", "num_cpus": n}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error says the same
            ray.init(**options)
    except Exception as error:
        raise ExecutorError(f"Ray {named(address)} cannot be reached or started: {failure_of(error)}") from error
    try:
        yield ray
    finally:
        with suppress(ConnectionError):
            answered(ray.shutdown)


def answered(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return ``function(...)``, called in a thread. Raises ConnectionError if it takes longer than any answer does."""
    thread = LoneThread("streamad-ray")
    future = thread.submit(function, *args, **options)
    thread.shutdown()
    try:
        return future.result(_ANSWER_S)
    except TimeoutError as error:
        if future.done():  # the function's own
            raise
        raise ConnectionError(f"no answer in {_ANSWER_S:.0f} s") from error


def named(address: str | None) -> str:
    """Return the name of a Ray for people."""
    return "on this machine" if address is None else f"at {address}"


def lost_text(address: str | None, error: BaseException) -> str:
    """Return what to say if Ray is lost."""
    why = failure_of(error).partition("\n")[0]
    return f"Ray {named(address)} is lost ({why}): what is done stays, and the same command goes on"


class _Actor:
    """The class of each actor. (Of a class with coroutines, such as ``Worker``, Ray makes an actor of another kind.)"""

    def __init__(self, task: Task) -> None:
        self._worker = Worker(task)

    def do(self, unit: Unit) -> Outcome:
        """Judge ``unit``."""
        return self._worker.do(unit)


class OnRay:
    """Judges by ``n`` actors (None: as many as there are cores, or GPUs if ``model.device`` is one)."""

    def __init__(self, address: str | None = None, n: int | None = None) -> None:
        self._address = address
        self._n = n

    def outcomes(self, task: Task, units: Sequence[Unit], share: Share) -> Generator[Outcome]:
        """Yield the outcome of each unit. Raises ExecutorError if Ray is lost."""
        if not units:
            return
        with connected(self._address, self._n) as ray:
            try:
                check_machines(ray, task.folder)
                yield from self._judged(ray, task, units)
            except (ray.exceptions.RayError, ConnectionError) as error:
                raise ExecutorError(lost_text(self._address, error)) from error

    def _judged(self, ray: Any, task: Task, units: Sequence[Unit]) -> Generator[Outcome]:
        n_gpus = 1 if task.plant.settings.model.device.startswith("cuda") else 0
        there = int(ray.cluster_resources().get("GPU" if n_gpus else "CPU", 1))
        actor_class = ray.remote(num_cpus=1, num_gpus=n_gpus)(_Actor)
        make: Callable[[], Any] = lambda: actor_class.remote(task)  # noqa: E731 - needed in two places
        left, killed, pending = deque(largest_first(units)), dict[Unit, int](), dict[Any, tuple[Any, Unit]]()

        def give(actor: Any) -> None:
            if left:
                unit = left.popleft()
                pending[actor.do.remote(unit)] = actor, unit

        for _ in range(min(self._n or max(there, 1), len(left))):
            give(make())
        while pending:
            ready, _ = answered(ray.wait, [*pending], num_returns=1, timeout=_LOOK_S)
            for reference in ready:
                actor, unit = pending.pop(reference)
                try:
                    outcome = answered(ray.get, reference)
                except ray.exceptions.RayActorError as error:
                    actor, killed[unit] = make(), killed.get(unit, 0) + 1
                    if killed[unit] < KILLS:
                        left.append(unit)
                    else:
                        yield Outcome(unit, error=killed_text(failure_of(error).partition("\n")[0]))
                except ray.exceptions.RayTaskError as error:
                    raise own_error(error) from error
                else:
                    yield outcome
                give(actor)


def own_error(error: Any) -> StreamadError:
    """Return what a worker raised on purpose, else that it failed."""
    cause = error.cause
    return cause if isinstance(cause, StreamadError) else ExecutorError(f"a worker failed: {failure_of(cause)}")


def check_machines(ray: Any, folder: Path | None) -> None:
    """Raise ExecutorError if a machine of the cluster has another release of streamad, or sees another ``folder``.

    None: there is no folder that all must see.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 - an extra

    ours, probe = version(_DISTRIBUTION), None
    if folder is not None:
        probe = folder / f".{secrets.token_hex(8)}.probe"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
    try:
        look = ray.remote(num_cpus=0)(_look_for(None if probe is None else str(probe)))
        asked = {}
        for node in ray.nodes():
            if node["Alive"]:
                where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked[node["NodeManagerAddress"]] = look.options(scheduling_strategy=where).remote()
        for name, reference in asked.items():
            theirs, sees = ray.get(reference, timeout=_ANSWER_S)
            if theirs != ours:
                has = f"streamad {theirs}" if theirs else "no streamad"
                raise ExecutorError(f"{name} of the cluster has {has}, and here is {ours}: install the same there")
            if not sees:
                raise ExecutorError(
                    f"{name} of the cluster does not see {folder}: recordings, registry and results need one path on "
                    "all machines"
                )
    finally:
        if probe is not None:
            with suppress(OSError):
                probe.unlink()


def _look_for(probe: str | None) -> Callable[[], tuple[str, bool]]:
    """Return a function that says which release is installed, and whether the file is there; Ray sends its code."""

    def look() -> tuple[str, bool]:
        import os  # noqa: PLC0415 - on a machine that may have no streamad
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            return version("streamad-monitor"), probe is None or os.path.exists(probe)  # noqa: PTH110 - needs the least
        except PackageNotFoundError:
            return "", False

    return look
