"""docs/guide/validate.md: its file of expectations is read, and its numbers are those that decide."""

from __future__ import annotations

import re
from pathlib import Path

from streamad.commands.validate.command import NOT_PASSED
from streamad.commands.validate.comparing import SCORES_AGREE
from streamad.validation.deciding import fewest
from streamad.validation.expectations import load_acceptance
from tests.support.data import ROOT

PAGE = ROOT / "docs" / "guide" / "validate.md"


def test_the_example_is_a_file_of_expectations(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "acceptance.yaml"
    path.write_text(example)
    found = load_acceptance(path)
    assert [each.what for each in found.expect] == ["false_alarms", "detection", "false_warnings", "warned"]


def test_the_numbers_of_the_page_decide() -> None:
    text = " ".join(PAGE.read_text().split())
    assert f"takes {fewest(0.01, at_most=True)} normal sequences" in text
    assert f"at least 80 %, {fewest(0.8, at_most=False)} faulty ones" in text
    assert f"scores to 1 part in {round(1 / SCORES_AGREE):,}" in text
    assert f"{NOT_PASSED}: not passed" in text
