"""The command killed again and again while a folder of joined files grows: the short form of benchmarks/faults.py."""

from __future__ import annotations

import argparse
import sys

import pytest

from benchmarks import faults_on_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")


def test_killed_while_its_files_grow_nothing_is_lost_or_repeated() -> None:
    options = argparse.Namespace(kills=5, seed=3, detector="mean_square", limit_s=240.0)
    figures = faults_on_files.run(options, {"detector": "mean_square"})
    assert figures["kills"] == 5
    assert figures["sequences"] > 500
    assert {name: figures[name] for name in ("lost", "repeated", "foreign", "disordered")} == {
        "lost": 0,
        "repeated": 0,
        "foreign": 0,
        "disordered": 0,
    }
