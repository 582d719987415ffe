"""The law of tables that grow: day by day, with more rows and more samples each day, equals all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.ingest.assembly import Assembler
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.table.rows import Row
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import SequenceSettings
from tests.support.examples import examples
from tests.support.ingest.assembly_cases import arrivals, us
from tests.support.ingest.assembly_model import Cut, Late, Record, cut_of, lates_of
from tests.support.ingest.tables import rows, table_of, table_settings

ONE = (1.0, 2.0)
LIMITS = us(end=("table",), table="batches.csv", max_duration=1_000)


class Days:
    """One run a day on a recording that grows: what it cut, and its progress."""

    def __init__(self, limits: SequenceSettings, *, holds: bool) -> None:
        self.limits = limits
        self.holds = holds
        self.progress: Progress | None = None
        self.cuts: Counter[Cut] = Counter()
        self.late: Counter[Late] = Counter()

    def run(
        self,
        table: Sequence[Row],
        records: Sequence[Record],
        *,
        is_last: bool = False,
        crash_at: int | None = None,
    ) -> list[Cut]:
        """Read the ``records`` that are there now, with the rows that are there now; return what ended.

        ``crash_at``: it commits what came up to this offset, and crashes.
        """
        assembler = Assembler("p", self.limits, table=table_of(table), progress=self.progress)
        ended: list[Closed] = []
        n_read = 0 if self.progress is None else self.progress.next_offset
        begin = 0 if self.progress is None else self.progress.low_watermark
        if crash_at is not None:
            crash_at = max(crash_at, begin) if begin < len(records) else None
        for offset, record in enumerate(records):
            if offset >= begin:
                ended += assembler.push(record.block(offset), record.record_us)
                late = assembler.take_late()
                # Late samples that are read again were told of before, unless a new row holds them.
                is_new = offset >= n_read
                self.late += Counter(lates_of(each for each in late if is_new or assembler.is_untold(each, offset)))
                if crash_at == offset:
                    break
        if crash_at is None and (is_last or not self.holds):
            ended += assembler.end_of_input()
            self.late += Counter(lates_of(assembler.take_late()))
        for closed in ended:
            assembler.committed(closed)
        n_now = len(records) if crash_at is None else max(n_read, crash_at + 1)
        merged = merge(self.progress, assembler.progress(n_now))
        self.progress = msgspec.json.decode(msgspec.json.encode(merged), type=Progress)
        cuts = [cut_of(closed) for closed in ended]
        self.cuts += Counter(cuts)
        return cuts


@st.composite
def growths(
    draw: st.DrawFn, table: list[Row], records: list[Record], *, has_running: bool = True
) -> list[tuple[list[Row], list[Record]]]:
    """Draw days: the records and the rows that are there at the end of each.

    A row whose end has not come is not there yet, or has no end; one that is over is there, or is entered later.
    ``has_running``: rows without an end may be there.
    """
    stops = sorted(draw(st.lists(st.integers(0, len(records)), max_size=3)))
    days = []
    known: set[tuple[str, str]] = set()
    for stop in stops:
        now = max((time for record in records[:stop] for time in record.times), default=0)
        there = []
        for row in table:
            is_over = row.end_us is not None and row.end_us <= now
            name = row.stream, row.sequence
            if row.begin_us > now or (name not in known and draw(st.sampled_from([False, False, True]))):
                continue
            if not is_over and not has_running:
                continue
            known.add(name)
            there.append(row if is_over else replace(row, end_us=None))
        # Of one stream all but the last are over, and those before a row that is there are there, too.
        found = [row for row in there if row.end_us is not None or not _has_later(row, there)]
        days.append((found, records[:stop]))
    return [*days, (table, records)]


def _has_later(row: Row, there: list[Row]) -> bool:
    return any(other.stream == row.stream and other.begin_us > row.begin_us for other in there)


def with_all_before(table: list[Row], there: list[Row]) -> list[Row]:
    """Return ``there`` with all rows of the table that lie before one of them: a table grows at its end."""
    return [row for row in table if row in there or _has_later(row, there)] + [
        row for row in there if row not in table and not _has_later(row, there)
    ]


def both_days(limits: SequenceSettings, table: list[Row], records: list[Record]) -> tuple[Days, Days]:
    """Return a run that has read all at once, and one that has read nothing."""
    at_once = Days(limits, holds=True)
    at_once.run(table, records, is_last=True)
    return at_once, Days(limits, holds=True)


@given(table_settings(), rows(), arrivals(), st.data())
@settings(max_examples=examples(300))
def test_day_by_day_equals_all_at_once(
    limits: SequenceSettings, table: list[Row], records: list[Record], data: st.DataObject
) -> None:
    limits = limits.model_copy(update={"max_duration": 100_000})
    at_once, day_by_day = both_days(limits, table, records)
    days = data.draw(growths(table, records))
    for there, so_far in days[:-1]:
        day_by_day.run(with_all_before(table, there), so_far)
    day_by_day.run(*days[-1], is_last=True)
    assert day_by_day.cuts == at_once.cuts


@given(table_settings(), rows(), arrivals(), st.data())
@settings(max_examples=examples(300))
def test_late_samples_are_told_of_once_however_often_they_are_read(
    limits: SequenceSettings, table: list[Row], records: list[Record], data: st.DataObject
) -> None:
    limits = limits.model_copy(update={"max_duration": 100_000})
    at_once, day_by_day = both_days(limits, table, records)
    days = data.draw(growths(table, records, has_running=False))
    for there, so_far in days:
        there = with_all_before(table, there)  # noqa: PLW2901
        for _ in range(data.draw(st.integers(0, 2)) if so_far else 0):
            day_by_day.run(there, so_far, crash_at=data.draw(st.integers(0, len(so_far) - 1)))
        day_by_day.run(there, so_far, is_last=so_far is records)
    assert day_by_day.cuts == at_once.cuts
    assert day_by_day.late == at_once.late


@given(
    rows(streams="rs", start=0), st.lists(st.tuples(st.sampled_from("rs"), st.integers(0, 9)), max_size=30), st.data()
)
@settings(max_examples=examples(200))
def test_day_by_day_equals_all_at_once_where_each_day_ends_what_is_over(
    table: list[Row], steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    time, records = 0, []
    for stream, forward in steps:
        time += forward
        records.append(Record(stream, None, (time,), (ONE,)))
    at_once, day_by_day = Days(LIMITS, holds=False), Days(LIMITS, holds=False)
    at_once.run(table, records)
    for there, so_far in data.draw(growths(table, records)):
        day_by_day.run(with_all_before(table, there), so_far)
    assert day_by_day.cuts == at_once.cuts


@given(table_settings(), rows(streams="rs"), arrivals(streams="rs"), st.data())
@settings(max_examples=examples(300))
def test_a_row_that_comes_too_late_ends_the_run_and_is_never_left_out_in_silence(
    limits: SequenceSettings, table: list[Row], records: list[Record], data: st.DataObject
) -> None:
    at_once, day_by_day = both_days(limits, table, records)
    days = data.draw(growths(table, records))
    refused = ""
    try:
        for there, so_far in days[:-1]:
            day_by_day.run(with_all_before(table, there), so_far)
        day_by_day.run(*days[-1], is_last=True)
    except SourceError as error:
        refused = str(error)
    # A limit may have ended a sequence whose row had no end yet.
    ours, theirs = ([replace(cut, reason="") for cut in days.cuts.elements()] for days in (day_by_day, at_once))
    assert "were cut without it" in refused if refused else Counter(ours) == Counter(theirs)


A, B = Row("r", "A", 10, 20, 2), Row("r", "B", 20, 30, 3)
OTHER = Row("s", "A", 10, 20, 4)


def singles(*times: int, stream: str = "r") -> list[Record]:
    return [Record(stream, None, (time,), (ONE,)) for time in times]


def ids(cuts: Sequence[Cut]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(cut.sequence, cut.reason, cut.times) for cut in cuts]


@pytest.mark.parametrize("holds", [True, False])
def test_samples_behind_the_last_row_are_read_again_once_a_row_holds_them(holds: bool) -> None:
    days = Days(LIMITS, holds=holds)
    assert ids(days.run([A], singles(10, 15, 22, 24))) == [("A", "table", (10, 15))]
    assert days.progress is not None
    assert days.progress.low_watermark == 2
    assert ids(days.run([A, B, OTHER], singles(10, 15, 22, 24, 26, 31))) == [("B", "table", (22, 24, 26))]
    assert days.progress.low_watermark == 5


@pytest.mark.parametrize("holds", [True, False])
def test_a_batch_without_an_end_stays_open_at_the_end_of_the_input(holds: bool) -> None:
    days = Days(LIMITS, holds=holds)
    running = replace(B, end_us=None)
    assert ids(days.run([A, running], singles(15, 22, 33))) == [("A", "table", (15,))]
    assert ids(days.run([A, running], singles(15, 22, 33, 34))) == []
    assert ids(days.run([A, B], singles(15, 22, 33, 34))) == [("B", "table", (22,))]


def test_a_row_that_is_over_ends_with_the_input_unless_that_is_held() -> None:
    for holds, ended in ((False, [("A", "table", (12,))]), (True, [])):
        assert ids(Days(LIMITS, holds=holds).run([A], singles(12))) == ended


@pytest.mark.parametrize(
    "table",
    [
        [],
        [replace(A, end_us=19)],
        [replace(A, begin_us=9)],
        [replace(A, sequence="X")],
        [replace(A, stream="s")],
        [replace(A, end_us=None)],
        [Row("r", "0", 1, 9, 9), A],
    ],
)
@pytest.mark.parametrize("holds", [True, False])
def test_a_used_row_that_changes_ends_the_run(table: list[Row], holds: bool) -> None:
    days = Days(LIMITS, holds=holds)
    days.run([A], singles(10, 15, 22, 24))
    with pytest.raises(SourceError, match="the first row of r, in the order of time, changed") as raised:
        days.run(table, singles(10, 15, 22, 24, 26))
    assert str(raised.value).startswith("batches.csv: ")
    assert "put the table back" in str(raised.value)
    assert ids(days.run([A, replace(B, begin_us=24)], singles(10, 15, 22, 24, 26, 31))) == [("B", "table", (24, 26))]


def test_a_row_that_the_end_of_the_input_ended_must_keep_its_end() -> None:
    days = Days(LIMITS, holds=False)
    days.run([A], singles(10, 15))
    with pytest.raises(SourceError, match="the first row of r"):
        days.run([replace(A, end_us=30)], singles(10, 15, 22))


def test_a_row_for_samples_that_are_done_ends_the_run() -> None:
    records = singles(10, 15, 20, 24, 28, 32, 36, 40)
    days = Days(us(end=("table",), table="batches.csv", max_duration=5), holds=True)
    days.run([A], records)
    with pytest.raises(
        SourceError, match=r"line 3: B of r begins or ends at .*, but samples up to .* were cut without"
    ):
        days.run([A, B], records)
    assert ids(days.run([A, replace(B, begin_us=35, end_us=37)], records)) == [("B", "table", (36,))]


def test_rows_of_other_streams_and_rows_not_used_yet_may_change() -> None:
    days = Days(LIMITS, holds=True)
    days.run([A, B, OTHER], singles(10, 15))
    changed = [A, replace(B, sequence="C", begin_us=21), replace(OTHER, end_us=90)]
    assert ids(days.run(changed, singles(10, 15, 22, 31))) == [("A", "table", (10, 15)), ("C", "table", (22,))]


def test_a_checkpoint_from_before_the_table_goes_on() -> None:
    days = Days(LIMITS, holds=True)
    days.run([], singles(1, 2))
    assert days.progress is not None
    before = {name: msgspec.structs.replace(of, table=None) for name, of in days.progress.streams.items()}
    days.progress = msgspec.structs.replace(days.progress, streams=before)
    assert ids(days.run([A], singles(1, 2, 12, 20))) == [("A", "table", (12,))]
