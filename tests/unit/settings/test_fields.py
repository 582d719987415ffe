"""Durations and sizes: exact, in every spelling, and nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from streamad.settings.fields import Duration, Size, parse_duration_us, parse_size_bytes

INT64_MAX = 2**63 - 1
DURATIONS_US = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}
SIZES_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        ("250ms", 250_000),
        ("30s", 30_000_000),
        ("10m", 600_000_000),
        ("24h", 86_400_000_000),
        ("7d", 604_800_000_000),
        ("5us", 5),
        ("5µs", 5),
        ("5μs", 5),
        (" 1.5 s ", 1_500_000),
        ("30S", 30_000_000),
        ("1.000001", 1_000_001),
        (0, 0),
        (2, 2_000_000),
        (0.1, 100_000),
        (1e-05, 10),
        ("1e3s", 1_000_000_000),
    ],
)
def test_durations(text: object, expected_us: int) -> None:
    assert parse_duration_us(text) == expected_us


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [
        ("500KB", 500_000),
        ("64mb", 64_000_000),
        ("1GiB", 2**30),
        ("1.5 kib", 1536),
        (65_536, 65_536),
        ("7", 7),
        ("7B", 7),
    ],
)
def test_sizes(text: object, expected_bytes: int) -> None:
    assert parse_size_bytes(text) == expected_bytes


@given(st.integers(0, 2**53), st.sampled_from(sorted(DURATIONS_US)))
def test_whole_durations_are_exact(count: int, unit: str) -> None:
    expected = count * DURATIONS_US[unit]
    if expected <= INT64_MAX:
        assert parse_duration_us(f"{count}{unit}") == expected
    else:
        with pytest.raises(ValueError, match="too large for a duration"):
            parse_duration_us(f"{count}{unit}")


@given(st.integers(0, 2**63 - 1))
def test_microseconds_survive_any_spelling(duration_us: int) -> None:
    seconds = f"{duration_us // 10**6}.{duration_us % 10**6:06d}"
    assert parse_duration_us(f"{duration_us}us") == duration_us
    assert parse_duration_us(f"{seconds}s") == duration_us
    assert parse_duration_us(seconds) == duration_us


@given(st.integers(0, 2**63 - 1))
def test_a_duration_written_as_json_is_read_back(duration_us: int) -> None:
    adapter: TypeAdapter[int] = TypeAdapter(Duration)
    assert adapter.validate_json(adapter.dump_json(duration_us)) == duration_us
    assert adapter.dump_python(duration_us) == duration_us


@given(st.integers(0, 10**9), st.sampled_from(sorted(SIZES_BYTES)))
def test_sizes_are_exact_in_any_case(count: int, unit: str) -> None:
    expected = count * SIZES_BYTES[unit]
    assert {parse_size_bytes(f"{count}{spelt}") for spelt in (unit, unit.lower(), unit.upper())} == {expected}


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "s",
        "10 parsecs",
        "-5s",
        "5 s s",
        "1,5s",
        "inf",
        "nan",
        "0x10",
        "1_000",
        "½s",
        "10y",
        True,
        None,
        [1],
        {},
        b"1s",
        float("nan"),
        float("inf"),
        -1,
        -0.5,
    ],
)
def test_what_is_no_duration(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a duration: write for example 250ms, 30s, 10m or 24h"):
        parse_duration_us(wrong)


@pytest.mark.parametrize("wrong", ["", "64 Bananas", "5s", "-1", "1e", True, None, float("inf")])
def test_what_is_no_size(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a size: write for example 500KB, 64MB or 1GiB"):
        parse_size_bytes(wrong)


@pytest.mark.parametrize("vast", [10**400, "1" * 400, "1e99s", "9223372036854775808us", 1e300])
def test_what_no_int64_holds_is_an_error_and_no_crash(vast: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_us(vast)


@given(st.text(max_size=12) | st.integers() | st.floats() | st.booleans() | st.none())
def test_any_value_is_a_quantity_or_a_value_error(value: object) -> None:
    for parse in (parse_duration_us, parse_size_bytes):
        with contextlib.suppress(ValueError):
            assert 0 <= parse(value) <= INT64_MAX


def test_the_types_are_used_by_pydantic() -> None:
    assert TypeAdapter(Duration).validate_python("10m") == 600_000_000
    assert TypeAdapter(Size).validate_python("1KiB") == 1024
    with pytest.raises(ValidationError, match="is not a size"):
        TypeAdapter(Size).validate_python("much")
