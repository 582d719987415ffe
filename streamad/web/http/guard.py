"""The guard before all pages: who may see them, and the headers of safety of every answer."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamad.language import gettext
from streamad.web.access import TOKEN, Access, Person, Refusal
from streamad.web.pages.layout import sentence_page
from streamad.web.rendering import rendered

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),  # the way back shows nothing after a logout
)
LOGIN: Final = "/login"
HEALTH: Final = ("/health", "/livez", "/readyz")
"""Open to everybody: whether the page lives, and can show its view."""
RENEWAL: Final = "streamad-renewal"
"""The header of a page that renews by itself: that is no use of the session."""
_ONE_YEAR_S = 31_536_000


class Guard:
    """Refuses what may not be seen, hands the cookie out for the printed link, and adds the headers of safety."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the application's answer, or that of the guard in its place."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _HEADERS if each[0] not in given)]
            await send(message)

        response = self._answer(Request(scope))
        await (self._app if response is None else response)(scope, receive, sent)

    def _answer(self, request: Request) -> Response | None:
        """Return the response if the request is refused or only fetches its cookie; else note who asks."""
        access = self._access
        if (refusal := access.host_refusal(request.headers.get("host", ""))) is not None:
            return _refusal(refusal)
        path = request.scope["path"]
        if path.startswith("/static/") or path in HEALTH or (path == LOGIN and access.door is not None):
            return None
        if (token := request.query_params.get(TOKEN)) is not None and access.is_link(token):
            return self._with_cookie(request)
        person = self._person(request)
        if isinstance(person, Refusal):
            is_led_here = request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET"
            if is_led_here and access.cookie_name not in request.cookies:
                return _again(request)
            return self._to_login(request) if person.status == 401 else _refusal(person)
        request.scope["person"] = person
        return None

    def _person(self, request: Request) -> Person | Refusal:
        access, headers = self._access, request.headers
        doubled = next((name for name in access.naming if len(headers.getlist(name)) > 1), None)
        if doubled is not None:
            return Refusal(
                403, gettext("the header %(name)s came twice: the proxy must replace what browsers send", name=doubled)
            )
        client = None if request.client is None else request.client.host
        cookie, is_use = request.cookies.get(access.cookie_name), not _renews(request)
        return access.person(client=client, headers=headers, cookie=cookie, is_use=is_use)

    def _to_login(self, request: Request) -> Response:
        """Lead a person to the page to log in, and from there to what was asked for; refuse programs and renewals."""
        is_page = request.method in {"GET", "HEAD"} and "text/html" in request.headers.get("accept", "")
        if is_page and not _renews(request):
            return RedirectResponse(f"{LOGIN}?next={quote(_own_url(request), safe='/')}", status_code=303)
        refused = _refusal(Refusal(401, gettext("Log in: load this page again.")))
        refused.headers["www-authenticate"] = "Bearer"
        return refused

    def _with_cookie(self, request: Request) -> Response:
        left = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in left)
        response = RedirectResponse(_path(request) + (f"?{query}" if query else ""), status_code=303)
        access = self._access
        response.set_cookie(
            access.cookie_name, access.cookie, httponly=True, samesite="strict", path="/", max_age=_ONE_YEAR_S
        )
        return response


def _renews(request: Request) -> bool:
    """Return whether no person asks, but a page that is open."""
    return request.scope["path"] == "/changes" or RENEWAL in request.headers


def _path(request: Request) -> str:
    """Return the path of the request on this server: two slashes at its begin would name another one."""
    return "/" + request.url.path.lstrip("/")


def _again(request: Request) -> Response:
    """Return a page that loads itself again: a strict cookie is not sent with a link from another site."""
    return HTMLResponse(rendered("again.html", url=_own_url(request)))


def _own_url(request: Request) -> str:
    query = request.url.query
    return quote(_path(request) + (f"?{query}" if query else ""), safe="/?=&%")


def _refusal(refusal: Refusal) -> Response:
    return HTMLResponse(sentence_page(None, gettext("Not allowed"), refusal.why), refusal.status)
