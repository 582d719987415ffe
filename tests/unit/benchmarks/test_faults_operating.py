"""What the kill benchmark says of notices: a repeat is wrong unless ``streamad notify`` was killed in between."""

from __future__ import annotations

from benchmarks.faults_operating import WRONG, notice_figures


def test_missing_foreign_and_repeated_notices_are_counted() -> None:
    taken = [(1.0, "a"), (1.5, "b"), (1.6, "b"), (3.0, "a"), (3.1, "x"), (3.2, "a")]
    figures = notice_figures({"a", "b", "c"}, taken, [2.0])
    assert figures == {
        "alerts_without_notice": 1,
        "notices_of_no_alert": 1,
        "notices": 6,
        "notices_repeated": 3,
        "notices_repeated_without_a_kill": 2,
    }
    assert set(figures) >= {name for name in WRONG if not name.startswith("scrapes")}


def test_a_notice_that_was_on_its_way_at_a_kill_belongs_to_the_killed_life() -> None:
    assert notice_figures({"a"}, [(2.05, "a"), (4.0, "a")], [2.0])["notices_repeated_without_a_kill"] == 0
