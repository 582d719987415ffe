"""The committed results are those of the settings that the methods have today."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from benchmarks.paper.methods import make, shortened
from benchmarks.paper.protocols import FIGURES, variants_of
from benchmarks.paper.report.markdown import NOT_RUN
from benchmarks.paper.report.report import DOCUMENT, TEMPLATE, build, without_missing_pictures
from benchmarks.paper.report.summary import entries
from benchmarks.paper.results_table import Result, read_results
from benchmarks.paper.todo import has_setting, read_current

VARIANTS = {block.dataset: variants_of(block) for block in FIGURES["ablation"]}
KIND = tuple[str, str]
BEFORE = {"patience": None}
"""The former behaviour of trainings under options that they got later, if it is not today's default."""


@pytest.fixture(scope="module")
def results() -> dict[KIND, list[Result]]:
    """All of them, by method and data set."""
    found: dict[KIND, list[Result]] = {}
    for one in read_results():
        found.setdefault((one.method, one.dataset), []).append(one)
    return found


def differences(one: Result, settings: dict[str, Any], defaults: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return name -> (measured, wanted) of differing settings; ``defaults`` of younger options."""
    measured = msgspec.structs.replace(one, options=defaults | one.options)
    return {
        name: (measured.options[name], value)
        for name, value in settings.items()
        if not has_setting(measured, name, value)
    }


def test_every_stored_cell_has_its_method_s_settings_of_today(results: dict[KIND, list[Result]]) -> None:
    assert sum(map(len, results.values())) > 1000
    stale = {}
    for (method, dataset), cells in results.items():
        options = make(method, dataset).options  # type: ignore[attr-defined]
        settings = options.model_dump(mode="json")
        defaults = {
            name: field.get_default(call_default_factory=True) for name, field in type(options).model_fields.items()
        }
        defaults |= BEFORE
        for one in cells:
            of_variant = VARIANTS[dataset][one.variant] if one.variant else {}
            wanted = settings | shortened(one.cell) | of_variant
            if changed := differences(one, wanted, defaults):
                stale[str(one.cell)] = changed
    assert not stale, "measure them again: run --redo"


def test_the_committed_page_is_the_one_that_current_cells_give() -> None:
    stored, n_outdated = read_current()
    page = build(TEMPLATE.read_text(encoding="utf-8"), stored, entries(stored))
    committed = DOCUMENT.read_text(encoding="utf-8")
    assert without_missing_pictures(page, DOCUMENT.parent) == committed, "build it again: benchmarks.paper report"
    assert NOT_RUN not in committed, "a sentence names a cell that was not run"
    assert n_outdated == 0, "measure them again: run"
