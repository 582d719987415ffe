"""Judged windows: exactly one for each verdict that is drawn or learned from, in the commit of its verdict."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from streamad.errors import PartitionLost
from streamad.judge.gate import gate
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import ModelRef, OutputRecord, Verdict, Window, unpacked_values
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource
from streamad.types import PartitionAssigned, Record, RecordBatch
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import (
    CHANNELS,
    Run,
    line,
    messy_recordings,
    records_of,
    run_pipeline,
    settings_of,
    until,
)


def settings(windows: str, *, learns: bool = False) -> Settings:
    return settings_of(
        learning={"process": "elsewhere"} if learns else None,
        sequences={"allowed_lateness": "3s"},
        run={"commit_interval": "1ms", "batch_wait": 0, "batch_windows": 2},
        display={"windows": windows},
    )


def recordings(seed: int, n_sequences: int = 8) -> dict[str, list[Record]]:
    return {
        "p": records_of(messy_recordings(seed, streams=["a", "b"], sequences=n_sequences)),
        "q": records_of(messy_recordings(seed + 50, streams=["c"], sequences=n_sequences)),
    }


def check_law(commits: Iterable[Iterable[OutputRecord]], *, shows_all: bool) -> dict[str, Window]:
    """Each window comes once and with its verdict; every alert, and with ``shows_all`` every scored one, has one."""
    shown: dict[str, Window] = {}
    for outputs in commits:
        messages = [(record.key, record.message) for record in outputs]
        verdicts = {message.verdict_id: message for _, message in messages if isinstance(message, Verdict)}
        windows = {message.verdict_id: message for _, message in messages if isinstance(message, Window)}
        assert len(windows) == sum(isinstance(message, Window) for _, message in messages), "a window came twice"
        assert windows.keys() <= verdicts.keys(), "a window came without its verdict"
        assert not windows.keys() & shown.keys(), "a window came again"
        for name, verdict in verdicts.items():
            has_values = verdict.decision in ("normal", "anomalous")
            assert has_values or name not in windows
            if verdict.decision == "anomalous" or (shows_all and has_values):
                assert name in windows
        for key, window in ((key, message) for key, message in messages if isinstance(message, Window)):
            verdict = verdicts[window.verdict_id]
            assert key == window.stream == verdict.stream
            assert window.alerted == (verdict.decision == "anomalous")
            assert (window.sequence, window.model) == (verdict.sequence, verdict.model)
            assert (window.start_time, window.end_time) == (verdict.start_time, verdict.end_time)
            assert window.n_samples == verdict.n_samples
            assert (window.decision, window.score, window.p_value) == (
                verdict.decision,
                verdict.score,
                verdict.p_value,
            )
        shown |= windows
    return shown


def outputs_of(ledger: Ledger) -> list[list[OutputRecord]]:
    return [list(outputs) for _, outputs in ledger.commits]


async def undisturbed(seed: int, windows: str) -> dict[str, Window]:
    ledger = Ledger()
    await run_pipeline(ListSource.of(recordings(seed)), settings(windows), committer=ledger)
    return check_law(outputs_of(ledger), shows_all=windows == "all")


def texts(windows: dict[str, Window]) -> dict[str, tuple[str, bool, int]]:
    return {name: (each.values, each.alerted, each.length) for name, each in windows.items()}


@pytest.mark.parametrize("windows", ["alerts", "all"])
async def test_each_drawn_verdict_has_one_window_in_its_commit(windows: str) -> None:
    shown = await undisturbed(1, windows)
    assert any(each.alerted for each in shown.values())
    assert (sum(not each.alerted for each in shown.values()) > 5) == (windows == "all")


@pytest.mark.parametrize("windows", ["alerts", "all"])
@pytest.mark.parametrize("in_doubt", [False, True])
async def test_whichever_commits_fail_each_drawn_verdict_has_one_window(windows: str, in_doubt: bool) -> None:
    ledger = Ledger(failing={number: (PartitionLost("p", "gone"), in_doubt) for number in range(2, 20, 3)})
    source = ListSource.of(recordings(2), batch_records=3)
    run = await run_pipeline(source, settings(windows), committer=ledger)
    assert run.pipeline.counters.commits_failed >= 3
    assert texts(check_law(outputs_of(ledger), shows_all=windows == "all")) == texts(await undisturbed(2, windows))


@pytest.mark.parametrize("windows", ["alerts", "all"])
async def test_a_restart_at_any_record_gives_the_same_windows(windows: str) -> None:
    expected = texts(await undisturbed(3, windows))
    records = recordings(3)
    for n_first in range(1, len(records["p"])):
        ledger = Ledger()
        first = tuple(records["p"][:n_first])

        async def stop(run: Run, _: asyncio.Task[None], n_first: int = n_first, ledger: Ledger = ledger) -> None:
            await until(lambda: "p" in ledger.progress and ledger.progress["p"].next_offset == n_first)
            run.pipeline.request_stop()

        script = ListSource([PartitionAssigned("p"), RecordBatch("p", first, n_first)], endless=True)
        await run_pipeline(script, settings(windows), committer=ledger, while_running=stop)
        await run_pipeline(ListSource.of(records), settings(windows), committer=ledger)
        assert texts(check_law(outputs_of(ledger), shows_all=windows == "all")) == expected, f"after record {n_first}"


async def test_without_a_sink_there_is_no_window() -> None:
    run = await run_pipeline(ListSource.of(recordings(1)), settings("all"), with_windows=False)
    assert len(run.messages("verdicts")) > 10
    assert run.messages("windows") == []


async def test_a_window_holds_the_judged_values_without_padding() -> None:
    message = line("a", "1", [0.0, 1.0, 2.0], 10.0, end=True)
    run = await run_pipeline(ListSource.of({"p": records_of([message])}))
    (window,) = run.messages("windows")
    assert (window.length, window.channels) == (3, list(CHANNELS))
    assert unpacked_values(window).tolist() == np.full((len(CHANNELS), 3), 10.0).tolist()
    (verdict,) = run.verdicts
    assert (window.verdict_id, window.model) == (verdict.verdict_id, verdict.model)


async def test_a_window_needs_no_verdicts_sink() -> None:
    message = line("a", "1", [0.0, 1.0, 2.0], 10.0, end=True)
    run = await run_pipeline(ListSource.of({"p": records_of([message])}), with_verdicts=False)
    assert run.messages("verdicts") == []
    assert [each.alerted for each in run.messages("windows")] == [True]


# --- with learning ---


def check_gate(ledger: Ledger, learning: LearningSettings, champion: ModelRef | None) -> dict[str, Window]:
    """Every verdict with a share has its window, with this share, in its commit; no other has one."""
    kept = check_law(outputs_of(ledger), shows_all=True)
    for outputs in outputs_of(ledger):
        for verdict in (record.message for record in outputs if isinstance(record.message, Verdict)):
            share = gate(verdict, settings=learning, champion=champion)
            assert (verdict.verdict_id in kept) == (share is not None)
            if share is not None:
                assert kept[verdict.verdict_id].share == share
    return kept


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_with_learning_the_windows_are_exactly_the_gates_whichever_commits_fail(in_doubt: bool) -> None:
    plant = settings("alerts", learns=True)
    assert plant.learning is not None
    ledger = Ledger(failing={number: (PartitionLost("p", "gone"), in_doubt) for number in range(2, 20, 3)})
    run = await run_pipeline(ListSource.of(recordings(2), batch_records=3), plant, committer=ledger)
    assert run.pipeline.counters.commits_failed >= 3
    kept = check_gate(ledger, plant.learning, ModelRef("test", "0001"))
    assert {window.share for window in kept.values()} == {"accepted", "reserve", "aside"}


async def test_a_share_is_that_of_the_model_in_service_at_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was swapped between judging and commit leaves the judged sequence aside, for good."""
    message = line("a", "1", [0.0, 1.0, 2.0], 1.0, end=True)
    found = {}
    for version in ("0001", "0002"):
        monkeypatch.setattr(MicroBatcher, "models", property(in_service(version)))
        run = await run_pipeline(ListSource.of({"p": records_of([message])}), settings("alerts", learns=True))
        (window,) = run.messages("windows")
        found[version] = window.share
    assert found == {"0001": "accepted", "0002": "aside"}


def in_service(version: str) -> Callable[[MicroBatcher], tuple[ModelInService, ...]]:
    def models(batcher: MicroBatcher) -> tuple[ModelInService, ...]:
        assert batcher.model is not None
        return (dataclasses.replace(batcher.model, ref=ModelRef(batcher.model.ref.name, version)),)

    return models


async def test_without_learning_only_what_people_look_at_is_written() -> None:
    """No record has a share, and nobody reads the others."""
    plant = settings_of(display={"windows": "alerts"}, sequences={"allowed_lateness": "3s"})
    run = await run_pipeline(ListSource.of(recordings(1)), plant)
    windows = run.messages("windows")
    assert 0 < len(windows) < len(run.messages("verdicts")) / 2
    assert {window.share for window in windows} == {None}
