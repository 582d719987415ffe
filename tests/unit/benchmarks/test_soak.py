"""The soak's law, and what it counts and measures."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.soak import hours_in
from benchmarks.soak_counts import Ledger
from benchmarks.soak_law import Curve, curves_of, lines_of, summary_of
from benchmarks.soak_plant import SAMPLES, Line
from benchmarks.soak_sampling import mb_in, measured, orphans

HOURS = np.linspace(0.0, 2.0, 240)


def judged(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    curve = Curve(must_be_flat=True)
    for hours, value in zip(HOURS, values, strict=True):
        curve.add(float(hours), float(value))
    return curve.judged(0.5)


# --- the law ---


def noise(size: float = 2.0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(100.0, size, len(HOURS))


@pytest.mark.parametrize(
    ("shape", "is_flat"),
    [
        (0 * HOURS, True),
        (np.where(HOURS < 0.4, -60.0, 0.0), True),  # what a start fills
        (np.where(np.arange(len(HOURS)) % 10 < 2, 80.0, 0.0), True),  # a training every tenth of the time
        (np.where(HOURS > 1.9, 50.0, 0.0), True),  # one at the end
        (-5.0 * HOURS, True),
        (2.0 * HOURS, True),  # 3 % in an hour and a half
        (5.0 * HOURS, False),
        (4.0 * np.floor(2.5 * HOURS), False),  # in steps
        (np.where(np.arange(len(HOURS)) % 10 < 2, 80.0, 6.0 * HOURS), False),
    ],
)
def test_growth_is_found_whatever_comes_and_goes(shape: np.ndarray[Any, Any], is_flat: bool) -> None:
    assert judged(noise() + shape)["flat"] is is_flat


def test_growth_is_what_a_line_grows_by_after_the_first_half_hour() -> None:
    assert judged(100.0 + 10.0 * HOURS)["growth"] == pytest.approx(10.0 * 1.5 / 112.5, abs=0.01)


def test_a_count_that_stays_is_flat_and_one_that_grows_from_nothing_is_not() -> None:
    assert judged(0 * HOURS + 9)["growth"] == 0
    assert judged(np.where(HOURS > 1.9, HOURS, 0.0))["flat"] is True  # it was 0 most of the time
    assert judged(np.where(HOURS > 1.0, HOURS, 0.0))["flat"] is False


def test_few_points_are_not_judged() -> None:
    curve = Curve()
    for hours in np.linspace(0.0, 0.6, 60):
        curve.add(float(hours), 1.0)
    curve.add(0.7, None)
    assert curve.judged(0.5) == {"points": 10, "must_be_flat": False, "flat": None}


def sample(hours: float, age_s: float, **more: Any) -> dict[str, Any]:
    part = {"anonymous_mb": 50.0, "rss_mb": 70.0, "pss_mb": 60.0, "uss_mb": 55.0, "files": 9, "threads": 2}
    return {
        "kind": "sample",
        "hours": hours,
        "load": 1.0,
        "processes": {"spared web": {**part, **more}, "web": part, "spared learn children": part},
        "kafka": {},
        "age_s": {"spared web": hours * 3600, "web": age_s},
        "disk_mb": {"registry": 5.0, "spared-inliers": 1.0, "topic soak.verdicts": hours},
        "lag": {"worker": None, "learn": 3},
        "latency_s": {"verdicts": {"n": 3, "p50": 1.0, "p99": 2.0, "max": 2.0}} if hours > 0.1 else {},
        "counts": dict.fromkeys(("verdicts_overdue", "verdicts_repeated", "sequences_ended", "verdicts"), 1),
        "pages": {"web": {"200": 3}},
    }


def soak(leak_mb: float) -> list[dict[str, Any]]:
    """Samples of two hours, each 40 s, with a kill of the page every 200 s."""
    samples = [sample(i / 90, (i % 5) * 40.0, anonymous_mb=50 + leak_mb * i / 90) for i in range(180)]
    end = {"kind": "end", "hours": 2.0, "right": True, "wrong": {}}
    begin = {"kind": "begin", "hours": 0.0, "options": {"hours": 2.0}}
    return [begin, {"kind": "kill", "hours": 0.1, "part": "web"}, *samples, end]


def test_a_summary_names_the_curves_that_are_not_flat() -> None:
    assert summary_of(soak(0.0))["not_flat"] == []
    found = summary_of(soak(3.0))
    assert found["not_flat"] == ["spared web: anonymous_mb"]
    assert found["kills"] == {"web": 1}
    assert found["latency_s"]["latency of verdicts: p99"] == {"median": 2.0, "highest": 2.0}
    judged = found["curves"]
    assert not judged["disk: topic soak.verdicts"]["must_be_flat"]
    assert not judged["disk: topic soak.verdicts"]["flat"]
    assert not judged["spared learn children: files"]["must_be_flat"]
    assert judged["disk: spared-inliers"]["must_be_flat"]


def test_lives_of_a_killed_process_are_compared_at_the_same_age() -> None:
    curve = curves_of(soak(0.0))["web, a minute old: files"]
    assert len(curve.values) == 36
    assert curve.hours[0] == pytest.approx(2 / 90)
    assert "spared web, a minute old: files" not in curves_of(soak(0.0))


def test_samples_are_read_up_to_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    assert hours_in(path) == 0
    text = "".join(json.dumps(line) + "\n" for line in soak(0.0)[:60])
    path.write_text(text + '{"kind": "sam')
    lines = lines_of(path)
    assert len(lines) == 60
    assert hours_in(path) == lines[-1]["hours"] > 0.5
    assert summary_of(lines)["end"] is None


# --- what is counted ---


def send(ledger: Ledger, number: int) -> tuple[str, str]:
    key = ("line-00", f"B-{number:06d}")
    ledger.sends(*key, is_first=True, is_last=False)
    ledger.sends(*key, is_first=False, is_last=True)
    return key


def verdict(key: tuple[str, str], decision: str = "normal", **more: Any) -> dict[str, Any]:
    name = f"v-{key[1]}"
    return {"verdict_id": name, "alert_id": name, "stream": key[0], "sequence": key[1], "decision": decision, **more}


def test_what_is_lost_and_what_comes_twice_is_counted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    first, second, third = (send(ledger, number) for number in range(3))
    now_s = time.time()
    ledger.saw("verdicts", verdict(first), now_s + 1, now_s)
    ledger.saw("verdicts", verdict(second, "anomalous"), now_s + 2, now_s)
    assert ledger.wrong() | {"verdicts_lost": 0, "alerts_lost": 0} == dict.fromkeys(ledger.wrong(), 0)
    assert (ledger.wrong()["verdicts_lost"], ledger.wrong()["alerts_lost"]) == (1, 1)
    assert ledger.latencies()["verdicts"]["max"] == pytest.approx(2.0, abs=0.5)
    assert ledger.latencies() == {}
    for _ in range(2):
        ledger.saw("alerts", verdict(second), now_s, now_s)
    ledger.saw("verdicts", {**verdict(third), "verdict_id": "another"}, now_s, now_s)
    ledger.saw("verdicts", verdict(third, warning={"warning_id": "w"}), now_s, now_s)
    ledger.saw("verdicts", verdict(("line-00", "B-000009")), now_s, now_s)
    found = {name: n for name, n in ledger.wrong().items() if n}
    assert found == {
        "alerts_repeated": 1,
        "attributions_lost": 1,
        "sequences_judged_twice": 1,
        "verdicts_of_no_sequence": 1,
        "verdicts_that_name_no_warning": 1,
    }
    ledger.close()


def test_a_later_run_goes_on_after_the_last_sequence_that_was_begun(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    send(ledger, 0)
    ledger.sends("line-00", "B-000001", is_first=True, is_last=False)
    ledger.close()
    later = Ledger(tmp_path)
    assert later.first_number("line-00") == 2
    assert later.first_number("line-01") == 0
    assert list(later.begun.values())[1] is None
    # What lies in the topics from the earlier run says nothing of this run's latency.
    later.saw("verdicts", verdict(("line-00", "B-000000")), time.time(), 0.0)
    assert later.latencies() == {}
    later.close()


def test_a_line_sends_whole_sequences_of_growing_time() -> None:
    line = Line("line-00", 7, seed=1)
    found = [one for turn in range(6 * SAMPLES) for one in line.messages(1e9 + turn)]
    own = [json.loads(one.value) for one in found if one.sequence]
    firsts = [one.sequence for one in found if one.is_first]
    assert firsts[:3] == ["B-000007", "B-000008", "B-000009"]
    whole = [each for each in own if each["sequence"] == "B-000007"]
    assert len(whole) == SAMPLES
    assert [each.get("end") for each in whole] == [None] * (SAMPLES - 1) + [True]
    assert [each["time"] for each in own] == sorted(each["time"] for each in own)


# --- what is measured ---


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_is_measured_with_its_children_and_they_are_found_when_it_is_gone(tmp_path: Path) -> None:
    child = "import sys; sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
    try:
        while "one children" not in (found := measured({"one": parent.pid})):
            time.sleep(0.01)
        assert 0 < found["one"]["anonymous_mb"] <= found["one"]["rss_mb"] < 200
        assert found["one"]["files"] >= 3
        assert orphans([parent.pid]) != []
        parent.kill()
        parent.wait()
        (left,) = orphans([parent.pid])
        assert measured({"gone": parent.pid}).keys() <= {"gone children"}
    finally:
        assert parent.stdin is not None
        parent.stdin.close()  # which ends the child
    while orphans([parent.pid]):
        time.sleep(0.01)
    assert not Path(f"/proc/{left}").exists() or left not in orphans([parent.pid])


def test_the_disk_is_counted_in_blocks_with_all_that_lies_in_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = mb_in([tmp_path])
    (tmp_path / "a" / "b" / "file").write_bytes(os.urandom(1_000_000))
    with (tmp_path / "a" / "sparse").open("wb") as file:
        file.truncate(10_000_000)
    os.sync()
    assert mb_in([tmp_path]) - before == pytest.approx(1.0, abs=0.1)
    assert mb_in([tmp_path / "missing"]) == 0


def test_seeds_make_lines_differ_and_repeat() -> None:
    def first(name: str, seed: int) -> bytes:
        line = Line(name, 0, seed)
        return next(one.value for turn in range(2 * SAMPLES) for one in line.messages(float(turn)))

    assert first("a", 0) == first("a", 0)
    assert len({json.dumps(json.loads(first("a", seed))["values"]) for seed in range(5)}) == 5
    assert random.Random("x").random() == random.Random("x").random()
