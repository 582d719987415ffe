"""Draws docs/figures/simulation.png: normal batches of the simulated fermenter, and faulty ones against them.

Run from the root of the repository: python benchmarks/quality/simulation_figure.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from streamad.simulation.faults import CHANNELS, FAULTS
from streamad.simulation.recordings import simulate_batch

SEED = 7
N_NORMAL = 12
SAMPLES_PER_HOUR = 6
SHOWN = {  # fault -> batch
    "coolant_valve_stuck": 104,
    "feed_pump_loss": 101,
    "agitator_slip": 107,
    "contamination": 103,
    "ph_sensor_bias": 105,
    "do_sensor_drift": 106,
    "ph_sensor_spikes": 108,
    "volume_sensor_drift": 109,
    "cooling_fouling": 110,
    "aeration_loss": 112,
}
COLOURS = ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "teal", "C9", "C0")
TITLES = {
    "temp_c": "Temperature",
    "ph": "pH",
    "dissolved_oxygen": "Dissolved oxygen",
    "agitator_power": "Agitator power",
    "feed_rate": "Feed rate",
    "base_flow": "Base flow",
    "coolant_flow": "Coolant flow",
    "offgas_co2": "Off-gas CO2",
    "volume": "Volume",
}


def hours(n: int) -> np.ndarray:
    """The hours of n samples."""
    return np.arange(n) / SAMPLES_PER_HOUR


def draw_normal(axes: list[Axes]) -> None:
    """Overlay normal batches in grey, one of them darker, in each channel."""
    for index in range(N_NORMAL):
        values = simulate_batch(SEED, index)[0]
        style = {"color": "0.25", "lw": 1.1, "zorder": 3} if index == 0 else {"color": "0.72", "lw": 0.7}
        for channel, axis in enumerate(axes):
            label = {0: "normal batch", 1: "other normal batches"}.get(index)
            axis.plot(hours(len(values)), values[:, channel], label=label, **style)


def draw_faults(axes: list[Axes]) -> None:
    """Draw each shown fault in the channel where it shows first, its onset as a dot."""
    by_name = {fault.name: fault for fault in FAULTS}
    names = [name for name, _ in CHANNELS]
    for turn, (name, index) in enumerate(SHOWN.items()):
        fault = by_name[name]
        values, _, _, onset = simulate_batch(SEED, index, fault)
        channel = names.index(fault.channel)
        colour, axis = COLOURS[turn], axes[channel]
        axis.plot(hours(len(values)), values[:, channel], color=colour, lw=1.3, label=name.replace("_", " "), zorder=4)
        axis.plot(onset / SAMPLES_PER_HOUR, values[onset, channel], "o", color=colour, ms=5, zorder=5)


def main() -> None:
    """Draw and save."""
    figure, grid = plt.subplots(3, 3, figsize=(14, 9), sharex=True, layout="constrained")
    axes = list(grid.flat)
    draw_normal(axes)
    draw_faults(axes)
    for axis, (name, unit) in zip(axes, CHANNELS, strict=True):
        axis.set_title(TITLES[name], fontsize=11, loc="left")
        axis.set_ylabel(unit)
        axis.grid(alpha=0.25)
        handles, labels = axis.get_legend_handles_labels()
        if len(handles) > 2:
            axis.legend(handles[2:], labels[2:], fontsize=9, loc="best", framealpha=0.85)
    axes[0].set_xticks(range(0, 25, 4))
    for axis in axes[-3:]:
        axis.set_xlabel("hours since inoculation")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[:2], labels[:2], loc="outside upper right", ncols=2, fontsize=10, frameon=False)
    figure.suptitle(
        "Simulated fed-batch fermenter: normal batches, and faults from their onset (dot)", x=0.02, ha="left"
    )
    figure.savefig(Path(__file__).resolve().parents[2] / "docs" / "figures" / "simulation.png", dpi=90)


if __name__ == "__main__":
    main()
