"""The version in service of one model of a run: swapped when the registry names another, with the events of it."""

from __future__ import annotations

from streamad.errors import StreamadError
from streamad.judge.scoring import MicroBatcher
from streamad.learn.registry.backends import emit_refused
from streamad.learn.registry.hot_swap import ModelWatch, RegistryVersions, Swap
from streamad.messages import ModelRef
from streamad.ports import Clock
from streamad.telemetry.events import Emit
from streamad.telemetry.metrics import ServedCounters


class InService:
    """Keeps ``batcher`` on the version that the registry names (``watch``)."""

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
        self._emit = emit
        self._counters = counters
        self.watch = ModelWatch(batcher, versions, clock, on_swap=self._swapped, on_refused=self._refused)
        self._count_version()

    @property
    def champion(self) -> ModelRef | None:
        """Return the version in service, None before the first one."""
        model = self._batcher.model
        return None if model is None else model.ref

    def _swapped(self, swap: Swap) -> None:
        self._counters.swaps += 1
        self._count_version()
        before = f"instead of {swap.former.ref.version}" if swap.former is not None else "as the first one"
        self._emit(
            "model_swapped",
            f"{self._batcher.name} {swap.model.ref.version} is in service {before}",
            model=swap.model.ref,
            figures={"load_s": swap.load_s, "wait_s": swap.wait_s},
            level="info",
        )
        emit_refused(swap.model, self._emit)

    def _refused(self, version: str | None, error: StreamadError) -> None:
        stays = f"{self.champion.version} stays in service" if self.champion is not None else "there is no model yet"
        model = None if version is None else ModelRef(self._batcher.name, version)
        self._emit("model_refused", f"{error}; {stays}", model=model, level="error")

    def _count_version(self) -> None:
        self._counters.version = None if self.champion is None else self.champion.version
