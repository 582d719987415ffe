"""Judged windows to look at: exactly one for each verdict that is drawn, in the commit of its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np
import pytest

from streamad.errors import PartitionLost
from streamad.messages import OutputRecord, Verdict, Window, unpacked_values
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


def settings(windows: str) -> Settings:
    return settings_of(
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
        shown |= windows
    return shown


def outputs_of(ledger: Ledger) -> list[list[OutputRecord]]:
    return [list(outputs) for _, outputs in ledger.commits]


async def undisturbed(seed: int, windows: str) -> dict[str, Window]:
    ledger = Ledger()
    await run_pipeline(ListSource.of(recordings(seed)), settings(windows), committer=ledger)
    return check_law(outputs_of(ledger), shows_all=windows == "all")


def texts(windows: dict[str, Window]) -> dict[str, tuple[str, bool, int, int]]:
    return {name: (each.values, each.alerted, each.length, each.step) for name, each in windows.items()}


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
    assert (window.length, window.step, window.channels) == (3, 1, list(CHANNELS))
    assert unpacked_values(window).tolist() == np.full((len(CHANNELS), 3), 10.0).tolist()
    (verdict,) = run.verdicts
    assert (window.verdict_id, window.model) == (verdict.verdict_id, verdict.model)


async def test_a_window_needs_no_verdicts_sink() -> None:
    message = line("a", "1", [0.0, 1.0, 2.0], 10.0, end=True)
    run = await run_pipeline(ListSource.of({"p": records_of([message])}), with_verdicts=False)
    assert run.messages("verdicts") == []
    assert [each.alerted for each in run.messages("windows")] == [True]
