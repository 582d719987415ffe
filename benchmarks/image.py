"""Builds an image of deploy/Dockerfile without an engine: the steps of its build stage, in a temporary folder.

    python benchmarks/image.py scorer-build
    python benchmarks/image.py build --torch-index INDEX     # where PyTorch's cannot be reached: one that has torch

COPY copies from the checkout, RUN runs in a shell with the stage's variables. The Python must be the image's (3.11).
At the end the installed command says its version.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@dataclass
class Stage:
    """A stage of a Dockerfile: its instructions with their texts."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def of(self, instruction: str) -> list[str]:
        """Return the texts of one instruction."""
        return [text for known, text in self.steps if known == instruction]


def stages_of(dockerfile: str) -> list[Stage]:
    """Return the stages, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE)
    found: list[Stage] = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip():
            continue
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base.strip(), name.strip()))
        else:
            found[-1].steps.append((instruction, rest.strip()))
    return found


def build(stage: Stage, folder: Path, arguments: dict[str, str]) -> None:
    """Take the steps of ``stage`` below ``folder``."""
    here, venv = folder / "build", folder / "opt" / "streamad"
    here.mkdir(parents=True)
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
    for instruction, text in stage.steps:
        local = text.replace("/opt/streamad", str(venv))
        if instruction == "ARG":
            name, _, value = text.partition("=")
            variables[name] = arguments.get(name, value)
        elif instruction == "ENV":
            for pair in shlex.split(local):
                name, _, value = pair.partition("=")
                variables[name] = value.replace("$PATH", variables["PATH"])
        elif instruction == "COPY":
            _copy(shlex.split(text), here)
        elif instruction == "RUN":
            print("RUN", local, flush=True)
            begun = time.monotonic()
            subprocess.run(["sh", "-euc", local], cwd=here, env=variables, check=True)
            print(f"    {time.monotonic() - begun:.0f} s", flush=True)
    subprocess.run([venv / "bin" / "streamad", "--version"], cwd=folder, check=True)
    size = sum(path.lstat().st_size for path in venv.rglob("*"))
    print(f"{stage.name}: {size / 1e6:,.0f} MB")


def _copy(paths: list[str], here: Path) -> None:
    *sources, target = paths
    for source in sources:
        path, place = ROOT / source, here / target
        if path.is_dir():
            shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(path, place)


def main() -> None:
    """Build the stage that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["build", "scorer-build"])
    parser.add_argument("--torch-index", help="an index in the place of PyTorch's; its folders of variants are ignored")
    given = parser.parse_args()
    arguments = {} if given.torch_index is None else {"TORCH_INDEX": given.torch_index, "TORCH_VARIANT": ""}
    (stage,) = [each for each in stages_of(DOCKERFILE.read_text(encoding="utf-8")) if each.name == given.stage]
    with tempfile.TemporaryDirectory() as folder:
        build(stage, Path(folder), arguments)


if __name__ == "__main__":
    main()
