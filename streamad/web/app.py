"""The page's server: routes, what a request may do, and the stream of changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamad.errors import StreamadError
from streamad.judge.explanations.envelope import Clock
from streamad.pictures.drawing import has_plots
from streamad.plant import Plant
from streamad.web.access import TOKEN, Access, Level, Person, Refusal
from streamad.web.acting import Acting, joined_note
from streamad.web.content import Content
from streamad.web.pages.layout import POLICY, Frame, page, sentence_page
from streamad.web.rendering import rendered
from streamad.web.shared import Shared
from streamad.web.store.view import Place, View
from streamad.web.store.view_file import ViewError
from streamad.web.workers import Workers

_STATIC: Final = {
    "streamad.css": "text/css; charset=utf-8",
    "streamad.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_CLOCKS: Final[dict[str, Clock]] = {"own": "own", "aligned": "aligned"}
_ALIVE_S = 15.0
_FULL_RETRY_MS = 5_000
_MOST_FORM = 16_000
_MOST_FIELDS = 1_000
_ONE_YEAR_S = 31_536_000
_PACKED = 4  # of nine: a fifth of the time of the last one, for 6 % more bytes


class Changes:
    """Wakes the open pages after a commit of the view; at most ``limit`` listen at a time."""

    def __init__(self, view: View, limit: int, workers: Workers) -> None:
        self._view, self._workers = view, workers
        self._limit = limit
        self._n_open = 0
        self._changed = asyncio.Event()
        self.n_wakes = 0
        """How often pages were told of a change: of the view, or of what cannot be read."""
        self.is_closing = False

    @property
    def state(self) -> tuple[str, int, int]:
        """Return what differs after every change of what pages show."""
        return self._view.mark, self.n_wakes, self._workers.number

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Yield whether the page may listen during the block; between the question and its place is no other page."""
        is_free = self._n_open < self._limit
        self._n_open += is_free
        try:
            yield is_free
        finally:
            self._n_open -= is_free

    @property
    def full(self) -> str:
        """Return what a page is told that may not listen."""
        return f"{self._limit} browsers are connected; this page does not renew by itself (web.max_browsers)"

    def wake(self) -> None:
        """Tell the pages that something changed; call it in the event loop."""
        self.n_wakes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """End all streams."""
        self.is_closing = True
        self.wake()

    async def stream(self, after: str) -> AsyncIterator[str]:
        """Yield server-sent events: the view's mark as id and data whenever it is another than ``after``.

        Events ``status`` bear the number of the workers' state: at the begin, and when it changes.
        """
        told = -1
        yield "retry: 1000\n\n"
        while not self.is_closing:
            changed, mark = self._changed, self._view.mark
            if mark != after:  # also of a view that was begun anew, whose numbers are lower
                after = mark
                yield f"id: {mark}\ndata: {mark}\n\n"
            if self._workers.number != told:
                told = self._workers.number
                yield f"event: status\ndata: {told}\n\n"
            try:
                async with asyncio.timeout(_ALIVE_S):
                    await changed.wait()
            except TimeoutError:
                yield ": alive\n\n"


class _Listening:
    """The response to a page that listens: a place for it is taken and given back around all that is sent."""

    def __init__(self, changes: Changes, after: str, *, is_page: bool) -> None:
        self._changes, self._after, self._is_page = changes, after, is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._changes.place() as is_free:
            await self._response(is_free=is_free)(scope, receive, send)

    def _response(self, *, is_free: bool) -> Response:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "content-encoding": "identity"}
        if is_free:
            content = self._changes.stream(self._after)
            return StreamingResponse(content, media_type="text/event-stream", headers=headers)
        said = self._changes.full
        if self._is_page:  # a page cannot read the body of a refusal, and would not ask again
            text = f"retry: {_FULL_RETRY_MS}\nevent: full\ndata: {said}\n\n"
            return Response(text, media_type="text/event-stream", headers=headers)
        return PlainTextResponse(f"{said}: close one, or try later", 503)


@dataclass(frozen=True, slots=True)
class Site:
    """The parts of the page that requests need."""

    plant: Plant
    view: View
    access: Access
    changes: Changes
    content: Content


def application(site: Site, lifespan: Callable[..., Any]) -> Starlette:
    """Return the ASGI 3 application of the page."""
    handlers = _Handlers(site)
    routes = [
        Route("/", handlers.now),
        Route("/s/{id}", handlers.sequence),
        Route("/s/{id}/mark", handlers.mark, methods=["POST"]),
        Route("/alerts", handlers.alerts),
        Route("/streams", handlers.streams),
        Route("/stream", handlers.stream),
        Route("/running", handlers.running),
        Route("/compare", handlers.compare),
        Route("/calibration", handlers.calibration),
        Route("/models", handlers.models),
        Route("/models/act", handlers.act, methods=["POST"]),
        Route("/changes", handlers.changes),
        Route("/static/{name}", handlers.static),
        Route("/health", handlers.health),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(_Guard, site=site),
            Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=_PACKED),
        ],
        exception_handlers={HTTPException: _refused, StreamadError: _failed},
        lifespan=lifespan,
    )


