"""The page's server: who may see and do what, what hostile names become, and pages of what is missing."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.messages import Event, Feedback
from streamad.web.access import Level
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import T, messages_of, verdict
from tests.support.web.page import HOST, SAME, SECRET, PageUnderTest
from tests.support.web.status import opened, status_of

ID = f"{1:032x}"
PAGES = (
    "/",
    "/alerts",
    "/streams",
    "/stream?name=reactor-1",
    "/calibration",
    "/models",
    f"/s/{ID}",
    f"/compare?id={ID}",
)
HOSTILE = "<script>alert(1)</script>\"'&\u202e\x1b[31m"


def messages(n: int = 3) -> list[Any]:
    return [*(verdict(i) for i in range(10, 20)), *(each for i in range(n) for each in messages_of(i)[:4])]


# --- who may see ---


@pytest.mark.parametrize("path", [*PAGES, "/changes", f"/s/{ID}.json", f"/s/{ID}.csv"])
def test_without_the_token_nothing_is_shown(path: str, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    answer = page.stranger().get(path)
    assert answer.status_code == 403
    assert "open the link that" in answer.text
    assert "reactor" not in answer.text


def test_the_link_becomes_a_strict_cookie_and_the_token_leaves_the_address(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages()).stranger()
    answer = client.get(f"/stream?name=reactor-1&token={SECRET}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/stream?name=reactor-1")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert SECRET not in cookie
    assert client.get("/").status_code == 200


def test_pages_of_two_plants_on_one_machine_do_not_log_each_other_out(tmp_path: Path) -> None:
    """Browsers send the cookies of 127.0.0.1 to all its ports."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (PageUnderTest(folder, secret=c * 32) for folder, c in zip(folders, "ab", strict=True))
    browser, other = first.stranger(), second.stranger()
    for client, page in ((browser, first), (other, second), (browser, first), (other, second)):
        client.get(f"/?token={page.secret}")
        for name, value in client.cookies.items():  # one jar for both
            for each in (browser, other):
                each.cookies.set(name, value, domain="127.0.0.1")
    assert [browser.get("/").status_code, other.get("/").status_code] == [200, 200]


def test_the_link_leads_to_no_other_site(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path).stranger()
    answer = client.get(f"http://{HOST}//evil.example/?token={SECRET}")
    assert answer.headers["location"] == "/evil.example/"


@pytest.mark.parametrize("token", ["", "x", SECRET[:-1], SECRET + "s", "é"])
def test_a_wrong_token_or_cookie_is_refused(token: str, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path)
    assert page.stranger().get("/", params={"token": token}).status_code == 403
    client = page.stranger()
    client.cookies.set(page.access.cookie_name, SECRET)
    assert client.get("/").status_code == 403


