"""Notices by apprise: mail, Teams, Slack and a hundred other services (https://github.com/caronc/apprise)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from streamad.errors import ConfigError, Problem
from streamad.notify.notices import Notice
from streamad.notify.sending import NotDelivered
from streamad.safe_text import described, one_line, visible_name
from streamad.system.threads import LoneThread, in_thread

_TOTAL_S = 90.0
_SHOWN = 200


class AppriseSender:
    """Sends notices to one apprise URL, in a thread of its own. Raises ConfigError; needs apprise."""

    takes_pictures = True

    def __init__(self, url: str) -> None:
        _quiet_logs()
        import apprise  # noqa: PLC0415 - an extra, and large

        self._apprise = apprise.Apprise(asset=apprise.AppriseAsset(app_id="streamad", app_desc="streamad", app_url=""))
        if not self._apprise.add(url.strip()) or len(self._apprise) != 1:
            raise ConfigError([Problem("apprise", "it holds no address that apprise knows, such as mailtos://...")])
        service = next(iter(self._apprise))
        self.place = f"{service.service_name} by apprise"
        self._secrets = [part for part in (url.strip(), service.password, service.user) if part]
        self._thread = LoneThread(f"notify-{self.place}")
        self._under_way: asyncio.Future[Any] | None = None

    async def send(self, notice: Notice) -> str:
        """Send ``notice``; return what came of it. Raises NotDelivered."""
        if self._under_way is not None and not self._under_way.done():
            raise NotDelivered(f"{self.place}: the try before has not ended yet")
        self._under_way = asyncio.ensure_future(in_thread(self._thread, self._notify, notice))
        try:
            async with asyncio.timeout(_TOTAL_S):
                why = await asyncio.shield(self._under_way)
        except TimeoutError:
            raise NotDelivered(f"{self.place} has not ended within {_TOTAL_S:g} s") from None
        if why is not None:
            raise NotDelivered(f"{self.place}: {why}")
        return "accepted"

    async def close(self) -> None:
        """End the thread after what it does; safe to call twice."""
        self._thread.shutdown(cancel_futures=True)

    def _notify(self, notice: Notice) -> str | None:
        """Send ``notice``; return why it was not taken."""
        import apprise  # noqa: PLC0415
        from apprise.attachment.memory import AttachMemory  # noqa: PLC0415

        attached = None
        if notice.picture is not None:
            name = f"{notice.id[:8]}.png"
            memory: Any = AttachMemory
            attached = apprise.AppriseAttachment(memory(content=notice.picture, name=name, mimetype="image/png"))
        try:
            result = self._apprise.notify(
                title=notice.title(), body=notice.text(), body_format=apprise.NotifyFormat.TEXT, attach=attached
            )
        except Exception as error:  # noqa: BLE001 - of a hundred services each may raise anything
            return self._shown(described(error))
        if result:
            return None
        logs = [entry.message for each in getattr(result, "results", ()) for entry in each.logs()]
        return self._shown("; ".join(logs[:3]) or "it was not accepted")

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return visible_name(one_line(text))[:_SHOWN]


def _quiet_logs() -> None:
    """Keep apprise from printing by itself: what it says is part of what came back."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
