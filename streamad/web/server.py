"""Runs the page: the view, the reading of the outputs and the HTTP server, until a signal ends them."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from streamad.errors import ConfigError, OutputError
from streamad.plant import Plant
from streamad.settings.outputs import WebSettings
from streamad.settings.places import VIEW
from streamad.system.files import write_atomically, writing
from streamad.system.locks import try_lock
from streamad.system.opening import read_state
from streamad.web.access import TOKEN, Access, Level, Person, known_hosts, new_secret
from streamad.web.app import application
from streamad.web.http.changes import Changes
from streamad.web.http.tls import checked_tls
from streamad.web.login.door import Door
from streamad.web.login.token import token_of
from streamad.web.login.users import no_user, read_users
from streamad.web.reading import Reading
from streamad.web.site import Site
from streamad.web.store.view import View
from streamad.web.workers import Workers

_ANY = ("0.0.0.0", "::")
_CLOSE_S = 3
_LOOK_S = 0.2
_CONNECTIONS = 4  # of each browser at a time: the stream of changes, and what a page loads
_SPARE = 50
_SECRET_BYTES = 200


class Page:
    """The page of one plant. ``url`` is the link to print, once ``listen`` has opened the port.

    Raises OutputError, ConfigError.
    """

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._web: WebSettings = plant.settings.web
        self._door, self._tls = _door_of(plant), checked_tls(plant)
        self._machines = _machines_of(plant)
        if problems := [each for each in plant.places.problems() if each.path == VIEW]:
            raise ConfigError(problems)
        self._socket = _listening(self._web)
        path = plant.base_dir / self._web.view
        self._lock: int | None = None
        try:
            self._lock = _locked(path)
            self._view = View(path, keep_us=self._web.keep, max_bytes=self._web.max_bytes)
            self._secret = _secret(path.with_name(f"{path.name}.token"))
        except BaseException:
            self._socket.close()
            self._unlock()
            raise
        self._server: Any = None
        self._is_stopping = False

    @property
    def port(self) -> int:
        """Return the port that it listens at."""
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Return the link that opens the page; where nobody logs in it holds the token."""
        host = next(iter(self._web.hosts), self._web.host) if self._web.host in _ANY else self._web.host
        host = f"[{host}]" if ":" in host else host
        link = f"{'http' if self._web.tls is None else 'https'}://{host}:{self.port}/"
        auth = self._web.auth
        return link if auth.proxy is not None or auth.users is not None else f"{link}?{TOKEN}={self._secret}"

    async def run(self) -> None:
        """Serve until ``stop`` or a cancellation."""
        import uvicorn  # noqa: PLC0415 - an extra

        from streamad.web.connections import Connection, Seldom  # noqa: PLC0415

        view, web = self._view, self._web
        workers = Workers(self._plant.clock)
        changes = Changes(view, web.max_browsers, workers)
        reading = Reading(self._plant, view, changes.wake, workers)
        site = Site(
            self._plant, view, workers, troubles=lambda: reading.troubles, access=self._access(), changes=changes
        )

        @asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            task = asyncio.create_task(reading.run())
            task.add_done_callback(reading.note_end)
            loading = asyncio.create_task(asyncio.to_thread(import_module, "scipy.stats"))  # or the first page waits
            try:
                yield
            finally:
                changes.close()
                if self._door is not None:
                    self._door.close()
                task.cancel()
                await asyncio.gather(task, loading, return_exceptions=True)

        certificate, key = (None, None) if self._tls is None else self._tls
        config = uvicorn.Config(
            application(site, lifespan),
            http=Connection,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSE_S,
            limit_concurrency=_CONNECTIONS * web.max_browsers + _SPARE,
            h11_max_incomplete_event_size=32_768,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = nullcontext  # the command handles signals
        log, seldom = logging.getLogger("uvicorn.error"), Seldom()
        log.addFilter(seldom)
        try:
            await self._serve(changes)
        finally:
            log.removeFilter(seldom)
            self._socket.close()
            view.close()
            self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    async def _serve(self, changes: Changes) -> None:
        """Serve; open streams end first, or the server would wait for them."""
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not serving.done():
            await asyncio.wait({serving}, timeout=_LOOK_S)
            if self._is_stopping:
                self._server.should_exit = True
                changes.close()
        await serving

    def stop(self) -> None:
        """End ``run`` soon; safe to call from a signal handler of the event loop."""
        self._is_stopping = True

    def _access(self) -> Access:
        web = self._web
        return Access(
            secret=self._secret,
            hosts=known_hosts(web.host, self.port, web.hosts),
            local=Person(_user(), Level.ENGINEER if web.allow == "models" else Level.OPERATOR, identity="claimed"),
            machines=self._machines,
            proxy=web.auth.proxy,
            door=self._door,
        )


def _door_of(plant: Plant) -> Door | None:
    """Return the door of the file of users, None without one. Raises ConfigError, also if there is no user."""
    auth = plant.settings.web.auth
    if auth.users is None:
        return None
    path = plant.base_dir / auth.users
    if not read_users(path):
        raise no_user(path)
    return Door(path, idle_s=auth.idle / 1e6, whole_s=auth.session / 1e6)


def _listening(web: WebSettings) -> socket.socket:
    """Return the socket that listens. Raises OutputError."""
    try:
        return socket.create_server((web.host, web.port), family=socket.AF_INET6 if ":" in web.host else socket.AF_INET)
    except OSError as error:
        raise OutputError(
            f"the page cannot listen at {web.host}:{web.port} ({error.strerror or error}): another program may have "
            "the port; choose another with --port (0: any free one)"
        ) from error


def _locked(view: Path) -> int:
    """Return a descriptor that holds the view's lock until it is closed or the process dies. Raises OutputError."""
    path = view.with_name(f"{view.name}.lock")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = try_lock(path)
    if lock is None:
        raise OutputError(
            f"another page uses {view}: open that one, or end it, or give this one a file of its own with web.view"
        )
    return lock


def _secret(path: Path) -> str:
    """Return the secret of the printed link, kept beside the view, so that open pages go on after a restart."""
    with suppress(OSError):
        kept = read_state(path)[:_SECRET_BYTES].decode("ascii", "replace").strip()
        if len(kept) >= len(new_secret()):
            return kept
    secret = new_secret()
    with writing(path):
        write_atomically(path, secret.encode(), is_state=True)
    return secret


def _machines_of(plant: Plant) -> dict[str, Person]:
    """Return who shows which token, beside people. Raises ConfigError."""
    token = plant.settings.web.auth.token
    if token is None:
        return {}
    return {token_of(plant.base_dir / token.file): Person(token.name, Level[token.level.upper()], identity="program")}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "local user"
