"""Warnings of running sequences: at most one each, the same ones whatever the timing, never after the verdict."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamad.errors import PartitionLost
from streamad.judge.attribution import METHOD
from streamad.judge.early import pinned
from streamad.judge.early.looking import Looking
from streamad.judge.early.model import early_model
from streamad.judge.explainer import Ledger as Debts
from streamad.judge.judging import Judge
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.judge.verdicts import make_early_attribution
from streamad.messages import NO_METHOD, Attribution, EarlyWarning, Event, ModelRef, OpenSequence, OutputRecord, Verdict
from streamad.partition_progress import LooksTaken
from streamad.runtime.reports import MOST_LOOKED, MOST_OPEN, open_sequences
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource, ManualClock
from streamad.types import FinishedSequence, PartitionAssigned, Position, Record, RecordBatch
from tests.support.runtime.early import AGES, LONGEST, RATE, looks, model
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import (
    CHANNELS,
    START_US,
    Run,
    SquareScorer,
    TickingClock,
    explainer_of,
    line,
    messy_recordings,
    model_of,
    records_of,
    run_pipeline,
    settings_of,
    until,
)
from tests.support.waiting import LIMIT_S


def settings(lateness: str = "3s", end: Sequence[str] = ("marker", "change"), **sections: Any) -> Settings:
    return settings_of(
        alerts={"early": {"false_alarm_rate": RATE}},
        sequences={"allowed_lateness": lateness, "end": end},
        run={"commit_interval": "1ms", "batch_wait": 0, "batch_windows": 2},
        **sections,
    )


def recordings(seed: int, n_sequences: int = 8) -> dict[str, list[Record]]:
    return {
        "p": records_of(messy_recordings(seed, streams=["a", "b"], sequences=n_sequences)),
        "q": records_of(messy_recordings(seed + 50, streams=["c"], sequences=n_sequences)),
    }


def check_law(commits: Iterable[Iterable[OutputRecord]]) -> dict[str, tuple[int, float, float]]:
    """Return each warning by its id; none comes twice, or after the verdict that names it."""
    found: dict[str, tuple[int, float, float]] = {}
    judged: set[tuple[str, str]] = set()
    named: dict[str, float] = {}
    for outputs in commits:
        for message in (record.message for record in outputs):
            if isinstance(message, EarlyWarning):
                assert message.warning_id not in found, "a warning came twice"
                assert (message.stream, message.sequence) not in judged, "a warning came after its verdict"
                found[message.warning_id] = message.look, message.p_value, message.age
            elif isinstance(message, Verdict):
                judged.add((message.stream, message.sequence))
                if message.warning is not None:
                    assert message.warning.warning_id in found, "a verdict names a warning that did not come"
                    named[message.warning.warning_id] = message.warning.age
    assert named == {name: age for name, (_, _, age) in found.items()}
    return found


def long_ones(ledger: Ledger) -> list[tuple[str | None, str]]:
    """Stream and name of each sequence that was said to go on beyond all in training, as often as it was."""
    return sorted((each.stream, each.message.split(":")[0]) for each in events_of(ledger, "runs_long"))


def events_of(ledger: Ledger, kind: str) -> list[Event]:
    messages = [each.message for outputs in outputs_of(ledger) for each in outputs if each.role == "events"]
    return [each for each in messages if isinstance(each, Event) and each.kind == kind]


def outputs_of(ledger: Ledger) -> list[list[OutputRecord]]:
    return [list(outputs) for _, outputs in ledger.commits]


def verdicts_of(ledger: Ledger) -> list[Any]:
    """What is said of each sequence, but for the warning and the time."""
    found = [message for outputs in outputs_of(ledger) for message in (each.message for each in outputs)]
    verdicts = [each for each in found if isinstance(each, Verdict)]
    return sorted((each.verdict_id, each.decision, each.score, each.p_value, each.detail) for each in verdicts)


async def undisturbed(seed: int, **sections: Any) -> Ledger:
    ledger = Ledger()
    await run_pipeline(ListSource.of(recordings(seed)), settings(**sections), model=model(), committer=ledger)
    return ledger


async def test_odd_sequences_are_warned_of_once_and_only_they() -> None:
    ledger = await undisturbed(1)
    found = check_law(outputs_of(ledger))
    messages = [each.message for outputs in outputs_of(ledger) for each in outputs]
    scored = [each for each in messages if isinstance(each, Verdict) and each.decision in ("normal", "anomalous")]
    odd = [each for each in scored if each.decision == "anomalous" and each.n_samples > AGES[0]]
    assert len(odd) > 2
    assert {each.warning is not None for each in odd} == {True}
    assert {each.warning is None for each in scored if each.decision == "normal"} == {True}
    assert {look for look, _, _ in found.values()} == {1}, "values are odd from the first sample on"
    beyond = sorted((each.stream, each.sequence) for each in scored if each.n_samples - 1 > LONGEST)
    assert 1 < len(beyond) < len(scored)
    assert [each for each in long_ones(ledger) if each in beyond] == beyond, "once each, with or without a warning"
    short = {(each.stream, each.sequence) for each in scored} - {*beyond}
    assert not short & {*long_ones(ledger)}


async def test_samples_in_chunks_or_one_by_one_give_the_same_warnings() -> None:
    found = []
    for n_together in (1, 3, 100):
        messages = []
        for number in range(6):
            n, n_odd = 5 + number, min(2 * number, 7)
            values = [1.0] * (n - n_odd) + [10.0] * n_odd
            for value in (1.0, 10.0):
                times = [20.0 * number + at for at in range(n) if values[at] == value]
                parts = [times[at : at + n_together] for at in range(0, len(times), n_together)]
                messages += [line("a", str(number), part, value) for part in parts]
            messages.append(line("a", str(number), [20.0 * number + n], 1.0, end=True))
        warned, run = await warned_in(settings("0s"), messages, model=model())
        found.append((warned, [(each.sequence, each.warning) for each in run.verdicts]))
    assert found[0] == found[1] == found[2]
    assert {look for look, _, _ in found[0][0].values()} == {2, 3}


async def test_looks_wait_while_finished_sequences_are_scored_and_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, asked, is_idle = Ledger(), list[bool](), False

    def idle(_: MicroBatcher) -> bool:
        asked.append(is_idle)
        return is_idle

    monkeypatch.setattr(MicroBatcher, "is_idle", property(idle))
    records = tuple(records_of(turning_odd(8, 5)))
    script = ListSource([PartitionAssigned("p"), RecordBatch("p", records, len(records))], endless=True)

    async def stop(run: Run, _: asyncio.Task[None]) -> None:
        nonlocal is_idle
        await until(lambda: len(asked) > 3 or bool(warnings_of(ledger)))
        assert warnings_of(ledger) == []
        is_idle = True
        await until(lambda: bool(warnings_of(ledger)))
        run.pipeline.request_stop()

    await run_pipeline(script, settings("0s"), model=model(), committer=ledger, while_running=stop)
    assert [each.look for each in warnings_of(ledger)] == [2]


async def test_an_onlooker_hears_of_a_warning_before_the_verdict_that_names_it() -> None:
    run = await run_pipeline(ListSource.of(recordings(1)), settings(), model=model(), committer=Ledger())
    heard: set[str] = set()
    for each in run.told:
        if isinstance(each, EarlyWarning):
            heard.add(each.warning_id)
        else:
            assert each.warning is None or each.warning.warning_id in heard
    assert heard


async def test_looks_change_nothing_of_the_verdicts() -> None:
    without = Ledger()
    plain = settings().model_copy(update={"alerts": settings_of().alerts})
    await run_pipeline(ListSource.of(recordings(1)), plain, model=model(), committer=without)
    assert verdicts_of(await undisturbed(1)) == verdicts_of(without)


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_whichever_commits_fail_the_warnings_are_the_same(in_doubt: bool) -> None:
    ledger = Ledger(failing={number: (PartitionLost("p", "gone"), in_doubt) for number in range(2, 20, 3)})
    source = ListSource.of(recordings(2), batch_records=3)
    run = await run_pipeline(source, settings(), model=model(), committer=ledger)
    assert run.pipeline.counters.commits_failed >= 3
    whole = await undisturbed(2)
    assert check_law(outputs_of(ledger)) == check_law(outputs_of(whole))
    assert long_ones(ledger) == long_ones(whole)


async def test_a_restart_at_any_record_gives_the_same_warnings() -> None:
    whole = await undisturbed(3)
    expected, long = check_law(outputs_of(whole)), long_ones(whole)
    assert len(expected) > 3
    records = recordings(3)
    for n_first in range(1, len(records["p"])):
        ledger = Ledger()
        first = tuple(records["p"][:n_first])

        async def stop(run: Run, _: asyncio.Task[None], n_first: int = n_first, ledger: Ledger = ledger) -> None:
            await until(lambda: "p" in ledger.progress and ledger.progress["p"].next_offset == n_first)
            run.pipeline.request_stop()

        script = ListSource([PartitionAssigned("p"), RecordBatch("p", first, n_first)], endless=True)
        await run_pipeline(script, settings(), model=model(), committer=ledger, while_running=stop)
        await run_pipeline(ListSource.of(records), settings(), model=model(), committer=ledger)
        assert check_law(outputs_of(ledger)) == expected, f"after record {n_first}"
        assert long_ones(ledger) == long, f"after record {n_first}"


def moving(name: str, at: float, n: int = 9) -> list[bytes]:
    """Sequence ``name`` of single samples around 1, whose flow moves from 1 to 2 at a time."""
    start = 100.0 * int(name)
    found = [line("a", name, [start + each], 1.0, end=each == n - 1) for each in range(n)]
    odd = [message.replace(b"1.0]]", b"2.0]]") for message in found]
    return [new if each >= at else old for each, (old, new) in enumerate(zip(found, odd, strict=True))]


async def test_a_channel_that_moves_before_it_ever_did_is_an_event_once_and_no_warning_wherever_it_restarts() -> None:
    flow = {CHANNELS.index("flow"): 1.0}
    service = model(early=looks(still={2: flow, 4: flow}))
    records = records_of([message for name, at in enumerate((1.0, 3.0, 4.0, 9.0)) for message in moving(str(name), at)])
    expected = ["0: flow moved within 2 points, earlier than in all training sequences",
                "1: flow moved within 4 points, earlier than in all training sequences"]  # fmt: skip
    for n_first in range(1, len(records)):
        ledger = Ledger()
        first = tuple(records[:n_first])

        async def stop(run: Run, _: asyncio.Task[None], n_first: int = n_first, ledger: Ledger = ledger) -> None:
            await until(lambda: "p" in ledger.progress and ledger.progress["p"].next_offset == n_first)
            run.pipeline.request_stop()

        script = ListSource([PartitionAssigned("p"), RecordBatch("p", first, n_first)], endless=True)
        await run_pipeline(script, settings("0s"), model=service, committer=ledger, while_running=stop)
        await run_pipeline(ListSource.of({"p": records}), settings("0s"), model=service, committer=ledger)
        # Sorted: a look at what runs may be committed before the verdict on what has ended.
        moved = sorted(each.message for each in events_of(ledger, "moved_early"))
        assert moved == expected, f"after record {n_first}"
        assert check_law(outputs_of(ledger)) == {}


def turning_odd(n: int, n_odd: int) -> list[bytes]:
    """A sequence of single samples, the last ``n_odd`` of ``n`` around 10."""
    values = [1.0] * (n - n_odd) + [10.0] * n_odd
    return [line("a", "1", [float(number)], value) for number, value in enumerate(values)]


async def run_until_warned(
    ledger: Ledger,
    messages: list[bytes],
    plant: Settings,
    look: Callable[[Run], None] = lambda _: None,
    n_looked: int = 1,
    **more: Any,
) -> Run:
    """Feed the messages of sequences that go on, until looks at ``n_looked`` streams are committed; then ``look``."""

    def n_committed() -> int:
        return sum(bool(each.looks) for each in ledger.progress["p"].streams.values()) if "p" in ledger.progress else 0

    async def stop(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.status.gauges().open_sequences >= n_looked and n_committed() >= n_looked)
        look(run)
        run.pipeline.request_stop()

    records = tuple(records_of(messages))
    script = ListSource([PartitionAssigned("p"), RecordBatch("p", records, len(records))], endless=True)
    return await run_pipeline(script, plant, committer=ledger, while_running=stop, **more)


async def test_a_running_sequence_is_warned_of_before_it_ends_with_its_reasons() -> None:
    ledger = Ledger()
    plant = settings("0s", sinks={"attributions": "file:why.jsonl"})
    await run_until_warned(ledger, turning_odd(8, 5), plant, model=model())
    messages = [each.message for outputs in outputs_of(ledger) for each in outputs]
    (warning,) = [each for each in messages if isinstance(each, EarlyWarning)]
    (why,) = [each for each in messages if isinstance(each, Attribution)]
    assert not [each for each in messages if isinstance(each, Verdict)]
    assert (warning.look, warning.n_points, warning.age) == (2, 4, 0.5)
    assert warning.time - warning.start_time == timedelta(seconds=3)
    assert (why.alert_id, why.score) == (warning.warning_id, warning.score)
    assert sum(each.share for each in why.channels) == pytest.approx(1.0)


def told(found: list[OpenSequence]) -> Callable[[Run], None]:
    """Return what takes the open sequences as the status says them."""

    def look(run: Run) -> None:
        found.extend(
            one.message() for one in open_sequences(run.pipeline.status.partitions.values(), run.pipeline.looking)
        )

    return look


async def test_the_status_says_what_looks_have_found_at_a_running_sequence() -> None:
    ledger, found = Ledger(), list[OpenSequence]()
    await run_until_warned(ledger, turning_odd(8, 5), settings("0s"), told(found), model=model())
    ((first, looked),) = [(one, one.looked) for one in found]
    assert looked is not None
    assert (first.sequence, looked.model, looked.age) == ("1", ModelRef("test", "0001"), 7 / 8)
    assert (looked.ages, looked.p_value) == ([0.25, 0.5, 0.75], 1 / 200)
    assert looked.largest == sorted(looked.largest)
    assert looked.limit is not None
    assert [each >= looked.limit for each in looked.largest] == [False, True, True], "the second look has warned"
    (progress,) = ledger.progress["p"].streams["a"].looks.values()
    assert progress.warning is not None
    assert looked.warning_id == progress.warning.warning_id


async def test_the_largest_deviation_so_far_never_falls_also_if_later_looks_find_less() -> None:
    ledger, found = Ledger(), list[OpenSequence]()
    values = [2.0] * 2 + [1.0] * 6
    calming = [line("a", "1", [float(number)], value) for number, value in enumerate(values)]
    await run_until_warned(ledger, calming, settings("0s"), told(found), model=model())
    (looked,) = [one.looked for one in found]
    assert looked is not None
    assert looked.largest == [pytest.approx(np.log(4), abs=1e-3)] * 3
    (progress,) = ledger.progress["p"].streams["a"].looks.values()
    assert progress.largest == pytest.approx(looked.largest[0], abs=1e-3)


async def test_after_a_restart_the_status_goes_on_with_the_largest_deviation_so_far() -> None:
    ledger, found = Ledger(), list[OpenSequence]()
    await run_until_warned(ledger, turning_odd(5, 0), settings("0s"), model=model())
    await run_until_warned(ledger, turning_odd(5, 0), settings("0s"), told(found), model=model())
    (looked,) = [one.looked for one in found]
    assert looked is not None
    assert (looked.ages, len(looked.largest), looked.warning_id) == ([0.5], 1, None)


async def test_the_status_names_those_with_the_lowest_p_first_and_says_of_few_how_they_are() -> None:
    ledger, found = Ledger(), list[OpenSequence]()
    plant = settings("0s")
    messages = [
        line(f"s-{number:03}", "1", [float(at)], 1.0 + number / 100) for at in range(4) for number in range(230)
    ]
    await run_until_warned(ledger, messages, plant, told(found), model=model(), n_looked=230)
    assert len(found) == MOST_OPEN
    looked = [one.looked for one in found[:MOST_LOOKED]]
    assert {one.stream for one in found[:MOST_LOOKED]} == {f"s-{number}" for number in range(210, 230)}
    assert [one.looked for one in found[MOST_LOOKED:]] == [None] * (MOST_OPEN - MOST_LOOKED)
    p_values = [one.p_value for one in looked if one is not None]
    assert len(p_values) == MOST_LOOKED
    assert p_values == sorted(p_values)


@pytest.mark.parametrize(("begun", "served"), [("0001", "0002"), ("0002", "0001")], ids=["promoted", "rolled back"])
async def test_another_version_put_into_service_does_not_look_at_what_has_begun(begun: str, served: str) -> None:
    quiet, ledger = model(begun, looks((2,))), Ledger()
    await run_until_warned(ledger, turning_odd(4, 0), settings("0s"), model=quiet)
    (taken,) = ledger.progress["p"].streams["a"].looks.values()
    assert (taken.model.version, taken.n, taken.warning) == (begun, 1, None)
    whole = ListSource.of({"p": records_of([*turning_odd(9, 5), line("a", "1", [9.0], 10.0, end=True)])})
    run = await run_pipeline(whole, settings("0s"), model=model(served), versions={begun: quiet}, committer=ledger)
    assert check_law(outputs_of(ledger)) == {}, "it has no look at the odd end"
    assert [each.model for each in run.verdicts] == [ModelRef("test", served)]
    other = Ledger()
    await run_pipeline(
        ListSource.of({"p": records_of([*turning_odd(9, 5), line("a", "1", [9.0], 10.0, end=True)])}),
        settings("0s"), model=model(served), committer=other,
    )  # fmt: skip
    assert len(check_law(outputs_of(other))) == 1


async def test_a_version_that_cannot_be_loaded_ends_its_looks_with_an_event() -> None:
    ledger = Ledger()
    await run_until_warned(ledger, turning_odd(4, 0), settings("0s"), model=model("0001", looks((2,))))
    whole = ListSource.of({"p": records_of([*turning_odd(9, 5), line("a", "1", [9.0], 10.0, end=True)])})
    run = await run_pipeline(whole, settings("0s"), model=model("0002"), versions={}, committer=ledger)
    assert check_law(outputs_of(ledger)) == {}
    assert [event.kind for event in run.events] == ["looks_ended"]


class Unreadable(dict[str, ModelInService]):
    """Versions of which the first ``n`` attempts to load one fail, as a network share does for a while."""

    def __init__(self, n: int) -> None:
        super().__init__({"0001": model()})
        self.n_left = n

    def __getitem__(self, version: str) -> ModelInService:
        self.n_left -= 1
        if self.n_left >= 0:
            raise OSError(errno.EIO, "Input/output error")
        return super().__getitem__(version)


@pytest.mark.parametrize(("n", "n_warned"), [(1, 1), (2, 1), (1_000_000, 0)])
async def test_a_version_that_cannot_be_read_for_a_moment_still_takes_its_looks(
    n: int, n_warned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "LIMIT_S", 1e6)  # the clock runs faster than any thread
    ledger = Ledger()
    await run_until_warned(ledger, turning_odd(4, 0), settings("0s"), model=model())
    assert warnings_of(ledger) == []
    whole = ListSource.of({"p": records_of([*turning_odd(9, 5), line("a", "1", [9.0], 10.0, end=True)])})
    versions, plant, clock = Unreadable(n), settings("0s"), ManualClock(START_US)
    plant = plant.model_copy(update={"run": plant.run.model_copy(update={"stall_timeout": 0})})

    async def let_time_pass(_: Run, task: asyncio.Task[None]) -> None:
        while not task.done():
            clock.advance(0.01)
            await asyncio.sleep(0)

    run = await run_pipeline(
        whole, plant, clock=clock, model=model("0002"), versions=versions, committer=ledger, while_running=let_time_pass
    )
    assert [each.model.version for each in warnings_of(ledger)] == ["0001"] * n_warned
    assert [each.warning is not None for each in run.verdicts] == [bool(n_warned)]
    assert [event.kind for event in run.events if event.kind != "runs_long"] == ["looks_ended"] * (not n_warned)
    assert n - versions.n_left <= 3, "no busy loop"


async def test_before_the_first_model_and_without_looks_of_its_own_nothing_is_warned_of() -> None:
    plant, clock = settings(), TickingClock(0.001)
    for batchers in (MicroBatcher(None, clock, plant.run), MicroBatcher(model_of(), clock, plant.run)):
        ledger = Ledger()
        await run_pipeline(ListSource.of(recordings(1)), plant, clock=clock, batchers=batchers, committer=ledger)
        assert check_law(outputs_of(ledger)) == {}


async def test_looks_at_a_finished_sequence_do_not_keep_its_window_from_the_next_batch() -> None:
    """A window that came only after its looks would miss the flush, and wait ``run.batch_wait`` for another."""
    plant, clock = settings(), ManualClock(START_US)
    batcher = MicroBatcher(model(), clock, plant.run.model_copy(update={"batch_wait": 3_600_000_000}))
    looking = Looking(plant, batcher, clock, load=lambda _: model(), explainer=None, emit=lambda *_, **__: None)
    times_us = START_US + np.arange(7, dtype=np.int64) * 1_000_000
    odd = FinishedSequence("a", "1", "marker", times_us, np.full((7, 3), 10, np.float32), Position(0, 0))
    judging = asyncio.create_task(Judge(plant, batcher, clock, None, looking).judge(odd, Debts()))
    await asyncio.sleep(0)  # as the pipeline does before it flushes
    batcher.flush()
    judged = await asyncio.wait_for(judging, LIMIT_S)
    assert judged.verdict.decision == "anomalous"
    assert judged.verdict.warning is not None
    await batcher.close()


@pytest.mark.parametrize(("n_odd", "decision"), [(3, "normal"), (9, "anomalous")])
async def test_a_warning_at_the_end_has_reasons_of_its_own_only_if_no_alert_has_them(n_odd: int, decision: str) -> None:
    plant, clock = settings("0s"), TickingClock(0.001)
    batcher, explainer = MicroBatcher(model(), clock, plant.run), explainer_of(plant, clock, model())
    looking = Looking(plant, batcher, clock, load=lambda _: model(), explainer=explainer, emit=lambda *_, **__: None)
    times_us = START_US + np.arange(9, dtype=np.int64) * 1_000_000
    values = np.where(np.arange(9)[:, None] < n_odd, 2.0, 0.5).repeat(3, axis=1).astype(np.float32)
    sequence = FinishedSequence("a", "1", "marker", times_us, values, Position(0, 0))
    judged = await Judge(plant, batcher, clock, explainer, looking).judge(sequence, Debts())
    assert judged.verdict.decision == decision
    messages = [each.message for each in judged.outputs(with_verdicts=True)]
    (warning,) = [each for each in messages if isinstance(each, EarlyWarning)]
    reasons = [each for each in messages if isinstance(each, Attribution)]
    if decision == "normal":
        (why,) = reasons
        assert (why.alert_id, why.method, why.score) == (warning.warning_id, METHOD, warning.score)
        assert messages.index(why) < messages.index(judged.verdict)
    else:
        assert (reasons, judged.debt is not None) == ([], True), "those of the alert follow"
    explainer.close()
    await batcher.close()


async def test_the_reasons_of_a_thousand_warnings_at_the_end_hold_up_few_verdicts() -> None:
    plant, clock, n = settings("0s"), TickingClock(0.001), 1000
    batcher = MicroBatcher(model(), clock, plant.run.model_copy(update={"batch_windows": n}))
    explained, may_explain = list[str](), asyncio.Event()

    async def of_look(warning: EarlyWarning, *_: object) -> Attribution:
        explained.append(warning.sequence)
        await may_explain.wait()
        return make_early_attribution(warning, None, plant.channel_specs, METHOD)

    explainer: Any = SimpleNamespace(of_look=of_look)
    looking = Looking(plant, batcher, clock, load=lambda _: model(), explainer=explainer, emit=lambda *_, **__: None)
    judge = Judge(plant, batcher, clock, explainer, looking)
    times_us = START_US + np.arange(9, dtype=np.int64) * 1_000_000
    values = np.where(np.arange(9)[:, None] < 3, 2.0, 0.5).repeat(3, axis=1).astype(np.float32)
    ended = [FinishedSequence("a", str(number), "marker", times_us, values, Position(number, 0)) for number in range(n)]
    judging = [asyncio.create_task(judge.judge(each, Debts())) for each in ended]
    await until(lambda: sum(task.done() for task in judging) == n - 8)
    assert len(explained) == 8
    may_explain.set()
    for judged in await asyncio.gather(*judging):
        messages = [each.message for each in judged.outputs(with_verdicts=True)]
        (why,) = [each for each in messages if isinstance(each, Attribution)]
        assert why.method == (METHOD if why.sequence in explained else NO_METHOD)
        assert judged.verdict.decision == "normal"
    await batcher.close()


async def test_of_versions_that_serve_no_more_those_needed_last_stay_in_memory() -> None:
    plant, clock, loaded = settings("0s"), TickingClock(0.001), list[str]()
    batcher = MicroBatcher(model("0009"), clock, plant.run)

    def load(ref: ModelRef) -> ModelInService:
        loaded.append(ref.version)
        return model(ref.version)

    looking = Looking(plant, batcher, clock, load=load, explainer=None, emit=lambda *_, **__: None)
    times_us = START_US + np.arange(8, dtype=np.int64) * 1_000_000
    odd = FinishedSequence("a", "1", "marker", times_us, np.full((8, 3), 10, np.float32), Position(0, 0))

    async def look(version: str) -> None:
        taken = LooksTaken(model=ModelRef("test", version), n=1, largest=0.0)
        seen = await looking.finish(odd, taken, batcher)
        assert seen is not None
        (warning,) = [each.message for each in seen.outputs]
        assert isinstance(warning, EarlyWarning)
        assert (warning.model.version, warning.look) == (version, 2)

    versions = [f"{number:04d}" for number in range(1, 7)]
    for version in versions:
        await asyncio.gather(look(version), look(version))
    assert loaded == versions, "each once"
    for version in versions[2:]:
        await look(version)
    assert loaded == versions
    await look(versions[0])
    assert loaded == [*versions, versions[0]]
    clock.advance(pinned.UNNEEDED_US / 1e6 + 1)
    no_streams: Any = SimpleNamespace(streams={})
    await looking.visit(no_streams, lambda _: None, lambda _: False)
    await look(versions[0])
    assert loaded == [*versions, versions[0], versions[0]], "nobody needed it for ten minutes"
    await batcher.close()


async def test_a_look_is_scored_alone_so_that_no_digit_depends_on_company() -> None:
    early = looks()
    scorers = [look.scorer for look in early.looks]
    names = [f"s{number}" for number in range(40)]
    records = records_of([line(name, f"{name}-1", range(AGES[0] + 1), 10.0 if name == "s7" else 1.0) for name in names])
    source = ListSource([PartitionAssigned("p"), RecordBatch("p", tuple(records), len(records))], endless=True)

    async def end(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: sum(each.n_windows for each in scorers if isinstance(each, SquareScorer)) >= len(names))
        await until(lambda: bool(run.messages("alerts")))
        run.pipeline.request_stop()

    of = {"model": model(early=early), "explains": False}
    run = await run_pipeline(source, settings(lateness="0s"), while_running=end, **of)
    [first, *_] = scorers
    assert isinstance(first, SquareScorer)
    assert sum(first.batches) == len(names), "one look at each"
    assert set(first.batches) == {1}
    assert [each.stream for each in run.messages("alerts") if isinstance(each, EarlyWarning)] == ["s7"]


async def warned_in(plant: Settings, messages: list[bytes], **more: Any) -> tuple[dict[str, Any], Run]:
    """Run over ``messages``; return what they are warned of, and the run."""
    ledger = Ledger()
    run = await run_pipeline(ListSource.of({"p": records_of(messages)}), plant, committer=ledger, **more)
    return check_law(outputs_of(ledger)), run


async def test_a_sequence_that_ends_before_the_first_look_has_none() -> None:
    short, long = line("a", "1", [0.0, 1.0], 10.0, end=True), line("a", "2", [5.0, 6.0, 7.0], 10.0, end=True)
    found, run = await warned_in(settings("0s"), [short, long], model=model())
    assert [(each.warning is None, each.decision) for each in run.verdicts] == [
        (True, "anomalous"),
        (False, "anomalous"),
    ]
    assert len(found) == 1


@pytest.mark.parametrize("longer", ["truncate", "resample", "reject"])
async def test_looks_see_what_came_whatever_the_window_makes_of_longer_sequences(longer: str) -> None:
    plant = settings("0s", window={"length": 5, "longer": longer})
    served = replace(model(), scorer=SquareScorer((len(CHANNELS), 5)))
    messages = [*turning_odd(8, 4), line("a", "1", [8.0], 10.0, end=True)]
    found, run = await warned_in(plant, messages, model=served)
    assert [look for look, _, _ in found.values()] == [3], "four of six points are usual, two are odd"
    assert [each.decision == "unscorable" for each in run.verdicts] == [longer == "reject"]


async def test_late_samples_after_a_pause_neither_reach_a_look_nor_repeat_one() -> None:
    before, late = turning_odd(4, 0), [line("a", "1", [0.5, 1.5], 10.0)]
    after = [line("a", "1", [60.0, 61.0], 1.0), line("a", "1", [62.0], 1.0, end=True)]
    found, run = await warned_in(settings("0s"), [*before, after[0], *late, after[1]], model=model())
    assert found == {}
    assert run.pipeline.counters.late_samples == 2


async def test_a_clock_that_jumps_ends_no_worker_and_warns_of_nothing() -> None:
    plant = settings("0s", window={"resample": {"period": "1s"}, "length": 16})
    messages = [*turning_odd(3, 0), line("a", "1", [3e5, 3e5 + 1], 10.0), line("a", "1", [3e5 + 2], 10.0, end=True)]
    found, run = await warned_in(plant, messages, model=model())
    assert found == {}, "looks in the gap lack more than max_missing"
    assert len(run.verdicts) == 1


async def test_a_p_value_exactly_at_the_rate_warns() -> None:
    """With so few calibration sequences it is the least there is."""
    few = early_model(looks().looks, np.linspace(0, 1, 49), RATE, usual=8, longest=LONGEST)
    messages = [*turning_odd(8, 5), line("a", "1", [8.0], 10.0, end=True)]
    found, _ = await warned_in(settings("0s"), messages, model=model(early=few))
    assert [p_value for _, p_value, _ in found.values()] == [RATE]


async def test_a_sequence_whose_beginning_may_be_missing_is_not_looked_at_while_it_runs() -> None:
    ledger = Ledger()
    second = [line("a", "2", [float(number)], 10.0) for number in range(10, 18)]
    records = tuple(records_of([*turning_odd(8, 5), *second]))
    assigned = PartitionAssigned("p", seen_from_start=False)
    script = ListSource([assigned, RecordBatch("p", records, len(records))], endless=True)

    async def stop(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: bool(warnings_of(ledger)))
        run.pipeline.request_stop()

    await run_pipeline(script, settings("0s", ["marker"]), model=model(), committer=ledger, while_running=stop)
    assert [each.sequence for each in warnings_of(ledger)] == ["2"]


def warnings_of(ledger: Ledger) -> list[EarlyWarning]:
    messages = [each.message for outputs in outputs_of(ledger) for each in outputs]
    return [each for each in messages if isinstance(each, EarlyWarning)]


async def test_a_model_that_comes_amid_a_sequence_takes_all_its_looks() -> None:
    plant, clock, ledger = settings("0s"), TickingClock(0.001), Ledger()
    batchers = MicroBatcher(None, clock, plant.run)
    records = tuple(records_of(turning_odd(8, 6)))
    script = ListSource([PartitionAssigned("p"), RecordBatch("p", records, len(records))], endless=True)

    async def swap_then_stop(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: "p" in ledger.progress and ledger.progress["p"].next_offset == len(records))
        assert warnings_of(ledger) == []
        await batchers.swap(model())
        await until(lambda: bool(warnings_of(ledger)))
        run.pipeline.request_stop()

    await run_pipeline(script, plant, clock=clock, batchers=batchers, committer=ledger, while_running=swap_then_stop)
    assert [each.look for each in warnings_of(ledger)] == [2]
    (taken,) = ledger.progress["p"].streams["a"].looks.values()
    assert taken.warning is not None, "in the warning's own commit, although no record came with it"
