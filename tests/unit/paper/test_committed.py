"""The committed results are those of the settings that the methods have today."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.paper.cells import Result, read_results
from benchmarks.paper.current import read_current
from benchmarks.paper.methods import make, shortened
from benchmarks.paper.report import DOCUMENT, TEMPLATE, build, without_missing_pictures
from benchmarks.paper.summary import entries

RESOLVED = ("auto", "quarter")
VARIED = {"transformation", "n_transformations"}
KIND = tuple[str, str]


@pytest.fixture(scope="module")
def results() -> dict[KIND, list[Result]]:
    """All of them, by method and data set."""
    found: dict[KIND, list[Result]] = {}
    for one in read_results():
        found.setdefault((one.method, one.dataset), []).append(one)
    return found


def differences(one: Result, settings: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what was measured with other settings than ``settings``, but for what the training itself resolves.

    An option that is younger than the result, and at its default, is none; nor is a batch cut to what trains.
    """
    chosen = {name: value for name, value in settings.items() if value not in RESOLVED}
    if one.variant:
        chosen = {name: value for name, value in chosen.items() if name not in VARIED}
    if one.options.get("batch_size") == one.n_train:
        chosen.pop("batch_size", None)
    return {name: (one.options[name], value) for name, value in chosen.items() if one.options.get(name, value) != value}


def test_every_stored_cell_has_its_method_s_settings_of_today(results: dict[KIND, list[Result]]) -> None:
    assert sum(map(len, results.values())) > 1000
    stale = {}
    for (method, dataset), cells in results.items():
        settings = make(method, dataset).options.model_dump(mode="json")  # type: ignore[attr-defined]
        for one in cells:
            if changed := differences(one, settings | shortened(method, dataset, one.protocol)):
                stale[str(one.cell)] = changed
    assert not stale, "measure them again: run --redo"


def test_the_committed_page_is_the_one_that_its_cells_give() -> None:
    stored = read_current()[0]
    page = build(TEMPLATE.read_text(encoding="utf-8"), stored, entries(stored))
    committed = DOCUMENT.read_text(encoding="utf-8")
    assert without_missing_pictures(page, DOCUMENT.parent) == committed, "build it again: benchmarks.paper report"


def test_every_stored_cell_is_of_its_method_s_revision_of_today() -> None:
    assert read_current()[1] == 0, "measure them again: run"
