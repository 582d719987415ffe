"""The file of users: what it must be, what it may hold, and how the command changes it."""

from __future__ import annotations

import json
import multiprocessing
import stat
from pathlib import Path

import pytest

from streamad.errors import ConfigError, UsageError
from streamad.web.login.users import User, editing, new_name, plain_name, read_users
from tests.support.web.logins import PASSWORD, hash_of, write_users


def test_it_is_made_readable_by_its_user_alone_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    with editing(path) as users:
        users["kim"] = User("operator", hash_of(PASSWORD))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_users(path) == {"kim": User("operator", hash_of(PASSWORD))}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610])
def test_one_that_others_may_open_is_refused_with_the_line_to_write(mode: int, tmp_path: Path) -> None:
    path = write_users(tmp_path, kim="viewer")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        read_users(path)
    with pytest.raises(ConfigError, match="chmod 600"), editing(path):
        pytest.fail("it was opened")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b'{"users": []}', "is damaged"),
        (b'{"users": {"kim": {"role": "boss", "password": "x"}}}', "is damaged"),
        (b'{"users": {"kim": {"role": "hunter2", "password": "x"}}}', "Invalid enum value"),
        (b'{"users": {"kim": {"role": "viewer", "password": "x", "`hunter2\'": 1}}}', "unknown field"),
        (b'{"hunter2": {}}', "unknown field"),
        (b'{"users": {"kim": {"role": "viewer"}}}', "missing required field `password`"),
        (b'{"users": {"kim": {"role": "viewer", "password": "x", "more": 1}}}', "is damaged"),
        (b'{"users": {"kim": {"role": "viewer", "password": "hunter2"}}}', "the password of kim is no argon2id hash"),
        (b'{"users": {"ki\\u0000m": {"role": "viewer", "password": "x"}}}', "is no name of a user"),
        (b'{"users": {" kim": {"role": "viewer", "password": "x"}}}', "is no name of a user"),
        (b'{"users": {"": {"role": "viewer", "password": "x"}}}', "is no name of a user"),
        (b" " * 1_000_001, "has more than 1000000 bytes"),
    ],
)
def test_a_damaged_one_is_named_and_its_content_is_not_shown(content: bytes, said: str, tmp_path: Path) -> None:
    path = write_users(tmp_path, kim="viewer")
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_users(path)
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)
    assert "\n" not in error.value.problems[0].message


@pytest.mark.parametrize(
    "cost", ["m=4194304,t=3,p=1", "m=65536,t=99,p=1", "m=65536,t=3,p=9", "m=7,t=3,p=1", "m=65536,t=0,p=1"]
)
def test_a_hash_that_would_take_the_machine_is_refused(cost: str, tmp_path: Path) -> None:
    path = write_users(tmp_path, kim="viewer")
    path.write_text(path.read_text().replace("m=8,t=1,p=1", cost))
    with pytest.raises(ConfigError, match="no argon2id hash"):
        read_users(path)


@pytest.mark.parametrize("text", ["", "  ", "a\0b", "a\nb", "a\u202eb", "a\u200bb", "x" * 81, "\ud800"])
def test_what_cannot_be_a_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        new_name(text, {})


def test_names_are_equal_however_their_letters_were_typed_and_differ_in_more_than_case() -> None:
    assert new_name("Ju\u0308rgen", {}) == "J\u00fcrgen" == plain_name(" Ju\u0308rgen ")
    with pytest.raises(UsageError, match="Kim is a user already"):
        new_name("kIM", {"Kim": User("viewer", "")})


def test_an_error_amid_a_change_leaves_the_file(tmp_path: Path) -> None:
    path = write_users(tmp_path, kim="viewer")
    before = path.read_bytes()
    with pytest.raises(UsageError):
        _stop_amid(path)
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"users.json", ".users.json.lock"}


def _stop_amid(path: Path) -> None:
    with editing(path) as users:
        users.clear()
        raise UsageError("stop")


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    path = write_users(tmp_path, kim="viewer")
    kept = path.rename(tmp_path / "kept.json")
    path.symlink_to(kept)
    with editing(path) as users:
        users["lee"] = User("viewer", hash_of(PASSWORD))
    assert path.is_symlink()
    assert set(json.loads(kept.read_text())["users"]) == {"kim", "lee"}


def _add(path: Path, name: str) -> None:
    with editing(path) as users:
        users[name] = User("viewer", hash_of(PASSWORD))


def test_two_commands_at_once_lose_no_user(tmp_path: Path) -> None:
    path = write_users(tmp_path, kim="viewer")
    names = [f"user {i}" for i in range(4)]
    spawned = multiprocessing.get_context("fork")
    made = [spawned.Process(target=_add, args=(path, name)) for name in names]
    for each in made:
        each.start()
    for each in made:
        each.join()
    assert [each.exitcode for each in made] == [0] * 4
    assert set(read_users(path)) == {"kim", *names}
