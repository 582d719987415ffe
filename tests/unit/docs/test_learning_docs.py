"""The page on learning names every event about models and learning, with its level, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODULES = (
    "drift/plant_watch",
    "judge/early/looking",
    "judge/early/pinned",
    "judge/shift",
    "commands/run/learner",
    "learn/registry/hot_swap",
    "learn/process/model_learner",
    "learn/process/service",
    "learn/registry/backends",
    "learn/serving/models",
    "learn/trainer/trainings",
)


def test_every_event_is_documented_once() -> None:
    code = "\n".join((ROOT / "streamad" / f"{module}.py").read_text(encoding="utf-8") for module in MODULES)
    emitted = set(re.findall(r'(?:Notice|emit|event)\(\s*"([a-z_]+)"(?:,|\s*$)', code, re.MULTILINE))
    emitted |= {"model_promoted", "model_not_promoted", "waits_for_review"}  # one of them
    assert '"model_promoted" if result.promoted else "model_not_promoted"' in code
    assert '"waits_for_review" if second.waits else "model_promoted" if second.promoted' in code
    table = (ROOT / "docs" / "learning" / "learning.md").read_text(encoding="utf-8").partition("## Events")[2]
    rows = re.findall(r"^- `([a-z_]+)` \((?:info|warning|error)\): ", table, re.MULTILINE)
    assert sorted(rows) == sorted(emitted)
