"""Events go to the log or terminal at once, and to the events sink with a commit."""

from __future__ import annotations

import json

import pytest

from streamad.messages import Event, ModelRef
from streamad.telemetry.events import EventLog
from streamad.telemetry.logs import configure_logs
from streamad.testing import ListSource, ManualClock
from tests.support.runtime.pipeline import Run, line, records_of, run_pipeline, settings_of


def test_the_log_shows_events_of_each_level_at_any_verbosity(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    events = EventLog("p", ManualClock())
    events.emit("good", "it is better", model=ModelRef("m", "0002"), figures={"rate": 0.5}, level="info")
    events.emit("odd", "look", partition="t/0")
    events.emit("bad", "do something", stream="s", level="error")
    logged = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    levels = [(entry["event"], entry["level"]) for entry in logged]
    assert levels == [("good", "info"), ("odd", "warning"), ("bad", "error")]
    assert (logged[0]["message"], logged[0]["model"], logged[0]["rate"]) == ("it is better", "m 0002", 0.5)
    assert logged[1]["partition"] == "t/0"
    assert "model" not in logged[1]


def test_events_of_a_failed_commit_come_first_in_the_next() -> None:
    emitted: list[Event] = []
    events = EventLog("p", ManualClock(), emitted.append)
    events.emit("a", "1")
    taken = events.take()
    events.emit("b", "2")
    events.give_back(taken)
    assert [event.kind for event in events.take()] == ["a", "b"]
    assert len(events) == 0
    assert [event.kind for event in emitted] == ["a", "b"]


@pytest.mark.parametrize("given_back", [0, 10])
def test_at_most_the_latest_thousand_events_wait_for_a_commit(given_back: int) -> None:
    events = EventLog("p", ManualClock(), lambda _: None)
    for number in range(given_back):
        events.emit("before", str(number))
    taken = events.take()
    for number in range(1500 if not given_back else 995):
        events.emit("later", str(number))
    events.give_back(taken)
    waiting = [event.message for event in events.take()]
    assert len(waiting) == 1000
    first = ["500"] if not given_back else ["5", "6", "7", "8", "9", "0"]
    assert waiting[: len(first)] == first
    assert waiting[-1] == ("1499" if not given_back else "994")


async def test_events_during_a_run_are_committed_with_it_and_those_after_it_by_commit_events() -> None:
    async def beside(run: Run, _: object) -> None:
        run.pipeline.emit("beside", "while it runs", model=ModelRef("m", "0001"), figures={"share": 0.25})

    run = await run_pipeline(
        ListSource.of({"p": records_of([line("a", "1", range(4), end=True)])}), settings_of(), while_running=beside
    )
    (event,) = run.messages("events")
    assert (event.kind, event.model, event.figures) == ("beside", ModelRef("m", "0001"), {"share": 0.25})
    commits = run.sinks["events"].n_flushes
    await run.pipeline.commit_events()
    assert run.sinks["events"].n_flushes == commits, "there were no events"
    run.pipeline.emit("after", "when it was through")
    await run.pipeline.commit_events()
    assert [event.kind for event in run.messages("events")] == ["beside", "after"]
    assert len(run.verdicts) == 1


async def test_without_any_partition_there_is_no_progress_to_commit_with() -> None:
    run = await run_pipeline(ListSource([]))
    run.pipeline.emit("after", "nothing was read")
    await run.pipeline.commit_events()
    assert run.messages("events") == []
    assert [event.kind for event in run.events] == ["after"]
