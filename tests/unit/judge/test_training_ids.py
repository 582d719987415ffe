from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamad.judge.scoring import NO_TRAINING_IDS, TrainingIds


@given(st.sets(st.text()), st.text())
def test_it_holds_the_ids_that_it_was_made_of_and_no_other(ids: set[str], other: str) -> None:
    found = TrainingIds.of(ids)
    assert all(name in found for name in ids)
    assert (other in found) == (other in ids)
    assert other not in NO_TRAINING_IDS


def test_the_hashes_are_ascending_and_the_same_for_every_order() -> None:
    ids = [f"reactor-1/B-{number}" for number in range(1000)]
    one, other = TrainingIds.of(ids), TrainingIds.of([*reversed(ids), ids[0]])
    assert one.hashes.tolist() == other.hashes.tolist() == sorted(one.hashes.tolist())
    assert len(one.hashes) == 1000
