"""Compares the verdicts of a demo run with the truth and prints the last line of the demo: ``summary: {...}``."""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path

from streamad.judge.evaluation import evaluate


def summary(folder: Path, started_s: float) -> dict[str, float | int | None]:
    """Return the figures of the run in ``folder``; an unscorable batch counts as neither found nor false alarm."""
    with (folder / "live" / "labels.csv").open(newline="") as file:
        is_faulty = {(row["stream"], row["sequence"]): row["label"] == "1" for row in csv.DictReader(file)}
    lines = (folder / "out" / "verdicts.jsonl").read_text().splitlines()
    verdicts = [json.loads(line) for line in lines]
    evaluation = evaluate(
        [verdict["score"] for verdict in verdicts],
        [verdict["decision"] == "anomalous" for verdict in verdicts],
        [is_faulty[verdict["stream"], verdict["sequence"]] for verdict in verdicts],
    )
    return {
        "detection_rate": evaluation.detection_rate,
        "false_alarm_rate": evaluation.false_alarm_rate,
        "unscorable": evaluation.n_unscorable,
        "sequences": len(verdicts),
        "alerts": sum(verdict["decision"] == "anomalous" for verdict in verdicts),
        "wall_s": round(time.time() - started_s, 1),
    }


def _percent(rate: float | None) -> str:
    return "none to find" if rate is None else f"{rate:.1%}"


def main() -> None:
    """Print the summary of the demo in the working directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--started", type=float, required=True, help="Unix time at which the demo began")
    options = parser.parse_args()
    figures = summary(Path(), options.started)
    found, false = (_percent(figures[name]) for name in ("detection_rate", "false_alarm_rate"))
    print(f"faulty batches found: {found}; false alarms: {false}")
    print(f"summary: {json.dumps(figures)}")


if __name__ == "__main__":
    main()
