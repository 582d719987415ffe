"""``streamad web user``: where the password comes from, what is written, and what ``check`` says of the file."""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.errors import ConfigError, UsageError
from streamad.web.login.passwords import is_right
from streamad.web.login.users import read_users
from tests.support.web.logins import PASSWORD, write_users
from tests.support.web.page import plant_in


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plant whose users log in with passwords."""
    plant_in(tmp_path, web={"auth": {"users": "users.json"}})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def user(*words: str, typed: bytes = f"{PASSWORD}\n".encode()) -> str:
    """Run the command; return what it printed. Raises what it raises."""
    outcome = CliRunner().invoke(app, ["web", "user", *words], input=typed)
    if outcome.exception is not None:
        raise outcome.exception
    return outcome.output


def test_a_user_is_added_listed_changed_and_removed(folder: Path) -> None:
    said = user("add", "kim", "--role", "operator")
    user("add", "J\u00fcrgen", "--role", "viewer")
    kim = read_users(folder / "users.json")["kim"]
    assert (kim.role, is_right(kim.password, PASSWORD)) == ("operator", True)
    assert PASSWORD not in said + (folder / "users.json").read_text()
    assert json.loads(user("list", "--json"))["users"] == [
        {"name": "J\u00fcrgen", "role": "viewer"},
        {"name": "kim", "role": "operator"},
    ]
    assert "kim" in user("list")
    user("password", "kim", typed=b"another long password\r\n")
    changed = read_users(folder / "users.json")["kim"]
    assert (changed.role, is_right(changed.password, "another long password")) == ("operator", True)
    user("remove", "kim")
    assert set(read_users(folder / "users.json")) == {"J\u00fcrgen"}


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (("add", "kim", "--role", "viewer"), b"", "a password has 12 to"),
        (("add", "kim", "--role", "viewer"), b"short\n", "a password has 12 to"),
        (("add", "kim", "--role", "viewer"), b"\xff" * 20 + b"\n", "is not UTF-8"),
        (("add", "a\tb", "--role", "viewer"), b"", "no control characters"),
        (("add", "LEE", "--role", "viewer"), b"", "lee is a user already"),
        (("add", "kim", "--role", "boss"), b"", "--role"),
        (("add", "kim"), b"", "--role"),
        (("remove", "nobody"), b"", "there is no user nobody"),
        (("password", "nobody"), b"", "there is no user nobody"),
        (("password", "lee"), b"\n", "a password has 12 to"),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(
    words: tuple[str, ...], typed: bytes, said: str, folder: Path
) -> None:
    path = write_users(folder, lee="viewer")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=said):
        user(*words, typed=typed)
    assert path.read_bytes() == before


def test_without_the_setting_the_line_to_write_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"write web: \{auth: \{users: users.json\}\}"):
        user("add", "kim", "--role", "viewer")
    with pytest.raises(UsageError, match="options belong behind the command"):
        CliRunner().invoke(app, ["web", "--port", "1", "user", "list"], catch_exceptions=False)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
@pytest.mark.parametrize(("second", "is_added"), [(PASSWORD, True), ("another long password", False)])
def test_at_a_terminal_the_password_is_asked_for_twice_and_not_shown(second: str, is_added: bool, folder: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "streamad", "web", "user", "add", "kim", "--role", "viewer"]
        os.execv(sys.executable, command)
    shown = b""
    for prompt, typed in ((b"password of kim: ", PASSWORD), (b"once more: ", second)):
        while not shown.endswith(prompt):
            shown += os.read(terminal, 1)
        os.write(terminal, f"{typed}\n".encode())
    while piece := _read(terminal):
        shown += piece
    _, status = os.waitpid(pid, 0)
    assert (os.waitstatus_to_exitcode(status) == 0) == is_added
    assert (folder / "users.json").exists() == is_added
    assert PASSWORD.encode() not in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4_096)
    except OSError:  # the other side has ended
        return b""


# --- what check and the page say of the file ---


def checked(folder: Path) -> dict[str, tuple[str, str]]:
    """Return outcome and message of the checks of the page."""
    outcome = CliRunner().invoke(app, ["check", "--fast", "--json"])
    found = json.loads(outcome.output)["checks"]
    return {one["check"]: (one["outcome"], one["message"]) for one in found if one["check"].startswith("web")}


def test_check_says_what_is_wrong_with_the_file(folder: Path) -> None:
    assert checked(folder)["web.auth.users"][0] == "failed"
    path = write_users(folder, kim="operator")
    assert checked(folder) == {"web.auth.users": ("ok", f"{path} (1 user)")}
    path.chmod(0o640)
    outcome, message = checked(folder)["web.auth.users"]
    assert (outcome, f"chmod 600 {path}" in message) == ("failed", True)
    write_users(folder)
    assert checked(folder)["web.auth.users"] == ("failed", f"{path} holds no user")
    write_users(folder, kim="viewer")
    assert checked(folder)["web.auth.users"] == ("warning", "all users are viewers: nobody can judge")


def test_check_says_that_nobody_can_log_in_without_https(folder: Path) -> None:
    write_users(folder, kim="operator")
    plant_in(folder, web={"host": "0.0.0.0", "auth": {"users": "users.json"}})
    assert checked(folder)["web.tls"][0] == "warning"
    plant_in(folder, web={"tls": {"certificate_file": "page.pem", "key_file": "page.key"}})
    assert checked(folder)["web.tls"][0] == "failed"


def test_the_page_does_not_begin_without_a_user(folder: Path) -> None:
    outcome = CliRunner().invoke(app, ["web", "--port", "0"])
    assert isinstance(outcome.exception, ConfigError)
    assert "streamad web user add NAME" in str(outcome.exception)
