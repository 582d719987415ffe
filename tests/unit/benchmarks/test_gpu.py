"""The benchmark of the GPU, tried on the CPU, and the page that shows its committed figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.speed.gpu import forms_of, fused, random_walks, rates, table, untrained

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_all_forms_are_the_same_function(tmp_path: Path) -> None:
    fitted = untrained()
    fitted.export(tmp_path)
    forms = forms_of("neutral_ad", fitted, tmp_path, "cpu")
    values = random_walks(3).values
    expected = forms["cpu_1"](values)
    for form, score in forms.items():
        tolerance = 1e-2 if form == "bfloat16" else 1e-5
        np.testing.assert_allclose(score(values), expected, rtol=0, atol=tolerance, err_msg=form)
    assert not np.array_equal(forms["bfloat16"](values), expected)
    assert set(rates({"cuda": forms["cpu_1"]}, (1,), 1, 0.0)["1"]) == {"cuda"}


def test_what_the_optimiser_needs_too_long_for_is_said_not_awaited(tmp_path: Path) -> None:
    untrained().export(tmp_path)
    assert fused(tmp_path, "cpu", 0.01) == {"calls_s": [], "ended": False}


def test_the_page_shows_the_committed_figures() -> None:
    result = json.loads((ROOT / "benchmarks" / "speed" / "gpu.json").read_text())
    page = (ROOT / "docs" / "internals" / "gpu.md").read_text().splitlines()
    rows = [line for line in page if line.startswith("| `")]
    assert rows
    assert set(rows) <= set(table(result))
    trained = result["training_windows_per_s"]["neutral_ad"]
    for n, row in trained.items():
        assert f"| {int(n):,} | {row['cuda']:,.0f} | {row['cpu_1']:,.0f} | {row['cpu']:,.0f} |" in page
