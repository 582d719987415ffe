"""Records decisions outside of a worker's commits: of people, the page, the learner and commands.

The laws are in ``streamad.decisions.chain``.
"""

from __future__ import annotations

import asyncio
import os
import platform
import pwd
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from streamad.decisions.chain import Decided, Head, entry_in, followed_in, head_of, linked
from streamad.decisions.in_service import settings_digest
from streamad.errors import DoubtfulError, OutputError, SourceError, StreamadError
from streamad.messages import DecisionEntry, OutputRecord
from streamad.messages.decision import Identity
from streamad.plant import Plant
from streamad.plugins import available, connect_sink, connect_subscription, load, split_url
from streamad.ports import EndingSubscription, TailSubscription
from streamad.safe_text import masked
from streamad.settings.places import file_path, other_decisions_url, place_key
from streamad.system.files import append_whole, appending, cut_torn_end
from streamad.system.locks import lock_open_file
from streamad.system.opening import open_regular, read_regular
from streamad.system.output_files import output_files
from streamad.system.rights import reason
from streamad.types import from_us

_KEY = place_key("decisions")
_BUSY = f"end that program, or name another file ({_KEY})"
_BEGINNING = b'{"type":"decision",'
_NEAR, _ALL = 1_000, 1 << 62
"""The last messages of a place, in which a writer's last entry mostly is, and all of them."""
_WAIT_S = 30.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Actor:
    """Who decides, how the name is known, and the writer that records it."""

    writer: str
    who: str
    identity: Identity

    def decides(self, kind: str, subject: str, reason: str = "", **details: Any) -> Decided:
        """Return a decision of this actor, secrets in URLs masked; ``details`` that are None or empty are left out."""
        kept = {name: _storable(str(value)) for name, value in details.items() if value not in {None, ""}}
        subject, who, reason = map(_storable, (subject, self.who, reason))
        return Decided(kind, subject, who, self.identity, reason, kept)


def _storable(text: str) -> str:
    """Return ``text`` masked, as UTF-8 can hold it: arguments and file names may have other bytes."""
    return masked(text).encode(errors="backslashreplace").decode()


def of_command(by: str | None = None) -> Actor:
    """Return who runs the command, or ``by``, as the operating system or an option says."""
    user = current_user()
    return Actor(f"command/{user}@{platform.node()}", (by or "").strip() or user, "claimed")


TRAINER: Final = Actor("trainer", "streamad", "program")
"""The rule that compares a challenger with the champion; a machine trains one model of a plant at a time."""
LEARNER: Final = Actor("learner", "streamad", "program")
"""The learner of a plant, which there is once."""


