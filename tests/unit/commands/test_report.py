"""``streamad report``: one self-contained page, whatever names and outputs a plant has."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from streamad.commands.report import curves
from streamad.commands.report.gathering import MOST_EVENTS
from streamad.judge.verdicts import span_text
from streamad.language import NO_BREAK
from streamad.safe_text import masked, visible_name
from tests.support.runtime.cli import CliPlant
from tests.support.runtime.judged_plant import ROLES, copied, judged_plant, rewrite

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=http://x.test/>",
    "\x1b[31mred\x07",
    "a\u202eb",
    "two\nlines",
    "&lt;",
    "kafka://user:pa55@host:9092/t",
)
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "ul", "li", "div", "table",
    "thead", "tbody", "tr", "th", "td", "section", "a", "span", "caption", "details", "summary", "figure", "h4",
    "small", "svg", "rect", "line", "polyline", "polygon", "path", "text", "circle",
}  # fmt: skip


class Page(HTMLParser):
    """The page's elements with their attributes, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.content = path.read_text()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.pictures: list[str] = []
        self.feed(self.content.replace("\N{NO-BREAK SPACE}", " "))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-2:] == ["svg", "title"]:
            self.pictures.append(data)
        elif self.open and self.open[-1] != "style" and not data.isspace():
            self.text += re.sub(r"[ \n]+", " ", data).strip(" ") + " "

    @property
    def n_drawn(self) -> int:
        """Return how many alerts have a curve."""
        return len(re.findall(r'<div class="multiples">\s*<figure>', self.content))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    def assert_is_self_contained(self) -> None:
        assert {name for name, _ in self.elements} <= ALLOWED
        for _, attributes in self.elements:
            assert not any(name.startswith("on") for name in attributes)
            assert "src" not in attributes
            assert attributes.get("href", "#").startswith("#")
        policies = [of["content"] for _, of in self.elements if of.get("http-equiv") == "Content-Security-Policy"]
        assert len(policies) == 1
        assert policies[0].startswith("default-src 'none'; style-src 'unsafe-inline';")
        style = self.content.partition("<style>")[2].partition("</style>")[0]
        assert not re.search(r"url\(|@import", style)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_plant(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def plant(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    return CliPlant(copied(judged, tmp_path / "plant"), capsys, monkeypatch)


def report(plant: CliPlant, *options: str) -> Page:
    done = plant("report", "--out", "report.html", *options)
    assert done.code == 0, done.err
    page = Page(plant.folder / "report.html")
    page.assert_is_self_contained()
    return page


def settings(plant: CliPlant, **sections: Any) -> None:
    sinks = {role: f"out/{role}.jsonl" for role in ROLES} | sections.pop("sinks", {})
    plant.write_config(model={"detector": "nearest", "options": {}, "references": []}, sinks=sinks, **sections)


def write(plant: CliPlant, role: str, *messages: dict[str, Any]) -> None:
    (plant.folder / "out" / f"{role}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in messages))


def test_it_has_every_alert_with_its_curves_its_reasons_and_the_rates(plant: CliPlant) -> None:
    page = report(plant)
    alerts = plant.lines("alerts")
    assert len(alerts) > 3
    assert page.n_drawn == page.count("section") == len(alerts)
    for alert in alerts:
        assert alert["sequence"] in page.text
        assert alert["alert_id"] in page.text
    reasons = [segment["text"] for each in plant.lines("attributions") for segment in each["segments"]]
    assert all(text.replace("\u00a0", " ") in page.text for text in reasons)
    assert any("pressure" in said and "above the band" in said for said in page.pictures)
    assert f"{len(alerts)} alerts; 16 sequences ended" in page.text
    assert "default 0001" in page.text
    assert "● in service" in page.text


def test_rates_stand_beside_the_configured_one_with_interval_and_chance(plant: CliPlant) -> None:
    n = len(plant.lines("alerts"))
    page = report(plant, "--pictures", "0")
    assert f"16 {n} {100 * n / 16:.3g} % (" in page.text
    assert "30 % about 4.8 (no range: the calibration does not certify the rate)" in page.text  # out of fold
    assert page.n_drawn == 0


def test_a_certified_rate_has_the_range_of_chance(plant: CliPlant) -> None:
    manifest = plant.folder / "registry" / "default" / "versions" / "0001" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["metrics"] |= {"method": "split", "n_calibration": 99}
    manifest.write_text(json.dumps(content))
    verdict = plant.lines("verdicts")[0]
    write(plant, "verdicts", *([verdict | {"decision": "normal"}] * 190 + [verdict | {"decision": "anomalous"}] * 10))
    settings(plant, alerts={"false_alarm_rate": 0.02})
    assert "5 % (2.42 % to 9 %) 2 % about 4 (0 to 13) ● within chance" in report(plant, "--pictures", "0").text
    write(plant, "verdicts", *([verdict | {"decision": "normal"}] * 186 + [verdict | {"decision": "anomalous"}] * 14))
    assert "about 4 (0 to 13) ▲ more than chance" in report(plant, "--pictures", "0").text


@pytest.mark.parametrize("name", HOSTILE)
def test_names_notes_and_messages_are_text_and_nothing_else(plant: CliPlant, name: str) -> None:
    """``name`` is in every value of the template that holds text: one that is not escaped leaves it in the page."""
    now, model = datetime.now(UTC).isoformat(), {"name": name, "version": name}
    alerts, reasons, windows, verdicts = map(plant.lines, ("alerts", "attributions", "windows", "verdicts"))
    ids = [f"{number:032x}" for number in range(len(alerts))]
    named = {"stream": name, "sequence": name}
    warnings = [*warn(plant, 0, model=model, **named), *warn(plant, 1, model=model)]
    segment = {
        "channel": name, "unit": name, "start": 0.1, "end": 0.2, "start_time": now, "end_time": now,
        "direction": "above", "size": 1.0, "text": name,
    }  # fmt: skip
    explained = {
        "segments": [segment],
        "channels": [{"channel": name, "unit": name, "share": 1.0}],
        "nearest": [{"sequence": name, "distance": 1.0}],
        "terms": [{"transformation": 0, "term": 1.0, "calibration_quantile": 0.5, "member": name}],
    }
    unexplained = {"method": "none", "detail": name, "segments": [], "channels": [], "nearest": [], "terms": []}
    write(plant, "alerts", *(
        alert | named | {"alert_id": id_, "model": model}
        for alert, id_ in zip([*alerts, alerts[0]], [*ids, f"0 {name}"], strict=True)
    ))  # fmt: skip
    write(plant, "attributions", *(
        reason | {"alert_id": id_} | (unexplained if id_ == ids[0] else explained)
        for reason, id_ in zip(reasons, ids, strict=True)
    ))  # fmt: skip
    write(plant, "windows", *(
        window | named | {"verdict_id": id_, "channels": [name, "b"], "units": [name, name]}
        for window, id_ in list(zip(windows, ids, strict=True))[2:]
    ))  # fmt: skip
    unscorable = verdicts[0] | {"decision": "unscorable", "detail": f"{name}: {name}"}
    write(plant, "verdicts", *verdicts, verdicts[0] | {"decision": "normal", "model": model}, unscorable)
    event = {
        "type": "event", "kind": name, "message": name, "stream": name, "model": model, "created_at": now,
        "schema_version": 2,
    }  # fmt: skip
    write(plant, "events", event, event | {"kind": "drift"})
    manifest = plant.folder / "registry" / "default" / "versions" / "0001" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["decision"]["reason"] = name
    manifest.write_text(json.dumps(content))
    write(plant, "warnings", *warnings)
    settings(plant, name="p", sinks={"warnings": "out/warnings.jsonl"}, alerts={"false_alarm_rate": 0.3, "early": {}})
    page = report(plant)
    assert "2 warnings" in page.text
    assert name not in page.content
    assert visible_name(masked(name)) in page.text
    assert page.count("script") == 0
    assert page.n_drawn == len(alerts) - 2
    assert "of the alerts 1 line is unreadable and left out, the first: " in page.text, "its id is none"


def test_a_plant_with_a_secret_in_its_outputs_places_does_not_show_it(plant: CliPlant) -> None:
    write(plant, "events", {
        "type": "event", "kind": "broker_silent", "message": "kafka://user:pa55@host:9092/t is silent",
        "created_at": datetime.now(UTC).isoformat(), "schema_version": 2,
    })  # fmt: skip
    page = report(plant, "--pictures", "0")
    assert "broker_silent" in page.text
    assert "pa55" not in page.content


def test_without_alerts_windows_and_outputs_it_is_a_page_that_says_so(plant: CliPlant) -> None:
    for role in ROLES:
        (plant.folder / "out" / f"{role}.jsonl").unlink()
    page = report(plant)
    for words in (
        "0 alerts; 0 drift events; 0 marks",
        "no rates, as there are no verdicts to count: out/verdicts.jsonl is not there yet",
        "No alert was raised in this time.",
        "No sequence was judged in this time.",
        "No drift was reported",
        "No marks of operators.",
    ):
        assert words in page.text
    assert page.n_drawn == 0


def test_without_a_sink_of_windows_alerts_have_no_curve_and_it_says_how_to_keep_them(plant: CliPlant) -> None:
    settings(plant, sinks={"windows": None, "attributions": None, "events": None, "verdicts": None})
    page = report(plant)
    for role in ("windows", "attributions", "events", "verdicts"):
        assert f"sinks.{role} is not set to a file or topic" in page.text
    assert "No curve: its readings were not kept" in page.text
    assert "No reasons were found for it" in page.text
    assert page.count("section") == len(plant.lines("alerts"))


def test_the_number_of_pictures_is_bounded_and_it_says_what_is_left_out(plant: CliPlant) -> None:
    alerts = plant.lines("alerts")
    page = report(plant, "--pictures", "2")
    assert page.n_drawn == page.count("section") == 2
    assert f"Drawn are the 2 of {len(alerts)} that lie farthest above their threshold" in page.text
    for foremost in sorted(alerts, key=lambda each: -each["score"])[:2]:  # of one version
        assert foremost["alert_id"] in page.text  # only sections have whole ids
    assert len(re.findall(r"\b[0-9a-f]{32}\b", page.text)) == 2
    plant("report", "--pictures", "501").assert_one_line_error("--pictures", code=2)


def test_a_table_of_alerts_is_bounded_and_it_says_so(plant: CliPlant) -> None:
    alert = plant.lines("alerts")[0]
    write(plant, "alerts", *(alert | {"alert_id": f"{number:032x}"} for number in range(600)))
    page = report(plant, "--pictures", "1")
    assert "600 alerts" in page.text
    assert "The newest 500 of 600 alerts as a table" in page.text


def test_a_report_of_many_alerts_stays_small(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    alerts = plant.lines("alerts")
    drawn = plant("report", "--json").last_json["pictures"]
    monkeypatch.setattr(curves, "_MOST_BYTES", 1)
    assert drawn == len(alerts) > plant("report", "--json").last_json["pictures"] == 1
    text = (plant.folder / "report.html").read_text()
    assert f"Drawn are the 1 of {len(alerts)} that lie" in text


def test_the_span_counts_by_the_time_of_judging(plant: CliPlant) -> None:
    alerts = plant.lines("alerts")
    old = (datetime.now(UTC) - timedelta(days=8)).isoformat()
    write(plant, "alerts", alerts[0] | {"created_at": old}, *alerts[1:])
    assert f"{len(alerts) - 1} alerts;" in report(plant, "--pictures", "0").text
    assert f"{len(alerts)} alerts;" in report(plant, "--since", "9d", "--pictures", "0").text
    assert "1 alert;" in report(plant, "--since", "9d", "--until", "1d", "--pictures", "0").text


def test_drift_marks_and_other_versions_are_told(plant: CliPlant) -> None:
    now = datetime.now(UTC).isoformat()
    event = {"type": "event", "message": "mean of temp moved", "created_at": now, "schema_version": 2}
    write(
        plant, "events", event | {"kind": "drift"}, event | {"kind": "model_swapped", "message": "0002 is in service"}
    )
    settings(plant, learning={"store": "inliers", "feedback": "out/feedback.jsonl"})
    alerts = plant.lines("alerts")
    marks = [(0, "false_alarm"), (1, "confirmed"), (1, "veto"), (2, "confirmed"), (2, "withdrawn")]
    write(plant, "feedback", *(
        {"alert_id": alerts[index]["alert_id"], "judgement": said, "created_at": now, "note": "<b>"}
        for index, said in marks
    ))  # fmt: skip
    page = report(plant, "--pictures", "0")
    assert "1 drift event; 2 marks of operators" in page.text
    assert "mean of temp moved" in page.text
    assert "1 model_swapped" in page.text
    assert "false alarm 1 1 confirmed 0 0 neither (veto) 1 1" in " ".join(page.text.split())
    assert f"{len(alerts) - 2} alerts of this report without a mark" in page.text


def test_events_of_a_learner_stand_among_those_of_workers_by_time(plant: CliPlant) -> None:
    def event(minutes: int, kind: str) -> dict[str, Any]:
        at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
        return {"type": "event", "schema_version": 2, "kind": kind, "message": f"it is {kind}", "created_at": at}

    settings(plant, learning={"store": "inliers", "process": "elsewhere"})
    write(plant, "../inliers.events", event(30, "drift"), event(10, "model_promoted"))
    assert "it is drift" in report(plant, "--pictures", "0").text, "also where the workers have written none"
    write(plant, "events", *(event(20, "model_swapped") for _ in range(MOST_EVENTS)))
    text = report(plant, "--pictures", "0").text
    assert f"{MOST_EVENTS} model_swapped" in text
    assert text.index("it is model_promoted") < text.index("it is model_swapped")
    assert "it is drift" not in text, "it is older than the newest"


def test_lines_that_cannot_be_read_are_counted_and_the_first_is_named(plant: CliPlant) -> None:
    n = len(plant.lines("alerts"))
    rewrite(plant.folder / "out" / "alerts.jsonl", type=None)
    with (plant.folder / "out" / "events.jsonl").open("a") as file:
        file.write("not JSON\n")
    page = report(plant)
    first = f"{plant.folder}/out/alerts.jsonl, byte 0: it has no field `type`"
    assert f"of the alerts {n} lines are unreadable and left out, the first: {first}" in page.text
    assert "of the events 1 line is unreadable and left out, the first: " in page.text


def test_a_damaged_window_or_a_removed_version_leave_the_alert_in_the_page(plant: CliPlant) -> None:
    rewrite(plant.folder / "out" / "windows.jsonl", values="AAAA")
    (plant.folder / "registry" / "default" / "versions" / "0001" / "manifest.json").write_text("{")
    page = report(plant)
    assert "No curve: the window cannot be read" in page.text
    assert page.count("section") == len(plant.lines("alerts"))
    assert "manifest" in page.text


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (("--out", "report.pdf"), "is a .html file", 2),
        (("--out", "nowhere/report.html"), "nowhere", 1),
        (("--out", "registry/x.html"), "--out", 2),
        (("--since", "yesterday"), "--since", 2),
        (("--since", "1d", "--until", "2d"), "--until", 2),
        (("--since", "2999-01-01"), "lies in the future", 2),
    ],
)
def test_options_that_do_not_fit_are_one_line(plant: CliPlant, options: tuple[str, ...], words: str, code: int) -> None:
    plant("report", *options).assert_one_line_error(words, code=code)
    assert not list(plant.folder.rglob("*.html"))


def test_json_names_the_page_and_its_figures(plant: CliPlant) -> None:
    told = plant("report", "--json", "--pictures", "1").last_json
    assert told["out"] == "report.html"
    assert told["alerts"] == len(plant.lines("alerts"))
    assert told["pictures"] == 1
    assert told["verdicts"]["normal"] + told["verdicts"]["anomalous"] == 16


def warn(plant: CliPlant, *places: int, **changes: Any) -> list[dict[str, Any]]:
    """Let the alerts at ``places`` be of sequences that were warned of 5 s after their start; return the warnings."""
    alerts, verdicts, made = plant.lines("alerts"), plant.lines("verdicts"), []
    for place in places:
        alert = alerts[place]
        at = datetime.fromisoformat(alert["start_time"]) + timedelta(seconds=5)
        told = {
            key: alert[key] for key in ("stream", "sequence", "start_time", "model", "created_at", "schema_version")
        }
        made.append({
            "type": "warning", "warning_id": f"{place:032x}", **told, "time": at.isoformat(), "n_points": 5, "age": 0.5,
            "look": 2, "score": 4.0, "p_value": 0.01, "false_alarm_rate": 0.05, "tail": "empirical", **changes,
        })  # fmt: skip
        ended = next(each for each in verdicts if each["verdict_id"] == alert["alert_id"])
        ended["warning"] = {"warning_id": f"{place:032x}", "age": 0.5}
    write(plant, "verdicts", *verdicts)
    return made


@pytest.mark.parametrize("has_own_place", [True, False])
def test_it_says_which_sequences_were_warned_of_and_how_long_before_their_end(
    plant: CliPlant, has_own_place: bool
) -> None:
    made = warn(plant, 0, 1)
    place = {"warnings": "out/warnings.jsonl"} if has_own_place else {}
    if has_own_place:
        write(plant, "warnings", *made)
    else:
        write(plant, "alerts", *made, *plant.lines("alerts"))
    segment = {
        "channel": "temp", "unit": "", "start": 0.5, "end": 1.0, "start_time": made[0]["start_time"],
        "end_time": made[0]["time"], "direction": "above", "size": 2.0, "text": "temp 2 above the band",
    }  # fmt: skip
    why = plant.lines("attributions")[0] | {"alert_id": made[0]["warning_id"], "segments": [segment]}
    write(plant, "attributions", *plant.lines("attributions"), why)
    settings(plant, sinks=place, alerts={"false_alarm_rate": 0.3, "early": {}})
    page = report(plant, "--pictures", "1")
    n = sum(each["decision"] == "anomalous" for each in plant.lines("verdicts"))
    assert f"{n} alerts; 2 warnings; 16 sequences ended" in page.text
    assert f"Judged sequences that were warned of while they ran: 2 of {n} anomalous." in page.text
    table = page.text[page.text.index("since then") :]
    assert "0.0100 temp 2 above the band from 0 s to 5 s anomalous, " in table
    ends = [each for each in plant.lines("alerts") if each.get("type") == "alert"][:2]
    for alert in ends:
        lead = datetime.fromisoformat(alert["end_time"]) - datetime.fromisoformat(made[ends.index(alert)]["time"])
        span = span_text(lead.total_seconds()).replace(NO_BREAK, " ")
        assert f"anomalous, {span} later" in table
        assert f"{span} {alert['alert_id'][:8]}" in page.text
    told = plant("report", "--json", "--pictures", "0").last_json
    assert (told["warnings"], told["warned"]["anomalous"], told["warned"]["normal"]) == (2, 2, 0)
    assert f"{n} alerts, 0 of them drawn; 2 warnings: report.html" in plant("report", "--pictures", "0").out


def test_a_warning_before_the_span_stands_beside_its_alert_and_is_not_counted(plant: CliPlant) -> None:
    old = (datetime.now(UTC) - timedelta(days=8)).isoformat()
    write(plant, "warnings", *warn(plant, 0, created_at=old))
    settings(plant, sinks={"warnings": "out/warnings.jsonl"}, alerts={"false_alarm_rate": 0.3, "early": {}})
    page = report(plant)
    assert "1 of" in page.text[page.text.index("while they ran: ") :]
    assert "◆ Warned of while it ran, at 50 % of the usual length (5 s), " in page.text
    assert " 1 warning" not in page.text


def test_without_looks_nothing_is_said_of_warnings(plant: CliPlant) -> None:
    assert "arn" not in report(plant).text.replace("learn", "")
