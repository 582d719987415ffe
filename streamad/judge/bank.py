"""Several models at once: a sequence's route chooses its model; each has a micro-batcher, all score in one thread."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from streamad.errors import DetectorError, StreamadError
from streamad.ingest.windowing import Unscorable
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.plugins import failure_of
from streamad.ports import Clock
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.learning import RoutingSettings
from streamad.settings.plant_yaml import Settings
from streamad.system.tasks import look_at
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import Histogram

_NAME = re.compile(NAME_PATTERN)
_LONGEST = 64
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Router:
    """``model`` is the default model, ``routing`` the config's ``models``; without it ``model`` is the only one."""

    model: str
    routing: RoutingSettings | None

    @classmethod
    def of(cls, settings: Settings) -> Router:
        """Return the router of a config."""
        return cls(settings.model.name, settings.models)

    def name_for(self, routes: tuple[str, ...]) -> str | Unscorable:
        """Return the name of the model for a sequence with these routes, or why it has none.

        The name is ``model`` or ``model.value``, which are distinct: a value is not empty and begins with no dot.
        """
        routing = self.routing
        if routing is None:
            return self.model
        if len(routes) > 1:
            return Unscorable(f"two values of {routing.field}: {_shown(routes[0])} and {_shown(routes[1])}")
        if not routes:
            missing = Unscorable(f"no {routing.field} in its messages (models.missing is unscorable)")
            return self.model if routing.missing == "default" else missing
        (value,) = routes
        if value in routing.values or routing.unknown == "own":
            return self._own(value, routing)
        if routing.unknown == "default":
            return self.model
        return Unscorable(f"{routing.field} {_shown(value)} is not among models.values (models.unknown is unscorable)")

    def known_names(self) -> tuple[str, ...]:
        """Return the models that the config names: the only one, or those of ``models.values``."""
        if self.routing is None:
            return (self.model,)
        return tuple(f"{self.model}.{value}" for value in self.routing.values)

    def _own(self, value: str, routing: RoutingSettings) -> str | Unscorable:
        name = f"{self.model}.{value}"
        if _NAME.fullmatch(value) and _NAME.fullmatch(name):
            return name
        return Unscorable(
            f"{routing.field} {_shown(value)} cannot name a model: letters, digits, '.', '_' and '-' can, with no dot "
            f"first and at most {_LONGEST - len(self.model) - 1} of them"
        )


def settings_for(settings: Settings, model: str) -> Settings:
    """Return ``settings`` with ``model`` as the name of the model."""
    return settings.model_copy(update={"model": settings.model.model_copy(update={"name": model})})


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


RETRY_US = 10_000_000
"""A model that cannot be loaded is tried again after this long; its sequences are unscorable until then."""
_LABELS = 5
_MAX_FAILED = 1000


