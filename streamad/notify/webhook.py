"""Notices by HTTP: signed JSON as Standard Webhooks have it (https://www.standardwebhooks.com)."""

from __future__ import annotations

import asyncio
import binascii
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from streamad.errors import ConfigError, Problem
from streamad.notify.notices import Notice
from streamad.notify.sending import NotDelivered, ReceiverGone
from streamad.safe_text import one_line, text_of, visible_name

_STEP_S = 10.0
_TOTAL_S = 30.0
_MOST_ANSWER_BYTES = 65_536
_SHOWN = 120


class WebhookSender:
    """Posts notices to one address. Only a whole answer of 2xx says that a notice has arrived.

    An answer longer than 64 kB counts as whole. Redirects are not followed. Raises ConfigError.
    """

    takes_pictures = False

    def __init__(self, url: str, secret: str, ca_file: Path | None = None) -> None:
        address = urlsplit(url)
        self.place = f"{address.scheme}://{address.netloc}"
        self._url = url
        self._signature = _signature(secret)
        self._client = httpx2.AsyncClient(
            follow_redirects=False, timeout=_STEP_S, verify=True if ca_file is None else _trusting(ca_file)
        )

    async def send(self, notice: Notice) -> str:
        """Post ``notice``; return the answer in words. Raises NotDelivered, ReceiverGone for 410."""
        body, now = notice.body(), datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "streamad",
            "webhook-id": notice.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._signature.sign(notice.id, now, body.decode()),
        }
        try:
            async with asyncio.timeout(_TOTAL_S):
                async with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                    return self._judged(answer, await _beginning(answer))
        except TimeoutError:
            raise NotDelivered(f"{self.place} has not answered within {_TOTAL_S:g} s") from None
        except httpx2.TimeoutException:
            raise NotDelivered(f"{self.place} has been silent for {_STEP_S:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            why = one_line(text_of(error)).replace(self._url, self.place)[:_SHOWN]
            raise NotDelivered(f"{self.place}: {type(error).__name__}: {visible_name(why)}") from None
        finally:
            self._client.cookies.clear()

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        await self._client.aclose()

    def _judged(self, answer: httpx2.Response, content: bytes) -> str:
        said = f"{answer.status_code} {_phrase(answer.status_code)}".strip()
        if answer.status_code == HTTPStatus.GONE:
            raise ReceiverGone(f"{self.place} answered {said}: it wants no notices any more")
        if answer.is_success:
            return said
        if answer.has_redirect_location:
            host = visible_name(_host_of(answer.headers["location"]) or self.place)[:_SHOWN]
            raise NotDelivered(
                f"{self.place} answered {said}, a redirect to {host}, which is not followed: write the final address"
            )
        shown = visible_name(one_line(content[: 4 * _SHOWN].decode("utf-8", "replace")))[:_SHOWN]
        raise NotDelivered(f"{self.place} answered {said}" + (f": {shown}" if shown else ""), _retry_after_s(answer))


def _signature(secret: str) -> Webhook:
    try:
        if not secret.strip():
            raise ValueError
        return Webhook(secret.strip())
    except (ValueError, binascii.Error, EmptyWebhookSecretError):
        # Without its cause: a decoding error may hold the secret.
        remedy = "it is no base64 text: `openssl rand -base64 32 > FILE` makes one"
        raise ConfigError([Problem("secret", remedy)]) from None


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else one_line(str(error))
        raise ConfigError([Problem("ca_file", f"cannot read certificates from {ca_file} ({why})")]) from None


async def _beginning(answer: httpx2.Response) -> bytes:
    """Return the answer's content, cut at 64 kB, as it came: packed content is not unpacked."""
    content = bytearray()
    async for piece in answer.aiter_raw():
        content += piece
        if len(content) >= _MOST_ANSWER_BYTES:
            break
    return bytes(content[:_MOST_ANSWER_BYTES])


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _retry_after_s(answer: httpx2.Response) -> float | None:
    """Return the pause that the answer asks for: seconds, or a date (RFC 9110, section 10.2.3)."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        at = parsedate_to_datetime(text)
        return (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
