"""``streamad notify`` and ``check``: what the receivers answer, what is wrong, and no secret anywhere."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.notify.hook import SECRET, Hook, listening
from tests.support.notify.plant import notified_plant, receiver
from tests.support.runtime.cli import CliPlant, started, streamad, until_line
from tests.support.waiting import LIMIT_S

PASSWORD = "geheim-4711"


@pytest.fixture
def hook() -> Iterator[Hook]:
    with listening(Hook()) as served:
        yield served


@pytest.fixture
def plant(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CliPlant:
    return CliPlant(tmp_path, capsys, monkeypatch)


def test_a_test_notice_goes_to_each_receiver_and_what_came_back_is_said(
    plant: CliPlant, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMAD_MAIL", f"json://shift:{PASSWORD}@127.0.0.1:9/")
    chat = {"name": "chat", "apprise": {"env": "STREAMAD_MAIL"}}
    notified_plant(plant.folder, receiver(hook), chat, link="https://page.example/")
    said = plant("notify --test")
    place = hook.url.removesuffix("/hook")
    first, second = said.out.splitlines()
    assert (said.code, first) == (1, f"ok       first  {place}: 204 No Content")
    assert second.startswith("failed   chat  JSON by apprise: A Connection error occurred")
    assert PASSWORD not in said.out + said.err
    (notice,) = hook.notices
    assert notice["type"] == "streamad.test"
    assert notice["data"]["link"] == "https://page.example"
    monkeypatch.delenv("STREAMAD_MAIL")  # a stray variable is an error
    notified_plant(plant.folder, receiver(hook))
    said = plant("notify --test --json")
    assert said.code == 0
    assert said.last_json == {"receiver": "first", "place": place, "delivered": True, "answer": "204 No Content"}


def test_a_wrong_secret_is_seen_by_the_test(plant: CliPlant, hook: Hook) -> None:
    notified_plant(plant.folder, receiver(hook))
    wrong = base64.b64encode(b"wrong").decode()
    (plant.folder / "notify.secret").write_text(wrong)
    said = plant("notify --test")
    assert said.code == 1
    assert "answered 401 Unauthorized" in said.out
    assert wrong not in said.out + said.err


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "name either url (a webhook) or apprise"),
    ({"url": "https://a.example"}, "a webhook needs a secret"),
    ({"url": f"https://u:{PASSWORD}@a.example", "secret": {"env": "A"}}, "holds a password or a token"),
    ({"url": f"https://a.example/?token={PASSWORD}", "secret": {"env": "A"}}, "holds a password or a token"),
    ({"url": "ftp://a.example", "secret": {"env": "A"}}, "begins with https:// or http://"),
    ({"url": "https://a.example", "secret": PASSWORD}, "notify.receivers.0.secret"),
    ({"apprise": {"env": "A"}, "secret": {"env": "A"}}, "are for a webhook: leave them out"),
    ({"url": "https://a.example", "secret": {"env": "A"}, "picture": False}, "a webhook gets none"),
    ({"url": "https://a.example", "secret": {"env": "A"}, "tries": 0}, "notify.receivers.0.tries"),
    ({"url": "https://a.example", "secret": {"env": "A"}, "max_p": 2}, "notify.receivers.0.max_p"),
    ({"url": "https://a.example", "secret": {"env": "A"}, "strems": []}, "did you mean"),
    ({"url": "https://a.example", "secret": {"file": "gone.secret"}}, "cannot read a secret from"),
    ({"url": "https://a.example", "secret": {"env": "NOT_SET"}}, "environment variable NOT_SET is not set"),
    ({"apprise": {"file": "apprise.secret"}}, "it holds no address that apprise knows"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_a_wrong_receiver_is_one_line_with_its_key_and_no_secret(
    wrong: dict[str, Any], said: str, plant: CliPlant, hook: Hook
) -> None:
    notified_plant(plant.folder, receiver(hook))
    (plant.folder / "apprise.secret").write_text(f"nonsense {PASSWORD}\n")
    content = json.loads(json.dumps({"name": "wrong", **wrong}))
    text = (plant.folder / "plant.yaml").read_text()
    head, _, tail = text.partition("notify:")
    rest = tail.partition("\nsinks:")[2]
    config = f"{head}notify: {json.dumps({'receivers': [content]})}\nsinks:{rest}"
    (plant.folder / "plant.yaml").write_text(config)
    outcome = plant("notify")
    assert outcome.code == 2
    assert said in outcome.err
    assert "notify.receivers" in outcome.err
    assert PASSWORD not in outcome.err + outcome.out
    checked = plant("check --fast")
    assert said in checked.out + checked.err
    assert PASSWORD not in checked.out + checked.err


def test_nobody_to_tell_or_nothing_to_tell_of_is_one_line(plant: CliPlant, hook: Hook) -> None:
    notified_plant(plant.folder)
    plant("notify").assert_one_line_error("names no receivers", code=2)
    notified_plant(plant.folder, receiver(hook))
    text = (plant.folder / "plant.yaml").read_text()
    (plant.folder / "plant.yaml").write_text(text.replace("file:alerts.jsonl", "'stdout:'"))
    plant("notify").assert_one_line_error("set sinks.alerts", code=2)


def test_what_is_not_installed_is_named_with_its_extra(
    plant: CliPlant, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plant.folder / "mail.secret").write_text("json://127.0.0.1:9/\n")
    notified_plant(plant.folder, receiver(hook), {"name": "mail", "apprise": {"file": "mail.secret"}})
    for name in ("apprise", "httpx2"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, None)
            plant("notify").assert_one_line_error(name, "pip install 'streamad-monitor[notify]'", code=2)


def test_check_reads_the_section_and_sends_nothing(plant: CliPlant, hook: Hook) -> None:
    notified_plant(plant.folder, receiver(hook), undelivered="alerts.jsonl")
    said = plant("check --fast")
    assert f"ok       notify.receivers.0   first: {hook.url.removesuffix('/hook')}" in said.out
    assert "warning  notify.link" in said.out
    assert "is also the file of sinks.alerts" in said.out
    assert hook.tries == []
    assert SECRET not in said.out + said.err
    notified_plant(plant.folder, receiver(hook), undelivered="notify.secret")
    assert "is the file of notify.receivers.0.secret, a secret or certificate" in plant("check --fast").out


def test_another_process_of_the_same_plant_is_one_line(plant: CliPlant, hook: Hook) -> None:
    notified_plant(plant.folder, receiver(hook))
    (plant.folder / "alerts.jsonl").touch()
    with started("notify", cwd=plant.folder) as process:
        until_line(process, "notices of alerts go to first")
        lock = plant.folder / ".alerts.jsonl.streamad.hall.notify.first.position.lock"
        until = time.monotonic() + LIMIT_S
        while not lock.exists() and time.monotonic() < until:
            time.sleep(0.01)
        second = streamad("notify", cwd=plant.folder)
    assert second.code == 1
    assert "another program reads with this group" in second.err
    assert "Traceback" not in second.err
