"""The command killed again and again while a folder of joined files grows: the short form of benchmarks/faults.py."""

from __future__ import annotations

import argparse
import sys

import pytest

from benchmarks import faults_learning, faults_on_files, faults_operating
from benchmarks.faults import WRONG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")


@pytest.mark.parametrize(
    "beside",
    ["nothing", "metrics and notices", "a learner", "values that hold", "lists", "values that hold, lists and states"],
)
def test_killed_while_its_files_grow_nothing_is_lost_or_repeated(beside: str) -> None:
    operate, learn = beside == "metrics and notices", beside == "a learner"
    options = argparse.Namespace(kills=5, seed=3, detector="mean_square", limit_s=240.0, operate=operate, learn=learn)
    words = ("hold", "lists", "states", "warnings")
    options.hold, options.each, options.states, options.early = (word in beside for word in words)
    figures = faults_on_files.run(options, {"detector": "mean_square"})
    assert figures["kills"] == 5
    assert figures["sequences"] > 500
    assert {name: figures[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert figures["attributions"] > 50
    if operate:
        assert {name: figures[name] for name in faults_operating.WRONG} == dict.fromkeys(faults_operating.WRONG, 0)
        assert figures["notices"] > 50
        assert figures["kills_of_notify"] > 0
        assert figures["scrapes_answered"] > 0
    if learn:
        assert {name: figures[name] for name in faults_learning.WRONG} == dict.fromkeys(faults_learning.WRONG, 0)
        assert figures["windows_stored"] > 500
        assert figures["kills_of_learn"] > 0