class _Guard:
    """Refuses what may not be seen, hands the cookie out for the printed link, and adds the headers of safety."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        access = self._site.access
        if (refusal := access.host_refusal(request.headers.get("host", ""))) is not None:
            return _refusal(refusal)
        if request.scope["path"].startswith("/static/") or request.scope["path"] == "/health":
            return None
        if (token := request.query_params.get(TOKEN)) is not None and access.is_link(token):
            return self._with_cookie(request)
        person = self._person(request)
        if isinstance(person, Refusal):
            is_led_here = request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET"
            if is_led_here and access.cookie_name not in request.cookies:
                return _again(request)
            return _refusal(person)
        request.scope["person"] = person
        return None

    def _person(self, request: Request) -> Person | Refusal:
        access, headers = self._site.access, request.headers
        doubled = next((name for name in access.naming if len(headers.getlist(name)) > 1), None)
        if doubled is not None:
            return Refusal(403, f"the header {doubled} came twice: the proxy must replace what browsers send")
        client = None if request.client is None else request.client.host
        return access.person(client=client, headers=headers, cookie=request.cookies.get(access.cookie_name))

    def _with_cookie(self, request: Request) -> Response:
        left = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in left)
        response = RedirectResponse(_path(request) + (f"?{query}" if query else ""), status_code=303)
        access = self._site.access
        response.set_cookie(
            access.cookie_name, access.cookie, httponly=True, samesite="strict", path="/", max_age=_ONE_YEAR_S
        )
        return response


def _clock(request: Request) -> Clock | None:
    """Return the clock of the normal band that the address names, None if it names none."""
    return _CLOCKS.get(request.query_params.get("clock", ""))


def _place(request: Request) -> Place | None:
    """Return behind which place in a list the address asks to go on (``before``, in us since 1970, and ``id``)."""
    given = request.query_params.get("before", "")
    if not (given.isascii() and given.isdecimal() and len(given) < 18):
        return None
    return Place(int(given), request.query_params.get("id") or None)


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
    return HTMLResponse(sentence_page(None, "Not allowed", refusal.why), refusal.status)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return HTMLResponse(sentence_page(None, "Not found" if error.status_code == 404 else "Refused", error.detail),
                        error.status_code)  # fmt: skip


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, ViewError):
        why = (
            "It is begun anew from what the outputs keep: load this page again in a moment." if error.is_damaged else ""
        )
        return HTMLResponse(sentence_page(None, "The view cannot be read", f"{error}. {why}".strip()), 503)
    return HTMLResponse(sentence_page(None, "This failed", str(error)), 500)


class _Handlers:
    """What each route answers. Everything that reads the view or a file runs in a thread."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._acting = Acting(site.plant, site.view)
        self._drawing = asyncio.Lock()  # one picture at a time: each takes a second of a core, and memory
        self._now = Shared(self._made_now, lambda: site.changes.state)

    def _frame(self, request: Request) -> Frame:
        person: Person = request.scope["person"]
        return Frame(self._site.plant.settings.name, person, self._site.view.mark)

    async def _page(
        self, request: Request, title: str, place: str, made: Callable[..., Markup], *given: Any
    ) -> Response:
        frame = self._frame(request)
        content = await run_in_threadpool(made, frame, *given)
        return HTMLResponse(page(frame, title, place, content), headers={"cache-control": "no-store"})

    async def now(self, request: Request) -> Response:
        change, content = await self._now.get()
        frame = replace(self._frame(request), change=change)
        return HTMLResponse(page(frame, "Now", "/", content), headers={"cache-control": "no-store"})

    def _made_now(self) -> tuple[str, Markup]:
        """Return how far the view was read, and the content of the page Now, which is the same for everybody."""
        change = self._site.view.mark
        return change, self._site.content.now()

    async def alerts(self, request: Request) -> Response:
        unjudged = request.query_params.get("state") == "new"
        return await self._page(request, "Alerts", "/", self._site.content.alerts, unjudged, _place(request))

    async def streams(self, request: Request) -> Response:
        return await self._page(request, "Streams", "/streams", self._site.content.streams)

    async def stream(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        shown = self._site.content.stream
        return await self._page(request, name or "Stream", "/streams", shown, name, _place(request))

    async def running(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        return await self._page(request, name or "Running", "/", self._site.content.running, name)

    async def compare(self, request: Request) -> Response:
        ids = request.query_params.getlist("id")[:8]
        return await self._page(request, "Compare", "/compare", self._site.content.compare, ids)

    async def calibration(self, request: Request) -> Response:
        return await self._page(request, "Calibration", "/calibration", self._site.content.calibration)

    async def models(self, request: Request) -> Response:
        said, model = (request.query_params.get(name, "") for name in ("said", "model"))
        return await self._page(request, "Models", "/models", self._site.content.models, said, model)

    async def sequence(self, request: Request) -> Response:
        name: str = request.path_params["id"]
        stem, _, suffix = name.partition(".")
        if suffix:
            return await self._export(request, stem, suffix)
        one = await run_in_threadpool(self._site.view.sequence, stem)
        if one is None:
            why = "No verdict with this id was read: it may lie before what the outputs keep, or be of another plant."
            return HTMLResponse(sentence_page(self._frame(request), "Not here", why), 404)
        title = f"{one.stream} {one.sequence}"
        said = request.query_params.get("said", "")
        return await self._page(request, title, "/", self._site.content.sequence, one, said, _clock(request))

    async def _export(self, request: Request, name: str, suffix: str) -> Response:
        one = await run_in_threadpool(self._site.view.sequence, name)
        if one is None or suffix not in {"json", "csv", "png"}:
            raise HTTPException(404, "There is no such export.")
        as_file = {"content-disposition": f'attachment; filename="{one.id[:12]}.{suffix}"', "cache-control": "no-store"}
        as_file["content-encoding"] = "identity"  # packing a large file would hold up everybody else
        if suffix == "csv":
            text = await run_in_threadpool(self._site.content.csv, one)
            if text is None:
                raise HTTPException(404, "The judged window of this sequence was not kept.")
            return PlainTextResponse(text, media_type="text/csv", headers=as_file)
        if suffix == "png":
            if not has_plots():
                raise HTTPException(404, "Pictures need matplotlib, of the extra plots.")
            async with self._drawing:
                picture = await run_in_threadpool(self._site.content.png, one, _clock(request))
            if picture is None:
                raise HTTPException(404, "The judged window of this sequence was not kept.")
            return Response(picture, media_type="image/png", headers=as_file)
        attribution = await run_in_threadpool(self._site.view.attribution, name)
        window = await run_in_threadpool(self._site.view.window, name)
        content = msgspec.json.encode({"sequence": asdict(one), "attribution": attribution, "window": window})
        return Response(content, media_type="application/json", headers=as_file)

    async def mark(self, request: Request) -> Response:
        """Write a mark; the answer is the sequence's page, which says what happens next."""
        name: str = request.path_params["id"]
        form = await self._form(request, Level.OPERATOR)
        person: Person = request.scope["person"]
        note = joined_note(form.get("reason", ""), form.get("note", ""))
        clock = "" if (chosen := _clock(request)) is None else f"clock={chosen}&"
        try:
            said = await run_in_threadpool(self._acting.mark, person, name, form.get("judgement", ""), note)
        except StreamadError as error:
            return self._not_done(request, "Nothing was written", error, f"/s/{quote(name)}?{clock}".rstrip("?&"))
        self._site.changes.wake()
        return RedirectResponse(f"/s/{quote(name)}?{clock}said={said}", status_code=303)

    async def act(self, request: Request) -> Response:
        """Promote, decline, roll back or relearn, if a person has typed the name of what changes."""
        form = await self._form(request, Level.ENGINEER)
        try:
            acted = await run_in_threadpool(self._acting.act, request.scope["person"], form)
        except StreamadError as error:
            return self._not_done(request, "Nothing was changed", error, "/models")
        return RedirectResponse(f"/models?said={acted.code}&model={quote(acted.model, safe='')}", status_code=303)

    def _not_done(self, request: Request, title: str, error: StreamadError, back: str) -> Response:
        """Return why a form had no effect, with the way back. Only the answer says so: a link cannot."""
        return HTMLResponse(sentence_page(self._frame(request), title, str(error), back=back), 422)

    async def _form(self, request: Request, needs: Level) -> Mapping[str, str]:
        """Return the fields of a form that may be posted. Raises HTTPException."""
        headers = request.headers
        refusal = self._site.access.post_refusal(
            origin=headers.get("origin"), host=headers.get("host", ""), person=request.scope["person"], needs=needs
        )
        if refusal is not None:
            raise HTTPException(refusal.status, refusal.why)
        size = headers.get("content-length", "")
        if not size.isdecimal():
            raise HTTPException(413, "The form is too large, or its length is missing.")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise HTTPException(415, "The form must be urlencoded, as the page sends it.")
        body = b""
        async for part in request.stream():  # the header may say less than comes
            body += part
            if len(body) > _MOST_FORM:
                raise HTTPException(413, "The form is too large.")
        try:
            fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            raise HTTPException(413, "The form has too many fields.") from error
        return dict(fields)

    async def changes(self, request: Request) -> _Listening:
        """Stream the numbers of changes (server-sent events); a page that reconnects names the last one it saw."""
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        is_page = "text/event-stream" in request.headers.get("accept", "")
        return _Listening(self._site.changes, after, is_page=is_page)

    async def static(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404, "There is no such file.")
        content = (files("streamad.web") / "static" / name).read_bytes()
        return Response(content, media_type=_STATIC[name], headers={"cache-control": "max-age=60"})

    async def health(self, request: Request) -> Response:
        """Return 200 as long as the page can show its view, else 503; what it cannot read is in the body."""
        troubles = self._site.content.reading_troubles()
        problem = await run_in_threadpool(self._site.view.problem)
        if problem is not None:
            troubles["view"] = problem
        said = {"status": "ok" if problem is None else "failing", "troubles": troubles}
        return Response(json.dumps(said), 200 if problem is None else 503, media_type="application/json")
