"""State is written through no link and read from no FIFO; temporary files are random, exclusive, and do not pile up."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import OutputError, RegistryError
from streamad.system import files
from streamad.system.files import append_lines, clear_leftovers, cut_torn_line, replacing, write_atomically
from streamad.system.locks import is_locked, locked, try_lock
from streamad.system.opening import NotRegularError, open_regular, read_state
from tests.support.waiting import returned


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of the user that no write may reach."""
    path = tmp_path / "victim"
    path.write_bytes(b"precious")
    yield path
    assert path.read_bytes() == b"precious"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# --- write_atomically ---


def test_a_link_at_the_name_of_a_temporary_file_is_not_written_through(folder: Path, victim: Path) -> None:
    (folder / ".a.json.tmp").symlink_to(victim)
    write_atomically(folder / "a.json", b"new")
    assert (folder / "a.json").read_bytes() == b"new"


def test_a_link_at_the_path_is_replaced_by_the_file(folder: Path, victim: Path) -> None:
    (folder / "a.json").symlink_to(victim)
    write_atomically(folder / "a.json", b"new", is_state=True)
    assert not (folder / "a.json").is_symlink()
    assert (folder / "a.json").read_bytes() == b"new"


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_a_temporary_file_that_is_there_already_is_refused(folder: Path, victim: Path, make: object) -> None:
    temporary = folder / "known.tmp"
    make(temporary, victim)  # type: ignore[operator]
    with pytest.raises(OutputError, match=r"cannot write .*a\.json"):
        write_atomically(folder / "a.json", b"new", temporary=temporary)
    assert not (folder / "a.json").exists()


@pytest.mark.usefixtures("open_umask")
def test_state_is_for_its_user_alone_and_other_files_as_the_umask_says(folder: Path) -> None:
    write_atomically(folder / "state", b"", is_state=True)
    write_atomically(folder / "output", b"")
    os.umask(0o027)
    write_atomically(folder / "group", b"")
    assert [mode_of(folder / name) for name in ("state", "output", "group")] == [0o600, 0o666, 0o640]


def test_an_error_leaves_the_file_and_no_other(folder: Path) -> None:
    path = folder / "a"
    write_atomically(path, b"old")
    with pytest.raises(ZeroDivisionError), replacing(path):
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert names(folder) == {"a"}


def leave(folder: Path, name: str, age_s: float) -> str:
    path = folder / name
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)
    return name


def test_leftovers_of_killed_writers_go_after_an_hour(folder: Path) -> None:
    leave(folder, ".a.json.0123456789abcdef.tmp", 3660)
    leave(folder, ".b.0123456789abcdef.tmp", 3660)
    kept = {
        leave(folder, ".a.json.fedcba9876543210.tmp", 3540),  # its writer may be alive
        leave(folder, "a.0123456789abcdef.tmp", 9999),
        leave(folder, ".a.tmp", 9999),
        leave(folder, ".a.json.0123456789abcde.tmp", 9999),
    }
    write_atomically(folder / "a.json", b"")
    assert names(folder) == kept | {"a.json"}


def test_a_folder_is_looked_through_once_an_hour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    monkeypatch.setattr(files, "clear_leftovers", lambda folder, **_: looked.append(folder))
    for _ in range(100):
        write_atomically(folder / "a.json", b"")
    assert looked == [folder]


def test_the_holder_of_a_lock_removes_leftovers_of_its_name_at_once(folder: Path) -> None:
    leave(folder, ".a.0123456789abcdef.tmp", 0)
    other = leave(folder, ".b.0123456789abcdef.tmp", 0)
    clear_leftovers(folder, "a")
    assert names(folder) == {other}
    clear_leftovers(folder)
    assert names(folder) == set()
    clear_leftovers(folder / "missing")


# --- locks ---


