"""The page to log in, and the way out."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from streamad.language import catalogued, gettext
from streamad.web.access import Access, Refusal, is_of_this_machine, origin_refusal
from streamad.web.http.forms import fields_of
from streamad.web.http.guard import LOGIN
from streamad.web.login.door import Door, Shut
from streamad.web.pages.layout import bare_page
from streamad.web.rendering import rendered

_LONGEST_NEXT = 2_000
_UNENCRYPTED = catalogued(
    "This way nobody could log in safely: the password would cross the network unencrypted. Open the page by https "
    "(web.tls, or a proxy that encrypts), or through a tunnel."
)


class Login:
    """Answers the requests of those who log in and out."""

    def __init__(self, access: Access, door: Door) -> None:
        self._access, self._door = access, door

    async def answer(self, request: Request) -> Response:
        """Show the form, or take it."""
        return await (self._enter if request.method == "POST" else self._show)(request)

    async def _show(self, request: Request) -> Response:
        """Show the form; who has a session already goes on."""
        token, to = request.cookies.get(self._access.cookie_name), local_path(request.query_params.get("next", ""))
        if token is not None and isinstance(self._door.user(token, is_use=True), tuple):
            return RedirectResponse(to, status_code=303)
        return self._page(to, None if _is_safe(request) else Shut(403, _UNENCRYPTED), has_form=_is_safe(request))

    async def _enter(self, request: Request) -> Response:
        """Let a person in who knows the password: a new session, and on to what was asked for."""
        origin = self._checked_origin(request)
        form = await fields_of(request)
        to = local_path(form.get("next", ""))
        is_encrypted = origin.startswith("https:") or request.url.scheme == "https"
        if not is_encrypted and not is_of_this_machine(request.headers.get("host", "")):
            return self._page(to, Shut(403, _UNENCRYPTED), has_form=False)
        address = "" if request.client is None else request.client.host
        before = request.cookies.get(self._access.cookie_name)
        found = await self._door.enter(form.get("name", ""), form.get("password", ""), address, before=before)
        if isinstance(found, Shut):
            return self._page(to, found, name=form.get("name", ""))
        response = RedirectResponse(to, status_code=303)
        response.set_cookie(
            self._access.cookie_name, found, httponly=True, samesite="strict", path="/", secure=is_encrypted
        )
        return response

    async def leave(self, request: Request) -> Response:
        """End the session."""
        origin = self._checked_origin(request)
        name = self._access.cookie_name
        self._door.leave(request.cookies.get(name, ""))
        response = RedirectResponse(LOGIN, status_code=303)
        is_encrypted = origin.startswith("https:")
        response.delete_cookie(name, httponly=True, samesite="strict", path="/", secure=is_encrypted)
        return response

    def _checked_origin(self, request: Request) -> str:
        origin = request.headers.get("origin", "")
        if isinstance(refusal := origin_refusal(origin, request.headers.get("host", "")), Refusal):
            raise HTTPException(refusal.status, refusal.why)
        return origin.lower()

    def _page(self, to: str, shut: Shut | None, *, name: str = "", has_form: bool = True) -> Response:
        why = None if shut is None else shut.said
        content = rendered("login.html", next=to, why=why, name=name[:80], has_form=has_form)
        headers = {} if shut is None or shut.retry_s is None else {"retry-after": str(shut.retry_s)}
        return HTMLResponse(bare_page(gettext("Log in"), content), 200 if shut is None else shut.status, headers)


def _is_safe(request: Request) -> bool:
    """Return whether a password may be asked for: browsers send sec-fetch-mode only by https or to their machine.

    For an older browser the proxy that encrypts says so. These headers can be forged, which shows an empty form.
    """
    headers = request.headers
    return (
        request.url.scheme == "https"
        or is_of_this_machine(headers.get("host", ""))
        or "sec-fetch-mode" in headers
        or headers.get("x-forwarded-proto", "").lower() == "https"
    )


def local_path(text: str) -> str:
    """Return the path of this page that ``text`` names, with its query; / for another site, or no path."""
    is_plain = all("!" <= each <= "~" and each != "\\" for each in text) and len(text) <= _LONGEST_NEXT
    if not is_plain or not text.startswith("/") or text.startswith("//"):
        return "/"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    if parts.scheme or parts.netloc or parts.path in {LOGIN, "/logout"}:
        return "/"
    return text
