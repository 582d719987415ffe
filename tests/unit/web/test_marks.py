"""Marks on the page of a sequence: who looks after it, what others should know, and which button is lit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from streamad.learn.store.records import Mark
from streamad.messages import Feedback
from tests.support.learning.stored import store_of
from tests.support.web.messages import T, messages_of, verdict
from tests.support.web.page import SAME, PageUnderTest

ID = f"{1:032x}"


def judging(text: str) -> str:
    """Return the section of the judgement."""
    return text.partition('<section class="judging"')[2].partition("</section>")[0]


def marks(folder: Path, name: str = "feedback.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def pressed(text: str) -> dict[str, str]:
    """Return of each button whether it is lit."""
    return dict(re.findall(r'value="(\w+)"[^>]*aria-pressed="(\w+)"', text))


def test_who_claims_an_alert_looks_after_it_and_judges_nothing(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages_of(1)[:4]).browser()
    given = {"judgement": "claim", "assignee": "somebody else", "comment": "valve 3 again"}
    answer = client.post(f"/s/{ID}/mark", data=given, headers=SAME)
    assert answer.status_code == 303
    assert "It is written down.<" in client.get(answer.headers["location"]).text
    (mark,) = marks(tmp_path)
    assert (mark["judgement"], mark["assignee"], mark["comment"], mark["by"]) == (
        "withdrawn", "kim", "valve 3 again", "kim",
    )  # fmt: skip
    text = judging(client.get(f"/s/{ID}").text)
    assert "assigned to kim" in text
    assert "taken back" not in text
    assert "<q>valve 3 again</q>" in text
    assert set(pressed(text).values()) == {"false"}
    assert "assigned to kim" in client.get("/").text


def test_assignee_and_comment_are_fields_of_every_mark(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages_of(1)[:4]).browser()
    given = {"judgement": "confirmed", "reason": "sensor", "assignee": "lee", "comment": "ordered"}
    client.post(f"/s/{ID}/mark", data=given, headers=SAME)
    (mark,) = marks(tmp_path)
    assert (mark["note"], mark["assignee"], mark["comment"]) == ("sensor", "lee", "ordered")
    text = judging(client.get(f"/s/{ID}").text)
    assert pressed(text) == {"false_alarm": "false", "confirmed": "true", "veto": "false"}
    assert "✓ Confirmed" in text
    assert "<q>sensor</q>" in text
    assert 'value="lee"' in text  # the next mark keeps them
    assert 'value="ordered"' in text


def test_a_claim_never_takes_back_what_somebody_has_said_meanwhile(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages_of(1)[:4])
    client = page.browser()
    page.view.put([Feedback(alert_id=ID, judgement="confirmed", by="lee", created_at=T)])
    for judgement in ("claim", "assign"):
        answer = client.post(f"/s/{ID}/mark", data={"judgement": judgement}, headers=SAME)
        assert answer.status_code == 422
        assert "lee has judged it meanwhile" in answer.text
    assert not (tmp_path / "feedback.jsonl").exists()


def test_a_claim_never_takes_back_a_mark_whose_message_is_gone(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages_of(1)[:4])
    store = store_of(tmp_path / "plant.yaml")
    store.mark(Mark(id=ID, judgement="veto", at_us=1))
    store.close()
    answer = page.browser().post(f"/s/{ID}/mark", data={"judgement": "claim"}, headers=SAME)
    assert answer.status_code == 422
    assert "somebody has judged it meanwhile" in answer.text
    assert not (tmp_path / "feedback.jsonl").exists()


def test_marks_of_earlier_releases_are_read_as_before(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages_of(1))
    one = page.view.sequence(ID)
    assert one is not None
    assert (one.judgement, one.note, one.judged_by, one.assignee, one.comment) == ("confirmed", "b", "lee", "", "")


def test_secrets_in_a_comment_are_masked(tmp_path: Path) -> None:
    said = Feedback(
        alert_id=ID, judgement="veto", by="kim", created_at=T, comment="kafka://kim:hunter2@broker", assignee="a"
    )
    text = PageUnderTest(tmp_path, [*messages_of(1)[:4], said]).browser().get(f"/s/{ID}").text
    assert "kafka://" in text
    assert "hunter2" not in text


def test_a_plant_that_does_not_learn_judges_and_claims(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages_of(1)[:4], learning=None).browser()
    for judgement in ("claim", "false_alarm"):
        assert client.post(f"/s/{ID}/mark", data={"judgement": judgement}, headers=SAME).status_code == 303
    assert [one["judgement"] for one in marks(tmp_path, "marks.jsonl")] == ["withdrawn", "false_alarm"]
    text = client.get(f"/s/{ID}").text
    assert pressed(text)["false_alarm"] == "true"
    assert "This plant does not learn" in text


def test_a_normal_sequence_waits_for_nobody_and_its_button_says_what_it_confirms(tmp_path: Path) -> None:
    text = judging(PageUnderTest(tmp_path, [verdict(1)]).browser().get(f"/s/{ID}").text)
    assert 'class="state new"' not in text
    assert "none is needed" in text
    assert "it was an anomaly, though it did not alert" in text
    (other := tmp_path / "other").mkdir()
    alert = judging(PageUnderTest(other, messages_of(1)[:2]).browser().get(f"/s/{ID}").text)
    assert 'class="state new"' in alert
    assert ">it was an anomaly<" in alert
