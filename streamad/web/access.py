"""Who may see and do what: hosts, tokens, sessions, a proxy's headers, roles, and the origin of what is posted.

Closed by default: only addresses of this machine, and only browsers that opened the printed link. If a file of users or
a proxy says who people are, the link lets nobody in.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from streamad.decisions.recording import Actor
from streamad.language import gettext
from streamad.messages.decision import Identity
from streamad.settings.outputs import ProxySettings
from streamad.web.login.door import Door, Shut

TOKEN: Final = "token"
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_LONGEST_NAME = 200


class Level(IntEnum):
    """What a person may do; each level may do what those below may."""

    VIEWER = 1
    OPERATOR = 2
    """May judge alerts."""
    ENGINEER = 3
    """May put models into service, roll back and relearn."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks: the name that marks bear, and the level; ``has_session``: who can log out.

    ``identity``: whether the name was checked; that of whoever opened the printed link is claimed.
    """

    name: str
    level: Level
    has_session: bool = False
    identity: Identity = "authenticated"

    @property
    def actor(self) -> Actor:
        """Return the person as the one who decides something on the page."""
        return Actor("page", self.name, self.identity)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: the HTTP status and a sentence for people."""

    status: int
    why: str


class Access:
    """Decides on requests. ``local`` is the person who opened the printed link, ``machines`` the one with a token file.

    ``secret`` is what the printed link holds; the cookie is derived from it, so that it is never sent again. With a
    ``door`` people log in, and the cookie holds the token of a session.
    """

    def __init__(
        self,
        *,
        secret: str,
        hosts: frozenset[str],
        local: Person,
        machines: Mapping[str, Person],
        proxy: ProxySettings | None,
        door: Door | None = None,
    ) -> None:
        self.door = door
        self._secret = secret
        self._hosts = hosts
        self._local = local
        self._machines = {_digest(token): person for token, person in machines.items()}
        self._proxy = proxy
        self._trusted = () if proxy is None else tuple(map(ipaddress.ip_network, proxy.trusted))

    @property
    def naming(self) -> tuple[str, ...]:
        """Return the headers with which a proxy names the person; a second one would be a browser's own."""
        return () if self._proxy is None else (self._proxy.user_header, self._proxy.groups_header)

    @property
    def cookie_name(self) -> str:
        """Return the name of the cookie, one for each secret: browsers send cookies to every port of a host."""
        return f"streamad-{hmac.new(self._secret.encode(), b'name', hashlib.sha256).hexdigest()[:12]}"

    @property
    def cookie(self) -> str:
        """Return the value of the cookie that a browser gets for the printed link."""
        return hmac.new(self._secret.encode(), b"cookie", hashlib.sha256).hexdigest()

    def is_link(self, token: str) -> bool:
        """Return whether ``token`` is the printed link's, and lets in."""
        return self._proxy is None and self.door is None and hmac.compare_digest(token.encode(), self._secret.encode())

    def host_refusal(self, host: str) -> Refusal | None:
        """Return why a request to ``host`` is refused: a foreign name may be an attack by DNS rebinding."""
        if host.lower() in self._hosts:
            return None
        known = ", ".join(sorted(self._hosts))
        return Refusal(
            403,
            gettext(
                "this page does not answer to the name %(name)s, only to %(known)s (web.hosts)",
                name=repr(host[:80]),
                known=known,
            ),
        )

    def person(
        self, *, client: str | None, headers: Mapping[str, str], cookie: str | None, is_use: bool = True
    ) -> Person | Refusal:
        """Return who asks, or why the request is refused. ``client`` is the address that the request came from.

        ``is_use``: it is no page that renews by itself.
        """
        if self._proxy is not None:
            return self._of_proxy(self._proxy, client, headers)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (person := self._machines.get(_digest(token.strip()))) is not None:
            return person
        if self.door is not None:
            return self._of_session(self.door, cookie, is_use=is_use)
        if cookie is not None and hmac.compare_digest(cookie.encode(), self.cookie.encode()):
            return self._local
        return Refusal(
            403, gettext("open the link that `streamad web` printed: it holds the token that this browser lacks")
        )

    def _of_session(self, door: Door, cookie: str | None, *, is_use: bool) -> Person | Refusal:
        found = None if cookie is None else door.user(cookie, is_use=is_use)
        if found is None:
            return Refusal(401, gettext("Log in to see this page."))
        if isinstance(found, Shut):
            return Refusal(found.status, found.said)
        name, user = found
        return Person(name, Level[user.role.upper()], has_session=True)

    def is_still(self, person: Person, cookie: str | None) -> bool:
        """Return whether ``person`` may go on with an answer that does not end."""
        if self.door is None or not person.has_session:
            return True
        return isinstance(self._of_session(self.door, cookie, is_use=False), Person)

    def _of_proxy(self, proxy: ProxySettings, client: str | None, headers: Mapping[str, str]) -> Person | Refusal:
        try:
            address = ipaddress.ip_address(client or "")
        except ValueError:
            return Refusal(403, gettext("the request has no address"))
        if not any(address in network for network in self._trusted):
            return Refusal(
                403, gettext("%(address)s is not one of the proxies that web.auth.proxy.trusted names", address=address)
            )
        name = headers.get(proxy.user_header.lower(), "").strip()
        if not name:
            return Refusal(
                403, gettext("the proxy names no user: it must send the header %(name)s", name=proxy.user_header)
            )
        groups = {group.strip() for group in headers.get(proxy.groups_header.lower(), "").split(",")}
        level = Level.VIEWER
        if groups & {*proxy.operators}:
            level = Level.OPERATOR
        if groups & {*proxy.engineers}:
            level = Level.ENGINEER
        return Person(name[:_LONGEST_NAME], level)

    def post_refusal(self, *, origin: str | None, host: str, person: Person, needs: Level) -> Refusal | None:
        """Return why ``person`` may not post from ``origin`` to ``host``: another site, or a level too low."""
        if (refusal := origin_refusal(origin, host)) is not None:
            return refusal
        if person.level < needs:
            wanted, own = needs.name.lower(), person.level.name.lower()
            return Refusal(
                403,
                gettext(
                    "%(name)s is %(own)s, and this needs %(wanted)s: nothing was changed",
                    name=person.name,
                    own=own,
                    wanted=wanted,
                ),
            )
        return None


def origin_refusal(origin: str | None, host: str) -> Refusal | None:
    """Return why a form from ``origin`` to ``host`` is refused: another site sent it."""
    if origin is None or origin.lower() not in {f"http://{host.lower()}", f"https://{host.lower()}"}:
        return Refusal(
            403, gettext("the form was not sent by this page (its Origin is another), so nothing was changed")
        )
    return None


def is_of_this_machine(host: str) -> bool:
    """Return whether a browser that names ``host`` speaks with its own machine: nothing crosses a network."""
    name = host.lower()
    return name in _LOCAL or name.rpartition(":")[0] in _LOCAL


def new_secret() -> str:
    """Return a new secret for a printed link."""
    return secrets.token_urlsafe(24)


def known_hosts(host: str, port: int, more: tuple[str, ...]) -> frozenset[str]:
    """Return the values of the header Host that the page answers to: this machine's, ``host``, and ``more``."""
    names = {*_LOCAL, *more} | ({host} if host not in {"0.0.0.0", "::"} else set())
    return frozenset({f"{name.lower()}:{port}" for name in names} | {name.lower() for name in names})


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
