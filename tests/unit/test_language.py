"""Who reads a text: in which language, with which decimal sign, and in which zone of time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from streamad.judge.verdicts import p_text, phrase, place, span_text
from streamad.language import (
    Asking,
    Words,
    asked_by,
    asking,
    catalogued,
    moment,
    ngettext,
    percent,
    percents,
    preferred,
)
from streamad.language import gettext as said
from streamad.pictures.ticks import labels_of

GERMAN = Asking("de", ZoneInfo("Europe/Berlin"))
AT = datetime(2026, 7, 1, 22, 30, 5, 123_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("en-US,en;q=0.9,de;q=0.8", "en"),
        ("fr, de;q=0.3, en;q=0.2", "de"),
        ("fr", "en"),
        ("DE;q=0.5 , en;q=0.5", "de"),
        ("de;q=0, en", "en"),
        ("de;q=0", "en"),
        ("de;q=x", "en"),
        (";;,=,*", "en"),
    ],
)
def test_the_language_is_the_one_that_the_browser_wants_most(header: str, language: str) -> None:
    assert preferred(header) == language


def test_shares_and_numbers_have_the_sign_of_the_language_and_never_break() -> None:
    assert percent(0.841) == "84\u00a0%"
    assert percent(0.025, None) == "2.5\u00a0%"
    assert percents(0.006, 0.085, 1) == "0.6\u00a0% to 8.5\u00a0%"
    assert place(0.148, 0.152) == "at 15\u00a0%", "never from 15 % to 15 %"
    assert span_text(22_200) == "6\u00a0h\u00a010\u00a0min"
    with asked_by(GERMAN):
        assert percents(0.006, 0.085, 1) == "0,6\u00a0% bis 8,5\u00a0%"
        assert (p_text(0.0123), labels_of([0.0, 0.5])) == ("0,0123", ["0,0", "0,5"])
        assert phrase("temp", "K", 3.14, "above", 0.62, 0.8) == (
            "temp 3,1 K über dem Normalband von 62\u00a0% bis 80\u00a0%"
        )


def test_a_time_is_that_of_the_zone_with_its_name() -> None:
    assert moment(AT) == "2026-07-01 22:30:05 UTC"
    with asked_by(GERMAN):
        assert moment(AT, "fine") == "2026-07-02 00:30:05.123 CEST"
        assert moment(AT, "date", is_zoned=False) == "2026-07-02"
        assert moment(datetime.max.replace(tzinfo=UTC)) == "9999-12-31 23:59:59 UTC"


def test_words_are_looked_up_when_they_are_read() -> None:
    words = Words({"normal": catalogued("normal"), "alert": catalogued("alert")})
    assert (words["alert"], words.get("other"), len(words)) == ("alert", None, 2)
    with asked_by(GERMAN):
        assert dict(words) == {"normal": "normal", "alert": "Alarm"}
        assert ngettext("%(num)s alert", "%(num)s alerts", 1) == "1 Alarm"
        assert said("by %(name)s", name="100 %") == "von 100 %"
        assert said("nobody has translated this") == "nobody has translated this"


async def test_a_thread_makes_texts_for_who_started_it() -> None:
    async def read(reader: Asking) -> str:
        with asked_by(reader):
            return await asyncio.to_thread(lambda: f"{said('alert')} {asking().language}")

    assert await asyncio.gather(read(GERMAN), read(Asking())) == ["Alarm de", "alert en"]
    assert asking() == Asking()
