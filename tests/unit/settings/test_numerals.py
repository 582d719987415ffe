"""Numbers in text: what the marks allow is the number that was written, all else is none, never another number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import ConfigError
from streamad.plant import Plant
from streamad.runtime.wiring import reading_from, source_for
from streamad.settings.numerals import Numerals
from streamad.testing import ManualClock
from tests.support.runtime.pipeline import START_US, settings_of

MARKS = [(decimal, thousands) for decimal in ".," for thousands in (None, ",", ".", "'", " ") if decimal != thousands]
marks = st.sampled_from(MARKS)


def plant_of(**sections: Any) -> Plant:
    return Plant(settings_of(**sections), Path(), ManualClock(START_US))


def read(text: str, decimal: str, thousands: str | None) -> float | None:
    try:
        return Numerals(decimal, thousands).number(text)  # type: ignore[arg-type]
    except ValueError:
        return None


def written(whole: int, fraction: str, decimal: str, thousands: str | None) -> str:
    text = f"{whole:,}".replace(",", thousands) if thousands else str(whole)
    return f"{text}{decimal}{fraction}" if fraction else text


@given(
    st.integers(-(10**12), 10**12), st.from_regex(r"\A[0-9]{0,6}\Z"), st.sampled_from(["", "e3", "E-2", "e+05"]), marks
)
def test_what_is_written_with_the_marks_is_read_back(
    whole: int, fraction: str, exponent: str, chosen: tuple[str, str | None]
) -> None:
    expected = float(f"{whole}.{fraction or 0}{exponent}")
    for thousands in {None, chosen[1]}:  # numbers without groups are read, too
        assert read(written(whole, fraction, chosen[0], thousands) + exponent, *chosen) == expected


@given(st.text("0019,.' \u00a0-+e", max_size=14), marks)
def test_a_text_that_contradicts_the_marks_is_no_number(text: str, chosen: tuple[str, str | None]) -> None:
    decimal, thousands = chosen
    found = read(text, decimal, thousands)
    if found is None:
        return
    mantissa = text.strip().lower().partition("e")[0].lstrip("+-")
    whole, _, fraction = mantissa.partition(decimal)
    assert fraction.isdecimal() or (not fraction and whole)
    groups = whole.replace("\u00a0", " ").split(thousands) if thousands else [whole]
    assert all(group.isdecimal() for group in groups) or (groups == [""] and fraction)
    if len(groups) > 1:
        assert 1 <= len(groups[0]) <= 3
        assert groups[0][0] != "0"
        assert len(groups[-1]) == 3
        assert {len(group) for group in groups[1:-1]} in ([set(), {3}] if thousands != "," else [set(), {3}, {2}])
    usual = f"{''.join(groups)}.{fraction}" + text.strip().lower()[len(text.strip().partition("e")[0]) :]
    assert found == float(text.strip()[0] * (text.strip()[0] in "+-") + usual)


@pytest.mark.parametrize(
    ("text", "decimal", "thousands", "number"),
    [
        ("1,001", ".", None, None),
        ("1,001", ".", ",", 1001.0),
        ("1.780", ",", None, None),
        ("1.780", ",", ".", 1780.0),
        ("1,78", ",", ".", 1.78),
        ("1,00", ".", ",", None),
        ("0,123", ".", ",", None),
        ("1,2345", ".", ",", None),
        ("1,234567.8", ".", ",", None),
        ("1,23,456.78", ".", ",", 123456.78),
        ("-12,34,56,789", ".", ",", -123456789.0),
        ("123,45,678", ".", ",", None),
        ("1,23,45", ".", ",", None),
        ("1,23,456,789", ".", ",", None),
        ("1.23.456", ",", ".", None),
        ("1,234,567.8", ".", ",", 1234567.8),
        ("-1,234.5e3", ".", ",", -1234500.0),
        ("1234.5", ".", ",", 1234.5),
        ("1'234.5", ".", "'", 1234.5),
        ("1\u2019234.5", ".", "'", 1234.5),
        ("1\u202f234,5", ",", " ", 1234.5),
        (" 1\u00a0234,5 ", ",", " ", 1234.5),
        ("1  234", ".", " ", None),
        ("1.234,567", ",", ".", 1234.567),
        ("1,234.567", ",", ".", None),
        ("\u0661", ",", None, None),
        ("inf", ",", ".", float("inf")),
        ("Bad", ",", ".", None),
    ],
)
def test_numbers_by_their_marks(text: str, decimal: str, thousands: str | None, number: float | None) -> None:
    assert read(text, decimal, thousands) == number


# --- which marks hold -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decode", "source", "found"),
    [
        ({}, {"url": "x.csv"}, (".", None)),
        ({"decimal": ",", "thousands": "."}, {"url": "x.csv"}, (",", ".")),
        ({}, {"url": "x.csv", "options": {"decimal": ","}}, (",", None)),
        ({"thousands": "."}, {"url": "x.csv?decimal=,"}, (",", ".")),
        ({"decimal": ","}, {"url": "x.csv?decimal=,"}, (",", None)),
    ],
)
def test_the_decimal_mark_is_the_configs_or_the_sources(
    decode: dict[str, Any], source: dict[str, Any], found: tuple[str, str | None]
) -> None:
    plant = plant_of(decode=decode, source=source)
    assert (plant.settings.decode.decimal, plant.settings.decode.thousands) == found
    assert (plant.context.decimal, plant.context.thousands) == found


@pytest.mark.parametrize(
    ("decode", "source", "text"),
    [
        ({"thousands": "."}, {"url": "x.csv"}, "both '.': write for example decimal: ','"),
        ({"thousands": ","}, {"url": "x.csv?decimal=,"}, "both ',': write for example decimal: '.'"),
        (
            {"decimal": "."},
            {"url": "x.csv?decimal=,"},
            "decode.decimal is '.', but x.csv?decimal=, has the option decimal ','",
        ),
    ],
)
def test_marks_that_contradict_each_other_are_refused(
    decode: dict[str, Any], source: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match="decimal") as caught:
        settings_of(decode=decode, source=source)
    assert text in str(caught.value)


def test_another_source_cannot_have_another_decimal_mark() -> None:
    plant = plant_of(source={"url": "x.csv"})
    with pytest.raises(ConfigError, match=r"write decode\.decimal: ','"):
        source_for(plant, "y.csv?decimal=,")
    with pytest.raises(ConfigError, match=r"write decode\.decimal: ','"):
        reading_from(plant, "y.csv?decimal=,")
