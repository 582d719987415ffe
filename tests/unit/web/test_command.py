"""``streamad web`` as a process: the printed link opens it, a signal ends it, wrong settings are one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import msgspec
import pytest

from streamad.commands.web.command import with_address
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import messages_of
from tests.support.web.page import plant_in

WEB = (sys.executable, "-m", "streamad", "web")


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield its process and the printed link."""
    with subprocess.Popen(
        [*WEB, "--port", "0", *options], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().removeprefix("open ").strip()
        finally:
            process.kill()


def fetched(url: str, cookie: str = "") -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers={"cookie": cookie}), timeout=LIMIT_S) as answer:
        content: str = answer.read().decode()
    return content


def cookie_of(link: str) -> str:
    """Return the cookie that the printed link gives."""

    class Stays(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    with pytest.raises(HTTPError) as error:
        urllib.request.build_opener(Stays).open(link, timeout=LIMIT_S)
    assert error.value.code == 303
    error.value.close()
    return str(error.value.headers["set-cookie"]).partition(";")[0]


def test_the_printed_link_opens_the_page_and_stays_over_a_restart(tmp_path: Path) -> None:
    plant_in(tmp_path)
    with (tmp_path / "verdicts.jsonl").open("wb") as file:
        file.write(msgspec.json.encode(messages_of(1)[0]) + b"\n")
    with serving(tmp_path) as (process, link):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{30,}", link)
        cookie = cookie_of(link)
        assert "<h1>Now</h1>" in fetched(link.partition("?")[0], cookie)
        with pytest.raises(HTTPError, match="403") as refused:
            fetched(link.partition("?")[0])
        refused.value.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert (tmp_path / "view.sqlite3.token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "view.sqlite3").stat().st_mode & 0o777 == 0o600
    with serving(tmp_path) as (_, again):
        assert again.partition("?")[2] == link.partition("?")[2]
        assert "<h1>Now</h1>" in fetched(again.partition("?")[0], cookie)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "lets other machines in"),
        (("--host", "no such host"), "error: "),
        (("--config", "nope.yaml"), "nope.yaml"),
    ],
)
def test_what_cannot_be_is_one_line(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    plant_in(tmp_path)
    done = subprocess.run([*WEB, "--port", "0", *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error:")]) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read a secret from"),
        (b"", "cannot read a secret from"),
        (b"\xff\xfe" * 40, "cannot read a secret from"),
        (b"hunter2\n", "the token has less than 20 characters"),
    ],
    ids=["missing", "empty", "no text", "short"],
)
def test_a_token_that_is_none_is_named_by_its_key_and_not_shown(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    plant_in(tmp_path, web={"auth": {"token": {"file": "page.secret"}}})
    if content is not None:
        (tmp_path / "page.secret").write_bytes(content)
    done = subprocess.run(
        [*WEB, "--port", "0"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    (line,) = [text for text in done.stderr.splitlines() if "web.auth.token.file" in text]
    assert done.returncode == 2
    assert said in line
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    plant_in(tmp_path)
    with serving(tmp_path) as (_, link):
        port = link.rsplit(":", 1)[1].partition("/")[0]
        done = subprocess.run([*WEB, "--port", port], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "choose another with --port" in done.stderr


def test_a_second_page_on_one_view_is_refused_in_one_line_until_the_first_is_dead(tmp_path: Path) -> None:
    plant_in(tmp_path)
    with serving(tmp_path) as (first, link):
        assert link
        done = subprocess.run([*WEB, "--port", "0"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = [line for line in done.stderr.splitlines() if line]
        assert re.match(r"error: another page uses .*view\.sqlite3: open that one, or end it, or .* web\.view", line)
        first.kill()  # it cleans nothing up
        first.wait(LIMIT_S)
        with serving(tmp_path) as (_, again):
            assert "<h1>Now</h1>" in fetched(again.partition("?")[0], cookie_of(again))


def test_it_needs_no_torch(tmp_path: Path) -> None:
    plant_in(tmp_path)
    code = "import sys, streamad.web.server; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ}, check=False).returncode == 0


def test_each_of_the_most_browsers_can_load_pages_while_all_listen(tmp_path: Path) -> None:
    """A change lets all fetch the page at the same moment: none may be refused for it."""
    n = 60
    plant_in(tmp_path, web={"max_browsers": n})
    with serving(tmp_path) as (_, link), ExitStack() as stack:
        head = {"Cookie": cookie_of(link)}
        host = urlsplit(link).netloc
        for _ in range(n):
            listener = stack.enter_context(closing(HTTPConnection(host, timeout=LIMIT_S)))
            listener.request("GET", "/changes", headers=head)
            assert listener.getresponse().status == 200
        loads = [stack.enter_context(closing(HTTPConnection(host, timeout=LIMIT_S))) for _ in range(2 * n)]
        for connection in loads:
            connection.request("GET", "/", headers=head)
        answers = [connection.getresponse() for connection in loads]
        assert [answer.status for answer in answers] == [200] * 2 * n


@pytest.mark.parametrize("given", [{"port": 1}, {"host": "127.0.0.2"}, {"host": "127.0.0.2", "port": 1}])
def test_an_address_given_on_the_command_line_changes_nothing_else(tmp_path: Path, given: dict[str, Any]) -> None:
    """Durations were read once more, as seconds: with ``--port`` no session ended and the view kept all."""
    (tmp_path / "token").write_text("t" * 32)
    auth = {"idle": "10m", "session": "2h", "token": {"file": "token", "level": "operator"}}
    proxy = {"trusted": ["127.0.0.1/32"], "operators": ["shift"]}
    written = {
        "keep": "20m",
        "max_bytes": "64MB",
        "view": "v.sqlite3",
        "auth": {**auth, "proxy": proxy},
        "language": "de",
    }
    plant = plant_in(tmp_path, web=written)
    changed = with_address(plant, given.get("host"), given.get("port"))
    assert changed.settings == plant.settings.model_copy(update={"web": plant.settings.web.model_copy(update=given)})
