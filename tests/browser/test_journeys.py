"""What people do with the page: see an alert come, judge it with the keyboard, look through a restart."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from playwright.sync_api import Browser, Locator, Page, Route, expect

from streamad.messages import Alert, Attribution, ChannelShare, Feedback, Message, Verdict
from tests.support.runtime.cli import started
from tests.support.waiting import LIMIT_S
from tests.support.web.browser import LIMIT_MS, Visitor
from tests.support.web.messages import messages_of, reasons_of, warning_of
from tests.support.web.run import FOLLOWED, ROLES, link_of
from tests.support.web.site import copied, served
from tests.support.web.status import opened, status_of

expect.set_options(timeout=LIMIT_MS)


def until(found: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Return what ``found`` returns once it is true."""
    end = time.monotonic() + limit_s
    while not (value := found()):
        assert time.monotonic() < end, "it waits for ever"
        time.sleep(0.02)
    return value


def messages(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def bars(page: Page) -> list[str]:
    """Return the paths of the sequences in the lanes."""
    return [str(each.get_attribute("href")) for each in page.locator("a:has(> rect.bar)").all()]


def held_back(folder: Path, n_first: int) -> Callable[[], None]:
    """Leave the first ``n_first`` verdicts and what belongs to them in the outputs; return what appends the rest."""
    whole = {role: (folder / "out" / f"{role}.jsonl") for role in ROLES if role != "events"}
    first = {one["verdict_id"] for one in messages(whole["verdicts"])[:n_first]}
    rest: dict[Path, list[str]] = {}
    for path in whole.values():
        lines = path.read_text().splitlines(keepends=True)
        is_first = [bool({one.get("verdict_id"), one.get("alert_id")} & first) for one in map(json.loads, lines)]
        path.write_text("".join(line for line, early in zip(lines, is_first, strict=True) if early))
        rest[path] = [line for line, early in zip(lines, is_first, strict=True) if not early]

    def append() -> None:
        for path, lines in rest.items():
            with path.open("a") as file:
                file.writelines(lines)

    return append


def test_an_alert_of_a_running_monitor_appears_and_is_judged_by_keyboard(
    browser: Browser, judged: Path, tmp_path: Path
) -> None:
    folder = copied(judged, tmp_path / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    (folder / "plant.yaml").write_text(yaml.safe_dump(config | {"source": FOLLOWED}))
    recorded = (folder / "recordings" / "day.jsonl").read_text().splitlines(keepends=True)
    for old in ("out", "checkpoint", "inliers"):
        (folder / old).rename(tmp_path / old)
    odd = {one["sequence"] for one in messages(tmp_path / "out" / "alerts.jsonl")}
    with started("run", "--web", "--quiet", cwd=folder) as process:
        visitor = Visitor(browser, link_of(process))
        page = visitor.page
        expect(page.locator("main")).to_contain_text("No sequence has been judged yet")
        page.evaluate("window.isSame = true")
        with (folder / "live.jsonl").open("a") as file:
            file.writelines(line for line in recorded if json.loads(line)["sequence"] in odd)
        alert = page.locator("table a[href^='/s/']").first
        expect(alert).to_be_visible()
        assert page.evaluate("window.isSame")  # it was not loaded again
        alert.click()
        judgement = page.get_by_role("region", name="Judgement")
        expect(judgement).to_contain_text("none yet")
        page.keyboard.press("f")
        expect(judgement).to_contain_text(f"false alarm by {getuser()}")
        expect(judgement).to_contain_text("may make a second version that learns from this sequence")
        (mark,) = until(lambda: messages(folder / "feedback.jsonl"))
        assert (mark["judgement"], mark["by"]) == ("false_alarm", getuser())
        assert page.url.partition("?")[0].endswith(f"/s/{mark['alert_id']}")
        visitor.assert_clean()
        visitor.context.close()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, said


def test_a_page_goes_on_after_a_restart_without_gap_or_repetition(
    browser: Browser, judged: Path, tmp_path: Path
) -> None:
    folder = copied(judged, tmp_path / "plant")
    every = {f"/s/{one['verdict_id']}" for one in messages(folder / "out" / "verdicts.jsonl")}
    append_rest = held_back(folder, 8)
    with served(folder) as link:
        visitor = Visitor(browser, link)
        expect(visitor.page.locator("a:has(> rect.bar)")).to_have_count(8)
        visitor.page.evaluate("window.isSame = true")
    expect(visitor.page.locator("#connection")).to_have_text("not connected, trying again")
    append_rest()
    port = re.search(r":(\d+)/", link)
    assert port is not None
    with served(folder, "--port", port[1]):
        expect(visitor.page.locator("a:has(> rect.bar)")).to_have_count(len(every))
        expect(visitor.page.locator("#connection")).to_have_text("")
        found = bars(visitor.page)
        assert sorted(found) == sorted(every)
        assert visitor.page.evaluate("window.isSame")
        assert visitor.foreign == []
        visitor.context.close()


def test_an_open_page_shows_a_view_that_was_begun_anew_as_a_whole(
    browser: Browser, judged: Path, tmp_path: Path
) -> None:
    """Its numbers of changes begin again, so a page that knows higher ones must not take them for old."""
    folder = copied(judged, tmp_path / "plant")
    n_all = len(messages(folder / "out" / "verdicts.jsonl"))
    append_rest = held_back(folder, n_all - 1)
    with served(folder) as link:
        page = Visitor(browser, link).page
        expect(page.locator("a:has(> rect.bar)")).to_have_count(n_all - 1)
        page.evaluate("window.isSame = true")
        (folder / "view.sqlite3").unlink()  # while it runs
        append_rest()
        expect(page.locator("a:has(> rect.bar)")).to_have_count(n_all)
    for role in ROLES:
        (folder / "out" / f"{role}.jsonl").write_text("")
    for path in folder.glob("view.sqlite3*"):
        if path.suffix != ".token":
            path.unlink()
    port = re.search(r":(\d+)/", link)
    assert port is not None
    with served(folder, "--port", port[1]):
        expect(page.locator("main")).to_contain_text("No sequence has been judged yet")
        assert page.evaluate("window.isSame")
        page.context.close()


def test_the_page_too_many_says_that_it_does_not_renew_and_is_renewed_once_there_is_a_place(
    browser: Browser, judged: Path, tmp_path: Path
) -> None:
    folder = copied(judged, tmp_path / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    (folder / "plant.yaml").write_text(yaml.safe_dump(config | {"web": {"port": 0, "max_browsers": 1}}))
    n_all = len(messages(folder / "out" / "verdicts.jsonl"))
    append_rest = held_back(folder, 8)
    with served(folder) as link:
        first, second = Visitor(browser, link), Visitor(browser, link)
        said = "1 browsers are connected; this page does not renew by itself"
        expect(second.page.locator("#connection")).to_contain_text(said)
        append_rest()
        expect(first.page.locator("a:has(> rect.bar)")).to_have_count(n_all)
        first.context.close()
        expect(second.page.locator("a:has(> rect.bar)")).to_have_count(n_all)
        expect(second.page.locator("#connection")).to_have_text("")
        second.assert_clean()
        second.context.close()


def test_a_page_that_is_refused_once_fetches_what_changed_later(browser: Browser, judged: Path, tmp_path: Path) -> None:
    folder = copied(judged, tmp_path / "plant")
    n_all = len(messages(folder / "out" / "verdicts.jsonl"))
    append_rest = held_back(folder, 8)
    refused: list[str] = []

    def busy(route: Route) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            route.fulfill(status=503, body="Service Unavailable")

    with served(folder) as link:
        page = Visitor(browser, link).page
        expect(page.locator("a:has(> rect.bar)")).to_have_count(8)
        page.route(lambda url: url.endswith("/"), busy)
        append_rest()
        expect(page.locator("a:has(> rect.bar)")).to_have_count(n_all)
        assert len(refused) == 1
        page.context.close()


def test_the_focus_stays_on_a_table_when_the_page_renews(browser: Browser, judged: Path, tmp_path: Path) -> None:
    folder = copied(judged, tmp_path / "plant")
    n_all = len(messages(folder / "out" / "verdicts.jsonl"))
    append_rest = held_back(folder, n_all - 1)
    with served(folder) as link:
        page = Visitor(browser, link).page
        expect(page.locator("a:has(> rect.bar)")).to_have_count(n_all - 1)
        table = page.get_by_role("region", name="Alerts, those not judged first")
        table.focus()
        append_rest()
        expect(page.locator("a:has(> rect.bar)")).to_have_count(n_all)
        expect(table).to_be_focused()
        page.context.close()


def test_two_pages_show_the_same_and_a_mark_made_on_one_appears_on_the_other(
    browser: Browser, judged: Path, tmp_path: Path
) -> None:
    folder = copied(judged, tmp_path / "plant")
    append_rest = held_back(folder, 8)
    with served(folder) as link:
        first, second = Visitor(browser, link), Visitor(browser, link)
        append_rest()
        n_all = len(messages(folder / "out" / "verdicts.jsonl"))
        for each in (first, second):
            expect(each.page.locator("a:has(> rect.bar)")).to_have_count(n_all)
        assert bars(first.page) == bars(second.page)
        href = first.page.locator("table a[href^='/s/']").first.get_attribute("href")
        assert href is not None
        first.go(href)
        first.page.get_by_label("Reason").fill("a test")
        first.page.get_by_label("Comment").fill("of both fields")
        first.page.get_by_role("button", name="Confirmed").click()
        row = second.page.locator("tr", has=second.page.locator(f"a[href='{href}']"))
        expect(row).to_contain_text(f"confirmed by {getuser()}")
        judgement = first.page.get_by_role("region", name="Judgement")
        expect(judgement.locator("q")).to_have_text(["a test", "of both fields"])
        expect(judgement.get_by_role("button", pressed=True)).to_contain_text("✓ Confirmed")
        first.assert_clean()
        second.assert_clean()
        first.context.close()
        second.context.close()


def test_an_open_sequence_is_seen_over_the_band_while_it_runs(browser: Browser, judged: Path, tmp_path: Path) -> None:
    folder = copied(judged, tmp_path / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    config |= {"source": FOLLOWED, "display": {"open": True, "status_interval": "1s", "windows": "all"}}
    config["sinks"] |= {"status": "status"}
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    recorded = (folder / "recordings" / "day.jsonl").read_text().splitlines(keepends=True)
    (folder / "checkpoint").rename(tmp_path / "checkpoint")
    whole = json.loads(recorded[0])
    name, n = whole["sequence"], len(whole["times"]) // 2
    begin = {key: value for key, value in whole.items() if key != "end"}
    begin |= {"times": whole["times"][:n], "values": whole["values"][:n]}
    rest = whole | {"times": whole["times"][n:], "values": whole["values"][n:], "end": True}
    with started("run", "--web", "--quiet", cwd=folder) as process:
        visitor = Visitor(browser, link_of(process))
        page = visitor.page
        with (folder / "live.jsonl").open("a") as file:
            file.write(json.dumps(begin) + "\n")
        page.get_by_text("1 open sequence").click()
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("main")).to_contain_text(f"{name}: {n} samples so far")
        expect(page.locator("svg.panel .band").first).to_be_visible()
        with (folder / "live.jsonl").open("a") as file:
            file.write(json.dumps(rest) + "\n")
        expect(page.locator("main")).to_contain_text("No worker tells of an open sequence")
        visitor.assert_clean()
        process.kill()  # no last status
        visitor.context.close()
    with served(folder) as link:
        again = Visitor(browser, link)
        expect(again.page.get_by_role("region", name="Needs attention")).to_contain_text("is silent")
        again.context.close()


# --- five questions, from Now ---


@pytest.fixture(scope="module")
def troubled(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plant in which a sequence runs that was warned of; of an alert like the highest people have spoken before."""
    folder = copied(judged, tmp_path_factory.mktemp("troubled") / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    config["sinks"] |= {"warnings": "out/warnings.jsonl", "status": "status"}
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    warning, now = warning_of(1), datetime.now(UTC)
    running = opened(warning.stream, warning.sequence, 27, warning.start_time)
    status = status_of(open_=[running], started_at=now, created_at=now, interval_s=3_600.0)
    (folder / "status").mkdir()
    (folder / "status" / "line-1.jsonl").write_bytes(msgspec.json.encode(status) + b"\n")
    highest = max(messages(folder / "out" / "alerts.jsonl"), key=lambda one: one["score"])
    every = messages(folder / "out" / "attributions.jsonl")
    reasons = next(each for each in every if each["alert_id"] == highest["alert_id"])
    share = ChannelShare(channel=reasons["channels"][0]["channel"], unit="", share=1.0)
    before = {"start_time": datetime(2025, 12, 31, 6, tzinfo=UTC), "end_time": datetime(2025, 12, 31, 7, tzinfo=UTC)}
    verdict, alert, attribution = messages_of(400)[:3]
    assert isinstance(verdict, Verdict)
    assert isinstance(alert, Alert)
    assert isinstance(attribution, Attribution)
    verdict, alert = msgspec.structs.replace(verdict, **before), msgspec.structs.replace(alert, **before)
    alike = msgspec.structs.replace(attribution, channels=[share])
    said = Feedback(alert_id=alert.alert_id, judgement="confirmed", comment="valve 3 stuck", by="kim", created_at=now)
    written: dict[str, list[Message]] = {
        "warnings": [warning], "attributions": [reasons_of(warning), alike], "verdicts": [verdict], "alerts": [alert],
    }  # fmt: skip
    for role, each in written.items():
        with (folder / "out" / f"{role}.jsonl").open("ab") as file:
            file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in each))
    (folder / "feedback.jsonl").write_bytes(msgspec.json.encode(said) + b"\n")
    return folder


class Walk:
    """A visitor who begins at Now and counts what they click."""

    def __init__(self, visitor: Visitor) -> None:
        self.page, self.n_clicks = visitor.go("/"), 0

    def click(self, target: Locator) -> None:
        self.n_clicks += 1
        target.click()
        self.page.wait_for_load_state("load")


def what_is_wrong_now(walk: Walk) -> None:
    banner = walk.page.get_by_role("region", name="Needs attention")
    expect(banner).to_be_in_viewport()
    expect(banner.get_by_role("listitem").first).to_contain_text(re.compile(r"\d+ alerts in the last \d+ judged"))
    expect(banner).to_contain_text("1 running sequence leaves the normal course")


def which_first(walk: Walk) -> None:
    first = walk.page.locator(".first")
    expect(first).to_be_in_viewport()
    expect(first).to_contain_text(re.compile(r"Open this first:\s+reactor-1 B-1, which runs .* then", re.DOTALL))
    walk.click(first.locator("a[href^='/s/']").last)
    expect(walk.page.get_by_role("region", name="Judgement")).to_contain_text("none yet")


def since_when(walk: Walk) -> None:
    expect(walk.page.locator(".first time")).to_be_in_viewport()
    walk.click(walk.page.locator(".first a[href^='/s/']").last)
    expect(walk.page.locator("h1")).to_contain_text(re.compile(r"from \d+\s% to \d+\s%|at \d+\s%"))
    expect(walk.page.locator("main")).to_contain_text("samples")


def how_sure(walk: Walk) -> None:
    expect(walk.page.locator(".first")).to_contain_text(re.compile(r"[\d.]+ times its threshold"))
    walk.click(walk.page.locator(".first a[href^='/s/']").last)
    expect(walk.page.locator("main")).to_contain_text(re.compile(r"p 0\.\d+ .*times the threshold"))
    expect(walk.page.locator("main")).to_contain_text("The score lies above")


def what_we_said_last_time(walk: Walk) -> None:
    walk.click(walk.page.locator(".first a[href^='/s/']").last)
    row = walk.page.get_by_role("region", name="Earlier alerts alike").get_by_role("row").filter(has_text="B-400")
    expect(row).to_contain_text("confirmed by kim")
    expect(row).to_contain_text("valve 3 stuck")


@pytest.mark.parametrize(("width", "most"), [(1400, 2), (400, 3)])
def test_five_questions_are_answered_within_few_clicks_from_now(
    browser: Browser, troubled: Path, width: int, most: int
) -> None:
    with served(troubled) as link:
        visitor = Visitor(browser, link, viewport={"width": width, "height": 800})
        expect(visitor.page.locator(".first")).to_contain_text("times its threshold")
        for question in (what_is_wrong_now, which_first, since_when, how_sure, what_we_said_last_time):
            walk = Walk(visitor)
            question(walk)
            assert walk.n_clicks <= most, question.__name__
        visitor.assert_clean()
        visitor.context.close()


def test_a_search_keeps_its_values_and_works_without_scripts(browser: Browser, troubled: Path) -> None:
    with served(troubled) as link:
        for has_scripts in (True, False):
            visitor = Visitor(browser, link, java_script_enabled=has_scripts)
            page = visitor.go("/alerts")
            n_all = page.locator("[data-walk] tbody tr").count()
            page.get_by_label("Search").fill("valve 3")
            page.get_by_label("Judged").select_option("confirmed")
            page.get_by_role("button", name="Show").click()
            expect(page.locator("[data-walk] tbody tr")).to_have_count(1)
            assert n_all > 1
            page.get_by_role("link", name="highest above the threshold first").click()
            expect(page.get_by_label("Search")).to_have_value("valve 3")
            expect(page.get_by_label("Judged")).to_have_value("confirmed")
            expect(page.locator("[data-walk] tbody tr")).to_have_count(1)
            visitor.context.close()
