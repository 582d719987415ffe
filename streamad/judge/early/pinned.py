"""The looks of versions that serve no more, for sequences that began before another one was put into service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from streamad.errors import StreamadError
from streamad.judge.early.model import EarlyModel
from streamad.judge.scoring import ModelInService
from streamad.messages import ModelRef
from streamad.ports import Clock
from streamad.system.clock import pause
from streamad.system.tasks import Backoff, look_at
from streamad.system.threads import LoneThread, give_back_memory
from streamad.telemetry.events import Emit

MOST_LOADED = 4
"""Versions whose looks are in memory at most, those needed last: a learner makes ever new ones."""
UNNEEDED_US = 600_000_000
"""Looks that nobody has needed for so long are no longer in memory."""
_FIRST_RETRY_US = 1_000_000
_LONGEST_RETRY_US = 60_000_000
LIMIT_S = 10.0
"""How long a call that reads a version is waited for: verdicts may wait for it."""


class NotNowError(Exception):
    """Raised where a version cannot be read for a reason that may pass; it is tried again in ``wait_us``.

    ``waited_us``: so long its reading was waited for.
    """

    def __init__(self, wait_us: int, waited_us: int = 0) -> None:
        super().__init__(wait_us, waited_us)
        self.wait_us, self.waited_us = wait_us, waited_us


@dataclass(slots=True)
class _Loaded:
    """The looks of a version, None if it has none, and when they were needed last."""

    early: EarlyModel | None
    needed_us: int


@dataclass(slots=True)
class _Failing:
    """Why a version could not be read last, when that is tried again, and whether an event has said so."""

    why: str
    retry_us: int
    backoff: Backoff
    is_told: bool = False


class PinnedVersions:
    """Loads versions by ``load``, each once as long as it is needed; ``MOST_LOADED`` are in memory at most.

    One that is damaged, or is not there, has no looks: an event says so. A file that could not be read (an OSError:
    a network share, too many open files) may be readable again: it is tried after 1 s, 2 s, ... 60 s. A call that does
    not return is waited for at most ``LIMIT_S`` at a time; it has a thread of its own, and there is no second one.
    """

    def __init__(self, load: Callable[[ModelRef], ModelInService], clock: Clock, emit: Emit) -> None:
        self._load = load
        self._clock = clock
        self._emit = emit
        self._loaded: dict[ModelRef, _Loaded] = {}
        self._failing: dict[ModelRef, _Failing] = {}
        self._under_way: dict[ModelRef, asyncio.Task[EarlyModel | None]] = {}

    def in_memory(self, ref: ModelRef) -> EarlyModel | None:
        """Return the looks of a version if they are in memory, where they stay: a running sequence shows them."""
        if (loaded := self._loaded.get(ref)) is None:
            return None
        loaded.needed_us = self._clock.monotonic_us()
        return loaded.early

    def drop_unneeded(self) -> None:
        """Let go of the looks that nobody has needed for ``UNNEEDED_US``; that a version has none stays known."""
        if not self._loaded:
            return
        since_us = self._clock.monotonic_us() - UNNEEDED_US
        kept = {ref: each for ref, each in self._loaded.items() if each.early is None or each.needed_us >= since_us}
        self._loaded = kept

    async def looks_of(self, ref: ModelRef) -> EarlyModel | None:
        """Return the looks of a version, None if it has none or must not be used. Raises NotNowError."""
        loaded = self._loaded.get(ref)
        early = await self._taken_up(ref) if loaded is None else loaded.early
        self._keep(ref, early)
        return early

    def gave_up(self, ref: ModelRef) -> None:
        """Say, once for each time of failures, that a sequence has ended before the version could be read again."""
        failing = self._failing.get(ref)
        if failing is not None and not failing.is_told:
            failing.is_told = True
            self._say(ref, f"{failing.why}: sequences that end meanwhile are looked at no more; it is tried again")

    async def _taken_up(self, ref: ModelRef) -> EarlyModel | None:
        if (failing := self._failing.get(ref)) is not None and (wait_us := self._until_retry_us(failing)) > 0:
            raise NotNowError(wait_us)
        if (call := self._under_way.get(ref)) is None:
            call = self._under_way[ref] = asyncio.create_task(self._read(ref))
            call.add_done_callback(look_at)  # in case nobody waits for it any more
        ended = asyncio.Event()
        call.add_done_callback(lambda _: ended.set())
        await pause(LIMIT_S, self._clock, ended)
        if call.done():
            return call.result()
        failing = self._failing.get(ref)
        if failing is None or (wait_us := self._until_retry_us(failing)) <= 0:  # else another one has waited for it
            wait_us = self._failed(ref, f"it could not be read within {LIMIT_S:g} s")
        raise NotNowError(wait_us, round(LIMIT_S * 1e6))

    async def _read(self, ref: ModelRef) -> EarlyModel | None:
        early = None
        thread = LoneThread("streamad-looks")
        try:
            early = await asyncio.wrap_future(thread.submit(self._looks, ref))
        except (StreamadError, OSError) as error:
            if _may_pass(error):
                raise NotNowError(self._failed(ref, str(error))) from error
            self._say(ref, f"{error}: sequences that it has looked at while they ran are looked at no more")
        finally:
            thread.shutdown()
            del self._under_way[ref]
        self._failing.pop(ref, None)
        self._keep(ref, early)  # also if nobody waits for it any more
        return early

    def _looks(self, ref: ModelRef) -> EarlyModel | None:
        """Return the looks of a version; all else of it leaves the memory."""
        early = self._load(ref).early
        give_back_memory()
        return early

    def _keep(self, ref: ModelRef, early: EarlyModel | None) -> None:
        self._loaded.pop(ref, None)
        self._loaded[ref] = _Loaded(early, self._clock.monotonic_us())  # the one needed last is the last
        while len(self._loaded) > MOST_LOADED:
            del self._loaded[next(iter(self._loaded))]

    def _until_retry_us(self, failing: _Failing) -> int:
        return failing.retry_us - self._clock.monotonic_us()

    def _failed(self, ref: ModelRef, why: str) -> int:
        """Note a failure; return how long the next attempt waits."""
        failing = self._failing.get(ref)
        if failing is None:
            failing = self._failing[ref] = _Failing(why, 0, Backoff(_FIRST_RETRY_US, _LONGEST_RETRY_US))
        else:
            failing.backoff.failed()
        failing.why, failing.retry_us = why, self._clock.monotonic_us() + failing.backoff.pause_us
        return failing.backoff.pause_us

    def _say(self, ref: ModelRef, text: str) -> None:
        self._emit("looks_ended", text, model=ref)


def _may_pass(error: BaseException) -> bool:
    """Return whether the system refused to read what is there; the contents of a damaged file do not change."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return not isinstance(cause, FileNotFoundError | NotADirectoryError)
        cause = cause.__cause__
    return False