@pytest.mark.parametrize("name", ["victim", "not-there"])
def test_a_lock_is_not_taken_through_a_link(folder: Path, victim: Path, name: str) -> None:
    (folder / "lock").symlink_to(victim.with_name(name))
    with pytest.raises(OSError, match="a link is in its place"):
        try_lock(folder / "lock")
    assert not victim.with_name("not-there").exists()


def test_a_lock_that_is_no_file_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "lock")
    with pytest.raises(NotRegularError):
        returned(lambda: try_lock(folder / "lock"))


def test_a_lock_is_held_until_it_is_closed_and_looking_makes_and_takes_nothing(folder: Path) -> None:
    path = folder / "lock"
    assert not is_locked(path)
    assert names(folder) == set()
    held = try_lock(path)
    assert held is not None
    assert [is_locked(path), is_locked(path)] == [True, True]
    os.close(held)
    assert not is_locked(path)
    again = try_lock(path)
    assert again is not None, "who looked holds it"
    os.close(again)


def test_a_look_at_a_lock_follows_no_link_and_waits_for_no_fifo(folder: Path, victim: Path) -> None:
    (folder / "link").symlink_to(victim)
    with pytest.raises(OSError, match="a link is in its place"):
        is_locked(folder / "link")
    os.mkfifo(folder / "fifo")
    with pytest.raises(NotRegularError):
        returned(lambda: is_locked(folder / "fifo"))


@pytest.mark.usefixtures("open_umask")
def test_nobody_else_may_hold_a_lock(folder: Path) -> None:
    with locked(folder / "lock", busy="busy"):
        assert mode_of(folder / "lock") == 0o600
        with pytest.raises(RegistryError, match="busy"), locked(folder / "lock", busy="busy"):
            pass


# --- what is no regular file ---


def test_state_is_read_through_no_link_and_from_no_fifo(folder: Path, victim: Path) -> None:
    (folder / "link").symlink_to(victim)
    with pytest.raises(OSError, match="a link is in its place"):
        read_state(folder / "link")
    os.mkfifo(folder / "fifo")
    with pytest.raises(NotRegularError):
        returned(lambda: read_state(folder / "fifo"))
    assert read_state(victim) == b"precious"


def test_only_regular_files_are_opened(folder: Path, victim: Path) -> None:
    (folder / "link").symlink_to(victim)
    os.close(open_regular(folder / "link"))
    with pytest.raises(IsADirectoryError):
        open_regular(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        for path in (Path("/dev/zero"), folder / "socket"):
            with pytest.raises(NotRegularError, match="not a regular file"):
                open_regular(path)


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_lines_for_a_place_that_is_no_file_are_refused_at_once(folder: Path, kind: str) -> None:
    path = folder / "feedback.jsonl" if kind == "fifo" else Path("/dev/null")
    if kind == "fifo":
        os.mkfifo(path)
    lines = b"x" * 1_000_000 + b"\n"  # more than a FIFO holds
    with pytest.raises(OutputError, match=r"not a regular file .*; name a regular file"):
        returned(lambda: append_lines(path, lines, busy=""))


@given(whole=st.lists(st.binary(max_size=200_000).filter(lambda line: b"\n" not in line), max_size=3), torn=st.binary())
def test_a_torn_line_is_cut_off_and_no_whole_one(whole: list[bytes], torn: bytes) -> None:
    lines = b"".join(line + b"\n" for line in whole)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "events.jsonl")
        cut_torn_line(path)
        assert not path.exists()
        path.write_bytes(lines + torn.replace(b"\n", b"") * 100)
        cut_torn_line(path)
        assert path.read_bytes() == lines


def test_lines_are_appended_through_a_link_as_a_user_wants_it(folder: Path, tmp_path: Path) -> None:
    (folder / "feedback.jsonl").symlink_to(tmp_path / "other-disk.jsonl")
    append_lines(folder / "feedback.jsonl", b"a\n", busy="")
    append_lines(folder / "feedback.jsonl", b"b\n", busy="")
    assert (tmp_path / "other-disk.jsonl").read_bytes() == b"a\nb\n"
