"""The folder of an interrupted training holds windows of the plant: only its user reads it."""

from __future__ import annotations

import stat
from pathlib import Path

from streamad.learn.training.fits import work_folder


def test_only_the_user_of_the_training_reads_its_folders(tmp_path: Path) -> None:
    trainings = tmp_path / "training"
    with work_folder(trainings, "key") as folder:
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (trainings, folder, trainings / "key.lock")]
    assert [oct(mode) for mode in modes] == ["0o700", "0o700", "0o600"]
