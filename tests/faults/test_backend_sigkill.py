"""Whatever backend scores, a worker killed at random moments loses no message and repeats none."""

from __future__ import annotations

import json
import math
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.types import WindowSet
from streamad_models.simple import Pointwise
from tests.faults.test_sigkill import LIMIT_S, Start, wait_for_commits, write_plant
from tests.support.forks import fork_server_context, forked
from tests.support.runtime import child
from tests.support.runtime.pipeline import CHANNELS, L, outputs

pytest.importorskip("onnxscript")
pytest.importorskip("openvino")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")

KILLS = {"onnxruntime": 6, "openvino": 6, "torchscript": 2}  # a life with torch takes seconds to begin


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of quiet sequences, around 1, as each backend loads it."""
    folder, rng = tmp_path_factory.mktemp("model"), np.random.default_rng(0)
    values = rng.normal(1, 0.5, (40, len(CHANNELS), L)).astype(np.float32)
    data = WindowSet(values, np.full(40, L, np.int64), tuple(map(str, range(40))))
    fitted = Pointwise().fit(data, seed=0, device="cpu")
    fitted.export(folder)
    for backend in ("onnxruntime", "openvino"):
        fitted.export_for(backend, folder)
    return folder


@pytest.fixture
def start() -> Iterator[Start]:
    with forked(fork_server_context()) as start:
        yield start


def plant_with(folder: Path, model: Path) -> Path:
    write_plant(folder)
    (folder / "model").symlink_to(model)
    return folder


def run_to_the_end(start: Start, plant: Path, backend: str) -> dict[str, list[str]]:
    process = start(child.monitor, plant, backend)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    return outputs(plant)


@pytest.mark.parametrize("backend", KILLS)
def test_killed_and_started_again_nothing_is_lost_or_repeated(
    tmp_path: Path, exported: Path, start: Start, backend: str
) -> None:
    expected = run_to_the_end(start, plant_with(tmp_path / "crash-free", exported), backend)
    assert len(set(expected["verdicts"])) == len(expected["verdicts"]) == 6 * 14
    assert all(len(expected[role]) > 5 for role in ("alerts", "attributions"))
    plant, rng = plant_with(tmp_path / "plant", exported), random.Random(20)
    for _ in range(KILLS[backend]):
        process = start(child.monitor, plant, backend, to_be_killed=True)
        wait_for_commits(process, plant, child.commits(plant) + rng.randrange(1, 7))
        time.sleep(rng.random() * 0.008)  # anywhere between two commits
        process.kill()
        process.join(LIMIT_S)
        assert process.exitcode == -signal.SIGKILL
    found = run_to_the_end(start, plant, backend)
    for role, lines in expected.items():
        for one, other in zip(found[role], lines, strict=True):
            assert alike(json.loads(one), json.loads(other)), (role, one, other)


def alike(one: Any, other: Any) -> bool:
    """Whether two messages are the same but for the last digits of numbers, which may depend on a window's batch."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    return bool(one == other)
