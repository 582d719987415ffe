"""The reserve is drawn by hashes of names: the configured share, the same everywhere and for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamad.judge.gate import is_reserved, reserve_half
from streamad.learn.store.records import Mark


@pytest.mark.parametrize("pattern", ["B-{}", "{:08d}", "2026-03-01T{}", "batch {} of 7"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_the_reserved_share_is_the_configured_one_whatever_the_names(pattern: str, share: float) -> None:
    n = 20_000
    reserved = [name for i in range(n) if is_reserved("reactor-1", name := pattern.format(i), share)]
    assert abs(len(reserved) / n - share) < 4 * (share * (1 - share) / n) ** 0.5
    calibration = sum(reserve_half("reactor-1", name) == "calibration" for name in reserved)
    assert abs(calibration / len(reserved) - 0.5) < 4 * 0.5 / len(reserved) ** 0.5


def test_a_larger_reserve_holds_the_smaller_one() -> None:
    assert all(is_reserved("r", name, 0.3) for name in map(str, range(200)) if is_reserved("r", name, 0.2))


def test_stream_and_sequence_cannot_be_confused() -> None:
    pairs = [(is_reserved("a", f"b{i}", 0.5), is_reserved("ab", str(i), 0.5)) for i in range(64)]
    assert any(first != second for first, second in pairs)


def test_another_process_draws_the_same_and_so_will_later_releases() -> None:
    code = "from streamad.judge.gate import *; print([is_reserved('r', str(i), .5) for i in range(8)])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str([is_reserved("r", str(i), 0.5) for i in range(8)])
    assert [is_reserved("r", str(i), 0.5) for i in range(8)] == [True, False, True, True, True, True, True, False]
    assert [reserve_half("r", str(i))[:3] for i in range(8)] == ["cal", "com", "cal", "cal", "cal", "com", "com", "cal"]


@pytest.mark.parametrize("odd", ["\x1b[8m", "\r", "\n", "\u202e", "\x9b8m", "\x08"])
def test_no_name_hides_that_it_is_a_claim(odd: str) -> None:
    author = Mark(id="a", judgement="veto", at_us=1, by=f"kim{odd}").author
    assert odd not in author
    assert author.startswith("kim")
    assert author.endswith(" (claimed)")
