"""The door, as somebody would try it who wants in."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest

from streamad.web.login import door as door_module
from streamad.web.login.door import Shut
from streamad.web.login.passwords import MOST, hashed, is_right, password_problem
from tests.support.waiting import LIMIT_S
from tests.support.web.logins import PASSWORD, Seconds, door_of, hash_of, write_users

ADDRESS = "10.0.0.1"


async def test_the_password_lets_in_with_the_role_of_the_file(tmp_path: Path, clock: Seconds) -> None:
    write_users(tmp_path, kim="operator")
    door = door_of(tmp_path, clock)
    token = await door.enter("kim", PASSWORD, ADDRESS)
    assert isinstance(token, str)
    found = door.user(token, is_use=True)
    assert isinstance(found, tuple)
    assert (found[0], found[1].role) == ("kim", "operator")
    write_users(tmp_path, kim="viewer")
    found = door.user(token, is_use=True)
    assert isinstance(found, tuple)
    assert found[1].role == "viewer", "a role counts at once"


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("kim", PASSWORD[:-1]),
        ("kim", PASSWORD + " "),
        ("kim", PASSWORD + "\0"),
        ("kim", ""),
        ("kim", PASSWORD.upper()),
        ("Kim", PASSWORD),
        ("kim\0", PASSWORD),
        ("nobody", PASSWORD),
        ("", ""),
        ("x" * 16_000, PASSWORD),
        ("kim", "x" * 16_000),
        ("kim", "\ud800\ufffd"),
    ],
)
async def test_all_else_gets_one_answer(name: str, password: str, tmp_path: Path, clock: Seconds) -> None:
    write_users(tmp_path, kim="operator")
    found = await door_of(tmp_path, clock).enter(name, password, ADDRESS)
    assert found == Shut(403, "The name or the password is wrong.")


def test_passwords_are_compared_whole() -> None:
    stored = hashed("a" * MOST)
    assert is_right(stored, "a" * MOST)
    assert not is_right(stored, "a" * (MOST - 1))
    assert not is_right(hashed("before\0after the nul"), "before\0")
    assert is_right(hashed("Schlu\u0308ssel im Schloss"), "Schl\u00fcssel im Schloss"), "keyboards compose letters"
    assert not is_right("no hash", "x")


async def test_the_longest_password_with_more_behind_it_is_another(tmp_path: Path, clock: Seconds) -> None:
    write_users(tmp_path, password="b" * MOST, kim="viewer")
    door = door_of(tmp_path, clock)
    assert isinstance(await door.enter("kim", "b" * MOST, ADDRESS), str)
    assert isinstance(await door.enter("kim", "b" * MOST + "c", ADDRESS), Shut)


@pytest.mark.parametrize(
    ("password", "is_refused"),
    [("short", True), ("x" * 1_001, True), ("kim kim kim", True), ("kimberley kimberley", True), (PASSWORD, False)],
)
def test_a_password_must_be_more_than_short_or_the_name(password: str, is_refused: bool) -> None:
    name = "kimberley" if "kimberley" in password else "kim"
    assert (password_problem(password, name) is not None) == is_refused


async def test_an_unknown_name_takes_as_long_as_a_wrong_password(tmp_path: Path, clock: Seconds) -> None:
    """Both hash once: a lookup alone would be a thousand times as fast."""
    path = write_users(tmp_path, kim="operator")
    path.write_text(path.read_text().replace(hash_of(PASSWORD), hashed(PASSWORD)))
    took: dict[str, list[float]] = {"kim": [], "nobody": []}
    for _ in range(5):
        for name, times in took.items():
            door = door_of(tmp_path, clock)
            began = time.process_time()
            assert isinstance(await door.enter(name, "not the password", ADDRESS), Shut)
            times.append(time.process_time() - began)
    known, unknown = (statistics.median(times) for times in took.values())
    assert 0.5 < unknown / known < 2.0


async def test_a_session_ends_with_the_password_and_with_the_user(tmp_path: Path, clock: Seconds) -> None:
    write_users(tmp_path, kim="operator", lee="viewer")
    door = door_of(tmp_path, clock)
    kim, lee = [await door.enter(name, PASSWORD, ADDRESS) for name in ("kim", "lee")]
    assert isinstance(kim, str)
    assert isinstance(lee, str)
    write_users(tmp_path, lee="viewer")
    assert door.user(kim, is_use=True) is None
    assert door.user(lee, is_use=True) is not None
    write_users(tmp_path, kim="operator", lee="viewer")
    assert door.user(kim, is_use=True) is None, "the same name again is no way back"
    write_users(tmp_path, password="another long password", lee="viewer")
    assert door.user(lee, is_use=True) is None


async def test_after_the_logout_the_token_is_worth_nothing(tmp_path: Path, clock: Seconds) -> None:
    write_users(tmp_path, kim="operator")
    door = door_of(tmp_path, clock)
    token = await door.enter("kim", PASSWORD, ADDRESS)
    assert isinstance(token, str)
    door.leave(token)
    assert door.user(token, is_use=True) is None
    door.leave(token)


async def test_a_new_login_ends_the_session_that_the_browser_had(tmp_path: Path, clock: Seconds) -> None:
    write_users(tmp_path, kim="operator", lee="viewer")
    door = door_of(tmp_path, clock)
    planted = await door.enter("lee", PASSWORD, ADDRESS)
    assert isinstance(planted, str)
    token = await door.enter("kim", PASSWORD, ADDRESS, before=planted)
    assert token != planted
    assert door.user(planted, is_use=True) is None


@pytest.mark.parametrize("damage", ["gone", "junk", "open to all"])
async def test_a_file_that_cannot_be_read_lets_nobody_in_until_it_can(
    damage: str, tmp_path: Path, clock: Seconds, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_users(tmp_path, kim="operator")
    door = door_of(tmp_path, clock)
    token = await door.enter("kim", PASSWORD, ADDRESS)
    assert isinstance(token, str)
    if damage == "gone":
        path.unlink()
    elif damage == "junk":
        path.write_text("{")
    else:
        path.chmod(0o644)
    for _ in range(8):
        assert door.user(token, is_use=True) == door_module.UNREADABLE
        assert await door.enter("kim", PASSWORD, ADDRESS) == door_module.UNREADABLE
    assert capsys.readouterr().err.count("the file of users lets nobody in") == 1
    write_users(tmp_path, kim="operator")
    assert door.user(token, is_use=True) is not None
    assert isinstance(await door.enter("kim", PASSWORD, ADDRESS), str), "what nobody looked at was no attempt"


async def test_a_user_who_is_removed_while_the_password_is_looked_at_is_not_let_in(
    tmp_path: Path, clock: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_users(tmp_path, kim="operator")

    def removed_meanwhile(stored: str, password: str) -> bool:
        write_users(tmp_path, lee="viewer")
        return is_right(stored, password)

    monkeypatch.setattr(door_module, "is_right", removed_meanwhile)
    assert isinstance(await door_of(tmp_path, clock).enter("kim", PASSWORD, ADDRESS), Shut)


async def test_guesses_at_once_are_counted_before_they_are_looked_at(tmp_path: Path, clock: Seconds) -> None:
    write_users(tmp_path, kim="operator")
    door = door_of(tmp_path, clock)
    found = await asyncio.gather(*(door.enter("kim", f"guess {i}", ADDRESS) for i in range(40)))
    assert sorted(one.status for one in found if isinstance(one, Shut)) == [403] * 5 + [429] * 35
    assert isinstance(await door.enter("kim", PASSWORD, ADDRESS), Shut), "the right one waits, too"
    assert isinstance(await door.enter("kim", PASSWORD, "10.0.0.2"), str), "but not at another address"
    clock.now_s += 60.0
    assert isinstance(await door.enter("kim", PASSWORD, ADDRESS), str)


async def test_a_flood_waits_beside_the_event_loop_and_takes_no_memory(
    tmp_path: Path, clock: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that come at once two are looked at and the others wait, twenty together at most."""
    write_users(tmp_path, kim="operator")
    may_end = threading.Event()
    monkeypatch.setattr(door_module, "is_right", lambda *_: not may_end.wait(LIMIT_S))
    door = door_of(tmp_path, clock)
    tracemalloc.start()
    flood = [
        asyncio.create_task(door.enter(f"{i}" * 3_000, "x" * 15_000, f"10.0.{i // 250}.{i % 250}")) for i in range(500)
    ]
    for first in islice(asyncio.as_completed(flood), 480):
        assert await first == Shut(503, "Many people log in at this moment: try again in a few seconds.", 5)
    may_end.set()
    found = await asyncio.gather(*flood)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(one.status == 403 for one in found if isinstance(one, Shut)) == 20
    assert peak < 20_000_000
    door.close()


async def test_the_log_says_who_and_why_and_no_password_nor_a_name_that_may_be_one(
    tmp_path: Path, clock: Seconds, capsys: pytest.CaptureFixture[str]
) -> None:
    write_users(tmp_path, kim="operator")
    door = door_of(tmp_path, clock)
    token = await door.enter("kim", PASSWORD, ADDRESS)
    assert isinstance(token, str)
    door.leave(token)
    await door.enter("kim", "wrong password", ADDRESS)
    await door.enter("typed a password here", "", ADDRESS)
    for _ in range(50):
        await door.enter("kim", "wrong password", "10.0.0.9")
    log = capsys.readouterr().err
    lines = log.splitlines()
    assert [line for line in lines if "logged in" in line and "kim" in line and "operator" in line and ADDRESS in line]
    assert [line for line in lines if "logged out" in line and "kim" in line]
    assert [line for line in lines if "login refused" in line and '"user": "kim"' in line]
    assert [line for line in lines if "login refused" in line and '"user": "unknown"' in line]
    assert len([line for line in lines if "too many attempts" in line]) == 1
    for secret in (PASSWORD, "wrong password", "typed a password here", token):
        assert secret not in log
