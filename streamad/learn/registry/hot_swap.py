"""Hot swap: the version that the registry names is loaded and verified, then put into service between micro-batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from streamad.errors import ArtifactError, StreamadError
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.learn.registry.registry import Registry
from streamad.plugins import failure_of
from streamad.ports import Clock, Detector
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import pause
from streamad.system.tasks import Backoff
from streamad.system.threads import LoneThread, in_thread

_POLL_S = 1.0
_FIRST_RETRY_US = 1_000_000
_LONGEST_RETRY_US = 60_000_000


@dataclass(frozen=True, slots=True)
class RegistryVersions:
    """The versions of the model ``name``, for a plant with these settings."""

    registry: Registry
    name: str
    settings: Settings
    detector: Detector

    def current(self) -> str | None:
        """Return the version in service or None. Raises RegistryError if CURRENT is damaged."""
        return self.registry.current(self.name)

    def load(self, version: str | None = None) -> ModelInService:
        """Verify and load a version (None: the one in service). Raises NoModelError, RegistryError, ArtifactError."""
        settings = self.settings
        chosen = None if version is None else self.registry.named(self.name, version)
        loaded = self.registry.load(self.name, chosen, settings=settings, detector=self.detector)
        return ModelInService(
            loaded.ref,
            loaded.scorer,
            Calibration.from_terms(loaded.calibration_terms, settings.alerts.false_alarm_rate),
            loaded.reference,
            loaded.manifest.training.terms,
            loaded.training_ids,
            loaded.manifest.metrics.method,
            loaded.envelope,
            loaded.backend,
            loaded.refused,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Swap:
    """A model went into service: ``load_s`` seconds of loading, ``wait_s`` for the former model's last micro-batch.

    ``load_s`` is 0 if the model was still in memory.
    """

    model: ModelInService
    former: ModelInService | None
    load_s: float
    wait_s: float


@dataclass(slots=True)
class _Refused:
    """The version that CURRENT named and that was refused, and when to try it again."""

    version: str | None
    retry_us: int
    backoff: Backoff


class ModelWatch:
    """Keeps ``batcher`` on the version that the registry names; it polls every second and on ``wake``.

    A version is loaded and verified in a separate thread while the champion scores. The former one stays in memory, so
    a rollback loads nothing. A refused version is reported once for as long as CURRENT names it and tried again after
    1 s, 2 s, ... 60 s (copying may still be under way); the champion stays. ``on_swap`` is called in the
    same step as the swap, ``on_refused`` with the version (None: CURRENT itself is unreadable) and the reason.
    """

    def __init__(
        self,
        batcher: MicroBatcher,
        versions: RegistryVersions,
        clock: Clock,
        *,
        on_swap: Callable[[Swap], None],
        on_refused: Callable[[str | None, StreamadError], None],
    ) -> None:
        self._batcher = batcher
        self._versions = versions
        self._clock = clock
        self._on_swap = on_swap
        self._on_refused = on_refused
        self._former: ModelInService | None = None
        self._refused: _Refused | None = None
        self._woken = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._thread = LoneThread("streamad-loading")

    def wake(self) -> None:
        """Poll at once."""
        self._woken.set()

    async def run(self) -> None:
        """Poll until cancelled; no failure of the registry or of an artifact ends it."""
        while True:
            self._woken.clear()
            await self.look()
            await pause(_POLL_S, self._clock, self._woken)

    async def look(self) -> None:
        """Put the version that the registry names into service, if it is another one than the champion."""
        async with self._one_at_a_time:
            try:
                wanted = await in_thread(self._thread, self._versions.current)
            except StreamadError as error:
                self._refuse(None, error)
                return
            champion = self._batcher.model
            if wanted is None or (champion is not None and champion.ref.version == wanted):
                self._refused = None
                return
            refused, now_us = self._refused, self._clock.monotonic_us()
            if refused is None or refused.version != wanted or now_us >= refused.retry_us:
                await self._take(wanted)

    def close(self) -> None:
        """End the thread without waiting for a load."""
        self._thread.shutdown(cancel_futures=True)

    async def _take(self, wanted: str) -> None:
        began_us = self._clock.monotonic_us()
        former = self._former
        if former is not None and former.ref.version == wanted:
            model = former
        else:
            try:
                model = await in_thread(self._thread, self._loaded, wanted)
            except StreamadError as error:
                self._refuse(wanted, error)
                return
        loaded_us = self._clock.monotonic_us()
        champion = self._batcher.model
        await self._batcher.swap(model)
        wait_s = (self._clock.monotonic_us() - loaded_us) / 1e6
        self._former, self._refused = champion, None
        self._on_swap(Swap(model, champion, 0.0 if model is former else (loaded_us - began_us) / 1e6, wait_s))

    def _loaded(self, version: str) -> ModelInService:
        try:
            return self._versions.load(version)
        except (StreamadError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a detector is foreign code; the champion must survive its errors
            raise ArtifactError(f"version {version} cannot be loaded: {failure_of(error)}") from error

    def _refuse(self, version: str | None, error: StreamadError) -> None:
        now_us = self._clock.monotonic_us()
        if self._refused is None or self._refused.version != version:
            self._refused = _Refused(version, now_us + _FIRST_RETRY_US, Backoff(_FIRST_RETRY_US, _LONGEST_RETRY_US))
            self._on_refused(version, error)
            return
        self._refused.backoff.failed()
        self._refused.retry_us = now_us + self._refused.backoff.pause_us
