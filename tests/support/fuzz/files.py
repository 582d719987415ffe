"""Every file of a plant, damaged, and the commands that read it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.fuzz.calling import call
from tests.support.fuzz.damage import damage_file
from tests.support.fuzz.law import broken
from tests.support.fuzz.plant import FuzzPlant

_SAMPLE = (
    "init {file} --force --out new.yaml",
    "init {file} --json --force --out new.yaml",
    "score {file}",
    "replay -q {file}",
)
_FLAT = ("check --fast --config flat.yaml", "replay -q {file} --config flat.yaml", *_SAMPLE[:2])
_DATES = ("check --fast --config dates.yaml", "replay -q {file} --config dates.yaml", *_SAMPLE[:2])
_LABELS = (
    "replay -q --labels labels.csv",
    "train --labels labels.csv",
    "replay -q --json --labels labels.csv --normal 0,x",
)
_MODELS = (
    *(
        "models list",
        "models show 0002",
        "models show",
        "models status",
        "models compare 0001 0002",
        "models list --json",
    ),
    *(
        "models promote 0002",
        "models rollback",
        "models prune --keep 1 --yes",
        "check",
        "score",
        "run -q",
        "train",
        "models decline 0002",
    ),
)
_STORE = (
    *(
        "inliers list",
        "inliers list --each",
        "inliers list --each --json",
        "inliers export --out x.npz",
        "inliers export --out x.jsonl",
    ),
    *(
        "inliers purge --before 1d --yes",
        "models status",
        "run -q",
        "inliers veto --stream r1 --sequence B-4",
        "check --fast",
    ),
)
_STATE = ("run -q", "run -q --json", "check --fast")
_FEEDBACK = (
    "run -q",
    "models status",
    "feedback --stream r1 --sequence B-4 --confirmed",
    "check --fast",
    "inliers list --each",
)
_TAIL = (
    "alerts tail --from-start --limit 5",
    "alerts tail --from-start --json --limit 5",
    "alerts tail --group g --limit 1",
    "run -q",
)
_MARKING = ("inliers veto b2f4c9", "feedback --alert b2f4c9 --confirmed")


@dataclass(frozen=True, slots=True)
class Role:
    """Files of one kind: their pattern in the plant, and the commands that read them."""

    name: str
    pattern: str
    commands: tuple[str, ...]


ROLES = (
    Role(
        "jsonl",
        "recordings/day.jsonl",
        ("check --fast", "replay -q", "run -q", "score", "init {file} --force --out new.yaml"),
    ),
    Role("jsonl.gz", "samples/b.jsonl.gz", _SAMPLE),
    Role("records", "samples/b.records.jsonl", _SAMPLE),
    Role("csv", "samples/b.csv", _FLAT),
    Role("csv with dates", "samples/dates.csv", _DATES),
    Role("csv.gz", "samples/b.csv.gz", _FLAT),
    Role("parquet", "samples/b.parquet", _FLAT),
    Role("npz", "samples/b.npz", (*_SAMPLE, "replay -q {file} --labels source")),
    Role("labels", "labels.csv", _LABELS),
    Role(
        "feedback table", "marks.csv", ("feedback --import marks.csv", "feedback --import marks.csv --skip-bad --json")
    ),
    Role("feedback", "feedback.jsonl*", _FEEDBACK),
    Role("feedback position", "feedback.jsonl.*position", _FEEDBACK),
    Role("manifest", "registry/default/versions/*/manifest.json", _MODELS),
    Role("artifact", "registry/default/versions/*/*.np*", _MODELS),
    Role("model", "registry/default/versions/*/model.ts", ("check", "models compare 0001 0002", "score", "run -q")),
    Role("CURRENT", "registry/default/CURRENT", _MODELS),
    Role(
        "training state",
        "registry/default/training/**/*",
        ("models status", "run -q", "models status --json", "models list"),
    ),
    Role("learner", "inliers/learner.json", ("run -q", "learn --present", "models status")),
    Role("store", "inliers/inliers.sqlite3", _STORE),
    Role("checkpoint", "checkpoint/*.json", _STATE),
    Role("start", "checkpoint/start.json", _STATE),
    Role("outputs", "out/*.jsonl", (*_TAIL, "learn --present", *_MARKING)),
    Role("resume", "resumed/**/*.resume", ("train --config resumed.yaml",)),
    Role("fold", "resumed/**/*.terms", ("train --config resumed.yaml",)),
)


def run_file(rng: random.Random, plant: FuzzPlant, folder: Path) -> Iterator[tuple[list[str], str | None]]:
    """Damage one file of a copy of the plant and call one or two commands; yield each with how it broke the law."""
    place = plant.copy(folder)
    role = rng.choice(ROLES)
    files = sorted(path for path in place.glob(role.pattern) if path.is_file() and path.stat().st_size)
    if not files:
        raise RuntimeError(f"the fuzzer's plant has no file {role.pattern}")
    path = rng.choice(files)
    damage_file(path, rng)
    for _ in range(rng.choice([1, 1, 1, 1, 2])):
        words = rng.choice(role.commands).replace("{file}", str(path.relative_to(place))).split()
        stop_after_s = 1.5 if "tail" in words else None  # it has no end
        yield words, broken(call(words, place, stop_after_s=stop_after_s), words)
