"""Sessions of people who have logged in, in memory: each browser holds the name of one, which nobody can guess."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

_MOST = 1_000
_MOST_OF_USER = 20


@dataclass(slots=True)
class Session:
    """Who logged in with which entry of the file, when, and when it was used last."""

    user: str
    password: str
    begun_s: float
    used_s: float


class Sessions:
    """Holds the sessions; each ends ``idle_s`` after its last use, and ``whole_s`` after its begin."""

    def __init__(self, *, idle_s: float, whole_s: float, clock: Callable[[], float]) -> None:
        self._idle_s, self._whole_s, self._clock = idle_s, whole_s, clock
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        """Return how many sessions there are."""
        return len(self._sessions)

    def begin(self, user: str, password: str) -> str:
        """Return the token of a new session; ``password`` is the hash that the entry has now.

        If a user, or all together, have too many, the one that was used longest ago ends.
        """
        now_s = self._clock()
        self._sessions = {key: one for key, one in self._sessions.items() if not self._is_over(one, now_s)}
        self._make_room([key for key, one in self._sessions.items() if one.user == user], _MOST_OF_USER)
        self._make_room(list(self._sessions), _MOST)
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = Session(user, password, now_s, now_s)
        return token

    def find(self, token: str, *, is_use: bool) -> Session | None:
        """Return the session of a token, None if there is none; ``is_use``: a person asked, no page that renews."""
        key, now_s = _digest(token), self._clock()
        found = self._sessions.get(key)
        if found is None:
            return None
        if self._is_over(found, now_s):
            del self._sessions[key]
            return None
        if is_use:
            found.used_s = now_s
        return found

    def end(self, token: str) -> Session | None:
        """End the session of a token and return it, None if there is none."""
        return self._sessions.pop(_digest(token), None)

    def _is_over(self, one: Session, now_s: float) -> bool:
        return now_s - one.used_s >= self._idle_s or now_s - one.begun_s >= self._whole_s

    def _make_room(self, keys: list[bytes], most: int) -> None:
        for key in sorted(keys, key=lambda each: self._sessions[each].used_s)[: max(0, len(keys) - most + 1)]:
            del self._sessions[key]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
