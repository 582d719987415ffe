"""The folder of an interrupted training holds windows of the plant: only its user reads it."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from streamad.learn.training.fits import work_folder


def test_only_the_user_of_the_training_reads_its_folders(tmp_path: Path) -> None:
    trainings = tmp_path / "training"
    with work_folder(trainings, "key") as folder:
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (trainings, folder, trainings / "key.lock")]
    assert [oct(mode) for mode in modes] == ["0o700", "0o700", "0o600"]


def test_interrupted_runs_leave_a_bounded_number_of_folders(tmp_path: Path) -> None:
    """A learner that was killed every few minutes, with other sequences stored each time, left one folder a kill."""
    trainings = tmp_path / "training"

    def interrupted(key: str) -> None:
        with suppress(KeyboardInterrupt), work_folder(trainings, key) as folder:
            (folder / "fit").write_text(key)
            past_s = time.time() - 100 + len(began)
            began.append(key)
            os.utime(trainings / f"{key}.lock", (past_s, past_s))
            raise KeyboardInterrupt

    began: list[str] = []
    for key in ("a", "b", "c", "a", "d"):
        interrupted(key)
    with work_folder(trainings, "e") as folder:
        assert list(folder.iterdir()) == []
        names = {path.name for path in trainings.iterdir()}
        assert names == {"a", "a.lock", "d", "d.lock", "e", "e.lock"}
        assert (trainings / "a" / "fit").read_text() == "a"
        with work_folder(trainings, "f"):  # of another process, which leaves e alone
            assert folder.is_dir()
    assert {path.name for path in trainings.iterdir()} == set()
