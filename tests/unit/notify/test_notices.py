"""What notices say: links of hostile ids, bounded JSON, digests, names that carry controls."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema
import msgspec

from streamad.messages import Alert, Attribution, TermShare
from streamad.notify.bodies import notice_schema
from streamad.notify.notices import MOST_BYTES, Item, Notice
from streamad.notify.policy import Arrival, Batch
from tests.support.notify.plant import id_of, message
from tests.support.web.messages import reasons_of, warning_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def item(i: int, **changes: Any) -> Item:
    alert, attribution = message("alert", i), message("attribution", i)
    assert isinstance(alert, Alert)
    assert isinstance(attribution, Attribution)
    return Item(msgspec.structs.replace(alert, **changes), attribution)


def of(*items: Item, count: int | None = None, n_streams: int = 1, link: str | None = "https://page.example") -> Notice:
    n = len(items) if count is None else count
    return Notice("x", "hall", "first", NOW, items, n, n_streams, link)


def test_a_digest_has_the_count_and_the_first_few() -> None:
    told = of(*(item(i) for i in range(5)), count=37, n_streams=3)
    assert told.title() == "streamad hall: 37 alerts on 3 streams"
    assert "and 32 more" in told.text()
    assert told.text().count("Look and judge:") == 5
    data = json.loads(told.body())["data"]
    assert (data["count"], data["streams"], len(data["alerts"])) == (37, 3, 5)
    assert data["alerts"][4]["alert"]["alert_id"] == id_of(4)


def test_names_from_elsewhere_cannot_begin_a_line_nor_act_on_a_terminal() -> None:
    told = of(item(1, stream="a\x1b[2J\r\nBcc: all", sequence="b\u202e\n\nhttps://evil.example"))
    assert "\n" not in told.title()
    assert not {"\x1b", "\r", "\u202e"} & {*told.title(), *told.text()}
    assert not any(line.startswith(("Bcc", "https://evil")) for line in told.text().splitlines())


def test_an_id_is_quoted_in_the_link_and_without_a_page_there_is_none() -> None:
    odd = item(1, alert_id="../?a=b#c")
    assert of(odd).link_to(odd) == "https://page.example/s/..%2F%3Fa%3Db%23c"
    assert "https://" not in of(item(1), link=None).text()
    assert json.loads(of(item(1), link=None).body())["data"]["link"] is None


def test_json_is_bounded() -> None:
    found = item(1)
    assert found.attribution is not None
    terms = [TermShare(transformation=i, term=1.0, calibration_quantile=0.5, member="m" * 900) for i in range(2_000)]
    large = Item(found.message, msgspec.structs.replace(found.attribution, terms=terms))
    body = of(large).body()
    assert len(body) < MOST_BYTES
    assert json.loads(body)["data"]["attribution"]["terms"] == []
    larger = Item(found.message, msgspec.structs.replace(found.attribution, detail="d" * MOST_BYTES))
    assert json.loads(of(larger).body())["data"]["attribution"] is None


def test_without_reasons_it_says_so() -> None:
    told = of(Item(item(1).message, None))
    assert "no reasons yet" in told.text()
    assert told.title() == "streamad hall: reactor-1 B-1: alert"


def test_a_batch_of_one_is_an_alert_with_its_id() -> None:
    batch = Batch()
    batch.add(Arrival(item(1).message, 0.0), 0)
    told = Notice.of(batch, [item(1)], plant="hall", receiver="first", at=NOW)
    assert (told.id, json.loads(told.body())["type"]) == (id_of(1), "streamad.alert")


def test_a_warning_says_that_the_sequence_still_runs_at_which_age_and_why() -> None:
    warning = warning_of(1)
    told = Notice("x", "hall", "first", NOW, (Item(warning, reasons_of(warning)),), 1, 1, "https://page.example")
    assert told.title() == (
        "streamad hall: warning: reactor-1 B-1 leaves the normal course at 54\u00a0% of the usual length (27\u00a0s): "
        "temp_c 2 K above the band from 13\u00a0s to 27\u00a0s"
    )
    lines = told.text().splitlines()
    assert lines[2:4] == [
        "◆ WARNING   p 0.0100 (warning at 0.01 or less)   look 5 of model default 0001",
        "seen from 2026-03-01 06:00:10 to 06:00:37 UTC; its verdict follows at its end",
    ]
    assert "temp_c 100\u00a0%  2 K above the band from 13\u00a0s to 27\u00a0s" in lines
    body = json.loads(told.body())
    assert (body["type"], body["data"]["warning"]["warning_id"]) == ("streamad.warning", warning.warning_id)
    assert body["data"]["link"] == f"https://page.example/s/{warning.warning_id}"


def test_a_digest_counts_warnings_apart() -> None:
    warning = Item(warning_of(2), None)
    told = Notice("x", "hall", "first", NOW, (item(1), warning), 7, 2, n_warnings=1)
    assert told.title() == "streamad hall: 6 alerts and 1 warning on 2 streams"
    data = json.loads(told.body())["data"]
    assert (data["count"], data["n_warnings"], len(data["alerts"]), len(data["warnings"])) == (7, 1, 1, 1)
    jsonschema.validate(json.loads(told.body()), notice_schema())
    alone = Notice("x", "hall", "first", NOW, (warning, warning), 2, 1, n_warnings=2)
    assert alone.title() == "streamad hall: 2 warnings on reactor-2"
