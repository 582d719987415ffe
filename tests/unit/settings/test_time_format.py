"""Dates of a format: every token, the same dates as the library's strptime, and what is no date of the format."""

# ruff: noqa: DTZ001, DTZ007 - dates without a zone are what is tested

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamad.settings.decode import DecodeSettings, FieldSettings
from streamad.settings.time_format import TimeFormat

MORNING = datetime(2026, 3, 23, 6, 0, 0)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("%d.%m.%Y %H:%M:%S", "23.03.2026 06:00:00", MORNING),
        ("%d.%m.%Y %H:%M:%S", "23.3.2026  6:00:00", MORNING),
        ("%d.%m.%Y %H:%M", "23.03.2026 06:00", MORNING),
        ("%d.%m.%y %H:%M", "23.03.26 06:00", MORNING),
        ("%d.%m.%y", "23.03.69", datetime(1969, 3, 23)),
        ("%d.%m.%Y", "23.03.2026", datetime(2026, 3, 23)),
        ("%m/%d/%Y %I:%M:%S %p", "03/23/2026 06:00:00 AM", MORNING),
        ("%m/%d/%Y %I:%M:%S %p", "03/23/2026 12:00:00 a.m.", datetime(2026, 3, 23)),
        ("%m/%d/%Y %I:%M:%S %p", "03/23/2026 12:00:00 pm", datetime(2026, 3, 23, 12)),
        ("%m/%d/%Y %I:%M:%S %p", "03/23/2026 01:30:00 PM", datetime(2026, 3, 23, 13, 30)),
        ("%Y%m%d%H%M%S", "20260323060000", MORNING),
        ("%Y-%m-%d %H:%M:%S,%f", "2026-03-23 06:00:00,125", MORNING + timedelta(milliseconds=125)),
        ("%Y-%m-%d %H:%M:%S.%f", "2026-03-23 06:00:00.1234565", MORNING + timedelta(microseconds=123457)),
        ("%Y-%m-%d %H:%M:%S.%f", "2026-03-23 06:00:00", MORNING),
        ("%Y-%m-%d %H:%M:%S.%f", "2026-03-23 06:00:00.999999999", MORNING + timedelta(seconds=1)),
        ("%d-%b-%Y %H:%M:%S", "23-MAR-2026 06:00:00", MORNING),
        ("%d. %B %Y %H:%M", "23. März 2026 06:00", MORNING),
        ("%d-%b-%y %H.%M.%S", "23-Mrz-26 06.00.00", MORNING),
        ("%b %d, %Y %T", "Mar 23, 2026 06:00:00", MORNING),
        ("%FT%T%z", "2026-03-23T06:00:00Z", MORNING.replace(tzinfo=UTC)),
        ("%F %T %z", "2026-03-23 06:00:00 -0530", MORNING.replace(tzinfo=timezone(-timedelta(hours=5, minutes=30)))),
        ("%F %T %z", "2026-03-23 06:00:00 +01:00", MORNING.replace(tzinfo=timezone(timedelta(hours=1)))),
        ("%Y-%j %H:%M", "2026-082 06:00", MORNING),
        ("%d.%m.%Y %H:%M:%S", "22.03.2026 24:00:00", datetime(2026, 3, 23)),
        ("%a, %d %b %Y %H:%M:%S %Z", "Mon, 23 Mar 2026 06:00:00 GMT", MORNING.replace(tzinfo=UTC)),
        ("%a, %d %b %Y %H:%M:%S %z", "Mon, 23 Mar 2026 06:00:00 +0000", MORNING.replace(tzinfo=UTC)),
        ("%A %F %T %Z", "Monday 2026-03-23 06:00:00 UTC", MORNING.replace(tzinfo=UTC)),
        ("%a %d.%m.%Y %T", "Mo. 23.03.2026 06:00:00", MORNING),
        ("Zeit: %d.%m.%Y 100%%", "Zeit: 23.03.2026 100%", datetime(2026, 3, 23)),
    ],
)  # fmt: skip
def test_dates_of_a_format(form: str, text: str, expected: datetime) -> None:
    assert TimeFormat(form).read(text) == expected


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%d.%m.%Y %H:%M:%S", "03/23/2026 06:00:00"),
        ("%d.%m.%Y %H:%M:%S", "23.13.2026 06:00:00"),
        ("%d.%m.%Y %H:%M:%S", "30.02.2026 06:00:00"),
        ("%d.%m.%Y %H:%M:%S", "23.03.2026 25:00:00"),
        ("%d.%m.%Y %H:%M:%S", "23.03.2026 24:00:01"),
        ("%d.%m.%Y %H:%M:%S", "23.03.2026 06:00:00 Uhr"),
        ("%d.%m.%Y", "00.03.2026"),
        ("%d.%m.%Y", "23.03.0000"),
        ("%d.%m.%Y", "\uff12\uff13.03.2026"),  # digits of other scripts
        ("%d.%m.%Y %I:%M %p", "23.03.2026 13:00 PM"),
        ("%d.%m.%Y %I:%M %p", "23.03.2026 00:00 AM"),
        ("%Y%m%d%H%M%S", "2026323060000"),  # which digits belong to the month?
        ("%d-%b-%Y", "23-Foo-2026"),
        ("%Y-%j", "2026-366"),
        ("%Y-%j", "2026-000"),
        ("%d.%m.%Y %H:%M:%S", "31.12.9999 24:00:00"),
        ("%d.%m.%Y", ""),
        ("%a, %d %b %Y", "Tue, 23 Mar 2026"),  # it was a Monday
        ("%a, %d %b %Y", "Foo, 23 Mar 2026"),
        ("%F %T %Z", "2026-03-23 06:00:00 CET"),
    ],
)
def test_texts_that_are_no_date_of_the_format(form: str, text: str) -> None:
    assert TimeFormat(form).read(text) is None


