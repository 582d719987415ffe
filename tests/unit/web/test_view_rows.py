"""The law of ids in the view: what was read first under an id stays, whatever foreign writers send afterwards."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamad.messages import ChannelShare, Message, ModelRef, packed_values
from streamad.web.store.view import View
from tests.support.web.messages import T, messages_of, verdict
from tests.support.web.page import PageUnderTest
from tests.unit.web.test_view import content, opened

ID = f"{7:032x}"
FORGED: dict[str, dict[str, Any]] = {
    "stream": {"stream": "forged"},
    "sequence": {"sequence": "forged"},
    "start": {"start_time": T - timedelta(days=9)},
    "end": {"end_time": T + timedelta(days=9)},
    "samples": {"n_samples": 1},
    "decision": {"decision": "normal"},
    "model version": {"model": ModelRef("default", "0666")},
    "score": {"score": 1e-9},
}


def changed(message: Message, **fields: Any) -> Any:
    """Return ``message`` with those of ``fields`` that it has."""
    return msgspec.structs.replace(
        message, **{name: value for name, value in fields.items() if name in message.__struct_fields__}
    )


def shown(view: View) -> list[tuple[Any, ...]]:
    """Return everything the view holds, but for what contradicts it and the numbers of changes."""
    with sqlite3.connect(view.path) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM sequences ORDER BY id").fetchall()
    left = {"change", "contradiction"}
    return [tuple(row[key] for key in row.keys() if key not in left) for row in rows]  # noqa: SIM118 - no mapping


def contradiction(view: View, name: str = ID) -> str | None:
    found = view.sequence(name)
    assert found is not None
    return found.contradiction


# --- what repeats or adds ---


def test_a_repetition_made_later_with_other_last_digits_changes_nothing(tmp_path: Path) -> None:
    """As after a crash, with sinks that are written at least once, or when the page reads again."""
    view = opened(tmp_path)
    view.put(messages_of(7))
    last = view.last_change
    again = [changed(each, created_at=T + timedelta(days=1), score=8.0 * (1 + 1e-6)) for each in messages_of(7)[:4]]
    assert view.put(again) == last
    assert contradiction(view) is None
    assert view.contradicted(9) == []
    view.close()


# --- what contradicts ---


@pytest.mark.parametrize(
    ("kind", "what"), [*((0, what) for what in FORGED), *((1, what) for what in FORGED if what != "decision")]
)
def test_a_second_judgement_changes_nothing_and_is_noted(kind: int, what: str, tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put(messages_of(7))
    before = shown(view)
    view.put([changed(messages_of(7)[kind], **FORGED[what])])
    assert shown(view) == before
    assert contradiction(view) == f"{('verdict', 'alert')[kind]}: {what}"
    assert [one.id for one in view.contradicted(9)] == [ID]
    assert [one.id for one in view.inbox(9)] == [ID]
    view.close()


@pytest.mark.parametrize("kind", [2, 3], ids=["attribution", "window"])
@pytest.mark.parametrize("is_first", [True, False], ids=["before the verdict", "after it"])
def test_reasons_and_windows_of_another_sequence_are_dropped(kind: int, is_first: bool, tmp_path: Path) -> None:
    view = opened(tmp_path)
    forged = changed(messages_of(7)[kind], stream="forged")
    order = [forged, *messages_of(7)[:2]] if is_first else [*messages_of(7)[:2], forged]
    view.put(order)
    one = view.sequence(ID)
    assert one is not None
    assert one.stream == "reactor-1"
    assert one.contradiction is not None
    assert one.contradiction.startswith(("attribution", "window")[kind - 2])
    assert (view.attribution(ID), view.window(ID)) == (None, None)
    view.put(messages_of(7))
    assert view.attribution(ID) is not None
    assert view.window(ID) is not None
    view.close()


def test_a_window_of_another_time_is_dropped(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put([verdict(7), changed(messages_of(7)[3], n_samples=3)])
    assert view.window(ID) is None
    assert contradiction(view) == "window: samples"
    view.close()


def test_second_reasons_and_windows_change_nothing(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put(messages_of(7))
    before = content(view)
    lies = [ChannelShare(channel="forged", unit="", share=1.0)]
    flat = packed_values(np.zeros((1, 3), np.float32))
    view.put([changed(messages_of(7)[2], channels=lies), changed(messages_of(7)[3], values=flat)])
    assert content(view) == before
    view.close()


def test_a_forged_verdict_hides_no_alert_whichever_was_read_first(tmp_path: Path) -> None:
    judged, alert, *_ = messages_of(7)
    forged = changed(judged, decision="normal", score=0.1, p_value=0.9)
    found = []
    for number, order in enumerate(permutations([judged, alert, forged])):
        view = opened(tmp_path / str(number))
        view.put(order)
        (one,) = view.inbox(9)
        assert (one.id, one.decision, one.score, one.p_value) == (ID, "anomalous", 8.0, 0.5)
        assert one.contradiction is not None
        found.append(one)
        view.close()
    assert len(found) == 6


def test_an_alert_that_names_another_sequence_is_none(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put([verdict(7), changed(messages_of(7)[1], stream="forged")])
    assert view.inbox(9) == []
    assert contradiction(view) == "alert: stream, decision"
    view.close()


def test_who_sends_more_and_more_forgeries_changes_each_sequence_once(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put(messages_of(7))
    first = view.put([changed(verdict(7, "anomalous"), stream="forged-0")])
    assert view.put(changed(verdict(7, "anomalous"), sequence=f"forged-{i}") for i in range(50)) == first
    view.close()


def test_a_contradiction_is_logged_once(tmp_path: Path) -> None:
    view = opened(tmp_path)
    with capture_logs() as logs:
        view.put([verdict(7), verdict(8)])
        assert logs == []
        for i in (7, 8):
            view.put([changed(verdict(i), stream="forged\x1b[31m")])
    assert [(line["log_level"], line["id"], line["what"]) for line in logs] == [("warning", ID, "verdict: stream")]
    assert "forged" not in str(logs)
    view.close()


@settings(max_examples=40, deadline=None)
@given(
    st.permutations(range(4)),
    st.lists(st.tuples(st.sampled_from(sorted(FORGED)), st.integers(0, 3), st.integers(0, 3)), max_size=12),
)
def test_whatever_comes_after_the_first_of_its_kind_the_view_stays(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], forgeries: list[tuple[str, int, int]]
) -> None:
    """In any order of the true messages, with any forgeries of kinds that were read before."""
    true = messages_of(7)
    plain, attacked = (opened(tmp_path_factory.mktemp("view")) for _ in range(2))
    plain.put(true[:4])
    for step, kind in enumerate(order):
        attacked.put([true[kind]])
        for what, of, at in forgeries:
            if at == step and of in order[: step + 1]:
                attacked.put([changed(true[of], **FORGED[what])])
    assert shown(attacked) == shown(plain)
    plain.close()
    attacked.close()


# --- what the page says ---


def test_the_page_says_that_messages_contradict_each_other(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages_of(7))
    client = page.browser()
    assert "contradict" not in client.get("/").text
    page.view.put([changed(verdict(7, "anomalous"), stream="<forged>", score=0.5)])
    text = client.get("/").text
    assert "messages contradict each other" in text
    assert "the ids of 1 sequence say otherwise" in text
    assert "reactor-1 B-7" in text
    assert "forged" not in text
    assert "(verdict: stream, score). Shown is what was read first" in client.get(f"/s/{ID}").text
