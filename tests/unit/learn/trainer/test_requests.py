"""Requests that operators drop into the registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streamad.errors import OutputError, RegistryError
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.requests import TrainingRequest, post_request, posted_requests

EARLY = TrainingRequest(reason="relearn", requested_us=1, since_us=-5, detail="a new recipe, says Ada")
LATE = TrainingRequest(reason="command", requested_us=2)


def test_posted_requests_are_found_oldest_first_until_their_files_are_deleted(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    late, early = post_request(registry, "default", LATE), post_request(registry, "default", EARLY)
    assert posted_requests(registry, "default") == {early: EARLY, late: LATE}
    assert list(posted_requests(registry, "default")) == [early, late]
    early.unlink()
    assert posted_requests(registry, "default") == {late: LATE}
    assert posted_requests(registry, "other") == {}


def test_the_same_request_twice_is_one(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert post_request(registry, "default", LATE) == post_request(registry, "default", LATE)
    assert len(posted_requests(registry, "default")) == 1


def test_a_file_that_is_no_request_is_put_aside_and_logged_once(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    folder = post_request(registry, "default", LATE).parent
    (folder / "damaged.json").write_bytes(b'{"reason": "command"')
    (folder / "foreign.json").write_bytes(b'{"reason": "because", "requested_us": 1}')
    (folder / "latin.json").write_bytes(b'{"reason": "command", "requested_us": 1, "detail": "K\xfchler"}')
    (folder / ".half-written.json").write_bytes(b"{")
    with capture_logs() as logs:
        assert list(posted_requests(registry, "default").values()) == [LATE]
        assert list(posted_requests(registry, "default").values()) == [LATE]
    assert sorted(Path(entry["path"]).name for entry in logs) == ["damaged.json", "foreign.json", "latin.json"]
    assert (folder / "damaged.unreadable").exists()


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", ""])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RegistryError, match="is not a plain name"):
        post_request(Registry(tmp_path), name, LATE)


def test_a_registry_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "default").write_text("a file where a folder should be")
    with pytest.raises(OutputError, match="a file is in the way where a folder is needed"):
        post_request(Registry(tmp_path), "default", LATE)
