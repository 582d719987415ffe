"""The stream of changes: it wakes the open pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from streamad.web.store.view import View
from streamad.web.workers import Workers

_ALIVE_S = 15.0
_FULL_RETRY_MS = 5_000


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

    async def stream(self, after: str, may_go_on: Callable[[], bool] = lambda: True) -> AsyncIterator[str]:
        """Yield server-sent events: the view's mark as id and data whenever it is another than ``after``.

        Events ``status`` bear the number of the workers' state: at the begin, and when it changes. The stream ends once
        ``may_go_on`` returns False, which is asked every 15 s at least.
        """
        told = -1
        yield "retry: 1000\n\n"
        while not self.is_closing and may_go_on():
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


class Listening:
    """The response to a page that listens: a place for it is taken and given back around all that is sent."""

    def __init__(self, changes: Changes, after: str, may_go_on: Callable[[], bool], *, is_page: bool) -> None:
        self._changes, self._after, self._is_page = changes, after, is_page
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or why there is no place."""
        with self._changes.place() as is_free:
            await self._response(is_free=is_free)(scope, receive, send)

    def _response(self, *, is_free: bool) -> Response:
        headers = {"x-accel-buffering": "no", "content-encoding": "identity"}
        if is_free:
            content = self._changes.stream(self._after, self._may_go_on)
            return StreamingResponse(content, media_type="text/event-stream", headers=headers)
        said = self._changes.full
        if self._is_page:  # a page cannot read the body of a refusal, and would not ask again
            text = f"retry: {_FULL_RETRY_MS}\nevent: full\ndata: {said}\n\n"
            return Response(text, media_type="text/event-stream", headers=headers)
        return PlainTextResponse(f"{said}: close one, or try later", 503)
