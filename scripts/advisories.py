"""Asks PyPI's advisory service for known vulnerabilities of the packages of both locks (pip-audit).

Exit code 0: every package was looked up, and none has any; 1: some have, or some could not be looked up; 3: the service
cannot be reached, so that nothing is known.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
UNREACHABLE = 3
LIMIT_S = 120
_AWAY = ("requests.exceptions.", "urllib3.exceptions.", "Could not connect")
"""Signs in what pip-audit says that it asked, and got no answer."""


def verdict(dependencies: list[dict[str, Any]]) -> tuple[str, int]:
    """Return one line on what pip-audit found, and the exit code. A package that it skipped is no good news."""
    skipped = [each["name"] for each in dependencies if "vulns" not in each]
    found = sorted(
        {f"{each['name']} {each['version']}: {one['id']}" for each in dependencies for one in each.get("vulns", ())}
    )
    if found:
        return f"{len(found)} known: {', '.join(found)}", 1
    if len(skipped) == len(dependencies):
        return "the advisory service cannot be reached here: nothing is known of the locked packages", UNREACHABLE
    if skipped:
        return f"not looked up: {', '.join(skipped)}", 1
    return f"none known of {len(dependencies)} packages", 0


def audited(locks: list[Path]) -> list[dict[str, Any]]:
    """Return what pip-audit says of each package of ``locks``; nothing where it cannot ask.

    Raises SystemExit if it fails otherwise, such as over a lock without hashes.
    """
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", "10", *(word for lock in locks for word in ("-r", str(lock)))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return []
    if done.stdout.startswith("{"):
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        return found
    if any(sign in done.stderr for sign in _AWAY):
        return []
    sys.exit(f"pip-audit failed: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    line, code = verdict(audited(sorted((ROOT / "deploy").glob("*.lock"))))
    sys.stdout.write(f"{line}\n")
    sys.exit(code)
