"""The ids of sequences that train: each has its own, also where the plant uses an id again."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.recurring import Place
from streamad.commands.shared.windows import Recordings
from streamad.errors import TrainingDataError
from streamad.judge.bank import Router
from streamad.judge.scoring import TrainingIds, id_with_start
from streamad.learn.training.checks import check_training_data
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, Position, from_us
from tests.support.runtime.pipeline import START_US, settings_of

SETTINGS = settings_of()


def recordings(*found: tuple[str, str, int]) -> Recordings:
    """Sequences of partition, id and the second of their start, each of 10 s."""
    data = Recordings(Counters())
    for offset, (partition, name, start_s) in enumerate(found):
        times_us = START_US + 1_000_000 * (start_s + np.arange(11))
        values = np.add.outer(np.arange(11.0), np.full(len(SETTINGS.channels), offset)).astype(np.float32)
        sequence = FinishedSequence("a", name, "change", times_us, values, Position(offset, 0))
        data.add(sequence, Place(partition, "a", name), Router.of(SETTINGS), SETTINGS)
    assert len(data.sequences) == len(found)
    return data


def check(data: Recordings) -> None:
    for windows in data.window_sets().values():
        check_training_data(windows, SETTINGS.channel_specs, SETTINGS.window.length)


@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("123"), st.integers(0, 60)), min_size=1, max_size=8))
def test_ids_are_distinct_if_those_that_recur_follow_each_other_in_one_partition(
    found: list[tuple[str, str, int]],
) -> None:
    ids = recordings(*found).training_ids()
    n_of = Counter(name for _, name, _ in found)
    for place, (_, name, start_s) in enumerate(found):
        of_name = [(partition, at) for partition, other, at in found if other == name]
        follow = all(p == q and abs(at - other) > 10 for (p, at), (q, other) in combinations(of_name, 2))
        assert (ids.count(ids[place]) == 1) == (n_of[name] == 1 or follow)
        if n_of[name] > 1 and follow:
            assert ids[place] == id_with_start(f"a/{name}", from_us(START_US + start_s * 1_000_000))
        else:
            assert ids[place] == f"a/{name}"
    assert len(TrainingIds.of(ids).hashes) == len({*ids})


def test_an_id_that_comes_again_in_its_file_trains() -> None:
    check(recordings(("day.csv", "1", 0), ("day.csv", "2", 20), ("day.csv", "1", 40)))


@pytest.mark.parametrize("again", [("next.csv", "1", 40), ("day.csv", "1", 5)])
def test_equal_ids_in_several_files_or_at_once_do_not(again: tuple[str, str, int]) -> None:
    data = recordings(("day.csv", "1", 0), ("day.csv", "2", 20), again)
    with pytest.raises(TrainingDataError, match="1 sequence ids occur more than once, such as 'a/1'"):
        check(data)


def test_train_says_that_fragments_without_an_id_are_skipped(tmp_path: Path) -> None:
    messages, time = [], 1_772_000_000
    for name, n in [(None, 2), ("B1", 40), ("B2", 41), (None, 3), ("B3", 42), ("B4", 40)]:
        messages += [{"stream": "a", "sequence": name, "time": time + at, "temp": float(at)} for at in range(n)]
        time += 1_000
    (tmp_path / "day.jsonl").write_text("".join(json.dumps(each) + "\n" for each in messages), encoding="utf-8")
    fields = {"stream": "stream", "sequence": "sequence", "time": "time", "end": None, "values": None}
    config = {
        "channels": [{"name": "temp"}],
        "source": {"url": "day.jsonl"},
        "decode": {"fields": fields},
        "sequences": {"end": ["change"]},
        "window": {"length": 48, "min_samples": 1},
        "model": {"detector": "pca"},
    }
    said = (
        "2 of 6 sequences have 2 to 3 samples, the usual one has 40.5: they may be fragments, such as "
        "2026-02-25T06:13:20+00:00 of a"
    )
    advice = "they have no sequence id, as in pauses: write sequences.without_id: skip"
    for skip in (False, True):
        (tmp_path / "plant.yaml").write_text(
            yaml.safe_dump(config | {"sequences": {"end": ["change"], **({"without_id": "skip"} if skip else {})}}),
            encoding="utf-8",
        )
        done = CliRunner().invoke(app, ["train", "-c", str(tmp_path / "plant.yaml")])
        assert (f"lengths: {said}; {advice}" in " ".join(done.output.split())) != skip
