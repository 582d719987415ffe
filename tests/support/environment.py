"""The environment that ``scripts/demo`` makes, without an installation: links to what its extras need, nothing else."""

from __future__ import annotations

import re
import subprocess
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.scripts import SCRIPTS

_OURS = "streamad-monitor"
ROOT = SCRIPTS.parent


def demo_extras() -> str:
    """Return the extras that ``scripts/demo`` installs, as it names them."""
    (named,) = re.findall(r"^use_environment (\S+)$", (SCRIPTS / "demo").read_text(), re.MULTILINE)
    return str(named)


def make_demo_environment(folder: Path) -> None:
    """Make a virtual environment in ``folder`` that holds this checkout and what it needs with ``demo_extras``."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for found in _needed({_OURS: set(demo_extras().split(","))}):
        for name in {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not name.endswith(".pth") and not (site / name).is_symlink():  # several fill the folder nvidia
                (site / name).symlink_to(Path(str(found.locate_file(name))))
    paths = [ROOT, ROOT / "connectors", ROOT / "models"]
    (site / "streamad.pth").write_text("".join(f"{path}\n" for path in paths))
    program = folder / "bin" / "streamad"
    program.write_text(f"#!{folder}/bin/python\nfrom streamad.__main__ import main\n\nmain()\n")
    program.chmod(0o755)
    key = subprocess.run(
        ["bash", "-c", f'source "{SCRIPTS}/_environment"; install_key'], capture_output=True, check=True
    )
    (folder / f".streamad-installed-{demo_extras()}").write_bytes(key.stdout)


def _needed(extras: dict[str, set[str]]) -> Iterator[Distribution]:
    """Yield the distributions in ``extras`` with their extras and what they need, each once."""
    done: dict[str, set[str]] = {}
    while extras:
        name, wanted = extras.popitem()
        before = done.setdefault(name, set())
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another platform, said without a marker
            continue
        if not before:
            yield found
        done[name] |= wanted | {""}
        for requirement in map(Requirement, found.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in done[name]):
                needed, more = requirement.name.lower().replace("_", "-"), set(requirement.extras)
                if needed not in done or not more <= done[needed]:
                    extras[needed] = extras.get(needed, set()) | more
