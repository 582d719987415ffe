"""Prints what a worker without torch needs, from which deploy/scorer.lock is made: run it at the checkout's root."""

from __future__ import annotations

import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements() -> list[str]:
    """Return the project's dependencies without torch, and onnxruntime in its place."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    runtime = [each for each in project["optional-dependencies"]["onnxruntime"] if each.startswith("onnxruntime")]
    return [*(each for each in project["dependencies"] if not each.startswith("torch")), *runtime]


if __name__ == "__main__":
    print(*requirements(), sep="\n")
