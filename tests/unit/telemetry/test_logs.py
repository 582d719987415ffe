"""The log: warnings by default, the runtime's steps with -v, every commit with -vv; never on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from streamad.telemetry.logs import configure_logs, get_logger
from streamad.testing import ListSource
from tests.support.runtime.pipeline import line, records_of, run_pipeline


@pytest.fixture(autouse=True)
def _own_configuration() -> Iterator[None]:
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


async def events_of(verbosity: int, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    configure_logs(verbosity)
    await run_pipeline(ListSource.of({"p": records_of([line("a", "1", range(3), end=True)])}))
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(entry) for entry in captured.err.splitlines()]


async def test_without_verbosity_a_healthy_run_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert await events_of(0, capsys) == []


async def test_verbosity_1_logs_the_steps_of_the_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    events = await events_of(1, capsys)
    assert [event["event"] for event in events] == ["run started", "partition assigned", "partition ended", "run ended"]
    assert {event["level"] for event in events} == {"info"}
    assert events[0]["plant"] == "plant"
    assert events[-1]["sequences"] == {"marker": 1}


async def test_verbosity_2_logs_every_commit(capsys: pytest.CaptureFixture[str]) -> None:
    commits = [event for event in await events_of(2, capsys) if event["event"] == "committed"]
    assert sum(int(str(commit["verdicts"])) for commit in commits) == 1
    assert commits[-1]["partition"] == "p"


def test_a_library_user_sees_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    log = get_logger()
    log.info("quiet")
    log.warning("loud")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [json.loads(entry)["event"] for entry in captured.err.splitlines()] == ["loud"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_line_shows_controls_and_masks_secrets(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of streams and messages of brokers come from others."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal, raising=False)
    configure_logs()
    get_logger().warning("event", message="kafka://kim:hunter22@b/t?token=hunter22 \u202e", stream="a\x1b[2J\nb")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "hunter22" not in printed
    assert "kafka://***@b/t?token=***" in printed
    assert "\u202e" not in printed
    assert "\x1b[2J" not in printed
    assert ("\\x1b[2J\\nb" if is_terminal else "\\u001b[2J\\nb") in printed
