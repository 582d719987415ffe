"""Hot swap: the version that the registry names is loaded and verified, then put into service between micro-batches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from streamad.errors import ArtifactError, StreamadError
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.learn.registry.approvals import digest_of
from streamad.learn.registry.backends import tell_backend
from streamad.learn.registry.registry import Registry
from streamad.messages import ModelRef
from streamad.plugins import failure_of
from streamad.ports import Clock, Detector
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import pause
from streamad.system.tasks import Backoff
from streamad.system.threads import LoneThread, give_back_memory, in_thread
from streamad.telemetry.events import Emit
from streamad.telemetry.metrics import ServedCounters

_POLL_S = 1.0
_FIRST_RETRY_US = 1_000_000
_LONGEST_RETRY_US = 60_000_000


@dataclass(frozen=True, slots=True)
class RegistryVersions:
    """The versions of the model ``name``, for a plant with these settings.

    ``measured``: the backend ``auto`` is the fastest one here, else the first of the kind's order.
    """

    registry: Registry
    name: str
    settings: Settings
    detector: Detector
    measured: bool = False

    def current(self) -> str | None:
        """Return the version in service or None. Raises RegistryError if CURRENT is damaged."""
        return self.registry.current(self.name)

    def check_approved(self, version: str) -> None:
        """Raise NotApprovedError if the version may not serve: CURRENT is a file that anything may have written."""
        self.registry.check_approved(self.name, version)

    def load(self, version: str | None = None) -> ModelInService:
        """Verify and load a version (None: the one in service, which must be approved where the config wants that).

        Raises NoModelError, NotApprovedError, RegistryError, ArtifactError.
        """
        settings = self.settings
        if version is None:
            self.check_approved(chosen := self.registry.in_service(self.name))
        else:
            chosen = self.registry.named(self.name, version)
        loaded = self.registry.load(
            self.name, chosen, settings=settings, detector=self.detector, measured=self.measured
        )
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
            loaded.early,
            digest_of(loaded.manifest),
            loaded.choice,
        )


def emit_without_looks(model: ModelInService, settings: Settings, emit: Emit) -> None:
    """Say that ``model`` has no looks at running sequences, if the config wants some."""
    if settings.alerts.early is not None and model.early is None:
        text = f"{model.ref.name} {model.ref.version} was trained without looks, so no running sequence is warned of"
        emit("no_looks", f"{text}: train anew", model=model.ref)


@dataclass(slots=True)
class _Refused:
    """The version that CURRENT named and that was refused, and when to try it again."""

    version: str | None
    retry_us: int
    backoff: Backoff


class ModelWatch:
    """Keeps ``batcher`` on the version that the registry names; it polls every second and on ``wake``.

    A version is loaded and verified in a separate thread while the champion scores. The former one stays in memory, so
    a rollback loads nothing. A refused version is an event once for as long as CURRENT names it, and is tried again
    after 1 s, 2 s, ... 60 s (copying may still be under way); the champion stays. The event of a swap is emitted in the
    same step: ``load_s`` seconds of loading, 0 if the model was still in memory, and ``wait_s`` for the former model's
    last micro-batch.
    """

    def __init__(
        self,
        batcher: MicroBatcher,
        versions: RegistryVersions,
        clock: Clock,
        *,
        emit: Emit,
        counters: ServedCounters,
    ) -> None:
        self._batcher = batcher
        self._versions = versions
        self._clock = clock
        self._emit = emit
        self._counters = counters
        self._former: ModelInService | None = None
        self._refused: _Refused | None = None
        self._woken = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._thread = LoneThread("streamad-loading")
        self._count_version()

    @property
    def champion(self) -> ModelRef | None:
        """Return the version in service, None before the first one."""
        model = self._batcher.model
        return None if model is None else model.ref

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
            if wanted is None or (self.champion is not None and self.champion.version == wanted):
                self._refused = None
                return
            refused, now_us = self._refused, self._clock.monotonic_us()
            if refused is None or refused.version != wanted or now_us >= refused.retry_us:
                await self._take(wanted)
                await in_thread(self._thread, give_back_memory)  # of the version that is in memory no more

    def close(self) -> None:
        """End the thread without waiting for a load."""
        self._thread.shutdown(cancel_futures=True)

    async def _take(self, wanted: str) -> None:
        began_us = self._clock.monotonic_us()
        former = self._former
        try:
            await in_thread(self._thread, self._versions.check_approved, wanted)
            if former is not None and former.ref.version == wanted:
                model = former
            else:
                model = await in_thread(self._thread, self._loaded, wanted)
        except StreamadError as error:
            self._refuse(wanted, error)
            return
        loaded_us = self._clock.monotonic_us()
        champion = self._batcher.model
        await self._batcher.swap(model)
        wait_s = (self._clock.monotonic_us() - loaded_us) / 1e6
        self._former, self._refused = champion, None
        self._counters.swaps += 1
        self._count_version()
        before = "as the first one" if champion is None else f"instead of {champion.ref.version}"
        self._emit(
            "model_swapped",
            f"{self._batcher.name} {wanted} is in service {before}",
            model=model.ref,
            figures={"load_s": 0.0 if model is former else (loaded_us - began_us) / 1e6, "wait_s": wait_s},
            level="info",
        )
        tell_backend(model, self._emit)
        emit_without_looks(model, self._versions.settings, self._emit)

    def _count_version(self) -> None:
        self._counters.version = None if self.champion is None else self.champion.version

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
            stays = "there is no model yet" if self.champion is None else f"{self.champion.version} stays in service"
            model = None if version is None else ModelRef(self._batcher.name, version)
            self._emit("model_refused", f"{error}; {stays}", model=model, level="error")
            return
        self._refused.backoff.failed()
        self._refused.retry_us = now_us + self._refused.backoff.pause_us
