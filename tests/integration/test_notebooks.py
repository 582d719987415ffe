"""The notebooks run, and what they show holds: their own assertions say so."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.proof import proved_in_fork

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples" / "notebooks").glob("*.py"))


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("streamad.notebook.fitting.proved_in_new_process", proved_in_fork)
    assert "assert" in notebook.read_text(encoding="utf-8")
    runpy.run_path(str(notebook), run_name="__main__")
