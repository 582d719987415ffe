"""The locks of the images hold what the project needs, pinned and hashed, and nothing of torch."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(params=["scorer", "image"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def lock_of(name: str) -> Path:
    return ROOT / "deploy" / f"{name}.lock"


def locked(name: str) -> dict[str, str]:
    """Return name and version of each package of a lock; each has hashes."""
    text = re.sub(r"^#.*\n", "", lock_of(name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {}
    for entry in re.sub(r"\\\n", " ", text).strip().splitlines():
        package, _, rest = entry.partition("==")
        version, *hashes = rest.split()
        assert hashes, entry
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), entry
        found[canonicalize_name(package)] = version
    return found


def test_it_satisfies_what_the_project_needs_without_torch(name: str) -> None:
    script = ROOT / "deploy" / "requirements.py"
    printed = subprocess.run([sys.executable, script, name], capture_output=True, text=True, check=True).stdout
    wanted = [Requirement(line) for line in printed.splitlines()]
    assert len(wanted) > 12
    found = locked(name)
    for each in wanted:
        assert each.specifier.contains(found[canonicalize_name(each.name)]), each


def test_torch_is_in_none_and_what_only_training_needs_is_not_in_the_scorers(name: str) -> None:
    found = locked(name)
    assert not {"torch", "triton", "pytest"} & set(found)
    assert not [package for package in found if package.startswith("nvidia")]
    assert ("onnxruntime" in found) == (name == "scorer")
    assert name == "image" or not {"onnx", "onnxscript", "sympy"} & set(found)


def test_the_image_has_what_torch_needs_of_pypi() -> None:
    found = locked("image")
    for each in map(Requirement, requires("torch") or []):
        if each.marker is None:
            assert each.specifier.contains(found[canonicalize_name(each.name)]), each


def test_it_names_no_place_to_fetch_from(name: str) -> None:
    content = lock_of(name).read_text().partition("aiokafka")[2]
    assert not re.search(r"https?:|--(extra-)?index-url|--find-links|--trusted-host", content)
