"""What workers stored in shards is the learner's afterwards: the same sequences, shares and marks, once."""

from __future__ import annotations

from pathlib import Path

from streamad.learn.store.importing import import_shards
from streamad.learn.store.records import Mark
from streamad.messages import SHARES
from tests.support.learning.inlier_cases import START_US, add, database_of, same, sequence_of, shards_of, store_of


def test_sequences_shares_and_marks_are_the_same_and_a_second_import_changes_nothing(tmp_path: Path) -> None:
    limits = {"max_accepted": 20, "max_reserve": 20, "max_aside": 20}
    shards, store = store_of(tmp_path, **limits), database_of(tmp_path, **limits)
    add(shards, [0], "accepted")
    for number, judgement in enumerate(("confirmed", "withdrawn", "false_alarm")):
        at_us = START_US + number
        shards.mark(Mark(id="id-000000", judgement=judgement, at_us=at_us, received_us=at_us))  # type: ignore[arg-type]
    add(shards, range(1, 40), "accepted")  # beyond the bounds, 0 stays for its mark alone
    add(shards, range(100, 110), "reserve")
    add(shards, range(200, 205), "aside")
    for n_new in (36, 0):
        done = import_shards(shards, store)
        assert (done.sequences, done.marks, done.problems) == (n_new, 3, ())
        for share in SHARES:
            before, after = shards.read(share), store.read(share)
            assert len(before) == len(after)
            assert all(same(one, other) for one, other in zip(before, after, strict=True))
        assert store.marks() == shards.marks()
    assert [one.id for one in store.read("accepted") if one.only_marked] == ["id-000000"]


def test_a_damaged_shard_is_named_and_the_others_are_taken(tmp_path: Path) -> None:
    shards = store_of(tmp_path)
    add(shards, range(3))
    add(shards, range(3, 6))
    shards_of(tmp_path)[0].write_bytes(b"damaged")
    done = import_shards(store_of(tmp_path), database_of(tmp_path))
    assert done.sequences == 3
    (problem,) = done.problems
    assert "damaged" in problem
    assert sequence_of(4).id in {one.id for one in database_of(tmp_path).read("accepted")}
