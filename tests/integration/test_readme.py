"""Each line of README's tour, typed into a shell in the environment that ``scripts/demo`` makes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.support.environment import ROOT, make_demo_environment
from tests.support.waiting import LIMIT_S

TOUR = (ROOT / "README.md").read_text(encoding="utf-8").partition("## A tour")[2].partition("```console\n")[2]
TYPED = [line.removeprefix("$ ") for line in TOUR.partition("```")[0].splitlines() if line.startswith("$ ")]
_FEWER = " --normal 20 --faulty 8"
"""Fewer live batches than the tour's 400: judging those takes most of its time, and its lines stay the same."""
_ID = re.compile(r"^ALERT .*  id (\w+)$", re.MULTILINE)


def test_each_line_of_the_tour_works_in_the_environment_of_the_demo(tmp_path: Path) -> None:
    make_demo_environment(tmp_path / ".venv")
    said_last, folder, environment = (
        "",
        tmp_path,
        {"PATH": os.defpath, "HOME": str(tmp_path), "COLUMNS": "200", "LANG": "C.UTF-8"},
    )
    shown_id, alert_id, said_last, told = "", "", "", {}
    for line in TYPED:
        if found := re.search(r"explain (\w{8}) ", line):
            shown_id = found[1]
            assert alert_id, f"no alert with its id in:\n{said_last}"
        typed = line.replace(shown_id, alert_id) if shown_id else line
        fewer = _FEWER if line.startswith("streamad simulate") else ""
        command = f"set -e; . {tmp_path}/.venv/bin/activate; cd {folder}\n{typed.replace(' && ', f'{fewer} && ')}\npwd"
        done = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{typed}\n{done.stdout}\n{done.stderr}"
        said, _, where = done.stdout.rstrip("\n").rpartition("\n")
        folder, told[line.split()[1]] = Path(where), said
        if ids := _ID.findall(done.stderr):
            alert_id = ids[0]
        said_last = done.stderr
    assert folder == tmp_path / "plant"
    assert list(told) == [".venv/bin/activate", "simulate", "train", "run", "replay", "explain", "feedback", "report"]
    assert "200 batches, all normal" in told["simulate"]
    assert "now in service" in told["train"]
    assert re.search(r"^found +\S+\s% of 8 anomalous", told["replay"], re.MULTILINE)
    assert (folder / "why.png").read_bytes().startswith(b"\x89PNG")
    assert told["feedback"].startswith("confirmed: fermenter-")
    drawn = re.fullmatch(r"(\d+) alerts, (\d+) of them drawn; \d+ warnings: (\S+)", told["report"].splitlines()[-1])
    assert drawn is not None, told["report"]
    assert int(drawn[2]) > 0
    assert "1 mark of operators" in (folder / drawn[3]).read_text(encoding="utf-8")
