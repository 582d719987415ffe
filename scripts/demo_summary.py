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
        is_faulty = {row["sequence"]: row["label"] == "1" for row in csv.DictReader(file)}
    lines = (folder / "out" / "verdicts.jsonl").read_text().splitlines()
    verdicts = [json.loads(line) for line in lines]
    scored = [verdict for verdict in verdicts if verdict["score"] is not None]
    evaluation = evaluate(
        [verdict["score"] for verdict in scored],
        [verdict["decision"] == "anomalous" for verdict in scored],
        [is_faulty[verdict["sequence"]] for verdict in scored],
    )
    return {
        "detection_rate": evaluation.detection_rate,
        "false_alarm_rate": evaluation.false_alarm_rate,
        "sequences": len(verdicts),
        "alerts": sum(verdict["decision"] == "anomalous" for verdict in verdicts),
        "wall_s": round(time.time() - started_s, 1),
    }


def main() -> None:
    """Print the summary of the demo in the working directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--started", type=float, required=True, help="Unix time at which the demo began")
    options = parser.parse_args()
    figures = summary(Path(), options.started)
    print(f"faulty batches found: {figures['detection_rate']:.1%}; false alarms: {figures['false_alarm_rate']:.1%}")
    print(f"summary: {json.dumps(figures)}")


if __name__ == "__main__":
    main()
