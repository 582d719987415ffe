"""Looks at sequences without a committed verdict are in the progress, and each sequence finds its own again."""

from __future__ import annotations

from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.messages import ModelRef, WarningRef
from streamad.partition_progress import LooksTaken, Progress, merge
from streamad.types import Record
from tests.support.runtime.pipeline import START_US, line, records_of, settings_of
from tests.unit.ingest.test_intake import batch, intake_of

MARKED = settings_of(sequences={"end": ["marker"], "closed_memory": "10s"})


def looks(n: int) -> LooksTaken:
    return LooksTaken(model=ModelRef("test", "0001"), n=n, largest=float(n), warning=WarningRef(f"w{n}", 0.5))


class Life:
    """The intake of the stream "a" since the progress that was saved before."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._intake = intake_of(MARKED, progress)
        self._progress = progress

    def take(self, *records: Record) -> list[LooksTaken | None]:
        """Return the looks at each sequence that ends."""
        return [closed.looks for closed in self._intake.take(batch(list(records)), START_US)]

    def look(self, key: str, taken: LooksTaken) -> None:
        self._open(key).looks = taken
        self._intake.looked_at("a")

    def looks_at(self, key: str) -> LooksTaken | None:
        return self._open(key).looks

    def save(self) -> Progress:
        self._progress = merge(self._progress, self._intake.progress())
        return self._progress

    def _open(self, key: str) -> OpenSequence:
        sequence = self._intake.streams["a"].open.get(key)
        assert sequence is not None
        return sequence


def test_looks_at_a_sequence_that_has_ended_are_kept_until_its_verdict_is_committed() -> None:
    records = records_of([line("a", "1", [0, 1]), line("a", "1", [2, 3], end=True)])
    life = Life()
    life.take(records[0])
    life.look("1", looks(1))
    assert life.take(records[1]) == [looks(1)]
    assert Life(life.save()).take(*records) == [looks(1)], "its verdict is not committed"


def test_looks_are_kept_while_records_before_their_sequence_are_read_again() -> None:
    records = records_of([line("a", "1", [0, 1]), line("a", "2", [2, 3])])
    life = Life()
    life.take(*records)
    life.look("2", looks(2))
    again = Life(life.save())
    again.take(records[0])
    third = Life(again.save())
    third.take(*records)
    assert (third.looks_at("1"), third.looks_at("2")) == (None, looks(2))


def test_two_sequences_that_share_an_id_have_their_own_looks() -> None:
    messages = [line("a", "1", [0, 1]), line("a", "1", [2], end=True), line("a", "1", [100, 101])]
    records = records_of(messages, timestamps_s=[1, 2, 101])
    life = Life()
    life.take(records[0])
    life.look("1", looks(1))
    assert life.take(*records[1:]) == [looks(1)]
    life.look("1", looks(2))
    again = Life(life.save())
    assert again.take(*records) == [looks(1)]
    assert again.looks_at("1") == looks(2)
