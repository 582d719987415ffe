"""A stream without a key lies in three partitions of several workers: whatever happens, it is never half judged.

Laws, over random schedules of restarts, rebalances and failing commits, with claims that take their time: once two
claims are known to a worker, it commits no verdict of the stream but ``unscorable``; so each partition's verdicts are
other ones first and then only these. One event is committed, and it counts the other ones.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streamad.messages import Event, OutputRecord, Verdict
from streamad.runtime.partition import SPLIT
from streamad.types import Record
from tests.support.runtime.pipeline import line, records_of, settings_of
from tests.support.runtime.schedules import RUN, Broker, Schedule
from tests.support.waiting import LIMIT_S

STREAMS = ("a", "b")
SEQUENCES = 12
PARTITIONS = 3


def keyless(rng: random.Random, *, whole: int = 1) -> dict[str, list[Record]]:
    """Samples of two streams spread over all partitions, each sequence in each of them, and a stream of each alone.

    The first record of each partition's streams ends no sequence; ``whole`` sequences a record follow.
    """
    logs: dict[str, list[Record]] = {}
    for number in range(PARTITIONS):
        messages = [line(stream, "s-0", [0.1 * number]) for stream in (*STREAMS, f"own-{number}")]
        rest = [
            line(stream, f"s-{i}", [10.0 * i + 0.1 * number, 10.0 * i + 1 + 0.1 * number], end=True)
            for i in range(1, SEQUENCES, whole)
            for stream in rng.sample((*STREAMS, f"own-{number}"), 3)
        ]
        messages += rest
        logs[f"in-{number}"] = records_of(messages, timestamps_s=[0.1 * i for i in range(len(messages))])
    return logs


def of_stream(outputs: Iterable[OutputRecord], stream: str) -> list[Verdict]:
    messages = [record.message for record in outputs if record.role == "verdicts"]
    return [message for message in messages if isinstance(message, Verdict) and message.stream == stream]


def by_partition(verdicts: Sequence[Verdict]) -> dict[int, list[Verdict]]:
    """The verdicts by their partition, which the fraction of their first second names."""
    found: dict[int, list[Verdict]] = {number: [] for number in range(PARTITIONS)}
    for verdict in verdicts:
        found[verdict.start_time.microsecond // 100_000].append(verdict)
    return found


def n_verdicts(outputs: Sequence[OutputRecord]) -> int:
    return sum(record.role == "verdicts" for record in outputs)


async def run(seed: int, *, claimed_first: bool) -> Broker:
    rng = random.Random(seed)
    broker = Broker(keyless(rng), rng)
    broker.share_failing = rng.choice([0.0, 0.1, 0.4])
    settings = settings_of(sequences={"end": ["marker"]}, run=RUN)
    lag = rng.choice([2, 12, 400])
    broker.claims.lag = lambda: broker.pause(lag)
    schedule = Schedule(broker, rng, settings, publish_every=30)
    if claimed_first:
        broker.ends = dict.fromkeys(broker.logs, len(STREAMS) + 1)
        async with asyncio.timeout(LIMIT_S):
            while not (broker.claims.is_quiet and all(len(broker.claims.living(s)) == PARTITIONS for s in STREAMS)):
                await schedule.step()
    n = PARTITIONS * (len(STREAMS) + 1) * (SEQUENCES - 1)
    await schedule.run(40, n, n_verdicts)
    assert n_verdicts(broker.outputs) == n
    assert broker.n_unclaimed == 0, "a verdict did not wait for its claim"
    return broker


def told(events: Sequence[Event]) -> Counter[str | None]:
    return Counter(event.stream for event in events if event.kind == "stream_in_two_partitions")


@pytest.mark.parametrize("seed", range(10))
async def test_known_to_be_claimed_in_all_partitions_before_a_sequence_ends_no_fragment_is_judged(seed: int) -> None:
    broker = await run(seed, claimed_first=True)
    for stream in STREAMS:
        assert {(verdict.decision, verdict.detail) for verdict in of_stream(broker.outputs, stream)} == {
            ("unscorable", SPLIT)
        }
    for number in range(PARTITIONS):
        assert {verdict.decision for verdict in of_stream(broker.outputs, f"own-{number}")} == {"normal"}
    assert told(broker.events) == dict.fromkeys(STREAMS, 1)
    assert all("which stand: 0;" in event.message for event in broker.events)


@hypothesis_settings(max_examples=30)
@given(seed=st.integers(0, 1 << 32))
def test_whatever_comes_first_nothing_but_unscorable_follows_and_one_event_counts_what_stands(seed: int) -> None:
    broker = asyncio.run(run(seed, claimed_first=False))
    for stream in STREAMS:
        n_standing = 0
        for verdicts in by_partition(of_stream(broker.outputs, stream)).values():
            reasons = [verdict.detail == SPLIT for verdict in verdicts]
            assert len(reasons) == SEQUENCES - 1
            assert reasons == sorted(reasons), "a fragment was judged after the stream was known to be split"
            n_standing += reasons.count(False)
        (event,) = [event for event in broker.events if event.stream == stream]
        assert f"which stand: {n_standing};" in event.message
    assert told(broker.events) == dict.fromkeys(STREAMS, 1)