class ModelBank:
    """Chooses the model of a sequence by its routes (``Router``) and loads each model when its value first appears.

    ``load`` returns the model in service under a name, None before its first version. It runs in its own thread, once
    for all sequences that wait for the model; if it raises, sequences are unscorable with that reason, and it is
    called again after 10 s. ``on_new`` is called with every batcher before its first window. At most
    ``models.max_models`` values have a model, not counting the default one; those of the config and the ``existing``
    models always fit. Use inside one running event loop.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        load: Callable[[str], ModelInService | None],
        on_new: Callable[[str, MicroBatcher], None] | None = None,
        *,
        existing: Collection[str] = (),
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._load = load
        self._on_new = on_new
        self._router = Router.of(settings)
        self._reserved = {*self._router.known_names(), *existing}
        self._batchers: dict[str, MicroBatcher] = {}
        self._loading: dict[str, asyncio.Task[MicroBatcher]] = {}
        self._failed: dict[str, tuple[int, StreamadError]] = {}
        self.durations = Histogram()
        """The times in which batches were scored, of all models."""
        self._scoring = ThreadPoolExecutor(max_workers=1, thread_name_prefix="streamad-scoring")
        self._loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="streamad-loading")
        self._closed = False
        self._abandoned = False
        self._log = get_logger().bind(plant=settings.name)

    async def open(self) -> None:
        """Load the models that the config names, so that errors come before the first sequence.

        The default model of a routed config is not loaded. Raises what ``load`` raises.
        """
        for name in self._router.known_names():
            await self._loaded(name)

    @property
    def is_idle(self) -> bool:
        """Return whether no batch is being scored."""
        return all(batcher.is_idle for batcher in self._batchers.values())

    @property
    def label(self) -> str:
        """Return name and version of the first models in service, for people."""
        labels = [batcher.label for batcher in self._batchers.values()]
        more = [f"and {len(labels) - _LABELS} more"] if len(labels) > _LABELS else []
        return ", ".join(labels[:_LABELS] + more) or "none yet"

    @property
    def models(self) -> tuple[ModelInService, ...]:
        """Return the models in service."""
        return tuple(model for batcher in self._batchers.values() for model in batcher.models)

    async def batcher_for(self, routes: tuple[str, ...]) -> MicroBatcher | Unscorable:
        """Return the batcher for a sequence with these routes, its model loaded if need be, or why there is none."""
        name = self._router.name_for(routes)
        if isinstance(name, Unscorable):
            return name
        if (batcher := self._batchers.get(name)) is not None:
            return batcher
        if not self._has_place(name):
            return Unscorable(f"model {name} would be one too many, see models.max_models")
        failed_us, failure = self._failed.get(name, (0, None))
        if failure is not None and self._clock.monotonic_us() < failed_us + RETRY_US:
            return Unscorable(str(failure))
        try:
            return await self._loaded(name)
        except StreamadError as error:
            return Unscorable(str(error))

    def flush(self) -> None:
        """Score the windows that wait now, of every model, without waiting for more."""
        for batcher in self._batchers.values():
            batcher.flush()

    async def close(self) -> None:
        """Score all that was submitted, then end tasks and threads; safe to call twice."""
        self._closed = True
        if not self._abandoned:
            await asyncio.gather(*self._loading.values(), return_exceptions=True)
        await asyncio.gather(*(batcher.close() for batcher in self._batchers.values()))
        for thread in (self._scoring, self._loader):
            thread.shutdown(wait=not self._abandoned)

    def abandon(self) -> None:
        """Abandon models that hang: nothing more is scored or loaded, and ``close`` waits for nothing."""
        self._closed = self._abandoned = True
        for batcher in self._batchers.values():
            batcher.abandon()
        for task in self._loading.values():
            task.cancel()
        for thread in (self._scoring, self._loader):
            thread.shutdown(wait=False, cancel_futures=True)

    def _has_place(self, name: str) -> bool:
        """Return whether ``name`` may have a model: the number of models of new values is bounded."""
        taken = self._reserved | self._batchers.keys() | self._loading.keys() | {self._settings.model.name}
        return name in taken or self._settings.models is None or len(taken) <= self._settings.models.max_models

    async def _loaded(self, name: str) -> MicroBatcher:
        """Return the batcher of ``name``; concurrent callers share one load. Raises StreamadError."""
        if (batcher := self._batchers.get(name)) is not None:
            return batcher
        if self._closed:
            raise DetectorError("the scorer is closed: no more windows are taken")
        if name not in self._loading:
            self._loading[name] = asyncio.create_task(self._new(name))
            self._loading[name].add_done_callback(look_at)
        return await asyncio.shield(self._loading[name])  # a cancelled caller must not cancel it for the others

    async def _new(self, name: str) -> MicroBatcher:
        try:
            model = await asyncio.get_running_loop().run_in_executor(self._loader, self._in_service, name)
            batcher = MicroBatcher(
                model, self._clock, self._settings.run, name=name, thread=self._scoring, durations=self.durations
            )
            if self._on_new is not None:
                self._on_new(name, batcher)
        except StreamadError as error:
            self._note_failure(name, error)
            raise
        finally:
            del self._loading[name]
        self._failed.pop(name, None)
        self._batchers[name] = batcher
        return batcher

    def _note_failure(self, name: str, error: StreamadError) -> None:
        if name not in self._failed:
            self._log.warning("model cannot be used", model=name, reason=str(error))
        self._failed.pop(name, None)
        self._failed[name] = self._clock.monotonic_us(), error
        if len(self._failed) > _MAX_FAILED:  # values are input: memory must not grow with them
            del self._failed[next(iter(self._failed))]

    def _in_service(self, name: str) -> ModelInService | None:
        try:
            return self._load(name)
        except (StreamadError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the model is foreign code and may fail in any way
            raise DetectorError(f"model {name} cannot be loaded: {failure_of(error)}") from error


Batchers: TypeAlias = ModelBank | MicroBatcher
"""Chooses the batcher of each sequence: a bank by its route; a batcher is one model for all."""