def current_user() -> str:
    """Return the operating system's name of who runs the command, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without a name, as in a container
        return f"uid {os.getuid()}"


def record(plant: Plant, writer: str, decided: Sequence[Decided]) -> tuple[DecisionEntry, ...]:
    """Write decisions as the next entries of ``writer``; they are durable on return. Do what they say after that.

    ``writer``: that of an ``Actor``. Each entry names the config by which it was decided. Returns the entries, none
    without ``sinks.decisions``. Not for a thread whose event loop runs. Raises OutputError, PluginError, ConfigError.
    """
    url = other_decisions_url(plant.settings)
    if url is None or not decided:
        return ()
    name = f"{plant.settings.name}/{writer}"
    path = file_path(url)
    if path is not None:
        return _in_file(plant, plant.base_dir / path, name, decided)
    with _alone_here(plant.config):
        return asyncio.run(_in_place(plant, url, name, decided))


def _in_file(plant: Plant, path: Path, writer: str, decided: Sequence[Decided]) -> tuple[DecisionEntry, ...]:
    with appending(path, busy=_BUSY) as descriptor:
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        *lines, rest = content.split(b"\n")
        end = b"\n" if rest else b""
        if _is_entry(rest):
            lines.append(rest)
        elif rest.startswith(_BEGINNING[: len(rest)]):  # torn by a kill: what was to be decided has no effect yet
            cut_torn_end(descriptor)
            end = b""
        entries = _linked(plant, writer, _last_of(writer, lines), decided)
        new = end + b"".join(msgspec.json.encode(each) + b"\n" for each in entries)
        append_whole(descriptor, new, os.fstat(descriptor).st_size)
    return entries


async def _in_place(plant: Plant, url: str, writer: str, decided: Sequence[Decided]) -> tuple[DecisionEntry, ...]:
    head = await _last_in(plant, url, writer, _NEAR)
    if not head.number:
        head = await _last_in(plant, url, writer, _ALL)
    entries = _linked(plant, writer, head, decided)
    sink = connect_sink(url, plant.settings.sinks.options.get(split_url(url)[0], {}), plant.context, _KEY)
    try:
        await sink.write([OutputRecord("decisions", writer, each) for each in entries])
        await sink.flush()
    finally:
        await sink.close()
    return entries


async def _last_in(plant: Plant, url: str, writer: str, n_last: int) -> Head:
    head = Head()
    async for entry in stored(plant, url, writer, n_last):
        head = head_of(entry)
    return head


async def stored(plant: Plant, url: str, writer: str, n_last: int | None = None) -> AsyncIterator[DecisionEntry]:
    """Yield the entries of ``writer`` that lie in a place, in its order; nothing if the place cannot be read.

    There each process begins a chain anew, as on a terminal. ``n_last``: only the last so many messages are looked at,
    and those of open transactions, too: a writer without transactions would not see its own behind one. Of a topic
    one message is in memory at a time, whatever others wrote there. Raises OutputError.
    """
    async for content in _contents(plant, url, writer, n_last):
        if (entry := followed_in(content, writer)) is not None:
            yield entry


async def _contents(plant: Plant, url: str, writer: str, n_last: int | None) -> AsyncIterator[bytes]:
    if (path := file_path(url)) is not None:
        for line in await asyncio.to_thread(_lines_of, plant.base_dir / path):
            yield line
        return
    scheme, rest, in_url = split_url(url)
    if scheme not in available("subscriptions"):
        return
    known = load("subscriptions", scheme).options_model.model_fields
    of_sink = {**plant.settings.sinks.options.get(scheme, {}), **in_url}
    options = {name: value for name, value in of_sink.items() if name in known} | {"start": "earliest"}
    subscription = connect_subscription(f"{scheme}:{rest}", options, plant.context, _KEY)
    try:
        if not isinstance(subscription, EndingSubscription):
            return
        if n_last is not None and isinstance(subscription, TailSubscription):
            subscription.end_with_last(n_last)
        else:
            subscription.end_with_present()
        async for each in subscription.messages():
            yield each.value
    except SourceError as error:
        raise OutputError(f"the last entry of {writer} cannot be read, so nothing was decided: {error}") from error
    finally:
        await subscription.close()


def _lines_of(path: Path) -> list[bytes]:
    try:
        content = b"".join(read_regular(file) for _, file in output_files(path))
    except OSError as error:
        raise OutputError(f"cannot read {path}: {reason(error, path, 'read')}") from error
    return content.split(b"\n")[:-1]


def _last_of(writer: str, contents: Sequence[bytes]) -> Head:
    """Return the last entry of ``writer`` among ``contents``."""
    found = (followed_in(content, writer) for content in reversed(contents))
    return next((head_of(entry) for entry in found if entry is not None), Head())


def _is_entry(content: bytes) -> bool:
    try:
        entry_in(content)
    except msgspec.ValidationError:
        return False
    return True


def _linked(plant: Plant, writer: str, head: Head, decided: Sequence[Decided]) -> tuple[DecisionEntry, ...]:
    config = settings_digest(plant)
    entries: list[DecisionEntry] = []
    for each in decided:
        by_config = replace(each, details={**each.details, "config": config})
        entries.append(linked(by_config, writer, head, from_us(plant.clock.now_us())))
        head = head_of(entries[-1])
    return tuple(entries)


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """The decisions of a plant, as registry and commands record them: the entry first, then what it says."""

    plant: Plant

    @contextmanager
    def deciding(self, actor: Actor, *decided: Decided) -> Iterator[None]:
        """Record ``decided`` before the block, and after an error in it that they are ``undone``, or ``doubtful``.

        Raises what ``record`` raises, before the block.
        """
        entries = self.record(actor, *decided)
        try:
            yield
        except StreamadError as error:
            self.undo(actor, entries, error)
            raise

    def record(self, actor: Actor, *decided: Decided) -> tuple[DecisionEntry, ...]:
        """Record ``decided``; raises as ``record`` does."""
        return record(self.plant, actor.writer, decided)

    def undo(self, actor: Actor, entries: Sequence[DecisionEntry], error: StreamadError) -> None:
        """Record that ``error`` kept ``entries`` from taking effect, or may have.

        It never raises, for ``error`` is the one to report.
        """
        kind = "doubtful" if isinstance(error, DoubtfulError) else "undone"
        with suppress(StreamadError):
            self.record(actor, *(actor.decides(kind, each.subject, str(error), of=each.number) for each in entries))


@contextmanager
def _alone_here(config: Path | None) -> Iterator[None]:
    """Let the processes of this machine with the same config take turns: the place has no lock."""
    if config is None:
        yield
        return
    try:
        descriptor = open_regular(config)
    except OSError as error:
        why = f"cannot open {config}, which processes lock in turn: {reason(error, config, 'read')}"
        raise OutputError(f"nothing was decided: {why}") from error
    try:
        deadline = time.monotonic() + _WAIT_S
        while not lock_open_file(descriptor):
            if time.monotonic() >= deadline:
                raise OutputError(f"another program has written decisions for {_WAIT_S:.0f} s: try again")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)
