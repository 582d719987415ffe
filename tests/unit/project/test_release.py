"""What a release names is there, has the project's version, and is what others read it by."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.advisories import UNREACHABLE, audited, verdict
from scripts.sbom import IMAGES, packages, sbom

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


def test_version_and_licence_are_the_same_wherever_they_stand() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/streamad/Chart.yaml").read_text("utf-8"))
    assert {CITATION["version"], chart["version"], chart["appVersion"]} == {PROJECT["version"]}
    assert CITATION["license"] == PROJECT["license"]


def test_the_citation_has_what_the_format_requires() -> None:
    """Required by the schema of CFF 1.2.0; ``references`` likewise need authors, title and type."""
    assert CITATION["cff-version"] == "1.2.0"
    for entry in (CITATION, *CITATION["references"]):
        assert {"authors", "title", "type"} <= entry.keys()
        assert all(
            {"name"} <= author.keys() or {"family-names", "given-names"} <= author.keys() for author in entry["authors"]
        )
    assert CITATION["message"]


def test_the_sboms_name_every_locked_package_with_its_hashes_and_torch() -> None:
    for image in IMAGES:
        made: dict[str, Any] = sbom(image)
        lock = dict(re.findall(r"^([\w.-]+)==(\S+)", packages(image), re.MULTILINE))
        assert {each["name"]: each["version"] for each in made["components"]} == lock
        assert ("torch" in lock) == (image == "image")
        unhashed = [each["name"] for each in made["components"] if "SHA-256" not in str(each.get("externalReferences"))]
        assert unhashed == ["torch"] * (image == "image")
        (root,) = (each for each in made["dependencies"] if each["ref"] == "root-component")
        assert len(root["dependsOn"]) > 12


def test_a_package_that_was_not_looked_up_is_no_good_news() -> None:
    clean, skipped = {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}
    bad = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
    assert verdict([clean, clean]) == ("none known of 2 packages", 0)
    assert verdict([clean, skipped]) == ("not looked up: b", 1)
    assert verdict([clean, skipped, bad]) == ("1 known: c 2: PYSEC-1", 1)
    assert verdict([skipped])[1] == verdict([])[1] == UNREACHABLE


def test_what_cannot_be_audited_is_a_failure_and_no_silent_service(tmp_path: Path) -> None:
    """Without a hash pip-audit asks nobody. It takes 1 s of a core to start."""
    (tmp_path / "a.lock").write_text("typer==0.15.1\n")
    with pytest.raises(SystemExit, match="hash"):
        audited([tmp_path / "a.lock"])
