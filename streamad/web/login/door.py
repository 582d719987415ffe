"""The door: lets people in by name and password, knows them by their session, and lets them out."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from streamad.errors import ConfigError
from streamad.language import catalogued, gettext
from streamad.telemetry.logs import get_status_logger
from streamad.web.login.passwords import MOST, NOBODY, is_right
from streamad.web.login.sessions import Session, Sessions
from streamad.web.login.throttle import Throttle
from streamad.web.login.users import User, parsed_users, plain_name, read_file

_AT_A_TIME = 2
_MOST_WAITING = 20
_LOGGED_EVERY_S = 60.0
_LONGEST_NAME = 400  # as it was typed: names of users are shorter


@dataclass(frozen=True, slots=True)
class Shut:
    """Why somebody is not let in: an HTTP status, a catalogued sentence, and after how many seconds to try again."""

    status: int
    why: str
    retry_s: int | None = None

    @property
    def said(self) -> str:
        """Return the sentence in the reader's language."""
        return gettext(self.why, retry=self.retry_s)


UNREADABLE = Shut(
    503, catalogued("The file of users cannot be read, so nobody can log in: the log of streamad web says why.")
)
_WRONG = Shut(403, catalogued("The name or the password is wrong."))
_BUSY = Shut(503, catalogued("Many people log in at this moment: try again in a few seconds."), 5)
_TOO_MANY = catalogued("There were too many attempts: try again in %(retry)s s.")


class Door:
    """Reads the file of users at ``path``. Call everything in the event loop. ``clock``: seconds, never back."""

    def __init__(
        self, path: Path, *, idle_s: float, whole_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._clock = path, clock
        self._sessions = Sessions(idle_s=idle_s, whole_s=whole_s, clock=clock)
        self._throttle = Throttle(clock)
        self._hashing = ThreadPoolExecutor(_AT_A_TIME, "password")
        self._n_waiting = 0
        self._read: tuple[bytes, Mapping[str, User]] = (b"", {})
        self._trouble: str | None = None
        self._n_unlogged, self._logged_s = 0, -math.inf

    def close(self) -> None:
        """End the threads that hash; those that wait get no answer."""
        self._hashing.shutdown(wait=False, cancel_futures=True)

    def users(self) -> Mapping[str, User] | None:
        """Return the users as the file has them now; None if it cannot be read, which is logged once."""
        try:
            content = read_file(self._path)
            if content != self._read[0]:
                self._read = content, parsed_users(self._path, content)
        except ConfigError as error:
            if (said := str(error)) != self._trouble:
                get_status_logger().error("the file of users lets nobody in", why=said)
            self._trouble = said
            return None
        self._trouble = None
        return self._read[1]

    def user(self, token: str, *, is_use: bool) -> tuple[str, User] | Shut | None:
        """Return name and entry of who holds the session ``token``; None if it is none, or none any more."""
        session = self._sessions.find(token, is_use=is_use)
        if session is None:
            return None
        users = self.users()
        if users is None:
            return UNREADABLE
        user = users.get(session.user)
        if user is None or user.password != session.password:
            self._sessions.end(token)
            return None
        return session.user, user

    async def enter(self, name: str, password: str, address: str, *, before: str | None = None) -> str | Shut:
        """Return the token of a new session, or why there is none. ``before``: the browser's, which ends."""
        name = plain_name(name[:_LONGEST_NAME])
        wait_s = self._throttle.take(name, address)
        if wait_s > 0:
            self._log_throttled(address)
            return Shut(429, _TOO_MANY, math.ceil(wait_s))
        if self._n_waiting >= _MOST_WAITING:
            self._throttle.give_back(name, address)
            return _BUSY
        user = await self._proved(name, password)
        if isinstance(user, Shut):
            if user is UNREADABLE:
                self._throttle.give_back(name, address)
            else:
                known = name if name in self._read[1] else "unknown"
                get_status_logger().warning("login refused", user=known, address=address)
            return user
        self._throttle.give_back(name, address)
        if before is not None:
            self._sessions.end(before)
        get_status_logger().info("logged in", user=name, role=user.role, address=address)
        return self._sessions.begin(name, user.password)

    async def _proved(self, name: str, password: str) -> User | Shut:
        """Return the entry of ``name`` if the password is its; the file may change meanwhile."""
        users = self.users()
        if users is None:
            return UNREADABLE
        user = users.get(name)
        stored = NOBODY if user is None else user.password
        self._n_waiting += 1
        try:
            is_so = await asyncio.get_running_loop().run_in_executor(self._hashing, is_right, stored, password[:MOST])
        finally:
            self._n_waiting -= 1
        after = self.users()
        if user is None or not is_so or len(password) > MOST or after is None or after.get(name) != user:
            return _WRONG
        return user

    def leave(self, token: str) -> Session | None:
        """End a session."""
        session = self._sessions.end(token)
        if session is not None:
            get_status_logger().info("logged out", user=session.user)
        return session

    def _log_throttled(self, address: str) -> None:
        """Log attempts that nobody looked at, a line a minute at most."""
        self._n_unlogged += 1
        if (now_s := self._clock()) - self._logged_s >= _LOGGED_EVERY_S:
            get_status_logger().warning("too many attempts to log in", attempts=self._n_unlogged, address=address)
            self._n_unlogged, self._logged_s = 0, now_s
