"""The lock of a worker without torch holds what the project needs, pinned and hashed, and nothing of torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "deploy" / "scorer.lock"


@pytest.fixture(scope="module")
def locked() -> dict[str, str]:
    """Name and version of each package; each has hashes."""
    text = re.sub(r"^#.*\n", "", LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {}
    for entry in re.sub(r"\\\n", " ", text).strip().splitlines():
        name, _, rest = entry.partition("==")
        version, *hashes = rest.split()
        assert hashes, entry
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), entry
        found[canonicalize_name(name)] = version
    return found


def test_it_satisfies_what_the_project_needs_without_torch(locked: dict[str, str]) -> None:
    script = ROOT / "deploy" / "scorer_requirements.py"
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    wanted = [Requirement(line) for line in printed.splitlines()]
    assert len(wanted) > 12
    for each in wanted:
        assert each.specifier.contains(locked[canonicalize_name(each.name)]), each


def test_neither_torch_nor_what_only_training_needs_is_in_it(locked: dict[str, str]) -> None:
    assert "onnxruntime" in locked
    assert not {"torch", "triton", "onnx", "onnxscript", "pytest"} & set(locked)
    assert not [name for name in locked if name.startswith("nvidia")]


def test_it_names_no_place_to_fetch_from() -> None:
    assert not re.search(
        r"https?:|--(extra-)?index-url|--find-links|--trusted-host", LOCK.read_text().split("aiokafka")[1]
    )
