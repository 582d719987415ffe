"""Alerts commit at once, attributions follow exactly once, debts always end."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from streamad.errors import PartitionLost
from streamad.judge.attribution import METHOD
from streamad.judge.explainer import Explainer
from streamad.messages import NO_METHOD, Alert, Attribution, OutputRecord
from streamad.runtime.checkpoint import LocalCommitter, UnsavedCommitter
from streamad.testing import ListSource, ManualClock
from streamad.types import PartitionAssigned, Record, RecordBatch
from tests.support.runtime.debts import Explaining
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import START_US, Run, line, records_of, run_pipeline, settings_of, until

SETTINGS = settings_of(run={"commit_interval": "1ms", "batch_wait": 0})


def anomalies(n: int, stream: str = "a") -> list[Record]:
    """``n`` anomalous sequences."""
    return records_of([line(stream, f"{i}", [i * 10.0 + j for j in range(5)], 10.0, end=True) for i in range(n)])


def held(load: Explaining, clock: ManualClock | None = None) -> Explainer:
    return Explainer(SETTINGS, clock or ManualClock(START_US), load)


def check_law(commits: list[list[OutputRecord]]) -> None:
    """Each alert has exactly one attribution, in a later commit."""
    committed_in: dict[str, int] = {}
    explained: Counter[str] = Counter()
    for number, outputs in enumerate(commits):
        for record in outputs:
            if isinstance(record.message, Alert):
                assert record.message.alert_id not in committed_in, "an alert came twice"
                committed_in[record.message.alert_id] = number
            if isinstance(record.message, Attribution):
                explained[record.message.alert_id] += 1
                assert committed_in[record.message.alert_id] < number, "an attribution came with or before its alert"
    assert explained == Counter(committed_in.keys())


async def test_alerts_are_committed_while_the_first_of_them_is_still_being_explained() -> None:
    load, ledger = Explaining(is_open=False), Ledger()

    async def look(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: len(run.messages("alerts")) == 5)
        assert run.messages("attributions") == []
        assert len(ledger.progress["p"].debts) == 5
        load.gate.set()

    run = await run_pipeline(
        ListSource.of({"p": anomalies(5)}), SETTINGS, committer=ledger, explainer=held(load), while_running=look
    )
    assert [each.method for each in run.messages("attributions")] == [METHOD] * 5
    assert ledger.progress["p"].debts == {}
    assert (run.pipeline.counters.attributions, run.pipeline.counters.unexplained) == (5, 0)
    assert run.explained == run.messages("attributions")
    check_law([list(outputs) for _, outputs in ledger.commits])


@pytest.mark.parametrize("in_doubt", [False, True])
@pytest.mark.parametrize("every", [2, 3])
async def test_whichever_commits_fail_each_alert_has_one_attribution(every: int, in_doubt: bool) -> None:
    failing = {number: (PartitionLost("p", "gone"), in_doubt) for number in range(2, 9, every)}
    ledger = Ledger(failing=failing)
    partitions = {"p": anomalies(6), "q": anomalies(4, "b")}
    run = await run_pipeline(ListSource.of(partitions, batch_records=1), SETTINGS, committer=ledger)
    assert run.pipeline.counters.commits_failed >= 2
    assert len(run.messages("alerts")) == 10
    check_law([list(outputs) for _, outputs in ledger.commits])


@pytest.mark.parametrize("n_commits", range(1, 8))
async def test_a_run_that_dies_after_any_commit_leaves_its_debts_to_the_next_one(n_commits: int) -> None:
    """The crash is one commit that fails for good; the next run knows only what was committed."""
    ledger = Ledger(failing={number: (OSError("died"), False) for number in range(n_commits, 99)})
    with pytest.raises(OSError, match="died"):
        await run_pipeline(ListSource.of({"p": anomalies(4)}, batch_records=1), SETTINGS, committer=ledger)
    ledger.failing = {}
    begin = ledger.progress["p"].low_watermark if "p" in ledger.progress else 0
    assert begin <= 4
    await run_pipeline(ListSource.of({"p": anomalies(4)}, batch_records=1), SETTINGS, committer=ledger)
    assert sum(isinstance(record.message, Alert) for _, outputs in ledger.commits for record in outputs) == 4
    check_law([list(outputs) for _, outputs in ledger.commits])


@pytest.mark.parametrize("source", [{"other": anomalies(0)}, {"p": anomalies(3)}], ids=["gone", "read to its end"])
async def test_debts_of_a_partition_that_is_gone_or_read_to_its_end_are_paid_at_the_next_start(
    source: dict[str, list[Record]],
) -> None:
    ledger = await stopped_with_debts(3)
    run = await run_pipeline(ListSource.of(source), SETTINGS, committer=ledger)
    assert len(run.messages("attributions")) == 3
    assert run.messages("alerts") == []
    assert ledger.progress["p"].debts == {}
    check_law([list(outputs) for _, outputs in ledger.commits])


async def test_debts_of_a_gone_partition_are_paid_at_once_also_by_an_endless_run() -> None:
    ledger = await stopped_with_debts(3)

    async def look(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: len(run.messages("attributions")) == 3)
        run.pipeline.request_stop()

    script = [PartitionAssigned("q"), RecordBatch("q", (), 0, True)]
    await run_pipeline(ListSource(script, endless=True), SETTINGS, committer=ledger, while_running=look)
    assert ledger.progress["p"].debts == {}


async def stopped_with_debts(n: int) -> Ledger:
    """A committer after a run that was stopped with ``n`` alerts and none of their attributions."""
    load, ledger, clock = Explaining(is_open=False), Ledger(), ManualClock(START_US)
    settings = settings_of(run={"commit_interval": "1ms", "batch_wait": 0, "stop_timeout": "5s"})

    async def stop(run: Run, task: asyncio.Task[None]) -> None:
        while len(run.messages("alerts")) < n:
            clock.advance(0.001)
            await asyncio.sleep(0)
        run.pipeline.request_stop()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done(), "attributions have until stop_timeout"
        while not task.done():
            clock.advance(0.5)
            await asyncio.sleep(0)

    source = ListSource.of({"p": anomalies(n)})
    explainer = Explainer(settings, clock, load)
    run = await run_pipeline(source, settings, committer=ledger, clock=clock, explainer=explainer, while_running=stop)
    load.gate.set()
    assert run.messages("attributions") == []
    assert len(ledger.progress["p"].debts) == n
    return ledger


async def test_without_a_checkpoint_a_stop_ends_debts_with_the_reason() -> None:
    load, clock = Explaining(is_open=False), ManualClock(START_US)

    async def stop(run: Run, task: asyncio.Task[None]) -> None:
        while len(run.messages("alerts")) < 3:
            clock.advance(0.001)
            await asyncio.sleep(0)
        run.pipeline.request_stop()
        while not task.done():
            clock.advance(0.5)
            await asyncio.sleep(0)

    run = await run_pipeline(
        ListSource.of({"p": anomalies(3)}),
        SETTINGS,
        committer=UnsavedCommitter,
        clock=clock,
        explainer=held(load, clock),
        while_running=stop,
    )
    load.gate.set()
    assert [each.method for each in run.messages("attributions")] == [NO_METHOD] * 3
    assert {each.detail for each in run.messages("attributions")} == {"the run was stopped before it was made"}


async def test_debts_that_nobody_wants_any_more_end_at_the_next_start() -> None:
    ledger = await stopped_with_debts(2)
    run = await run_pipeline(ListSource.of({"p": anomalies(2)}), SETTINGS, committer=ledger, explains=False)
    assert [each.method for each in run.messages("attributions")] == [NO_METHOD] * 2
    assert ledger.progress["p"].debts == {}


async def test_a_model_that_cannot_be_loaded_any_more_stops_no_partition() -> None:
    load = Explaining()
    load.load_failure = FileNotFoundError("pruned")
    run = await run_pipeline(ListSource.of({"p": anomalies(3)}), SETTINGS, committer=Ledger(), explainer=held(load))
    assert [each.method for each in run.messages("attributions")] == [NO_METHOD] * 3
    assert run.pipeline.counters.unexplained == 3


async def test_alerts_beyond_the_limit_wait_for_their_attribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.judge.explainer.MOST_DEBTS", 2)
    load, ledger = Explaining(is_open=False), Ledger()

    async def look(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: len(run.messages("alerts")) == 2 and load.n_waiting == 1)
        assert run.messages("attributions") == []
        load.gate.set()

    run = await run_pipeline(
        ListSource.of({"p": anomalies(6)}), SETTINGS, committer=ledger, explainer=held(load), while_running=look
    )
    assert len(run.messages("alerts")) == len(run.messages("attributions")) == 6
    assert all(len(update.debts) <= 4 for update, _ in ledger.commits)
    assert sum(sequence.attribution is not None for sequence in run.judged) > 0


# --- the local checkpoint ---


async def test_windows_lie_beside_the_checkpoint_until_they_are_paid(tmp_path: Path) -> None:
    load, folder = Explaining(is_open=False), tmp_path / "checkpoint"

    async def look(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: len(run.messages("alerts")) == 3)
        ids = {alert.alert_id for alert in run.messages("alerts")}
        assert {path.stem for path in (folder / "windows").glob("*.zlib")} == ids
        assert all(path.stat().st_mode & 0o077 == 0 for path in (folder / "windows").iterdir())
        load.gate.set()

    await run_pipeline(
        ListSource.of({"p": anomalies(3)}),
        SETTINGS,
        committer=lambda sinks: LocalCommitter(folder, sinks, {role: f"file:{role}" for role in sinks}),
        explainer=held(load),
        while_running=look,
    )
    assert list((folder / "windows").iterdir()) == []