tokens = st.sampled_from(
    ["%a %d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%Y%m%d%H%M%S", "%y-%m-%d %H.%M.%S", "%Y-%j %H:%M:%S"]
)


@given(form=tokens, time=st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)))
def test_the_same_dates_as_strptime(form: str, time: datetime) -> None:
    text = time.strftime(form)
    assert TimeFormat(form).read(text) == datetime.strptime(text, form) == time.replace(microsecond=0)


@given(form=tokens, text=st.text(max_size=30))
def test_any_text_is_a_date_or_none(form: str, text: str) -> None:
    found = TimeFormat(form).read(text)
    assert found is None or isinstance(found, datetime)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("%H:%M", "no whole date"),
        ("%d.%m %H:%M", "no whole date"),
        ("%d.%m.%Y %Q", "unknown token %Q; known are %Y %m %d"),
        ("%d.%m.%Y %", "unknown token %"),
        ("%d.%m.%Y %d", "%d stands there twice"),
        ("%d.%m.%Y %I:%M", "%I with %p"),
        ("%d.%m.%Y %H:%M %p", "%I with %p"),
        ("DD.MM.YYYY", "write strptime tokens such as %d.%m.%Y %H:%M:%S, or one of excel, unix_s"),
        ("%F %T %z %Z", "an offset is %z, or %Z for the words"),
        ("Excel", "or one of excel"),
        ("%d.%m.%Y %H:%M", "set decode.timezone"),
        ("excel", "set decode.timezone"),
    ],
)
def test_bad_formats_are_refused_with_their_remedy(form: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DecodeSettings(time_format=form)
    assert message in str(caught.value)


def test_formats_that_contradict_other_keys_are_refused() -> None:
    for more in ({"time": "relative"}, {"fields": FieldSettings(time="record")}):
        with pytest.raises(ValidationError, match="leave it out"):
            DecodeSettings(time_format="unix_ms", **more)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="leave one of them out"):
        DecodeSettings(time_format="unix_ms", time_unit="ms")


def test_formats_with_an_offset_need_no_zone() -> None:
    for form in ("%d.%m.%Y %H:%M %z", "%F %T %Z", "unix_ms", "dotnet_ticks", "filetime", "garmin_fit"):
        assert DecodeSettings(time_format=form).timezone is None
