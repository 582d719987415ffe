"""Writes the CycloneDX SBOMs of the two images from their locks: ``python scripts/sbom.py [FOLDER]`` (build/sbom).

Each names every package of its lock with its hashes, the image's also torch, which the Dockerfile pins; each is
valid by the schema of CycloneDX 1.6, and the same for the same locks.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ("image", "scorer")
_TORCH = re.compile(r"^ARG TORCH_VERSION=(\S+)$", re.MULTILINE)


def packages(image: str) -> str:
    """Return what an image holds, as pip's requirements."""
    lock = (ROOT / "deploy" / f"{image}.lock").read_text("utf-8")
    torch = _TORCH.search((ROOT / "deploy" / "Dockerfile").read_text("utf-8"))
    return f"{lock}\ntorch=={torch[1]}\n" if torch and image == "image" else lock


def sbom(image: str) -> dict[str, Any]:
    """Return the SBOM of an image."""
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "-", "--pyproject", str(ROOT / "pyproject.toml")]
    options = ["--output-reproducible", "--of", "JSON", "--spec-version", "1.6", "--no-validate"]
    done = subprocess.run([*command, *options], input=packages(image), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    made: dict[str, Any] = json.loads(done.stdout)
    for component in made["components"]:
        del component["description"]  # the line of the lock
    for tool in made["metadata"]["tools"]["components"]:
        del tool["externalReferences"]  # the schema's check of an address takes 40 ms
    root = next(each for each in made["dependencies"] if each["ref"] == made["metadata"]["component"]["bom-ref"])
    direct = _direct(image)
    root["dependsOn"] = sorted(
        each["bom-ref"] for each in made["components"] if canonicalize_name(each["name"]) in direct
    )
    return made


def _direct(image: str) -> set[str]:
    command = [sys.executable, str(ROOT / "deploy" / "requirements.py"), image]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    torch = ["torch"] * (image == "image")
    return {canonicalize_name(Requirement(line).name) for line in [*printed.splitlines(), *torch]}


def main(folder: Path) -> int:
    """Write both and return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    for image in IMAGES:
        made = sbom(image)
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        if (error := validator.validate_str(text)) is not None:
            sys.stdout.write(f"{image}: {error}\n")
            return 1
        path = folder / f"streamad-{image}.cdx.json"
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}: {len(made['components'])} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "sbom"))
