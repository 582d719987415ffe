"""The size of the product, as scripts/statements.py counts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scripts import SCRIPTS, script


@pytest.fixture(scope="module")
def printed() -> str:
    command = [sys.executable, str(SCRIPTS / "statements.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_it_counts_statements_whatever_their_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    size = script("statements").Size()
    for name, text in {"a": "if x:\n    y = 1; z = 2\n", "b": "# why\n\nif x:\n\n    y = 1\n    z = 2\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
        assert size.plus(tmp_path / f"{name}.py").n_statements == 3


def test_the_packages_of_a_distribution_are_its_whole(printed: str) -> None:
    rows = {
        " ".join(words[:-3]): int(words[-2].replace(",", "")) for words in map(str.split, printed.splitlines()[1:-1])
    }
    parts = [n for name, n in rows.items() if name.startswith("streamad.") or name == "streamad"]
    assert rows["streamad in all"] - sum(parts) <= 1  # the empty package streamad.learn has a docstring
    assert rows["streamad_models"] == rows["streamad_models in all"] > 1_000
    assert int(printed.splitlines()[-1].split()[0]) > 50
