"""Compares verdicts and warnings of a demo run with the truth; prints the demo's last line: ``summary: {...}``."""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from streamad.commands.shared.figures.labels import Label, Labels
from streamad.commands.shared.figures.report import compared
from streamad.commands.shared.figures.warnings import warning_figures
from streamad.judge.verdicts import span_text
from streamad.language import percent
from streamad.messages import EarlyWarning, Verdict

M = TypeVar("M", Verdict, EarlyWarning)


def summary(folder: Path, started_s: float) -> dict[str, float | int | None]:
    """Return the figures of the run in ``folder``; an unscorable batch counts as neither found nor false alarm."""
    with (folder / "live" / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = Labels({(row["stream"], row["sequence"]): Label(row["label"], row["label"] == "1") for row in rows})
    verdicts = _read(folder / "out" / "verdicts.jsonl", Verdict)
    evaluation = compared(verdicts, labels)
    warned = warning_figures(_read(folder / "out" / "warnings.jsonl", EarlyWarning), verdicts, labels)
    return {
        "detection_rate": evaluation.detection_rate,
        "false_alarm_rate": evaluation.false_alarm_rate,
        "unscorable": evaluation.n_unscorable,
        "sequences": len(verdicts),
        "alerts": sum(verdict.decision == "anomalous" for verdict in verdicts),
        "faults_warned_of": warned.faults_before_end_share,
        "normal_ever_warned_of": warned.normal_share,
        "median_lead_s": warned.median_lead_s,
        "wall_s": round(time.time() - started_s, 1),
    }


def _read(path: Path, kind: type[M]) -> list[M]:
    """Return the messages of a file; none if the run wrote none."""
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def _percent(rate: float | None) -> str:
    return "none to find" if rate is None else percent(rate, 1)


def main() -> None:
    """Print the summary of the demo in the working directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--started", type=float, required=True, help="Unix time at which the demo began")
    options = parser.parse_args()
    figures = summary(Path(), options.started)
    found, false = (_percent(figures[name]) for name in ("detection_rate", "false_alarm_rate"))
    print(f"faulty batches found: {found}; false alarms: {false}")
    warned, ever, lead_s = (figures[name] for name in ("faults_warned_of", "normal_ever_warned_of", "median_lead_s"))
    lead = "" if lead_s is None else f", {span_text(lead_s)} before it (median)"
    print(f"faulty batches warned of before their end: {_percent(warned)}{lead}; normal ones: {_percent(ever)}")
    print(f"summary: {json.dumps(figures)}")


if __name__ == "__main__":
    main()
