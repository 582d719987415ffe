"""The page Compare: every channel that a chosen sequence draws, and which sequences are offered."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.messages import ChannelShare, Window, packed_values
from streamad.pictures.content import Courses
from streamad.types import ChannelSpec
from streamad.web.pages.compare import distance, golden_course, mean_text
from tests.support.web.messages import messages_of, verdict
from tests.support.web.page import PageUnderTest

NAMES = [f"c{number}" for number in range(10)]
PLANT = {"channels": [{"name": name} for name in NAMES]}


def window_of(i: int, values: np.ndarray, names: list[str]) -> Window:
    window = next(each for each in messages_of(i) if isinstance(each, Window))
    packed = packed_values(values.astype(np.float32))
    given: dict[str, Any] = {"channels": names, "units": [""] * len(names), "length": values.shape[1], "values": packed}
    return msgspec.structs.replace(window, **given)


def alert(i: int, leading: str) -> list[Any]:
    """Return an alert whose shares are in one channel; its page draws that one and two more."""
    judged, raised, attribution, *_ = messages_of(i)
    shares = [ChannelShare(channel=name, unit="", share=float(name == leading)) for name in NAMES]
    window = window_of(i, np.random.default_rng(i).normal(size=(len(NAMES), 8)), NAMES)
    return [judged, raised, msgspec.structs.replace(attribution, channels=shares), window]  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("course", "text"),
    [([10.0, 250.0], "130 ± 120"), ([0.1, 0.3], "0.2 ± 0.1"), ([-1234.0, 1234.0], "0 ± 1200"), ([1, np.nan], "-")],
)
def test_a_spread_has_two_digits_and_no_exponent(course: list[float], text: str) -> None:
    assert mean_text(np.array(course)) == text


def drawn(text: str) -> set[str]:
    return set(re.findall(r"<title>(c\d) of", text))


def query(*numbers: int) -> str:
    return "/compare?" + "&".join(f"id={number:032x}" for number in numbers)


def test_the_channels_are_those_of_all_chosen_sequences(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, [*alert(1, "c8"), *alert(2, "c9")], **PLANT).browser()
    first, second = (drawn(client.get(query(number)).text) for number in (1, 2))
    assert ("c9" in first, "c8" in second) == (False, False)
    assert drawn(client.get(query(1, 2)).text) == first | second
    assert "c9 of 2 sequences" in client.get(query(1, 2)).text


BOX = re.compile(r'<input type="checkbox" name="(id|golden)" value="(\w+)"[^>]*?( checked)?>')


def boxes(text: str, name: str, *, ticked: bool = False) -> list[int]:
    """Return the numbers of the sequences that have a check box, or a ticked one."""
    return [int(each[1], 16) for each in BOX.findall(text) if each[0] == name and (each[2] or not ticked)]


def test_it_is_in_the_menu_and_offers_alerts_and_normal_ones_to_begin_with(tmp_path: Path) -> None:
    given = [*messages_of(1), *normal(4, [0, 1, 2]), verdict(7)]
    client = PageUnderTest(tmp_path, given).browser()
    assert '<a href="/compare">Compare</a>' in client.get("/").text
    text = client.get("/compare").text
    assert '<a href="/compare" aria-current="page">Compare</a>' in text
    assert boxes(text, "id") == [4, 1]  # of the third no window is kept
    assert boxes(text, "golden") == [4]
    assert boxes(text, "id", ticked=True) == []


def normal(i: int, course: list[float]) -> list[Any]:
    return [verdict(i), msgspec.structs.replace(window_of(i, np.array([course]), ["temp_c"]), alerted=False)]


def test_the_chosen_ones_come_first_and_are_ticked_then_the_nearest_normal_one(tmp_path: Path) -> None:
    given = [*messages_of(1), *normal(4, [0, 1, 9]), *normal(7, [0, 1, 2.1]), *normal(10, [5, 5, 5])]
    client = PageUnderTest(tmp_path, given).browser()
    text = client.get(query(1)).text
    assert boxes(text, "id") == [1, 7, 10, 4]
    assert boxes(text, "id", ticked=True) == [1]
    assert text.count("the nearest normal one") == 1
    assert boxes(client.get(query(1, 7)).text, "id", ticked=True) == [1, 7]


def test_a_normal_sequence_of_another_stream_is_the_nearest_if_its_own_has_none(tmp_path: Path) -> None:
    text = PageUnderTest(tmp_path, [*messages_of(1), *normal(2, [0, 1, 2])]).browser().get(query(1)).text
    assert boxes(text, "id") == [1, 2]
    assert "the nearest normal one" in text


def test_without_a_normal_sequence_none_is_the_nearest(tmp_path: Path) -> None:
    text = PageUnderTest(tmp_path, [*messages_of(1), *messages_of(4)]).browser().get(query(1)).text
    assert "the nearest normal one" not in text


def test_the_search_finds_streams_and_sequences_and_keeps_what_is_chosen(tmp_path: Path) -> None:
    given = [*messages_of(1), *normal(4, [0, 1, 2]), *normal(5, [0, 1, 2])]
    client = PageUnderTest(tmp_path, given).browser()
    assert boxes(client.get("/compare?q=b-4").text, "id") == [4]
    assert boxes(client.get("/compare?q=REACTOR-2").text, "id") == [5]
    assert boxes(client.get(query(1) + "&q=b-4").text, "id") == [1, 4]
    assert "No sequence with a window is called so." in client.get("/compare?q=%3Cscript%3E").text


def test_golden_sequences_are_a_range_over_which_the_chosen_one_is_drawn(tmp_path: Path) -> None:
    given = [*messages_of(1), *normal(4, [0, 1, 2]), *normal(7, [2, 3, 6])]
    client = PageUnderTest(tmp_path, given).browser()
    golden = f"&golden={4:032x}&golden={7:032x}"
    text = client.get(query(1) + golden).text
    assert boxes(text, "golden", ticked=True) == [4, 7]
    assert text.count('<polygon class="golden"') == 1
    assert 'class="golden"' not in client.get(query(1)).text
    (nearest,) = re.findall(r'<a href="([^"]*)">golden: the 2 nearest normal sequences</a>', client.get(query(1)).text)
    assert boxes(client.get(nearest.replace("&amp;", "&")).text, "golden", ticked=True) == [4, 7]
    alert_as_golden = client.get(query(4) + f"&golden={1:032x}").text
    assert '<polygon class="golden"' not in alert_as_golden


def test_a_golden_sequence_without_a_window_is_said_to_have_none(tmp_path: Path) -> None:
    given = [*messages_of(1), *normal(4, [0, 1, 2]), *normal(7, [2, 3, 6])[:1]]
    keys = PageUnderTest(tmp_path, given).browser().get(query(1) + f"&golden={4:032x}&golden={7:032x}").text
    assert keys.partition("golden:")[2].partition("</li>")[0].count("(no window was kept)") == 1


def test_a_german_reader_compares_in_german(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, [*alert(1, "c8"), *alert(2, "c9")], **PLANT).browser()
    text = client.get(query(1, 2), headers={"accept-language": "de"}).text
    assert "c9 von 2 Sequenzen" in text
    assert not re.findall(r"\d\.\d+ ±", text)


def test_the_range_of_golden_sequences_is_from_the_lowest_to_the_highest_at_equal_shares() -> None:
    found = golden_course([courses([0, 2], [1, 1]), courses([4, 4, 4], [1, 1, 1])], "a", 3)
    assert found is not None
    assert [side.tolist() for side in (found.low, found.middle, found.high)] == [[0, 1, 2], [2, 2.5, 3], [4, 4, 4]]
    assert golden_course([courses([0, 2], [1, 1])], "z", 3) is None


def courses(*values: list[float], names: tuple[str, ...] = ("a", "b")) -> Courses:
    array = np.array(values, np.float32)
    return Courses(tuple(ChannelSpec(name) for name in names), array, array.shape[1])


def test_windows_of_other_length_are_compared_at_equal_shares() -> None:
    one = courses([0, 1, 2, 3], [1, 1, 1, 1])
    assert distance(one, courses([0, 1.5, 3], [1, 1, 1])) == pytest.approx(0, abs=1e-6)
    assert distance(one, courses([0, 1.5, 3], [2, 2, 2])) > 0
    assert distance(one, courses([0, 1, 2, 3], [1, 1, 1, 1], names=("a", "c"))) == float("inf")


def test_long_windows_make_no_heavy_page(tmp_path: Path) -> None:
    given: list[Any] = []
    for i in range(1, 9):
        judged, *_, window = messages_of(i)[:4]
        values = np.random.default_rng(i).normal(0, 1, (1, 50_000)).astype(np.float32)
        given += [judged, msgspec.structs.replace(window, length=50_000, values=packed_values(values))]
    ids = [f"{i:032x}" for i in range(1, 9)]
    page = PageUnderTest(tmp_path, given)
    answer = page.browser().get("/compare?" + "&".join([f"id={one}" for one in ids]))
    assert answer.text.count('class="overlay line') == 8
    assert len(gzip.compress(answer.content)) < 130_000
    judged, *_, window = given[0], given[1]
    page.view.put(
        [
            msgspec.structs.replace(judged, verdict_id="a" * 32, decision="normal"),
            msgspec.structs.replace(window, verdict_id="a" * 32),
        ]
    )
    answer = page.browser().get(f"/compare?id={ids[0]}&golden={'a' * 32}")
    assert 'class="golden"' in answer.text
    assert len(gzip.compress(answer.content)) < 60_000