def test_a_foreign_host_name_is_refused(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    answer = page.browser().get("/", headers={"host": "evil.example"})
    assert answer.status_code == 403
    assert "does not answer to the name" in answer.text


def test_a_link_from_another_site_loads_the_page_again_so_that_the_cookie_comes_with_it(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    answer = page.stranger().get(f"/s/{ID}?a=%22%3E", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert f'content="0;url=/s/{ID}?a=%22%3E"' in answer.text
    assert "reactor" not in answer.text


def test_a_program_shows_its_token(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    assert page.stranger(authorization=f"Bearer {'m' * 24}").get("/").status_code == 200
    assert page.stranger(authorization="Bearer wrong").get("/").status_code == 403
    answer = page.stranger(authorization=f"Bearer {'m' * 24}", **SAME).post(
        f"/s/{ID}/mark", data={"judgement": "confirmed"}
    )
    assert answer.status_code == 403
    assert "robot is viewer, and this needs operator" in answer.text


PROXY = {"auth": {"proxy": {"trusted": ["10.0.0.0/8"], "operators": ["shift"], "engineers": ["process"]}}}


@pytest.mark.parametrize(
    ("address", "headers", "status", "shown"),
    [
        ("10.1.2.3", {"x-forwarded-user": "lee"}, 200, "lee (viewer)"),
        ("10.1.2.3", {"x-forwarded-user": "lee", "x-forwarded-groups": "a, shift"}, 200, "lee (operator)"),
        ("10.1.2.3", {"x-forwarded-user": "lee", "x-forwarded-groups": "process"}, 200, "lee (engineer)"),
        ("10.1.2.3", {}, 403, "names no user"),
        ("192.168.0.1", {"x-forwarded-user": "lee"}, 403, "192.168.0.1 is not one of the proxies"),
        ("127.0.0.1", {"x-forwarded-user": "lee"}, 403, "127.0.0.1 is not one of the proxies"),
    ],
)
def test_a_proxy_names_the_person_and_only_a_trusted_one(
    address: str, headers: dict[str, str], status: int, shown: str, tmp_path: Path
) -> None:
    page = PageUnderTest(tmp_path, messages(), web=PROXY)
    answer = page.stranger(address, **headers).get("/")
    assert answer.status_code == status
    assert shown in answer.text
    assert page.stranger(address).get(f"/?token={SECRET}").status_code == 403


# --- what is sent ---


@pytest.mark.parametrize("path", [*PAGES, "/nothing", f"/s/{9:032x}", "/static/streamad.css", "/health"])
def test_every_answer_forbids_scripts_and_requests_of_others(path: str, tmp_path: Path) -> None:
    answer = PageUnderTest(tmp_path, messages()).browser().get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    for outside in ("http://", "https://", "//cdn"):
        assert outside not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert " style=" not in answer.text
    assert " onclick" not in answer.text


def test_hostile_names_and_notes_are_text_on_every_page(tmp_path: Path) -> None:
    given: list[Any] = []
    for each in messages():
        fields: dict[str, Any] = {"stream": HOSTILE, "sequence": HOSTILE}
        if type(each).__name__ == "Attribution":
            share = msgspec.structs.replace(each.channels[0], channel=HOSTILE, unit=HOSTILE)
            fields |= {"channels": [share], "detail": HOSTILE}
        if type(each).__name__ == "Window":
            fields |= {"channels": [HOSTILE], "units": [HOSTILE]}
        given.append(msgspec.structs.replace(each, **fields))
    given.append(Feedback(alert_id=ID, judgement="confirmed", note=HOSTILE, by=HOSTILE, created_at=T))
    given.append(Event(kind="plant_changed", message=HOSTILE, created_at=T))
    page = PageUnderTest(tmp_path, given)
    client = page.browser()
    for path in ("/", "/streams", f"/s/{ID}", f"/compare?id={ID}"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "\u202e" not in answer.text
        assert "\x1b" not in answer.text
        assert "&lt;script&gt;" in answer.text
    answer = client.get("/stream", params={"name": HOSTILE})
    assert "<script>alert" not in answer.text
    assert ID in answer.text
    answer = client.get(f"/s/{ID}", params={"said": HOSTILE})
    assert "<script>alert" not in answer.text


def test_a_cell_of_the_csv_is_no_formula(tmp_path: Path) -> None:
    given = [msgspec.structs.replace(each, channels=["=cmd()"]) if type(each).__name__ == "Window" else each
             for each in messages_of(1)[:4]]  # fmt: skip
    answer = PageUnderTest(tmp_path, given).browser().get(f"/s/{ID}.csv")
    assert answer.text.splitlines()[0] == "seconds,'=cmd() [K]"
    assert answer.text.splitlines()[1:] == ["0,0", "25,1", "50,2"]


def test_the_json_has_what_the_outputs_said(tmp_path: Path) -> None:
    answer = PageUnderTest(tmp_path, messages()).browser().get(f"/s/{ID}.json")
    found = json.loads(answer.content)
    assert (found["sequence"]["sequence"], found["window"]["length"]) == ("B-1", 3)
    assert found["attribution"]["channels"][0]["channel"] == "temp_c"


# --- what is missing ---


def test_an_empty_view_says_so_on_every_page(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path).browser()
    assert "No sequence has been judged yet" in client.get("/").text
    assert "No stream yet" in client.get("/streams").text
    assert "No sequence of such a stream" in client.get("/stream?name=x").text
    assert "No sequence has been judged by a model yet" in client.get("/calibration").text
    assert "There is no model yet" in client.get("/models").text
    answer = client.get(f"/s/{ID}")
    assert (answer.status_code, "No verdict with this id was read" in answer.text) == (404, True)
    assert "Tick the sequences to compare" in client.get("/compare").text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nothing", "There is no page at this address."),
        ("/s", "There is no page at this address."),
        (f"/s/{9:032x}", "No verdict with this id was read"),
        (f"/s/{ID}.exe", "There is no such export."),
        (f"/s/{9:032x}.json", "There is no such export."),
        ("/stream", "No sequence of such a stream was judged, and none runs."),
        ("/stream?name=nobody", "No sequence of such a stream was judged, and none runs."),
        ("/running", "No sequence of such a stream was judged, and none runs."),
        ("/running?name=%3Cb%3E", "No sequence of such a stream was judged, and none runs."),
    ],
)
def test_what_is_not_there_is_404_with_the_way_to_what_is(path: str, said: str, tmp_path: Path) -> None:
    answer = PageUnderTest(tmp_path, messages()).browser().get(path)
    assert answer.status_code == 404
    assert said in answer.text
    for to in ("/", "/streams", "/models"):
        assert f'<a href="{to}"' in answer.text
    assert "kim (operator)" in answer.text


def test_a_stream_whose_first_sequence_runs_is_there(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    page.workers.take(status_of(open_=[opened("new-1")], created_at=datetime.now(UTC)))
    client = page.browser()
    assert [client.get(f"/{place}?name=new-1").status_code for place in ("stream", "running")] == [200, 200]


@pytest.mark.parametrize("path", [*PAGES, "/changes", "/health", "/livez", "/static/streamad.css", f"/s/{ID}.json"])
def test_head_is_answered_as_get_is_and_ends(path: str, tmp_path: Path) -> None:
    answer = PageUnderTest(tmp_path, messages()).browser().head(path)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/", "GET"), ("PUT", "/alerts", "GET"), ("DELETE", f"/s/{ID}", "GET"), ("GET", f"/s/{ID}/mark", "POST")],
)
def test_a_method_that_an_address_does_not_take_is_405_with_those_it_takes(
    method: str, path: str, allowed: str, tmp_path: Path
) -> None:
    answer = PageUnderTest(tmp_path, messages()).browser().request(method, path, headers=SAME)
    assert answer.status_code == 405
    assert allowed in answer.headers["allow"]
    assert f"This address does not answer to {method}." in answer.text
    assert '<nav aria-label="Pages">' in answer.text


def test_a_verdict_alone_says_what_is_missing(tmp_path: Path) -> None:
    text = PageUnderTest(tmp_path, [verdict(1)]).browser().get(f"/s/{ID}").text
    assert "No curve: the judged window of this sequence was not read" in text
    assert f"streamad explain {ID[:8]} --recording FILE" in text


def test_an_alert_before_its_attribution_says_that_reasons_follow(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages_of(1)[:2]).browser()
    assert "The reasons follow" in client.get(f"/s/{ID}").text
    assert "reasons follow" in client.get("/").text


def test_without_its_model_the_curve_is_drawn_and_the_band_is_missed(tmp_path: Path) -> None:
    text = PageUnderTest(tmp_path, messages_of(1)[:4]).browser().get(f"/s/{ID}").text
    assert 'class="course"' in text
    assert 'class="band"' not in text
    assert "cannot be read any more" in text


def test_what_is_not_read_is_in_the_banner_and_in_the_health(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    page.troubles["verdicts"] = "no broker answers"
    client = page.browser()
    assert "verdicts are not read" in client.get("/").text
    assert client.get("/health").json() == {"status": "ok", "troubles": {"verdicts": "no broker answers"}}


# --- mean and spread ---


def test_the_page_of_a_stream_shows_mean_and_spread_sequence_by_sequence(tmp_path: Path) -> None:
    given: list[Any] = [verdict(i, means=[300.0 + i], spreads=[0.5]) for i in range(4, 20, 3)]
    text = PageUnderTest(tmp_path, [*given, *messages_of(1)]).browser().get("/stream?name=reactor-1").text
    assert "Mean and spread of temp_c K in 6 sequences" in text
    assert text.count("h0") == 6  # a dot each; the one without moments has none


@pytest.mark.parametrize(
    ("means", "spreads"), [([1.7e308], [1.7e308]), ([-1.7e308], [0.0]), ([0.0], [-1.0]), ([5e-324], [5e-324])]
)
def test_huge_and_foreign_moments_are_drawn_within_the_picture(
    means: list[float], spreads: list[float], tmp_path: Path
) -> None:
    given = [verdict(1, means=means, spreads=spreads), verdict(4, means=[1.0], spreads=[0.1])]
    answer = PageUnderTest(tmp_path, given).browser().get("/stream?name=reactor-1")
    assert answer.status_code == 200
    assert "in 2 sequences" in answer.text
    assert "nan" not in answer.text.partition("<main")[2]
    assert ",inf" not in answer.text


def test_moments_of_other_channels_than_the_plants_are_left_out(tmp_path: Path) -> None:
    given = [verdict(1, means=[1.0, 2.0], spreads=[1.0, 2.0]), verdict(4, means=[1.0], spreads=[])]
    answer = PageUnderTest(tmp_path, given).browser().get("/stream?name=reactor-1")
    assert answer.status_code == 200
    assert "Mean and spread" not in answer.text


# --- judging ---


def test_a_mark_is_in_the_place_of_feedback_with_the_name_of_who_made_it(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    client = page.browser()
    answer = client.post(f"/s/{ID}/mark", data={"judgement": "confirmed", "reason": "valve"}, headers=SAME)
    assert answer.status_code == 303
    written = [json.loads(line) for line in (tmp_path / "feedback.jsonl").read_text().splitlines()]
    assert [(one["alert_id"], one["judgement"], one["note"], one["by"]) for one in written] == [
        (ID, "confirmed", "valve", "kim")
    ]
    text = client.get(answer.headers["location"]).text
    assert "confirmed by kim" in text
    assert "It is written down, and counts once the learner has read it." in text
    assert "1 confirmed" in client.get("/calibration").text
    client.post(f"/s/{ID}/mark", data={"judgement": "withdrawn"}, headers=SAME)
    assert "confirmed by kim" not in client.get(f"/s/{ID}").text


@pytest.mark.parametrize("origin", [None, "https://evil.example", f"http://{HOST}.evil.example", "null"])
def test_a_form_of_another_site_changes_nothing(origin: str | None, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    headers = {} if origin is None else {"origin": origin}
    answer = page.browser().post(f"/s/{ID}/mark", data={"judgement": "confirmed"}, headers=headers)
    assert answer.status_code == 403
    assert "its Origin is another" in answer.text
    assert not (tmp_path / "feedback.jsonl").exists()


def test_a_viewer_cannot_judge_and_is_told_so(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages(), level=Level.VIEWER)
    client = page.browser()
    assert 'name="judgement"' not in client.get(f"/s/{ID}").text
    assert client.post(f"/s/{ID}/mark", data={"judgement": "confirmed"}, headers=SAME).status_code == 403
    assert not (tmp_path / "feedback.jsonl").exists()


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        (f"/s/{ID}/mark", {"judgement": "explode"}, "choose one of the buttons"),
        (f"/s/{9:032x}/mark", {"judgement": "confirmed"}, "no verdict with this id"),
        (f"/s/{ID}/mark", {"judgement": "confirmed", "reason": "n" * 2001}, "note has 2001 characters"),
        (f"/s/{ID}/mark", {"judgement": "confirmed", "comment": "n" * 2001}, "comment has 2001 characters"),
        (f"/s/{ID}/mark", {"judgement": "assign", "assignee": "n" * 201}, "assignee has 201 characters"),
    ],
)
def test_a_mark_that_cannot_be_says_why(path: str, data: dict[str, str], said: str, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    answer = page.browser().post(path, data=data, headers=SAME)
    assert answer.status_code == 422
    assert said in answer.text
    assert f'href="{path.removesuffix("/mark")}"' in answer.text
    assert not (tmp_path / "feedback.jsonl").exists()


@pytest.mark.parametrize("said", ["Pay+now", "sent+", "in_service", "%3Cb%3E"])
def test_an_address_makes_the_page_say_nothing_of_its_own(said: str, tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages()).browser()
    assert 'class="said"' not in client.get(f"/s/{ID}?said={said}").text
    assert 'class="said"' in client.get(f"/s/{ID}?said=sent").text


@pytest.mark.parametrize(
    ("judgement", "learning", "says"),
    [
        ("false_alarm", {}, "may make a second version that learns from this sequence; it goes into service only if"),
        (
            "false_alarm",
            {"feedback_trust": "auto"},
            "the promotion rule decides whether that version goes into service",
        ),
        ("confirmed", {"feedback_share": 0.1}, "leave out at most 10\u00a0% of the sequences. The command"),
        ("veto", {}, "Trainings from now on leave this sequence out"),
        ("withdrawn", {}, "the sequence counts as if nothing had been said about it"),
    ],
)
def test_a_mark_says_what_it_does(judgement: str, learning: dict[str, Any], says: str, tmp_path: Path) -> None:
    place = {"store": "inliers", "feedback": "file:feedback.jsonl"}
    client = PageUnderTest(tmp_path, messages(), learning=place | learning).browser()
    assert 'class="effect"' not in client.get(f"/s/{ID}").text
    answer = client.post(f"/s/{ID}/mark", data={"judgement": judgement}, headers=SAME)
    text = client.get(answer.headers["location"]).text
    effect = text.partition('class="effect"')[2].partition("</p>")[0]
    assert says in effect
    assert ("threshold" in effect) == (judgement != "withdrawn")


def test_the_longest_texts_fit_one_mark(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages()).browser()
    lengths = dict(
        re.findall(r'<input name="(reason|comment|assignee)"[^>]* maxlength="(\d+)"', client.get(f"/s/{ID}").text)
    )
    fields = {name: "x" * int(length) for name, length in lengths.items()}
    answer = client.post(f"/s/{ID}/mark", data={"judgement": "confirmed", **fields}, headers=SAME)
    assert (len(fields), answer.status_code) == (3, 303)


def test_a_form_beyond_every_bound_is_refused(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages())
    answer = page.browser().post(f"/s/{ID}/mark", data={"note": "n" * 20_000}, headers=SAME)
    assert answer.status_code == 413


def test_without_learning_marks_are_kept_and_shown(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages(), learning=None).browser()
    answer = client.post(f"/s/{ID}/mark", data={"judgement": "confirmed", "reason": "valve stuck"}, headers=SAME)
    assert answer.status_code == 303
    assert '"note":"valve stuck"' in (tmp_path / "marks.jsonl").read_text().replace(": ", ":")
    text = client.get(answer.headers["location"]).text
    assert "It is written down.<" in text  # no learner will read it


def test_models_are_acted_on_only_if_the_config_and_the_level_allow_it(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages(), level=Level.ENGINEER)
    answer = page.browser().post("/models/act", data={"act": "promote", "version": "0001"}, headers=SAME)
    assert (answer.status_code, "web.allow is not models" in answer.text) == (422, True)
    other = PageUnderTest(tmp_path, level=Level.OPERATOR, web={"allow": "models"})
    assert other.browser().post("/models/act", data={"act": "promote"}, headers=SAME).status_code == 403


# --- changes ---


async def test_a_page_hears_of_every_change(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [verdict(1)])
    stream = page.changes.stream("")
    assert await anext(stream) == "retry: 1000\n\n"
    first = page.view.mark
    assert await anext(stream) == f"id: {first}\ndata: {first}\n\n"
    assert await anext(stream) == "event: status\ndata: 0\n\n"
    page.view.put([verdict(2)])
    page.changes.wake()
    last = page.view.mark
    assert await anext(stream) == f"id: {last}\ndata: {last}\n\n"
    page.changes.close()
    assert [each async for each in stream] == []


def test_the_page_too_many_gets_a_sentence(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, web={"max_browsers": 1})
    said = "1 browsers are connected; this page does not renew by itself"
    with page.changes.place() as is_free:
        assert is_free
        answer = page.browser().get("/changes")
        assert (answer.status_code, said in answer.text) == (503, True)
        answer = page.browser().get("/changes", headers={"accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert f"retry: 5000\nevent: full\ndata: {said}" in answer.text
    with page.changes.place() as is_free:
        assert is_free


async def test_of_browsers_that_come_together_no_more_than_the_most_listen(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, web={"max_browsers": 10})
    name, value = page.access.cookie_name, page.access.cookie
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "path": "/changes", "raw_path": b"/changes",
        "root_path": "", "scheme": "http", "query_string": b"", "client": ("127.0.0.1", 5),
        "headers": [(b"host", HOST.encode()), (b"cookie", f"{name}={value}".encode())], "asgi": {"version": "3.0"},
    }  # fmt: skip
    statuses: list[int] = []
    gone, all_answered = asyncio.Event(), asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            if len(statuses) == 40:
                all_answered.set()

    asked = [asyncio.create_task(page.application(dict(scope), receive, send)) for _ in range(40)]  # type: ignore[arg-type]
    async with asyncio.timeout(LIMIT_S):
        await all_answered.wait()
        assert sorted(statuses) == [200] * 10 + [503] * 30
        gone.set()
        await asyncio.gather(*asked)
    with ExitStack() as stack:
        assert [stack.enter_context(page.changes.place()) for _ in range(11)] == [True] * 10 + [False]


async def test_a_page_that_comes_back_hears_only_of_what_is_new(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [verdict(1), verdict(2)])
    stream = page.changes.stream(page.view.mark)
    await anext(stream)
    page.view.put([verdict(3)])
    page.changes.wake()
    assert f"id: {page.view.mark}" in await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_page_that_comes_back_to_a_view_begun_anew_hears_of_it(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [verdict(i) for i in range(9)])
    seen = page.view.mark
    page.view.damage = "a test"
    page.view.begin_anew()
    stream = page.changes.stream(seen)
    await anext(stream)
    assert await anext(stream) == f"id: {page.view.mark}\ndata: {page.view.mark}\n\n"
    assert page.view.mark.partition(".")[0] != seen.partition(".")[0]
    assert page.view.mark.endswith(".0")
    await stream.aclose()  # type: ignore[attr-defined]


# --- what foreign programs send ---


def test_a_proxy_header_that_came_twice_names_nobody(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages(), web=PROXY)
    for name in ("x-forwarded-user", "x-forwarded-groups"):
        given = [("x-forwarded-user", "eve"), ("x-forwarded-groups", "process"), (name, "lee")]
        answer = page.stranger("10.1.2.3").get("/", headers=given)  # type: ignore[arg-type]
        assert answer.status_code == 403
        assert "came twice" in answer.text


@pytest.mark.parametrize(("length", "body"), [("00000000010", "note=" + "x" * 20_000), ("9", "&a=1" * 2_000)])
def test_a_form_larger_than_it_says_or_of_too_many_fields_is_refused(length: str, body: str, tmp_path: Path) -> None:
    headers = {**SAME, "content-type": "application/x-www-form-urlencoded", "content-length": length}
    answer = PageUnderTest(tmp_path, messages()).browser().post(f"/s/{ID}/mark", content=body, headers=headers)
    assert answer.status_code == 413


def test_only_an_alert_can_be_called_a_false_alarm(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages()).browser()
    assert 'value="false_alarm"' in client.get(f"/s/{ID}").text
    normal = client.get(f"/s/{12:032x}").text
    assert 'value="false_alarm"' not in normal
    assert 'value="confirmed"' in normal


def test_cells_name_their_columns_for_narrow_windows(tmp_path: Path) -> None:
    assert '<td data-head="sequence">' in PageUnderTest(tmp_path, messages()).browser().get("/").text


def test_alerts_that_nobody_has_judged_come_first(tmp_path: Path) -> None:
    alerts = [each for i in range(40) for each in messages_of(i)[:2]]
    marks = [Feedback(alert_id=f"{i:032x}", judgement="confirmed", by="kim", created_at=T) for i in range(5, 40)]
    text = PageUnderTest(tmp_path, [*alerts, *marks]).browser().get("/").text
    table = text[text.index("Alerts, those not judged first") :]
    assert [int(name, 16) for name in re.findall(r'href="/s/([0-9a-f]{32})"', table)][:6] == [4, 3, 2, 1, 0, 39]
