"""Prints what a lock of this folder is made from: ``python deploy/requirements.py image`` or ``scorer``.

    python deploy/requirements.py image > image.in
    pip-compile --generate-hashes --strip-extras --no-annotate --no-header --allow-unsafe --no-emit-index-url \
        --no-emit-find-links --output-file deploy/image.lock image.in      # with pip-tools and Python 3.11

An existing lock keeps its versions where they still fit; delete it to take the newest.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
EXTRAS = {
    "image": ("plots", "web", "notify", "parquet", "objects", "registry", "mqtt", "simdjson"),
    "scorer": ("objects", "registry", "simdjson"),
}
# The Dockerfile installs torch from PyTorch's index; what it needs of PyPI is in the lock.
TORCH_NEEDS = ("filelock", "fsspec>=0.8.5", "networkx>=2.5.1", "sympy>=1.13.3", "typing-extensions>=4.13")


def requirements(name: str) -> list[str]:
    """Return the project's dependencies without torch; the scorer has onnxruntime in its place."""
    content = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    project = content["project"]
    extras = project["optional-dependencies"]
    found = [each for each in project["dependencies"] if not each.startswith("torch")]
    found += [each for extra in EXTRAS[name] for each in extras[extra]]
    if name == "scorer":
        found += [each for each in extras["onnxruntime"] if each.startswith("onnxruntime")]
    else:
        found += TORCH_NEEDS
    return [*found, *content["build-system"]["requires"]]


if __name__ == "__main__":
    print(*requirements(sys.argv[1]), sep="\n")
