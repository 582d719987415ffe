"""What workers stored in shards is the learner's afterwards: the same sequences, shares and marks, once.

``workers_store`` was written by the last release that had shards, ``workers_store.json`` is what that release read from
it: shares beyond their bounds, a sequence that stays for its mark, one that was purged, joined marks, and the copy that
a kill left behind.
"""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.learn.store.importing import import_shards, models_in_shards
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import StoredSequence
from streamad.messages import SHARES
from streamad.types import ChannelSpec
from tests.support.learning.inlier_cases import store_of

FOLDER = Path(__file__).parents[3] / "support" / "learning" / "workers_store"
SAID: dict[str, Any] = json.loads(FOLDER.with_suffix(".json").read_text(encoding="utf-8"))


def store_in(base: Path, **more: Any) -> InlierStore:
    return store_of(base, limits=dict.fromkeys(SHARES, 20), **more)


def as_said(one: StoredSequence) -> dict[str, Any]:
    fields = ("id", "stream", "sequence", "time_us", "stored_us", "decision", "score", "p_value", "model_version")
    plain = {name: getattr(one, name) for name in (*fields, "only_marked")}
    return {**plain, "length": one.window.length, "values": one.window.values.tolist()}


def test_sequences_shares_and_marks_are_the_same_and_a_second_import_changes_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert models_in_shards(FOLDER) == ["default"]
    n_said = sum(map(len, SAID["sequences"].values()))
    for n_new in (n_said, 0):
        done = import_shards(FOLDER / "default", store)
        assert (done.sequences, done.marks, done.problems) == (n_new, len(SAID["marks"]), ())
        for share in SHARES:
            assert [as_said(one) for one in store.read(share)] == SAID["sequences"][share]
    said = {mark["id"]: mark for mark in SAID["marks"]}  # the latest of each comes last
    kept = {name: msgspec.to_builtins(mark) for name, mark in store.marks().items()}
    assert {name: (mark["judgement"], mark["by"]) for name, mark in kept.items()} == {
        name: (mark["judgement"], mark.get("by", "")) for name, mark in said.items()
    }


@pytest.mark.parametrize("kind", ["accepted", "marks", "ids"])
def test_a_damaged_file_is_named_and_the_others_are_taken(kind: str, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shutil.copytree(FOLDER / "default", shards)
    damaged = max((shards / kind).iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    store = store_in(tmp_path)
    done = import_shards(shards, store)
    (problem,) = done.problems
    assert str(damaged) in problem
    assert len(store.read("reserve")) + len(store.read("aside")) >= len(SAID["sequences"]["aside"])
    assert done.sequences > 0


@pytest.mark.parametrize("name", ["values", "records"])
def test_a_shard_packed_small_takes_no_memory(name: str, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shutil.copytree(FOLDER / "default", shards)
    path = next((shards / "accepted").iterdir())
    with np.load(path, allow_pickle=False) as archive:
        arrays = {**archive, name: np.zeros(100_000_000, np.uint8)}
    path.unlink()
    np.savez_compressed(path.with_name("large.npz"), **arrays)
    tracemalloc.start()
    (problem,) = import_shards(shards, store_in(tmp_path)).problems
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "large.npz: it" in problem
    assert peak < 20_000_000


def test_shards_of_other_channels_are_named_and_left(tmp_path: Path) -> None:
    store = store_in(tmp_path, channels=(ChannelSpec("other"), ChannelSpec("flow")))
    done = import_shards(FOLDER / "default", store)
    assert done.sequences == 0
    assert len(done.problems) == 5
    assert all("other channels or windows" in problem for problem in done.problems)


def test_no_folder_has_no_shards(tmp_path: Path) -> None:
    assert models_in_shards(tmp_path / "nowhere") == []
    assert import_shards(tmp_path / "nowhere", store_in(tmp_path)).sequences == 0
