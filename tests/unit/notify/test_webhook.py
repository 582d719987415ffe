"""Webhooks: signed, and delivered only by a whole answer of 2xx; nothing that a receiver does hurts."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from streamad.errors import ConfigError
from streamad.notify import webhook
from streamad.notify.notices import Item, Notice
from streamad.notify.sending import NotDelivered, ReceiverGone
from streamad.notify.webhook import WebhookSender
from tests.support.notify.hook import SECRET, Conduct, Hook, listening
from tests.support.notify.plant import id_of, message

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def notice(i: int = 1) -> Notice:
    item = Item(message("alert", i), message("attribution", i))  # type: ignore[arg-type]
    return Notice(id_of(i), "hall", "first", NOW, (item,), 1, 1, "https://page.example")


@pytest.fixture
def hook() -> Iterator[Hook]:
    with listening(Hook()) as served:
        yield served


async def sent(hook: Hook, conduct: Conduct = 204, secret: str = SECRET) -> str:
    hook.conduct = lambda *_: conduct
    sender = WebhookSender(hook.url, secret)
    try:
        return await sender.send(notice())
    finally:
        await sender.close()


async def test_a_notice_is_signed_and_its_id_is_that_of_the_alert(hook: Hook) -> None:
    assert await sent(hook) == "204 No Content"
    (got,) = hook.notices  # the library has verified the signature
    assert hook.tries == [id_of(1)]
    assert got["type"] == "streamad.alert"
    assert got["data"]["alert"]["alert_id"] == id_of(1)
    assert got["data"]["attribution"]["channels"][0]["channel"] == "temp_c"
    assert got["data"]["link"] == f"https://page.example/s/{id_of(1)}"
    assert got["data"]["headline"] == "streamad hall: reactor-1 B-1: because of temp_c 100\u00a0%"


@pytest.mark.parametrize("prefix", ["", "whsec_"])
async def test_both_forms_of_a_secret_are_the_same(prefix: str, hook: Hook) -> None:
    assert await sent(hook, secret=f"{prefix}{SECRET}\n") == "204 No Content"


@pytest.mark.parametrize(
    ("conduct", "said"),
    [
        (500, "answered 500 Internal Server Error: the answer 500"),
        (404, "answered 404 Not Found"),
        (799, "answered 799: the answer"),
        ("early", "RemoteProtocolError"),
        ("garbage", "RemoteProtocolError"),
        ((302, {"location": "http://other.example/x?token=t"}), "a redirect to other.example, which is not followed"),
        ((308, {"location": "/elsewhere"}), "a redirect to http://127.0.0.1:"),
        ((302, {"location": "http://[bad"}), "a redirect to http://127.0.0.1:"),
        (304, "answered 304"),
    ],
)
async def test_any_other_answer_is_none(conduct: Conduct, said: str, hook: Hook) -> None:
    with pytest.raises(NotDelivered) as error:
        await sent(hook, conduct)
    assert said in str(error.value)
    assert error.value.retry_after_s is None
    assert "/hook" not in str(error.value), "a path may be a secret"
    assert len(hook.tries) == 1, "nothing is followed"


async def test_a_wrong_secret_is_refused_by_the_receiver_and_shown_by_nobody(hook: Hook) -> None:
    wrong = base64.b64encode(b"another secret").decode()
    with pytest.raises(NotDelivered, match="answered 401 Unauthorized") as error:
        await sent(hook, secret=wrong)
    assert wrong not in str(error.value)
    assert hook.notices == []


async def test_a_receiver_that_stalls_is_given_up_in_bounded_time(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_STEP_S", 0.3)
    with pytest.raises(NotDelivered, match=r"has been silent for 0\.3 s"):
        await sent(hook, "stall")
    monkeypatch.setattr(webhook, "_STEP_S", 30.0)
    monkeypatch.setattr(webhook, "_TOTAL_S", 0.3)
    with pytest.raises(NotDelivered, match=r"has not answered within 0\.3 s"):
        await sent(hook, "stall")


async def test_an_endless_answer_is_read_to_a_bound(hook: Hook) -> None:
    started = time.monotonic()
    assert await sent(hook, "endless") == "200 OK"
    assert time.monotonic() - started < 10


async def test_nobody_there_is_a_failure_that_names_the_host_alone() -> None:
    sender = WebhookSender("http://127.0.0.1:9/a/path/token", SECRET)
    with pytest.raises(NotDelivered, match=r"^http://127\.0\.0\.1:9: ConnectError") as error:
        await sender.send(notice())
    assert "token" not in str(error.value)
    await sender.close()


async def test_410_ends_a_receiver(hook: Hook) -> None:
    with pytest.raises(ReceiverGone, match="answered 410 Gone: it wants no notices any more"):
        await sent(hook, 410)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("120", 120.0),
        ("soon", None),
        ("-5", None),
        ("9" * 500, 999_999_999_999.0),
        ("in 90 s", 90.0),
        ("Sun, 99 Nov 9999 99:99:99 GMT", None),
        ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
        ("Mon, 01 Jan 2001 00:00:00 +99999999999999", None),
        ("Mon, 01 Jan 2001 99999999999999999999:00:00 GMT", None),
    ],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(text: str, expected_s: float | None, hook: Hook) -> None:
    if text == "in 90 s":
        text = format_datetime(datetime.now(UTC) + timedelta(seconds=90))
    with pytest.raises(NotDelivered) as error:
        await sent(hook, (429, {"retry-after": text}))
    assert error.value.retry_after_s == (None if expected_s is None else pytest.approx(expected_s, abs=60))


@pytest.mark.parametrize("secret", ["", "   ", "ä", "abc§", "whsec_"])
def test_a_secret_that_is_none_is_said_without_it(secret: str) -> None:
    with pytest.raises(ConfigError, match="it is no base64 text: `openssl rand -base64 32 > FILE` makes one") as error:
        WebhookSender("https://a.example/", secret)
    assert not secret.strip() or secret not in str(error.value)


def test_certificates_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ConfigError, match=f"cannot read certificates from .*{name}") as error:
            WebhookSender("https://a.example/", SECRET, tmp_path / name)
        assert len(error.value.problems) == 1
