"""Trains several models on Ray, one task each."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from streamad.errors import ExecutorError, StreamadError
from streamad.judge.bank import settings_for
from streamad.learn.early.training import EarlyTraining
from streamad.learn.parts import detector_for, registry_of
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.from_recordings import train_model
from streamad.offline.on_ray import answered, check_machines, connected, lost_text, own_error
from streamad.plant import Plant
from streamad.settings.places import is_stored
from streamad.types import WindowSet

_LOOK_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A model to train on ``windows``, without copies among them."""

    plant: Plant
    name: str
    windows: WindowSet
    early: EarlyTraining | None
    promote: bool


def trained(training: Training) -> str | StreamadError:
    """Train a version and return its number, or why there is none."""
    plant = training.plant
    try:
        return train_model(
            training.windows,
            detector_for(plant),
            settings=settings_for(plant.settings, training.name),
            registry=registry_of(plant),
            clock=plant.clock,
            prove=proved_in_new_process,
            early=training.early,
            promote=training.promote,
        )
    except StreamadError as error:
        return error


def trained_on_ray(
    trainings: Sequence[Training], address: str | None, n: int | None
) -> Generator[tuple[str, str | StreamadError]]:
    """Yield the name of each model with its new version, or why it has none, as they come; ``n`` at once.

    Each trains on one thread, which is what ``OMP_NUM_THREADS=1 streamad train`` does, bit for bit. Raises
    ExecutorError if Ray cannot be reached or is lost: versions that are published stay.
    """
    with connected(address, n) as ray:
        try:
            plant = trainings[0].plant
            registry = plant.settings.model.registry
            check_machines(ray, None if is_stored(registry) else plant.base_dir / registry)
            yield from _trained(ray, trainings, n)
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise ExecutorError(lost_text(address, error)) from error


def _trained(ray: Any, trainings: Sequence[Training], n: int | None) -> Generator[tuple[str, str | StreamadError]]:
    task = ray.remote(num_cpus=1, max_retries=1)(trained)
    left, pending = deque(trainings), dict[Any, str]()
    while left or pending:
        while left and len(pending) < (n or max(int(ray.cluster_resources().get("CPU", 1)), 1)):
            training = left.popleft()
            pending[task.remote(training)] = training.name
        ready, _ = answered(ray.wait, [*pending], num_returns=1, timeout=_LOOK_S)
        for reference in ready:
            name = pending.pop(reference)
            try:
                yield name, answered(ray.get, reference)
            except ray.exceptions.RayTaskError as error:
                yield name, own_error(error)
            except ray.exceptions.WorkerCrashedError:
                yield name, ExecutorError("its process died twice: it may take more memory than there is")
