"""Who reads an answer: the language of the browser or of the plant, and the plant's zone of time."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from streamad.language import Asking, asked_by, preferred
from streamad.settings.plant_yaml import Settings


class Spoken:
    """Makes each answer for its reader. Threads that an answer is made in get a copy of its context."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._language = app, settings.web.language
        zone = settings.decode.timezone
        self._zone = None if zone is None else ZoneInfo(zone)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the application's answer."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        wanted = preferred(Headers(scope=scope).get("accept-language", ""))
        language = wanted if self._language == "auto" else self._language
        with asked_by(Asking(language, self._zone)):
            await self._app(scope, receive, send)
