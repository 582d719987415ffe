"""Pictures are drawn of whatever a plant sends, without a warning, without settings of others, and fit their page."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import image

from streamad.judge.envelope import Envelope
from streamad.pictures.content import Courses, Picture, picture_of
from streamad.pictures.drawing import drawn
from streamad.types import ChannelSpec
from tests.support.pictures import attribution_of, calibration_of, facts_of, segment_of, window_of
from tests.support.waiting import LIMIT_S

NAMES = ["temp", "flow", "ph"]
SVG = "{http://www.w3.org/2000/svg}"


def picture(names: list[str] = NAMES, n: int = 20, span_s: float = 60.0, **changes: Any) -> Picture:
    courses, envelope = window_of(names, n, n + 5)
    shares = dict.fromkeys(names, 0.0) | {names[0]: 0.9, names[-1]: 0.1}
    attribution = attribution_of(shares, segment_of(names[0], 0.5, 0.75), segment_of(names[-1], 0.2, 0.2))
    return picture_of(
        facts_of(span_s, n, **changes),
        courses,
        attribution=attribution,
        envelope=envelope,
        calibration=calibration_of(),
    )


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(image.imread(BytesIO(content), format="png"))[:, :, :3]


def words_of(content: bytes) -> str:
    """The text of a picture, as its SVG's comments have it."""
    return content.decode()


def test_colour_stands_only_where_something_is_abnormal() -> None:
    normal = picture(decision="normal")
    quiet = pixels(
        drawn(replace(normal, attribution=None, panels=tuple(replace(p, segments=()) for p in normal.panels)))
    )
    loud = pixels(drawn(picture()))
    assert np.ptp(quiet[: len(quiet) // 2], axis=2).max() == 0  # grey: the strip of scores lies in the other half
    assert np.ptp(loud, axis=2).max() > 0.5


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", "$x^2$ \\frac{", "\x1b[31mred\x07", "a\u202eb", "温度", "W" * 400, "", "é\n\tx", "$"],
)
def test_any_name_is_drawn_as_it_is(name: str) -> None:
    for kind in ("png", "svg"):
        content = drawn(picture([name, "flow", f"{name}2"], stream=name, sequence=name), kind)  # type: ignore[arg-type]
        assert len(content) > 10_000
    root = ET.fromstring(drawn(picture([name, "flow"], stream=name), "svg"))
    assert not list(root.iter(f"{SVG}script"))
    assert not [each for each in root.iter() if any("href" in key and "#" not in value for key, value in each.items())]


def test_no_letter_leaves_the_page() -> None:
    long = "W" * 400
    shown = pixels(drawn(picture([long, "flow", f"{long}2"], stream=long, sequence=long)))
    assert (shown[:, -8:] == 1).all()
    assert (shown[:, :3] == 1).all()


@pytest.mark.parametrize(("n", "span_s"), [(1, 0.0), (2, 1e-6), (3, 0.0), (3, 2.0), (200, 3e7)])
def test_sequences_of_any_length_are_drawn(n: int, span_s: float) -> None:
    assert pixels(drawn(picture(n=n, span_s=span_s))).std() > 0.01


@pytest.mark.parametrize("value", [0.0, 5.0, -3e-9, 3e38, 1e-40])
def test_channels_that_stand_still_are_drawn(value: float) -> None:
    values = np.full((20, 2, 10), value, np.float32)
    envelope = Envelope.of(values, np.full(20, 10))
    courses = Courses((ChannelSpec("a"), ChannelSpec("b")), values[0], 10)
    flat = picture_of(facts_of(), courses, envelope=envelope, calibration=calibration_of())
    assert pixels(drawn(flat)).std() > 0.01


@pytest.mark.parametrize("score", [-5.0, 0.0, 1e-12, 3.0, 1e12])
@pytest.mark.parametrize("n", [1, 2, 5000])
def test_scores_of_any_size_have_a_strip(score: float, n: int) -> None:
    shown = picture_of(facts_of(score=score), window_of(NAMES, 5)[0], calibration=calibration_of(n))
    assert shown.scores is not None
    assert len(drawn(shown)) > len(drawn(replace(shown, scores=None)))


def test_an_untitled_picture_is_lower() -> None:
    assert len(pixels(drawn(picture(), is_titled=False))) < len(pixels(drawn(picture())))


def test_pictures_change_no_setting_of_matplotlib() -> None:
    before = dict(mpl.rcParams)
    drawn(picture())
    assert dict(mpl.rcParams) == before


def test_pictures_open_no_window_and_keep_no_figure() -> None:
    code = (
        "import sys; from tests.unit.pictures.test_drawing import drawn, picture; drawn(picture());"
        "print('matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_same_picture_gives_the_same_png() -> None:
    assert drawn(picture()) == drawn(picture())
