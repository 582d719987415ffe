"""Login and logout over HTTP, as another site, a neighbour on the network or a former user would try them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.testclient import TestClient

from streamad.web.http.forms import fields_of
from streamad.web.http.login import local_path
from tests.support.web.logins import PASSWORD, Seconds, door_of, write_users
from tests.support.web.messages import messages_of
from tests.support.web.page import HOST, SAME, SECRET, PageUnderTest

ID = f"{1:032x}"
HTML = {"accept": "text/html"}


def page_of(folder: Path, clock: Seconds | None = None, **more: Any) -> PageUnderTest:
    """Return a page with the operator kim and the viewer lee."""
    write_users(folder, kim="operator", lee="viewer")
    web = {"auth": {"users": "users.json"}, **more.pop("web", {})}
    return PageUnderTest(folder, messages_of(1)[:4], door=door_of(folder, clock), web=web, **more)


def log_in(client: TestClient, name: str = "kim", password: str = PASSWORD, **more: str) -> Any:
    return client.post("/login", data={"name": name, "password": password, **more}, headers=SAME)


def test_a_stranger_is_led_to_the_form_and_from_there_to_what_was_asked_for(tmp_path: Path) -> None:
    client = page_of(tmp_path).stranger()
    answer = client.get(f"/s/{ID}?clock=own", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next=/s/{ID}%3Fclock%3Down")
    form = client.get(answer.headers["location"])
    assert form.status_code == 200
    assert "reactor" not in form.text
    assert f'name="next" value="/s/{ID}?clock=own"' in form.text
    assert "<script" not in form.text
    assert "streamad web user password" in form.text  # what to do about a lost one
    answer = log_in(client, next=f"/s/{ID}?clock=own")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/s/{ID}?clock=own")
    page = client.get(answer.headers["location"])
    assert "kim (operator)" in page.text
    assert 'action="/logout"' in page.text
    assert client.get("/login?next=/models").headers["location"] == "/models"


@pytest.mark.parametrize("path", ["/", "/alerts", f"/s/{ID}.json", f"/s/{ID}.csv", "/changes", "/models"])
def test_programs_and_open_pages_get_a_refusal_not_a_form(path: str, tmp_path: Path) -> None:
    client = page_of(tmp_path).stranger()
    for headers in ({}, {**HTML, "streamad-renewal": "1"}, {"accept": "text/event-stream"}):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "reactor" not in answer.text


def test_the_printed_link_s_token_lets_nobody_in(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    client = page.stranger()
    assert client.get(f"/?token={SECRET}", headers=HTML).headers["location"].startswith("/login")
    client.cookies.set(page.access.cookie_name, page.access.cookie)
    assert client.get("/").status_code == 401
    assert page.stranger(authorization=f"Bearer {'m' * 24}").get("/").status_code == 200, "a program's token does"


def test_the_form_says_which_methods_it_answers(tmp_path: Path) -> None:
    answer = page_of(tmp_path).stranger().request("DELETE", "/login")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_without_a_file_of_users_there_is_no_form(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path)
    assert page.stranger().get("/login").status_code == 403
    assert page.browser().get("/login").status_code == 404
    assert page.browser().post("/logout", headers=SAME).status_code == 404


@pytest.mark.parametrize(("name", "password"), [("kim", "a guess"), ("nobody", PASSWORD), ("", "")])
def test_a_wrong_login_says_one_thing_and_keeps_the_name_and_not_the_password(
    name: str, password: str, tmp_path: Path
) -> None:
    client = page_of(tmp_path).stranger()
    answer = log_in(client, name, password, next="/models")
    assert answer.status_code == 403
    assert "The name or the password is wrong." in answer.text
    assert f'name="name" value="{name}"' in answer.text
    assert 'name="next" value="/models"' in answer.text
    assert "set-cookie" not in answer.headers
    assert not password or password not in answer.text


def test_a_hostile_name_is_text(tmp_path: Path) -> None:
    text = log_in(page_of(tmp_path).stranger(), '"><script>alert(1)</script>\u202e').text
    assert "<script>" not in text
    assert "\u202e" not in text


# --- the cookie ---


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
def test_the_cookie_is_strict_hidden_from_scripts_and_secure_where_the_browser_came_by_https(
    scheme: str, is_secure: bool, tmp_path: Path
) -> None:
    client = page_of(tmp_path).stranger()
    answer = client.post("/login", data={"name": "kim", "password": PASSWORD}, headers={"origin": f"{scheme}://{HOST}"})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert ("secure" in cookie) == is_secure
    assert "max-age" not in cookie, "it goes with the browser"
    assert "domain" not in cookie


def test_a_token_that_was_planted_before_the_login_is_worth_nothing_after_it(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    client = page.stranger()
    client.cookies.set(page.access.cookie_name, "planted", domain="127.0.0.1", path="/")
    log_in(client)
    token = client.cookies[page.access.cookie_name]
    assert token != "planted"
    other = page.stranger()
    other.cookies.set(page.access.cookie_name, "planted")
    assert other.get("/").status_code == 401


def test_after_the_logout_a_kept_cookie_opens_nothing(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    client = page.stranger()
    log_in(client)
    token = client.cookies[page.access.cookie_name]
    answer = client.post("/logout", headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert page.access.cookie_name not in client.cookies
    client.cookies.set(page.access.cookie_name, token)
    assert client.get("/").status_code == 401
    assert client.post(f"/s/{ID}/mark", data={"judgement": "confirmed"}, headers=SAME).status_code == 401
    assert not (tmp_path / "feedback.jsonl").exists()


@pytest.mark.parametrize("path", ["/", "/s/none", "/nowhere", "/alerts/", f"/s/{ID}.json", f"/s/{ID}.txt", "/health"])
def test_no_answer_is_kept_for_the_way_back_after_a_logout(path: str, tmp_path: Path) -> None:
    client = page_of(tmp_path).stranger()
    assert client.get(path).headers["cache-control"] == "no-store"
    log_in(client)
    assert client.get(path).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("change", ["first", "last", "shorter", "longer", "empty", "quoted", "latin"])
def test_a_changed_cookie_opens_nothing(change: str, tmp_path: Path) -> None:
    page = page_of(tmp_path)
    client = page.stranger()
    log_in(client)
    token = client.cookies[page.access.cookie_name]
    changed = {
        "first": ("B" if token[0] == "A" else "A") + token[1:],
        "last": token[:-1] + ("B" if token[-1] == "A" else "A"),
        "shorter": token[:-1],
        "longer": token + "A",
        "empty": "",
        "quoted": f'"{token}x"',
        "latin": "\u00e9" * 43,
    }[change]
    other = page.stranger()
    cookie = f"{page.access.cookie_name}={changed}".encode("latin-1")
    assert other.get("/", headers=[(b"cookie", cookie)]).status_code == 401  # type: ignore[arg-type]


def test_the_cookies_of_two_plants_on_one_machine_are_two(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (page_of(folder, secret=c * 32) for folder, c in zip(folders, "ab", strict=True))
    client = first.stranger()
    log_in(client)
    token = client.cookies[first.access.cookie_name]
    assert first.access.cookie_name != second.access.cookie_name
    other = second.stranger()
    other.cookies.set(second.access.cookie_name, token)
    assert other.get("/").status_code == 401, "a session of the neighbour is none here"


# --- other sites ---


@pytest.mark.parametrize(
    "origin", [None, "https://evil.example", "null", f"http://{HOST}.evil.example", "http://127.0.0.1"]
)
@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_a_form_of_another_site_logs_nobody_in_or_out(path: str, origin: str | None, tmp_path: Path) -> None:
    page = page_of(tmp_path)
    client = page.stranger()
    if path == "/logout":
        log_in(client)
    headers = {} if origin is None else {"origin": origin}
    answer = client.post(path, data={"name": "kim", "password": PASSWORD}, headers=headers)
    assert answer.status_code == 403
    assert "its Origin is another" in answer.text
    assert client.get("/").status_code == (200 if path == "/logout" else 401)


@pytest.mark.parametrize(
    "to",
    ["//evil.example", "https://evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "",
     "evil", "/a\r\nset-cookie: x=1", "/\tx", "/login?next=/login", "/logout", "/" + "x" * 3_000, "/%zz\u00e9"],
)  # fmt: skip
def test_after_the_login_nobody_is_led_to_another_site(to: str, tmp_path: Path) -> None:
    assert local_path(to) == "/"
    assert log_in(page_of(tmp_path).stranger(), next=to).headers["location"] == "/"


def test_a_link_from_another_site_is_asked_for_again_with_the_cookie_before_it_leads_to_the_form(
    tmp_path: Path,
) -> None:
    client = page_of(tmp_path).stranger()
    assert "One moment" in client.get("/alerts", headers={**HTML, "sec-fetch-site": "cross-site"}).text


# --- encryption ---


@pytest.mark.parametrize(
    ("headers", "is_shown"),
    [({}, False), ({"sec-fetch-mode": "navigate"}, True), ({"x-forwarded-proto": "https"}, True)],
)
def test_over_plain_http_from_another_machine_no_password_is_asked_for(
    headers: dict[str, str], is_shown: bool, tmp_path: Path
) -> None:
    client = page_of(tmp_path, web={"host": "0.0.0.0", "hosts": ["plant.example"]}).stranger("10.0.0.9")
    answer = client.get("/login", headers={"host": "plant.example", **headers})
    assert ('type="password"' in answer.text) == is_shown
    assert ("unencrypted" in answer.text) != is_shown


def test_a_password_that_came_unencrypted_lets_nobody_in(tmp_path: Path) -> None:
    client = page_of(tmp_path, web={"host": "0.0.0.0", "hosts": ["plant.example"]}).stranger("10.0.0.9")
    data = {"name": "kim", "password": PASSWORD}
    plain = {"host": "plant.example", "origin": "http://plant.example"}
    answer = client.post("/login", data=data, headers=plain)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    safe = {"host": "plant.example", "origin": "https://plant.example"}
    assert client.post("/login", data=data, headers=safe).status_code == 303


# --- rights and limits ---


def test_the_role_of_the_file_decides_and_marks_bear_the_name(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    viewer, operator = page.stranger(), page.stranger()
    log_in(viewer, "lee")
    log_in(operator)
    answer = viewer.post(f"/s/{ID}/mark", data={"judgement": "confirmed"}, headers=SAME)
    assert "lee is viewer, and this needs operator" in answer.text
    assert operator.post(f"/s/{ID}/mark", data={"judgement": "confirmed"}, headers=SAME).status_code == 303
    (mark,) = [json.loads(line) for line in (tmp_path / "feedback.jsonl").read_text().splitlines()]
    assert mark["by"] == "kim"
    write_users(tmp_path, kim="viewer", lee="viewer")
    assert operator.post(f"/s/{ID}/mark", data={"judgement": "veto"}, headers=SAME).status_code == 403


def test_an_open_page_keeps_no_session_alive(tmp_path: Path, clock: Seconds) -> None:
    client = page_of(tmp_path, clock).stranger()
    log_in(client)
    for _ in range(5):
        clock.now_s += 100.0
        assert client.get("/", headers={"streamad-renewal": "1"}).status_code == 200
    clock.now_s += 100.0
    assert client.get("/", headers={"streamad-renewal": "1"}).status_code == 401


async def test_the_stream_of_changes_ends_with_the_session(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    client = page.stranger()
    log_in(client)
    token = client.cookies[page.access.cookie_name]
    person = page.access.person(client="127.0.0.1", headers={}, cookie=token)
    stream = page.changes.stream("", lambda: page.access.is_still(person, token))  # type: ignore[arg-type]
    assert await anext(stream) == "retry: 1000\n\n"
    assert page.view.mark in await anext(stream)
    write_users(tmp_path, lee="viewer")
    page.changes.wake()
    assert [each async for each in stream] == ["event: status\ndata: 0\n\n"]


def test_who_guesses_is_told_to_wait(tmp_path: Path) -> None:
    client = page_of(tmp_path).stranger("10.0.0.7")
    answers = [log_in(client, password="guess") for _ in range(6)]
    assert [each.status_code for each in answers] == [403] * 5 + [429]
    assert answers[-1].headers["retry-after"] == "60"
    assert "try again in 60 s" in answers[-1].text


def test_a_damaged_file_shuts_all_out_and_says_so_without_its_place(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    client = page.stranger()
    log_in(client)
    (tmp_path / "users.json").chmod(0o644)
    answer = client.get("/")
    assert answer.status_code == 503
    assert "The file of users cannot be read" in answer.text
    assert str(tmp_path) not in answer.text
    assert log_in(page.stranger()).status_code == 503
    assert page.stranger().get("/health").status_code == 200


@pytest.mark.parametrize(("data", "status"), [({"name": "x" * 20_000}, 413), ({str(i): "" for i in range(1_500)}, 413)])
def test_a_form_beyond_every_bound_is_refused(data: dict[str, str], status: int, tmp_path: Path) -> None:
    assert page_of(tmp_path).stranger().post("/login", data=data, headers=SAME).status_code == status


async def test_a_form_that_breaks_off_is_refused_without_a_traceback_in_the_log() -> None:
    async def left() -> Any:
        return {"type": "http.disconnect"}

    headers = [(b"content-length", b"5"), (b"content-type", b"application/x-www-form-urlencoded")]
    with pytest.raises(HTTPException) as error:
        await fields_of(Request({"type": "http", "headers": headers}, left))
    assert error.value.status_code == 400
