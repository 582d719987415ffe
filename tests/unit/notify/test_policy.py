"""Filters, digests and quiet periods: which alerts are in which notice, at the boundaries of time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.messages import Alert, EarlyWarning, ModelRef
from streamad.notify import policy as module
from streamad.notify.policy import Arrival, Batch, Policy
from streamad.outputs.ledger import Ledger
from streamad.settings.outputs import ReceiverSettings
from tests.support.notify.plant import id_of, message


def alert(i: int, **changes: Any) -> Alert:
    found = message("alert", i)
    assert isinstance(found, Alert)
    return msgspec.structs.replace(found, **changes)


def warning(i: int) -> EarlyWarning:
    found = message("warning", i)
    assert isinstance(found, EarlyWarning)
    return found


def policy(**settings: Any) -> Policy:
    given = {"name": "first", "url": "https://a.example", "secret": {"env": "A"}, **settings}
    return Policy(ReceiverSettings.model_validate(given))


def numbers(batch: Batch | None) -> list[int] | None:
    return None if batch is None else batch.numbers


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, [0, 1, 2]),
        ({"streams": ["reactor-[01]"]}, [0, 1]),
        ({"streams": ["*-2", "reactor-0"]}, [0, 2]),
        ({"models": ["other"]}, [2]),
        ({"models": ["o*", "default"]}, [0, 1, 2]),
        ({"max_p": 0.01}, [1]),
        ({"max_p": 0.01, "streams": ["reactor-0"]}, []),
    ],
)
def test_filters(settings: dict[str, Any], wanted: list[int]) -> None:
    alerts = [alert(0), alert(1, p_value=0.01), alert(2, model=ModelRef("other", "1"))]
    found = policy(**settings)
    assert [i for i, each in enumerate(alerts) if found.wants(each)] == wanted


@pytest.mark.parametrize(
    ("on", "wanted"), [(None, [True, False]), (["warnings"], [False, True]), (["alerts", "warnings"], [True, True])]
)
def test_a_receiver_is_told_of_what_it_is_on(on: list[str] | None, wanted: list[bool]) -> None:
    found = policy() if on is None else policy(on=on)
    assert [found.wants(each) for each in (alert(0), warning(0))] == wanted
    limited = policy(on=["alerts", "warnings"], max_p=0.005)
    assert not limited.wants(warning(0))


def test_a_digest_counts_its_warnings_and_a_quiet_warning_holds_no_alert() -> None:
    found = policy(on=["alerts", "warnings"], digest="10s", quiet="60s")
    for number, each in enumerate((warning(0), alert(0), warning(3), alert(1))):
        found.add(each, number, 0.0)
    batch = found.due(0.0)
    assert batch is not None
    assert (batch.numbers, batch.n_warnings) == ([0, 1, 3], 1), "the second warning of the stream waits"
    late = found.due(60.0)
    assert late is not None
    assert (late.numbers, late.n_warnings, late.id) == ([2], 1, warning(3).warning_id)


def test_without_digest_every_alert_is_a_notice_with_its_own_id() -> None:
    found = policy()
    for i in range(3):
        found.add(alert(i), i, 0.0)
    batches = [found.due(0.0) for _ in range(4)]
    assert [numbers(batch) for batch in batches] == [[0], [1], [2], None]
    assert batches[1] is not None
    assert batches[1].id == id_of(1)
    assert found.next_s(0.0) is None


def test_a_digest_lets_the_first_go_and_gathers_until_its_time_has_passed() -> None:
    found = policy(digest="10s")
    found.add(alert(0), 0, 0.0)
    assert numbers(found.due(0.0)) == [0]
    for i in range(1, 9):
        found.add(alert(i), i, 1.0)
    assert found.due(9.999) is None
    assert found.next_s(9.0) == pytest.approx(1.0)
    batch = found.due(10.0)
    assert batch is not None
    assert (batch.count, [a.message.sequence for a in batch.first]) == (8, ["B-1", "B-2", "B-3", "B-4", "B-5"])
    assert len(batch.streams) == 3
    found.add(alert(9), 9, 30.0)
    assert numbers(found.due(30.0)) == [9], "after a silence the next one goes at once"


def test_the_same_alerts_give_a_digest_the_same_id() -> None:
    ids = set()
    for last in (3, 3, 4):
        found = policy(digest="1s")
        for i in range(last):
            found.add(alert(i), i, 0.0)
        batch = found.due(0.0)
        assert batch is not None
        ids.add(batch.id)
    assert len(ids) == 2


def test_the_same_alerts_give_a_digest_the_same_id_however_they_are_joined() -> None:
    """Partitions come in another order after a kill, and what was quiet then is joined otherwise."""
    ids = set()
    for parts in ([[1, 2, 3, 4]], [[4], [3], [2, 1]], [[2, 3], [1, 4]], [[1], [2], [3], [4]]):
        whole = Batch()
        for part in parts:
            one = Batch()
            for i in part:
                one.add(Arrival(alert(i), 0.0), i)
            whole.add_all(one)
        ids.add(whole.id)
    (name,) = ids
    assert len(name) == 32
    other = Batch()
    for i in (1, 2, 3, 5):
        other.add(Arrival(alert(i), 0.0), i)
    assert other.id != name


def test_a_quiet_stream_waits_and_comes_in_one_notice_others_go_at_once() -> None:
    found = policy(quiet="60s")
    found.add(alert(0), 0, 0.0)
    found.add(alert(3), 1, 1.0)  # of the same stream
    found.add(alert(1), 2, 2.0)
    found.add(alert(6), 3, 59.0)
    assert [numbers(found.due(59.0)) for _ in range(3)] == [[0], [2], None]
    assert found.next_s(59.0) == pytest.approx(1.0)
    assert numbers(found.due(60.0)) == [1, 3]
    found.add(alert(9), 4, 61.0)
    assert found.due(119.9) is None, "a new quiet period has begun"
    assert numbers(found.due(120.0)) == [4]
    found.add(alert(12), 5, 500.0)
    assert numbers(found.due(500.0)) == [5]


def test_ten_thousand_at_once_are_two_notices_in_bounded_memory() -> None:
    found = policy(digest="10s", quiet="1h")
    for i in range(10_000):
        found.add(alert(i), i, 0.0)
        if i == 0:
            assert numbers(found.due(0.0)) == [0]
    assert not found.is_full
    batch = found.due(10.0)
    assert batch is not None
    assert batch.numbers == [1, 2], "of the three streams the quiet ones wait"
    late = found.due(3_600.0)
    assert late is not None
    assert late.count == 9_997
    assert len(late.first) == module.MOST_SHOWN
    assert found.n_held == 0


def test_streams_that_never_come_again_are_quiet_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_QUIET", 50)
    found = policy(quiet="1d")
    for i in range(2):  # the second one waits
        found.add(alert(0), i, 0.0)
    for i in range(2, 200):
        found.add(alert(0, stream=f"s-{i}"), i, 1.0)
    told = []
    while (batch := found.due(2.0)) is not None:
        told += batch.numbers
    assert sorted(told) == list(range(200))
    found.add(alert(0, stream="s-199"), 200, 2.0)
    assert found.due(2.0) is None, "one of the latest 50 is quiet"
    found.add(alert(0, stream="s-2"), 201, 2.0)
    assert numbers(found.due(2.0)) == [201], "the quiet period of an older one has ended early"


@pytest.mark.parametrize("settings", [{"digest": "1h"}, {"quiet": "1h"}, {}])
def test_reading_pauses_at_a_bound_and_what_waits_goes_early(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 50)
    monkeypatch.setattr(module, "MOST_WAITING", 50)
    found = policy(**settings)
    found.add(alert(0), 0, 0.0)
    assert numbers(found.due(0.0)) == [0]
    n = 1
    while not found.is_full:
        found.add(alert(3 * n), n, 0.0)
        n += 1
    assert n == 51
    batch = found.due(1.0)
    assert batch is not None, "an hour has not passed, but the bound is reached"
    assert not found.is_full


@given(
    steps=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40), st.booleans()), max_size=60),
    digest_s=st.sampled_from([0, 10]),
    quiet_s=st.sampled_from([0, 15]),
)
def test_every_alert_is_in_one_notice(steps: list[tuple[int, int, bool]], digest_s: int, quiet_s: int) -> None:
    """Law: whatever comes when, each alert is in one notice, none before its time, and digests keep their distance."""
    found = policy(digest=digest_s, quiet=quiet_s)
    now_s, got, at_s = 0.0, list[int](), list[float]()
    for number, (i, pause_s, is_looked) in enumerate(steps):
        found.add(alert(i), number, now_s)
        while is_looked and (batch := found.due(now_s)) is not None:
            got += batch.numbers
            at_s.append(now_s)
        now_s += pause_s
    while (wait_s := found.next_s(now_s)) is not None:
        now_s += wait_s
        while (batch := found.due(now_s)) is not None:
            got += batch.numbers
            at_s.append(now_s)
    assert sorted(got) == list(range(len(steps)))
    assert found.n_held == 0
    assert all(b - a >= digest_s for a, b in pairwise(at_s))


@given(order=st.permutations(range(12)))
def test_messages_are_released_in_order_whatever_is_done_first(order: list[int]) -> None:
    released: list[int] = []
    ledger = Ledger(released.append)
    assert [ledger.read() for _ in order] == list(range(12))
    for position, number in enumerate(order):
        ledger.done([number])
        done = set(order[: position + 1])
        assert sum(released) == next((n for n in range(13) if n not in done), 12)
