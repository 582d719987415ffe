"""The job that every peer does, and how it is measured; needs numpy, and msgspec where a peer decodes itself.

Every sample of the topic joins the open sequence of its stream and id; the end marker makes it a window float32 [C, L],
which gets a score that costs nothing and becomes one output message. A peer's own file says only how its library does
that. Peers run as scripts, also in an environment without streamad:
``python FILE BOOTSTRAP TOPIC OUTPUT GROUP N [MODE ...]``.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

CHANNELS, LENGTH, PARTITIONS = 24, 51, 4
NAMES = [f"c{index}" for index in range(CHANNELS)]
COMMIT_S = 1.0
"""Interval of the plain loops' commits: streamad's default."""
BATCH = 500
"""Most messages that a plain loop takes at once: as the bare loop of speed/kafka_pipeline.py."""

Rows = list[list[float]]


@dataclass
class Job:
    """Where one run reads and writes, how many windows end it, and its clock."""

    bootstrap: str
    topic: str
    output: str
    group: str
    n_windows: int
    modes: tuple[str, ...] = ()
    samples: int = 0
    windows: int = 0
    _began: tuple[float, float] = field(default=(0.0, 0.0))

    @classmethod
    def of_arguments(cls) -> Job:
        """Return the job that the command line names."""
        bootstrap, topic, output, group, n_windows, *modes = sys.argv[1:]
        return cls(bootstrap, topic, output, group, int(n_windows), tuple(modes))

    def count(self, n_samples: int) -> None:
        """Count samples; the first ones start the clock."""
        if not self.samples:
            self._began = (time.perf_counter(), time.process_time())
        self.samples += n_samples

    def judged(self, stream: str, sequence: str, rows: Rows) -> dict[str, Any]:
        """Return the output message of a finished sequence."""
        window = np.zeros((CHANNELS, LENGTH), dtype=np.float32)
        window[:, : len(rows)] = np.asarray(rows, dtype=np.float32).T
        self.windows += 1
        return {"stream": stream, "sequence": sequence, "n_samples": len(rows), "score": score(window)}

    @property
    def is_done(self) -> bool:
        """Return whether all windows were made."""
        return self.windows >= self.n_windows

    def report(self) -> None:
        """Print the figures as JSON: to be called when the outputs are acknowledged and the offsets committed."""
        wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        figures = {
            "samples": self.samples,
            "windows": self.windows,
            "wall_s": wall,
            "cpu_s": cpu,
            "peak_rss_mb": peak_rss_mb(),
        }
        print(json.dumps(figures), flush=True, file=sys.__stdout__)  # Faust makes sys.stdout a log


def peak_rss_mb() -> float:
    """Return this process's peak memory; ``ru_maxrss`` would begin with that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def score(window: np.ndarray[Any, Any]) -> float:
    """Return a score that costs nothing."""
    return float(window[0, 0])


def rows_of(message: dict[str, Any]) -> Rows:
    """Return the samples of a message of either kind, the channels in order."""
    values = message["values"]
    return values if "times" in message else [[values[name] for name in NAMES]]


class OpenSequences:
    """Open sequences of one partition in memory, as a plain loop holds them."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._open: dict[tuple[str, str], tuple[int, Rows]] = {}  # oldest first: it has the lowest offset

    def push(self, message: dict[str, Any], offset: int) -> tuple[str, str, Rows] | None:
        """Add a message; return stream, id and samples of the sequence that it ends."""
        self.next_offset = offset + 1
        key = (message["stream"], message["sequence"])
        rows = rows_of(message)
        found = self._open.get(key)
        if found is not None:
            found[1].extend(rows)
            rows = found[1]
        if message.get("end"):
            self._open.pop(key, None)
            return *key, rows
        if found is None:
            self._open[key] = (offset, rows)
        return None

    @property
    def safe_offset(self) -> int:
        """Return the offset to commit: no sample of an open sequence lies before it."""
        return min(self.next_offset, next(iter(self._open.values()))[0]) if self._open else self.next_offset
