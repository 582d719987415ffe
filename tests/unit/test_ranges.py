"""--since and --until: their meaning, errors, and effect on a source."""

from __future__ import annotations

import re

import pytest

from streamad.errors import UsageError
from streamad.ranges import EVERYTHING, Span, parse_time_us, span_of
from streamad.runtime.recordings import Share, cut
from streamad.testing import ListSource
from streamad.types import RecordBatch

NOW_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("2026-01-01T00:00:00Z", NOW_US),
        ("2026-01-01t00:00:00z", NOW_US),
        ("2026-01-01 01:30:00+01:30", NOW_US),
        ("2025-12-31T23:59:59.999999-00:00", NOW_US - 1),
        ("2026-01-02", NOW_US + 24 * HOUR_US),
        ("2h", NOW_US - 2 * HOUR_US),
        (" 30 m ", NOW_US - HOUR_US // 2),
        ("1.5d", NOW_US - 36 * HOUR_US),
        ("0s", NOW_US),
        ("1969-12-31", 0),
        ("99999d", 0),
    ],
)
def test_a_time(text: str, time_us: int) -> None:
    assert parse_time_us(text, NOW_US, "--since") == time_us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026",
        "2026-13-01",
        "2026-01-01T25:00:00Z",
        "1767225600",
        "2x",
        "-2h",
        "h",
        "1.2.3h",
        "1e400d",
        "9999-12-31T23:59:59-12:00",
    ],
)
def test_a_wrong_time_is_an_error_with_the_right_form(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--since {text}: is no time; write a time such as")):
        parse_time_us(text, NOW_US, "--since")


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(UsageError, match="--until 2026-01-01T00:00:00: has no time zone; add Z for UTC"):
        parse_time_us("2026-01-01T00:00:00", NOW_US, "--until")


def test_a_span_must_not_be_empty() -> None:
    assert span_of(None, None, NOW_US) == EVERYTHING
    assert span_of("2h", None, NOW_US) == Span(NOW_US - 2 * HOUR_US, None)
    assert span_of("2h", "1h", NOW_US) == Span(NOW_US - 2 * HOUR_US, NOW_US - HOUR_US)
    for since, until in [("1h", "1h"), ("1h", "2h")]:
        with pytest.raises(UsageError, match="--since 1h does not lie before"):
            span_of(since, until, NOW_US)


class Ranged(ListSource):
    def between(self, since_us: int | None, until_us: int | None) -> ListSource:
        return ListSource([ValueError((since_us, until_us))])


async def test_a_source_with_ranges_is_always_read_as_one() -> None:
    for span in (EVERYTHING, Span(1, 2)):
        with pytest.raises(ValueError, match=re.escape(repr(tuple(span)))):
            await anext(cut(Ranged([]), span, "x").batches())


def test_one_without_is_read_whole_or_not_at_all() -> None:
    source = ListSource([])
    assert cut(source, EVERYTHING, "x") is source
    with pytest.raises(UsageError, match="x has no record times to cut by"):
        cut(source, Span(1, None), "x")


def test_the_share_goes_by_offsets() -> None:
    share = Share()
    share.add(RecordBatch("q", (), 5), 0)
    assert share.value is None
    share.add(RecordBatch("p", (), 120, end_offset=200), 100)
    assert share.value == 0.2
    share.add(RecordBatch("q", (), 50, end_offset=100), 0)
    assert share.value == pytest.approx(0.35)
    share.add(RecordBatch("p", (), 201, end_offset=200), 100)
    share.add(RecordBatch("q", (), 100, end_offset=100), 0)
    assert share.value == 1.0
