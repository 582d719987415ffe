"""The page's server: routes, what a request may do, and the stream of changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

import msgspec
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from streamad.errors import StreamadError, UsageError
from streamad.judge.envelope import Clock
from streamad.language import LANGUAGES, asking, catalogued, gettext
from streamad.pictures.drawing import has_plots
from streamad.web.access import Level, Person
from streamad.web.acting import Acting
from streamad.web.charts.zoom import Span, part_of
from streamad.web.http.changes import Listening
from streamad.web.http.forms import fields_of
from streamad.web.http.guard import LOGIN, Guard
from streamad.web.http.login import Login
from streamad.web.http.spoken import Spoken
from streamad.web.pages.compare import compare
from streamad.web.pages.decisions import decisions
from streamad.web.pages.layout import Frame, page, sentence_page
from streamad.web.pages.now import HEIGHT, alerts, now
from streamad.web.pages.running import running
from streamad.web.pages.sequence import csv, png, sequence
from streamad.web.pages.stream import stream, streams
from streamad.web.pages.trust import calibration
from streamad.web.pages.versions.models import models
from streamad.web.pages.warned import warning, warnings
from streamad.web.shared import Shared
from streamad.web.site import Site
from streamad.web.store.view import Place
from streamad.web.store.view_file import ViewError
from streamad.web.store.wanted import Wanted

_STATIC: Final = {
    "streamad.css": "text/css; charset=utf-8",
    "streamad.js": "text/javascript; charset=utf-8",
    "times.js": "text/javascript; charset=utf-8",
    "curves.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_CLOCKS: Final[dict[str, Clock]] = {"own": "own", "aligned": "aligned"}
_NO_ROUTE: Final = "Not Found"
_NO_STREAM: Final = catalogued("No sequence of such a stream was judged, and none runs.")
_NO_VERDICT: Final = catalogued(
    "No verdict with this id was read: it may lie before what the outputs keep, or be of another plant."
)
_PACKED = 4  # of nine: a fifth of the time of the last one, for 6 % more bytes


def application(site: Site, lifespan: Callable[..., Any]) -> Starlette:
    """Return the ASGI 3 application of the page."""
    handlers = _Handlers(site)
    routes = [
        Route("/", handlers.now),
        Route("/s/{id}", handlers.sequence),
        Route("/s/{id}/mark", handlers.mark, methods=["POST"]),
        Route("/alerts", handlers.alerts),
        Route("/warnings", handlers.warnings),
        Route("/streams", handlers.streams),
        Route("/stream", handlers.stream),
        Route("/running", handlers.running),
        Route("/compare", handlers.compare),
        Route("/calibration", handlers.calibration),
        Route("/models", handlers.models),
        Route("/models/act", handlers.act, methods=["POST"]),
        Route("/decisions", handlers.decisions),
        Route("/changes", handlers.changes),
        Route("/static/{name}", handlers.static),
        Route("/health", handlers.health),
        Route("/readyz", handlers.health),
        Route("/livez", handlers.alive),
    ]
    if site.access.door is not None:
        login = Login(site.access, site.access.door)
        routes += [
            Route(LOGIN, login.answer, methods=["GET", "POST"]),
            Route("/logout", login.leave, methods=["POST"]),
        ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Spoken, settings=site.plant.settings),
            Middleware(Guard, access=site.access),
            Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=_PACKED),
        ],
        exception_handlers={HTTPException: handlers.refused, StreamadError: handlers.failed},
        lifespan=lifespan,
    )


def _clock(request: Request) -> Clock | None:
    """Return the clock of the normal band that the address names, None if it names none."""
    return _CLOCKS.get(request.query_params.get("clock", ""))


def _place(request: Request) -> Place | None:
    """Return behind which place in a list the address asks to go on (``before``, in us since 1970, and ``id``)."""
    given = request.query_params.get("before", "")
    if not (given.isascii() and given.isdecimal() and len(given) < 18):
        return None
    return Place(int(given), request.query_params.get("id") or None)


class _Handlers:
    """What each route answers. Everything that reads the view or a file runs in a thread."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._acting = Acting(site.plant, site.view)
        self._drawing = asyncio.Lock()  # one picture at a time: each takes a second of a core, and memory
        self._problem = Shared(site.view.problem, lambda: site.view.damage)  # strangers may ask as often as they like
        self._now = {
            (language, order): Shared(partial(self._made_now, order), lambda: site.changes.state)
            for language in LANGUAGES
            for order in ("", HEIGHT)
        }

    async def refused(self, request: Request, error: Exception) -> Response:
        """Say on a page with its navigation why there is no answer."""
        assert isinstance(error, HTTPException)
        title, why = gettext("Refused"), error.detail
        if error.status_code == 404:
            title = gettext("Not found")
            why = gettext("There is no page at this address.") if why == _NO_ROUTE else why
        if error.status_code == 405:
            why = gettext("This address does not answer to %(method)s.", method=request.method)
        return HTMLResponse(sentence_page(self._frame_of(request), title, why), error.status_code, error.headers)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Say what failed; without navigation if it is the view, which every page needs."""
        if isinstance(error, ViewError):
            why = gettext("It is begun anew from what the outputs keep: load this page again in a moment.")
            said = f"{error}. {why}" if error.is_damaged else f"{error}."
            return HTMLResponse(sentence_page(None, gettext("The view cannot be read"), said), 503)
        return HTMLResponse(sentence_page(self._frame_of(request), gettext("This failed"), str(error)), 500)

    def _frame_of(self, request: Request) -> Frame | None:
        """Return the frame, None without a view, or if nobody is known to ask (the form to log in, static files)."""
        if "person" in request.scope:
            with suppress(ViewError):
                return self._frame(request)
        return None

    def _missing(self, request: Request, why: str) -> Response:
        return HTMLResponse(sentence_page(self._frame(request), gettext("Not found"), why), 404)

    def _is_stream(self, name: str) -> bool:
        """Return whether something was judged in the stream, or runs in it."""
        workers = self._site.workers
        return (
            bool(self._site.view.of_stream(name, 1))
            or workers.running(name) is not None
            or any(one.stream == name for one in workers.open())
        )

    def _frame(self, request: Request) -> Frame:
        person: Person = request.scope["person"]
        return Frame(self._site.plant.settings.name, person, self._site.view.mark)

    async def _page(
        self, request: Request, title: str, place: str, made: Callable[..., Markup], *given: Any
    ) -> Response:
        frame = self._frame(request)
        content = await run_in_threadpool(made, self._site, *given)
        return HTMLResponse(page(frame, title, place, content))

    async def now(self, request: Request) -> Response:
        order = HEIGHT if request.query_params.get("order", "") == HEIGHT else ""
        change, content = await self._now[asking().language, order].get()
        frame = replace(self._frame(request), change=change)
        return HTMLResponse(page(frame, gettext("Now"), "/", content))

    def _made_now(self, order: str) -> tuple[str, Markup]:
        """Return how far the view was read, and the content of Now, the same for all who read a language."""
        change = self._site.view.mark
        return change, now(self._site, order)

    async def alerts(self, request: Request) -> Response:
        given = dict(request.query_params)
        wanted: Wanted | str
        try:
            wanted = Wanted.of(given, self._site.zone)
        except UsageError as error:
            wanted = str(error)
        me = request.scope["person"].name
        answer = await self._page(request, gettext("Alerts"), "/", alerts, given, wanted, _place(request), me)
        answer.status_code = 422 if isinstance(wanted, str) else 200
        return answer

    async def warnings(self, request: Request) -> Response:
        return await self._page(request, gettext("Warnings"), "/", warnings, _place(request))

    async def streams(self, request: Request) -> Response:
        return await self._page(request, gettext("Streams"), "/streams", streams)

    async def stream(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        if not await run_in_threadpool(self._is_stream, name):
            return self._missing(request, gettext(_NO_STREAM))
        span = Span.of(request.query_params)
        return await self._page(request, name, "/streams", stream, name, _place(request), span)

    async def running(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        if not await run_in_threadpool(self._is_stream, name):
            return self._missing(request, gettext(_NO_STREAM))
        return await self._page(request, name, "/", running, name)

    async def compare(self, request: Request) -> Response:
        ids = request.query_params.getlist("id")
        golden, wanted = request.query_params.getlist("golden"), request.query_params.get("q", "")
        return await self._page(request, gettext("Compare"), "/compare", compare, ids, golden, wanted)

    async def calibration(self, request: Request) -> Response:
        return await self._page(request, gettext("Calibration"), "/calibration", calibration)

    async def models(self, request: Request) -> Response:
        said, model = (request.query_params.get(name, "") for name in ("said", "model"))
        person = request.scope["person"]
        return await self._page(request, gettext("Models"), "/models", models, person, said, model)

    async def decisions(self, request: Request) -> Response:
        kind, behind = request.query_params.get("kind", ""), _place(request)
        return await self._page(request, gettext("Decisions"), "/decisions", decisions, kind, behind)

    async def sequence(self, request: Request) -> Response:
        name: str = request.path_params["id"]
        stem, _, suffix = name.partition(".")
        if suffix:
            return await self._export(request, stem, suffix)
        one = await run_in_threadpool(self._site.view.sequence, stem)
        if one is None and (warned := await run_in_threadpool(self._site.view.warning, stem)) is not None:
            if warned.verdict is not None:
                return RedirectResponse(f"/s/{quote(warned.verdict)}", status_code=303)
            return await self._page(request, f"{warned.stream} {warned.sequence}", "/", warning, warned)
        if one is None:
            return self._missing(request, gettext(_NO_VERDICT))
        title = f"{one.stream} {one.sequence}"
        said = request.query_params.get("said", "")
        made = partial(
            sequence,
            level=request.scope["person"].level,
            said=said,
            clock=_clock(request),
            part=part_of(request.query_params),
        )
        return await self._page(request, title, "/", made, one)

    async def _export(self, request: Request, name: str, suffix: str) -> Response:
        one = await run_in_threadpool(self._site.view.sequence, name)
        if one is None or suffix not in {"json", "csv", "png"}:
            raise HTTPException(404, gettext("There is no such export."))
        as_file = {"content-disposition": f'attachment; filename="{one.id[:12]}.{suffix}"'}
        as_file["content-encoding"] = "identity"  # packing a large file would hold up everybody else
        if suffix == "csv":
            text = await run_in_threadpool(csv, self._site, one)
            if text is None:
                raise HTTPException(404, gettext("The judged window of this sequence was not kept."))
            return PlainTextResponse(text, media_type="text/csv", headers=as_file)
        if suffix == "png":
            if not has_plots():
                raise HTTPException(404, gettext("Pictures need matplotlib, of the extra plots."))
            async with self._drawing:
                picture = await run_in_threadpool(png, self._site, one, _clock(request))
            if picture is None:
                raise HTTPException(404, gettext("The judged window of this sequence was not kept."))
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
        clock = "" if (chosen := _clock(request)) is None else f"clock={chosen}&"
        try:
            await run_in_threadpool(self._acting.mark, person, name, form)
        except StreamadError as error:
            return self._not_done(
                request, gettext("Nothing was written"), error, f"/s/{quote(name)}?{clock}".rstrip("?&")
            )
        self._site.changes.wake()
        return RedirectResponse(f"/s/{quote(name)}?{clock}said=sent", status_code=303)

    async def act(self, request: Request) -> Response:
        """Promote, approve, decline, roll back or relearn, if a person has typed the name of what changes."""
        form = await self._form(request, Level.ENGINEER)
        try:
            acted = await run_in_threadpool(self._acting.act, request.scope["person"], form)
        except StreamadError as error:
            return self._not_done(request, gettext("Nothing was changed"), error, "/models")
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
        return await fields_of(request)

    async def changes(self, request: Request) -> Listening | Response:
        """Stream the numbers of changes (server-sent events); a page that reconnects names the last one it saw."""
        if request.method == "HEAD":  # the stream has no end
            return Response(media_type="text/event-stream")
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        is_page = "text/event-stream" in request.headers.get("accept", "")
        access, person = self._site.access, request.scope["person"]
        may_go_on = partial(access.is_still, person, request.cookies.get(access.cookie_name))
        return Listening(self._site.changes, after, may_go_on, is_page=is_page)

    async def static(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404, gettext("There is no such file."))
        content = (files("streamad.web") / "static" / name).read_bytes()
        return Response(content, media_type=_STATIC[name], headers={"cache-control": "max-age=60"})

    async def alive(self, request: Request) -> Response:
        """Return 200: the event loop turns, whatever the page can show."""
        return PlainTextResponse("alive\n")

    async def health(self, request: Request) -> Response:
        """Return 200 as long as the page can show its view, else 503; what it cannot read is in the body."""
        troubles = dict(self._site.troubles())
        problem = await self._problem.get()
        if problem is not None:
            troubles["view"] = problem
        said = {"status": "ok" if problem is None else "failing", "troubles": troubles}
        return Response(json.dumps(said), 200 if problem is None else 503, media_type="application/json")
