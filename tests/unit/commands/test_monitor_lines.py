"""What a person reads of a run: alerts with their id, events with their model, counts in the right number."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from io import StringIO
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs
from rich.console import Console

from streamad.commands.shared import monitor
from streamad.commands.shared.figures.losses import lost
from streamad.commands.shared.figures.report import RunReport, print_summary
from streamad.commands.shared.monitor import AlertLines, alert_line, attribution_line, event_line, shown_events
from streamad.judge.judging import JudgedSequence
from streamad.messages import (
    Alert,
    Attribution,
    ChannelSegment,
    ChannelShare,
    Event,
    ModelRef,
    NearestSequence,
    TermShare,
    Verdict,
    WarningRef,
)
from streamad.partition_progress import Debt
from streamad.plant import Plant
from streamad.telemetry.metrics import Counters, LearningCounters, ServedCounters
from tests.support.runtime.pipeline import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = ModelRef("default.A", "0003")


ALERT = Alert(
    alert_id="5f0c2a91b7d04ce2a90f1c3377be1f10",
    stream="r1",
    sequence="B-2",
    reason="marker",
    start_time=NOW,
    end_time=NOW,
    n_samples=3,
    score=2.5,
    p_value=0.01,
    false_alarm_rate=0.02,
    tail="empirical",
    model=MODEL,
    created_at=NOW,
)

VERDICT = Verdict(
    verdict_id=ALERT.alert_id,
    stream="r1",
    sequence="B-2",
    decision="anomalous",
    reason="marker",
    start_time=NOW,
    end_time=NOW,
    n_samples=3,
    score=2.5,
    created_at=NOW,
)
DEBT = Debt(alert=ALERT, terms=b"", shape=(1, 1), length=1)


def why(*nearest: str) -> Attribution:
    return Attribution(
        alert_id=ALERT.alert_id,
        stream="r1",
        sequence="B-2",
        score=2.5,
        terms=[TermShare(transformation=0, term=2.5, calibration_quantile=1.0)],
        dominating_transformation=0,
        channels=[ChannelShare(channel="temp", unit="", share=0.8), ChannelShare(channel="flow", unit="", share=0.2)],
        method="channel-replacement",
        tail="empirical",
        model=MODEL,
        created_at=NOW,
        nearest=[NearestSequence(sequence=name, distance=1.0) for name in nearest],
    )


def in_segments(*texts: str) -> Attribution:
    segments = [
        ChannelSegment(
            channel="temp",
            unit="K",
            start=0.62,
            end=0.8,
            start_time=NOW,
            end_time=NOW,
            direction="above",
            size=3.1,
            text=text,
        )
        for text in texts
    ]
    return structs.replace(why(), segments=segments)


def test_an_alert_ends_with_as_much_of_its_id_as_feedback_needs() -> None:
    assert str(alert_line(ALERT)) == "ALERT r1 B-2  score 2.500  p 0.0100  id 5f0c2a91"


def test_an_alert_says_that_the_sequence_was_warned_of_while_it_ran() -> None:
    said = "ALERT r1 B-2  score 2.500  p 0.0100  warned of at 54\u00a0%  id 5f0c2a91"
    assert str(alert_line(ALERT, warned=WarningRef("w", 0.541))) == said


@pytest.mark.parametrize(
    ("nearest", "said"),
    [
        ([], ""),
        (["r1/B-1", "r1/B-0"], "  nearest normal r1/B-1"),
        (["[bold]r1[/]/[/nope]"], "  nearest normal [bold]r1[/]/[/nope]"),
        (["x" * 61], f"  nearest normal {'x' * 59}…"),
    ],
    ids=["none", "two", "markup", "long"],
)
def test_an_alert_names_its_channels_and_the_nearest_normal_sequence(nearest: list[str], said: str) -> None:
    line = str(alert_line(ALERT, why(*nearest)))
    assert line == f"ALERT r1 B-2  score 2.500  p 0.0100  because of temp 80\u00a0%, flow 20\u00a0%{said}  id 5f0c2a91"


def test_an_alert_says_when_its_first_channel_departs_from_normal() -> None:
    text = "temp 3.1 K above the band from 62\u00a0% to 80\u00a0%"
    line = alert_line(ALERT, in_segments(text, "flow of unusual shape at 5\u00a0%"))
    assert f"  because of temp 80\u00a0%, flow 20\u00a0%  {text}  id 5f0c2a91" in str(line)
    assert "flow of unusual" not in str(line)
    assert f"  {'c' * 79}…  id" in str(alert_line(ALERT, in_segments("c" * 90)))


def test_no_line_of_an_alert_is_wider_than_a_terminal_of_80_columns() -> None:
    console = Console(width=80, force_terminal=True, no_color=True, file=StringIO())
    attribution = structs.replace(in_segments("c" * 90), nearest=[NearestSequence(sequence="s" * 70, distance=1.0)])
    console.print(alert_line(ALERT, attribution))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80 + len("\x1b[0m") * 4
    assert len(lines) == 4


async def test_an_alert_waits_a_second_for_its_reasons_else_they_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = list[str]()
    monkeypatch.setattr(monitor.err, "print", lambda line: printed.append(str(line)))
    lines = AlertLines()
    lines.alert(JudgedSequence(VERDICT, ALERT))
    assert printed == [str(alert_line(ALERT))], "nothing is going to explain it"
    printed.clear()
    lines.alert(JudgedSequence(VERDICT, ALERT, debt=DEBT))
    assert printed == []
    lines.explained(why())
    assert printed == [str(alert_line(ALERT, why()))]
    printed.clear()
    monkeypatch.setattr(monitor, "_REASONS_S", 0.0)
    lines.alert(JudgedSequence(VERDICT, ALERT, debt=DEBT))
    await until(lambda: bool(printed))
    lines.explained(why())
    assert printed == [str(alert_line(ALERT)), str(attribution_line(why()))]
    printed.clear()
    monkeypatch.setattr(monitor, "_REASONS_S", 1000.0)
    lines.alert(JudgedSequence(VERDICT, ALERT, debt=DEBT))
    lines.close()
    assert printed == [str(alert_line(ALERT))], "at the end of the run"


async def test_an_alert_of_a_recording_waits_for_its_reasons_as_long_as_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = list[str]()
    monkeypatch.setattr(monitor.err, "print", lambda line: printed.append(str(line)))
    monkeypatch.setattr(monitor, "_REASONS_S", 0.0)
    lines = AlertLines(lambda: True)
    lines.alert(JudgedSequence(VERDICT, ALERT, debt=DEBT))
    live = AlertLines()
    live.alert(JudgedSequence(VERDICT, ALERT, debt=DEBT))
    await until(lambda: bool(printed))
    lines.explained(why())
    assert printed == [str(alert_line(ALERT)), str(alert_line(ALERT, why()))]


async def test_an_alert_that_comes_again_while_it_waits_is_printed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As two copies of a file give it."""
    printed = list[str]()
    monkeypatch.setattr(monitor.err, "print", lambda line: printed.append(str(line)))
    lines = AlertLines()
    for _ in range(2):
        lines.alert(JudgedSequence(VERDICT, ALERT, debt=DEBT))
    for _ in range(2):
        lines.explained(why())
    lines.close()
    assert printed == [str(alert_line(ALERT)), str(alert_line(ALERT, why())), str(attribution_line(why()))]


