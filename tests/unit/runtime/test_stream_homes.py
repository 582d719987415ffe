"""What claims in one order say, whoever reads them, and from where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from streamad.partition_progress import Claim
from streamad.runtime.stream_homes import LocalClaims, StreamHomes
from tests.support.runtime.claims import ClaimReader, ClaimTopic

STREAMS, PARTITIONS = ("a", "b"), ("p-0", "p-1", "p-2")


def homes_after(entries: Sequence[tuple[int, Claim]], most: int = 100) -> StreamHomes:
    class Log(LocalClaims):
        def take(self) -> Sequence[tuple[int, Claim]]:
            return entries

    homes = StreamHomes(Log(), most)
    homes.update()
    return homes


def says(homes: StreamHomes) -> dict[str, object]:
    """Everything that a worker decides by."""
    return {
        stream: (
            sorted(home.partition for home in homes.of(stream)),
            homes.is_split(stream) and (homes.teller(stream), homes.unanswered(stream)),
        )
        for stream in STREAMS
    }


steps = st.lists(
    st.tuples(st.sampled_from(("claim", "end", "say", "tell")), st.sampled_from(STREAMS), st.sampled_from(PARTITIONS)),
    max_size=40,
)


def played(script: Sequence[tuple[str, str, str]]) -> ClaimTopic:
    """A topic as owners write it: they renew only claims that live, and end only these."""
    topic = ClaimTopic()
    for what, stream, partition in script:
        homes = homes_after(topic.entries)
        home = next((home for home in homes.of(stream) if home.partition == partition), None)
        if home is None:
            topic.append([Claim(stream, partition, 5)] if what == "claim" else [])
        elif what == "end":
            topic.append([Claim(stream, partition, ended=True)])
        elif what in ("say", "tell"):
            topic.append([Claim(stream, partition, 5, home.since, 3, what == "tell")])
    return topic


@given(steps)
def test_a_compacted_log_says_the_same(script: Sequence[tuple[str, str, str]]) -> None:
    topic = played(script)
    before = says(homes_after(topic.entries))
    topic.compact()
    assert says(homes_after(topic.entries)) == before


@given(steps, st.integers(0, 40))
def test_reading_in_parts_says_the_same_as_reading_at_once(script: Sequence[tuple[str, str, str]], cut: int) -> None:
    entries = played(script).entries
    parts = [entries[:cut], entries[cut:], []]

    class Log(LocalClaims):
        def take(self) -> Sequence[tuple[int, Claim]]:
            return parts.pop(0) if parts else []

    homes = StreamHomes(Log())
    for _ in range(3):
        homes.update()
    assert says(homes) == says(homes_after(entries))


def test_the_second_claim_splits_a_stream_and_its_partition_tells_until_that_is_committed() -> None:
    entries = [(0, Claim("a", "p-0")), (1, Claim("a", "p-1")), (2, Claim("a", "p-2"))]
    homes = homes_after(entries)
    assert homes.is_split("a")
    assert homes.teller("a") == "p-1"
    assert homes.unanswered("a") == set(PARTITIONS)
    answers = [(3, Claim("a", "p-0", None, 0, 7)), (4, Claim("a", "p-1", None, 1, 0, told=True))]
    homes = homes_after([*entries, *answers])
    assert (homes.teller("a"), homes.unanswered("a")) == (None, {"p-2"})


def test_what_was_said_of_one_split_is_not_said_of_the_next() -> None:
    first = [(0, Claim("a", "p-0")), (1, Claim("a", "p-1")), (2, Claim("a", "p-1", None, 1, 0, told=True))]
    mended = [*first, (3, Claim("a", "p-0", ended=True))]
    assert not homes_after(mended).is_split("a")
    again = homes_after([*mended, (4, Claim("a", "p-0"))])
    assert (again.teller("a"), again.unanswered("a")) == ("p-0", {"p-0", "p-1"})


async def test_claims_of_many_streams_are_written_at_once_and_known_ones_never() -> None:
    topic = ClaimTopic()
    written: list[int] = []

    class Reader(ClaimReader):
        def write(self, claims: Sequence[Claim]) -> None:
            written.append(len(claims))
            super().write(claims)

    reader = Reader(topic, lambda: None)
    homes = StreamHomes(reader)
    names = [f"s-{i}" for i in range(1000)]
    homes.claim(names, "p-0", 1)
    homes.claim(names, "p-0", 1)  # not read back yet
    await asyncio.gather(*reader.tasks)
    await asyncio.gather(*reader.tasks)
    homes.update()
    homes.claim(names, "p-0", 2)
    assert written == [1000]
    assert not homes.are_awaited
    await reader.close()


def test_of_too_many_streams_the_oldest_is_forgotten_and_that_is_known() -> None:
    entries = [(i, Claim(f"s-{i}", "p-0")) for i in range(4)]
    homes = homes_after(entries, most=3)
    assert homes.has_forgotten
    assert [homes.knows(f"s-{i}", "p-0") for i in range(4)] == [False, True, True, True]


def test_the_claims_of_one_process_end_with_its_partitions() -> None:
    homes = StreamHomes(LocalClaims())
    homes.claim(["a", "b"], "p-0", 1)
    homes.claim(["a"], "p-1", 1)
    homes.update()
    homes.leave_unshared("p-0")
    assert (homes.is_split("a"), homes.knows("b", "p-0")) == (True, False)
    homes.leave("p-0", ["p-1"])
    assert homes.is_split("a")
    homes.leave("p-1", [])
    assert not homes.of("a")
