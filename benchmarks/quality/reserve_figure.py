"""Draws docs/figures/reserve.png: the false-alarm rate over ten retrainings, calibrated in different ways.

Run from the root of the repository: python benchmarks/quality/reserve_figure.py [FILE], where FILE is the output
of ``python benchmarks/quality/reserve.py --repetitions 100 --json`` (default: the one in this folder).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
STYLES = {
    "naive": ("C1", "-", "all that was no alert"),
    "accepted": ("C3", "-", "what may train (p above 0.05)"),
    "whole reserve": ("C7", "--", "reserve, nothing left out"),
    "whole excess": ("C4", "--", "reserve without its excess of alerts"),
    "what stands apart": ("C0", ":", "... bounded by what stands apart"),
    "ours": ("C0", "-", "... and the promotion rule (streamad)"),
}


def main(path: Path) -> None:
    """Draw the measurements in ``path``."""
    measured = json.loads(path.read_text())
    scenarios = measured["scenarios"]
    figure, axes = plt.subplots(2, len(scenarios), figsize=(13, 6), sharex=True, sharey="row")
    for column, (scenario, by_way) in zip(axes.T, scenarios.items(), strict=True):
        for way, (colour, line, label) in STYLES.items():
            for axis, rate in zip(column, ("false_alarm_rate", "detection_rate"), strict=True):
                axis.plot(by_way[way][rate], color=colour, linestyle=line, label=label)
        column[0].axhline(measured["configured"], color="black", linewidth=0.6)
        column[0].set_title(scenario, fontsize=10)
        column[1].set_xlabel("retraining")
    axes[0, 0].set(ylabel="true false-alarm rate", ylim=(0, 0.26))
    axes[1, 0].set(ylabel="share of faults found", ylim=(0, 1))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(HERE.parents[1] / "docs" / "figures" / "reserve.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "reserve.json")
