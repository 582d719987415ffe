"""The finder of real recordings: skips where they are absent, but never in CI beside a shared folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import data


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    monkeypatch.setattr(data, "ROOT", root)
    monkeypatch.delenv("STREAMAD_DATA", raising=False)
    monkeypatch.delenv("CI", raising=False)
    return root


def test_recordings_lie_beside_the_checkout_or_in_the_folder_of_the_variable(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path / "shared" / "data", tmp_path / "mine"):
        folder.mkdir(parents=True)
        (folder / "natops.npz").touch()
    assert data.data_file("natops.npz") == checkout.parent / "shared" / "data" / "natops.npz"
    monkeypatch.setenv("STREAMAD_DATA", str(tmp_path / "mine"))
    assert data.data_file("natops.npz") == tmp_path / "mine" / "natops.npz"


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("ci", ["", "true"])
def test_absent_recordings_skip(monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(pytest.skip.Exception, match="STREAMAD_DATA names the folder of recordings"):
        data.data_file("natops.npz")


@pytest.mark.usefixtures("checkout")
def test_in_ci_beside_a_shared_folder_absent_recordings_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    (tmp_path / "shared").mkdir()
    with pytest.raises(pytest.fail.Exception, match="CI must not skip"):
        data.data_file("natops.npz")
