"""The page while its view is damaged, removed or out of reach: one clear sentence, and soon all is there again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.web.reading import Reading
from streamad.web.store import view as views
from streamad.web.store.view import View
from streamad.web.store.view_file import ViewError
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import MODEL, messages_of, verdict
from tests.support.web.page import PageUnderTest, plant_in
from tests.unit.web.test_reading import opened, write

ID = f"{1:032x}"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.web.reading._LOOK_S", 0.005)
    monkeypatch.setattr("streamad.web.reading._RETRY_S", 0.005)
    monkeypatch.setattr("streamad.web.shared.FRESH_S", -1.0)


def overwrite(path: Path) -> None:
    """Damage all pages but the first, in the file and its log of writes."""
    for each in (path, path.with_name(f"{path.name}-wal")):
        with each.open("r+b") as file:
            size = each.stat().st_size
            file.seek(4_096 if each == path else 0)
            file.write(b"\xa5" * (size - file.tell()))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)
    with path.with_name(f"{path.name}-wal").open("r+b") as file:
        file.truncate(0)


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = [overwrite, cut, remove]


def folded(view: View) -> None:
    """Move what was written from the log into the file, as SQLite does now and then."""
    view._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # noqa: SLF001


def n_aside(folder: Path) -> int:
    """Return how many files were set aside, without their logs."""
    return sum(not path.name.endswith(("-wal", "-shm")) for path in folder.glob("view.sqlite3.aside-*"))


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_view_that_is_damaged_while_the_page_runs_is_begun_anew(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path, [verdict(i) for i in range(300)])
    view, changed = opened(tmp_path), asyncio.Event()
    reading = Reading(plant_in(tmp_path), view, changed.set)

    async def until(done: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not done():
                changed.clear()
                await changed.wait()

    def n_seen() -> int:
        try:
            return len(view.latest(1_000))
        except ViewError:
            return -1

    task = asyncio.create_task(reading.run())
    await until(lambda: n_seen() == 300)
    first = view.view_id
    folded(view)
    damage(view.path)
    write(tmp_path, [verdict(i) for i in range(300, 310)])
    await until(lambda: n_seen() == 310)
    assert view.view_id != first
    second = view.view_id
    assert view.damage is None
    assert reading.troubles == {}
    assert n_aside(tmp_path) == (damage is not remove)
    folded(view)
    damage(view.path)  # a broken disk does it again and again
    assert view.look() or n_seen() == -1
    await until(lambda: "it is begun anew in" in reading.troubles.get("view", ""))
    assert view.view_id == second
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    view.close()


def test_another_file_in_the_place_of_the_view_stays_and_the_view_goes_on_without_it(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put([verdict(1)])
    first = view.view_id
    (tmp_path / "other").write_text("no database " * 1_000)
    (tmp_path / "other").replace(view.path)
    assert view.look()
    for _ in range(2):
        with pytest.raises(ViewError, match=r"is no page's view: name another file in web\.view, or move it away"):
            view.begin_anew()
    view.path.rename(tmp_path / "moved")
    view.begin_anew()
    assert (view.damage, view.set_aside, n_aside(tmp_path)) == (None, None, 0)
    assert view.view_id != first
    view.put([verdict(2)])
    assert [one.sequence for one in view.latest(9)] == ["B-2"]
    view.close()


@pytest.mark.parametrize("path", ["/", "/streams", f"/s/{ID}", "/calibration", f"/s/{ID}.json"])
@pytest.mark.parametrize("damage", [overwrite, cut])
def test_a_page_of_a_damaged_view_is_one_sentence_and_the_health_says_so(
    damage: Callable[[Path], None], path: str, tmp_path: Path
) -> None:
    page = PageUnderTest(tmp_path, [each for i in range(300) for each in messages_of(i)[:4]])
    client = page.browser()
    assert client.get(path).status_code == client.get("/health").status_code == 200
    folded(page.view)
    damage(page.view.path)
    answer = client.get(path)
    assert (answer.status_code, "begun anew from what the outputs keep" in answer.text) == (503, True)
    assert page.view.look()
    health = client.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "failing")
    assert "view.sqlite3" in health.json()["troubles"]["view"]
    page.view.begin_anew()
    page.view.put(messages_of(1))
    assert client.get(path).status_code == client.get("/health").status_code == 200
    assert "the view was begun anew" in client.get("/").text


def test_a_view_that_is_only_locked_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.web.store.view_file._BUSY_S", 0.01)
    page = PageUnderTest(tmp_path, [verdict(1)])
    other = sqlite3.connect(page.view.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ViewError, match="locked"):
        page.view.put([verdict(2)])
    assert not page.view.look()
    other.close()
    page.view.put([verdict(2)])
    assert len(page.view.latest(9)) == 2


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("step", ["connected", "_boot_id"])
def test_a_full_disk_gets_no_further_file_at_each_try_to_begin_anew(
    step: str, damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = opened(tmp_path)
    view.put([verdict(i) for i in range(300)])
    folded(view)
    damage(view.path)

    def full(*given: Any) -> None:
        if step == "connected":
            given[0].touch()  # SQLite has made the file, and cannot write into it
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as context:
        context.setattr(views, step, full)
        for _ in range(4):
            with pytest.raises(ViewError, match="full"):
                view.begin_anew()
    view.begin_anew()
    assert n_aside(tmp_path) == (damage is not remove)
    assert view.set_aside is None if damage is remove else view.set_aside == next(tmp_path.glob("*.aside-*[0-9]"))
    view.put([verdict(1)])
    assert len(view.latest(9)) == 1
    view.close()


def test_a_page_that_starts_again_and_again_on_a_full_disk_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as context:
        for step in ("identity_of", "connected"):
            context.setattr(views, step, full)
            with pytest.raises(ViewError, match="full"):
                opened(tmp_path)
    (tmp_path / "view.sqlite3").unlink()
    (tmp_path / "view.sqlite3").touch()
    view = opened(tmp_path)
    assert n_aside(tmp_path) == 0
    view.close()


# --- content of one sequence ---


def spoiled(page: PageUnderTest, column: str, value: Any) -> None:
    with sqlite3.connect(page.view.path) as connection:
        connection.execute(f"UPDATE sequences SET {column} = ? WHERE id = ?", (value, ID))


@pytest.mark.parametrize("value", [b"", b"no zlib", "text", b"x\x9c\x03\x00\x00\x00\x00\x01", 7])
def test_a_bad_window_costs_the_curve_of_its_sequence_only(value: Any, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages_of(1)[:4])
    spoiled(page, "window", value)
    client = page.browser()
    answer = client.get(f"/s/{ID}")
    assert answer.status_code == 200
    assert "No curve: what the page&#39;s view holds of the window of this sequence is damaged." in answer.text
    assert 'class="course"' not in answer.text
    assert "Shares of the channels" in answer.text
    assert client.get(f"/s/{ID}.csv").status_code == 404
    for path in ("/", "/streams", f"/compare?id={ID}", "/stream?name=reactor-1"):
        assert client.get(path).status_code == 200


@pytest.mark.parametrize("value", ["", "{", '{"type": "attribution"}', "[]"])
def test_bad_reasons_cost_the_reasons_of_their_sequence_only(value: str, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages_of(1)[:4])
    spoiled(page, "attribution", value)
    client = page.browser()
    answer = client.get(f"/s/{ID}")
    assert answer.status_code == 200
    assert "There are no reasons: what the page&#39;s view holds of the attribution" in answer.text
    assert 'class="course"' in answer.text
    for path in ("/", "/streams", "/stream?name=reactor-1"):
        assert client.get(path).status_code == 200


def test_bad_moments_are_left_out(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [verdict(1, means=[1.0], spreads=[1.0])])
    spoiled(page, "means", '["x"]')
    assert page.browser().get("/stream?name=reactor-1").status_code == 200


def test_a_verdict_after_a_bad_window_drops_the_window(tmp_path: Path) -> None:
    judged, _, attribution, window, *_ = messages_of(1)
    page = PageUnderTest(tmp_path, [attribution, window])
    spoiled(page, "window", b"no zlib")
    page.view.put([judged, verdict(2)])
    assert [one.has_window for one in page.view.latest(9)] == [False, False]


def test_a_message_that_no_column_holds_is_skipped_and_the_others_of_its_commit_are_kept(tmp_path: Path) -> None:
    view = opened(tmp_path)
    far = msgspec.structs.replace(verdict(2), n_samples=2**70)
    nameless = msgspec.structs.replace(verdict(3), model=msgspec.structs.replace(MODEL, name="\ud800"))
    view.put([verdict(1), far, nameless, verdict(4)])
    assert {one.sequence for one in view.latest(9)} == {"B-1", "B-4"}
    assert view.n_unfit == 2
    view.close()