def test_an_attribution_has_a_line_of_its_own() -> None:
    text = "temp 3.1 K above the band at 62\u00a0%"
    line = str(attribution_line(in_segments(text)))
    assert line == f"WHY r1 B-2  because of temp 80\u00a0%, flow 20\u00a0%  {text}  id 5f0c2a91"


@pytest.mark.parametrize(
    ("names_model", "message", "line"),
    [
        (True, "the mean has moved", "EVENT drift: default.A: the mean has moved"),
        (True, "default.A 0003 is in service", "EVENT drift: default.A 0003 is in service"),
        (False, "the mean has moved", "EVENT drift: the mean has moved"),
    ],
)
def test_an_event_names_its_model_if_there_are_several(names_model: bool, message: str, line: str) -> None:
    event = Event(kind="drift", message=message, model=MODEL, created_at=NOW)
    assert str(event_line(event, names_model=names_model)) == line


@pytest.mark.parametrize(("quiet", "is_service", "n_lines"), [(False, False, 1), (True, False, 0), (False, True, None)])
def test_a_quiet_replay_prints_no_event_and_a_service_logs_it(
    *, quiet: bool, is_service: bool, n_lines: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    plant = cast("Plant", SimpleNamespace(settings=SimpleNamespace(models=None)))
    show = shown_events(plant, quiet=quiet, is_service=is_service)
    assert (show is None) == (n_lines is None)
    if show is not None:
        show(Event(kind="drift", message="the plant moves", model=MODEL, created_at=NOW))
        assert len(capsys.readouterr().err.splitlines()) == n_lines


@pytest.mark.parametrize(
    ("n", "said"),
    [(1, "1 drift, 1 training, 1 promotion, 1 swap"), (2, "2 drifts, 2 trainings, 2 promotions, 2 swaps")],
)
def test_the_summary_counts_one_as_one(n: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    learned = LearningCounters(drifts=n, trainings=n, promotions=n)
    served = ServedCounters(version="0002", swaps=n, learned=learned)
    counters = Counters().as_dict() | {"learning": {"default": asdict(served)}}
    print_summary(RunReport(counters, 1.0, "default", [], []), 0.02)
    assert f"0 aside; {said}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("n", "said"), [(0, ""), (2, "swaps 2")])
def test_the_summary_of_a_run_that_only_swaps_says_nothing_of_what_is_learned(
    n: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    learning = {"default": asdict(ServedCounters(version="0002", swaps=n))}
    counters = Counters().as_dict() | {"learning": learning}
    print_summary(RunReport(counters, 1.0, "default", [], []), 0.02)
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown
    assert ("swaps" in shown) == (n > 0)
    assert "learned" not in shown


def test_the_summary_says_how_many_trainings_failed(capsys: pytest.CaptureFixture[str]) -> None:
    served = ServedCounters(learned=LearningCounters(trainings=3, failed=2))
    counters = Counters().as_dict() | {"learning": {"default": asdict(served)}}
    print_summary(RunReport(counters, 1.0, "default", [], []), 0.02)
    assert "3 trainings (2 failed)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("is_recorded", [False, True])
def test_the_summary_gives_no_time_to_the_decision_of_recordings_read_as_fast_as_possible(
    *, is_recorded: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report = RunReport(Counters().as_dict(), 1.0, "default", [500_000_000], [], is_recorded=is_recorded)
    print_summary(report, 0.02)
    assert ("decision after the end" in capsys.readouterr().out) != is_recorded


def test_an_attribution_that_names_no_channel_says_so() -> None:
    nothing = structs.replace(why(), channels=[ChannelShare(channel="temp", unit="", share=0.001)])
    assert str(attribution_line(nothing)) == "WHY r1 B-2  no channel stands out  id 5f0c2a91"


def test_many_messages_of_unregistered_schemas_are_no_fault_of_decode() -> None:
    """They asked the user to look at decode and channels."""
    counters = {"samples": 10, "late_samples": 0, "dead_letters": {"unknown_schema": 8, "malformed": 1}}
    (letters,) = lost(counters)
    assert "the registry lacks schemas" in letters.remedy
