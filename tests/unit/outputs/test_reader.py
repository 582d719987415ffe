"""The reader of committed messages: what is done, what is skipped and named, and that it closes what it reads from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from streamad.messages import Alert, Event, Feedback, Verdict, Window
from streamad.outputs.reader import Decoder, Reader, Skipped, Unreadable
from streamad.ports import StoredMessage
from tests.support.web.messages import T, messages_of, verdict


class Place:
    """A subscription to ``given``, which ends with them; it counts how many of them are done."""

    options_model = BaseModel

    def __init__(self, *given: bytes | StoredMessage) -> None:
        self._given = [
            each if isinstance(each, StoredMessage) else StoredMessage(each, f"line {number}")
            for number, each in enumerate(given)
        ]
        self.n_asked = self.n_done = self.n_closed = 0

    async def messages(self) -> AsyncIterator[StoredMessage]:
        for number, each in enumerate(self._given):
            self.n_done = max(self.n_done, number)
            self.n_asked = number + 1
            yield each
        self.n_done = len(self._given)

    def done(self) -> None:
        self.n_done = self.n_asked

    async def close(self) -> None:
        self.n_closed += 1


class HeldPlace(Place):
    """Its messages are done by ``release`` alone."""

    async def messages(self) -> AsyncIterator[StoredMessage]:
        for each in self._given:
            yield each

    def hold(self) -> None: ...

    def release(self, n: int) -> None:
        self.n_done += n


def line(message: Any, **changes: Any) -> bytes:
    fields = msgspec.to_builtins(message) | changes
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not ...})


def verdicts(n: int) -> list[bytes]:
    return [line(verdict(number)) for number in range(n)]


async def test_a_message_is_done_when_the_next_one_is_asked_for_or_at_an_end_without_an_error() -> None:
    place = Place(*verdicts(3))
    async with Reader(place, Decoder((Verdict,))) as messages:
        assert (await anext(aiter(messages))).message.sequence == "B-0"
        assert place.n_done == 0
        assert (await anext(aiter(messages))).place == "line 1"
        assert place.n_done == 1
    assert place.n_done == 2
    assert place.n_closed


async def test_a_message_whose_reader_fails_is_not_done_and_the_place_is_closed() -> None:
    place = Place(*verdicts(2))

    async def failing() -> None:
        async with Reader(place, Decoder((Verdict,))) as messages:
            async for _ in messages:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert place.n_done == 0
    assert place.n_closed


async def test_an_end_without_async_with_closes_the_place_too() -> None:
    place = Place(*verdicts(2))
    assert [one.message.sequence async for one in Reader(place, Decoder((Verdict,)))] == ["B-0", "B-1"]
    assert place.n_closed


@given(order=st.permutations(range(6)), bad=st.sets(st.integers(0, 5)))
def test_read_ahead_a_group_begins_with_the_first_message_that_is_not_done(order: list[int], bad: set[int]) -> None:
    """Whatever is skipped is done by itself, but never before what lies before it."""
    place = HeldPlace(*(b"{" if number in bad else each for number, each in enumerate(verdicts(6))))
    skipped = Skipped()

    async def read() -> None:
        async with Reader(place, Decoder((Verdict,)), on_unreadable=skipped.add, ahead=True) as messages:
            found = []
            while batch := await messages.arrived():
                found += batch
            assert [one.number for one in found] == [number for number in range(6) if number not in bad]
            done = set(bad)
            for number in order:
                if number not in bad:
                    messages.done([number])
                    done.add(number)
                assert place.n_done == next((each for each in range(6) if each not in done), 6)

    asyncio.run(read())
    assert skipped.n == len(bad)
    assert place.n_closed


async def test_a_place_that_cannot_hold_gives_one_message_after_the_other() -> None:
    place = Place(*verdicts(2))
    async with Reader(place, Decoder((Verdict,)), ahead=True) as messages:
        for number in range(2):
            (one,) = await messages.arrived()
            messages.done([one.number])
            assert (one.message.sequence, place.n_done) == (f"B-{number}", number)
        assert await messages.arrived() == []
    assert place.n_done == 2


async def kinds_read(given: Sequence[bytes | StoredMessage], decoder: Decoder[Any]) -> tuple[list[str], list[str]]:
    """Return the kinds of the messages, and why the others are unreadable."""
    told: list[Unreadable] = []
    async with Reader(Place(*given), decoder, on_unreadable=told.append) as messages:
        return [type(one.message).__name__ async for one in messages], [each.why for each in told]


async def test_messages_of_other_kinds_are_not_wanted_and_in_a_place_of_their_own_unreadable() -> None:
    lines = [line(each) for each in messages_of(1)[:5]]
    kinds = ["Verdict", "Alert", "Attribution", "Window", "Feedback"]
    assert await kinds_read(lines, Decoder((Alert, Verdict))) == (["Verdict", "Alert"], [])
    found, told = await kinds_read(lines, Decoder((Alert, Verdict), only=True))
    assert found == ["Verdict", "Alert"]
    assert [why.split("'")[1] for why in told] == [kind.lower() for kind in kinds[2:]]


async def test_what_is_no_message_or_is_refused_is_unreadable() -> None:
    given = [
        b"not JSON",
        line(verdict(1), type="weather"),
        line(verdict(1), type=...),
        line(verdict(1), verdict_id="../x"),
        line(verdict(1), detail="x" * (1 << 20)),
        StoredMessage(b"", "line 5", problem="a line longer than max_record_bytes"),
        StoredMessage(b"", "line 6", key=b"removed"),
        line(verdict(1)),
    ]
    found, told = await kinds_read(given, Decoder((Verdict,)))
    assert found == ["Verdict"]
    expected = ["malformed", "'weather'", "no field `type`", "'../x'", "longer than 1048576", "max_record_bytes", ""]
    for why, part in zip(told, expected, strict=True):
        assert part in why


async def test_without_a_check_messages_are_taken_as_they_are() -> None:
    odd = [line(verdict(1), verdict_id="../x"), line(verdict(1), detail="x" * (1 << 20))]
    assert await kinds_read(odd, Decoder((Verdict,), accept=None)) == (["Verdict", "Verdict"], [])


async def test_the_id_is_asked_for_before_a_message_is_decoded() -> None:
    given = [line(each) for each in messages_of(1)[:4]] + [line(each, values="?") for each in messages_of(2)[3:4]]
    asked: list[str] = []

    def is_wanted(name: str) -> bool:
        asked.append(name)
        return False

    assert await kinds_read(given, Decoder((Window, Verdict), is_wanted=is_wanted)) == ([], [])
    assert asked == [f"{1:032x}"] * 4 + [f"{2:032x}"]


async def test_a_mark_may_lack_its_type_and_an_event_may_not() -> None:
    mark = Feedback(alert_id="a1", judgement="veto", created_at=T)
    event = Event(kind="drift", message="", created_at=T)
    given = [line(mark, type=...), line(mark, type="hmi"), line(mark, type=5), line(event, type=...)]
    found, told = await kinds_read(given, Decoder((Feedback, Event)))
    assert found == ["Feedback"] * 3
    assert len(told) == 1


async def test_a_key_of_a_topic_that_was_removed_is_told() -> None:
    removed: list[str] = []
    place = Place(StoredMessage(b"", "topic[0]", key=b"a/b"), StoredMessage(line(verdict(1)), "topic[0]", key=b"c"))
    async with Reader(place, Decoder((Verdict,)), on_removed=removed.append) as messages:
        assert [one.message.sequence async for one in messages] == ["B-1"]
    assert removed == ["a/b"]


@pytest.mark.parametrize(("n", "lines"), [(0, ""), (1, "1 line is"), (2, "2 lines are")])
def test_what_was_skipped_is_counted_and_the_first_is_named(n: int, lines: str) -> None:
    skipped = Skipped()
    for number in range(n):
        skipped.add(Unreadable(f"alerts.jsonl, byte {number}", "it is cut"))
    told = f"{lines} unreadable and left out, the first: alerts.jsonl, byte 0: it is cut"
    assert skipped.text == (told if n else "")
