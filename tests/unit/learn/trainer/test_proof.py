"""A version goes into service only if a new process, as ``streamad run`` starts one, can use it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import DetectorError
from streamad.learn.registry.backends import TORCHSCRIPT, RefusedBackend
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.fits import FitStep
from streamad.learn.training.publishing import Prove
from streamad.messages import ModelRef
from streamad.plugins import make_detector
from streamad.settings.plant_yaml import Settings
from tests.support.learning.plant import MeanDetector, load, settings_of, train
from tests.support.learning.training import PLUGINS

NAME = "default"


@pytest.fixture(autouse=True)
def _plugins_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGINS)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


def trained(root: Path, kind: str = "mean_square", prove: Prove = proved_in_new_process, **options: Any) -> str:
    model = {"detector": kind, "options": options, "device": "cpu", "references": []}
    return train(root, detector=make_detector(kind, options), settings=settings_of(model=model), prove=prove)


def refusal(root: Path, prove: Prove = proved_in_new_process, **options: Any) -> str:
    """Return why a version of the kind ``uneven`` is not published beside version 0001, which stays in service."""
    assert trained(root) == "0001"
    with pytest.raises(DetectorError) as error:
        trained(root, "uneven", prove, **options)
    registry = Registry(root)
    assert (registry.versions(NAME), registry.current(NAME)) == (("0001",), "0001")
    assert [each.name for each in (root / NAME / "versions").iterdir()] == ["0001"]
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("the new version is not published, because ")
    return str(error.value)


def test_a_version_that_a_new_process_can_use_goes_into_service(tmp_path: Path) -> None:
    assert trained(tmp_path) == "0001"
    assert Registry(tmp_path).current(NAME) == "0001"
    assert Registry(tmp_path).manifest(NAME, "0001").version == "0001"


def test_what_python_prints_at_its_start_is_no_result(tmp_path: Path) -> None:
    code = "print('hello from sitecustomize', flush=True); from streamad.learn.trainer.proof import main; main()"
    prove = partial(proved_in_new_process, command=(sys.executable, "-c", code))
    assert trained(tmp_path, prove=prove) == "0001"


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_process_ends_with_the_one_that_started_it() -> None:
    sleeper = "from streamad.learn.trainer.proof import end_with_parent as e; e(); print('on', flush=True); input()"
    starter = f"""
import subprocess, sys
inner = subprocess.Popen([sys.executable, '-c', {sleeper!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
inner.stdout.readline()
print(inner.pid, flush=True)
input()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", starter], **pipes) as outer:  # type: ignore[call-overload]
        inner = os.pidfd_open(int(outer.stdout.readline()))
        outer.kill()
        try:
            assert select.select([inner], [], [], 60.0)[0] == [inner], "it still runs"
        finally:
            os.close(inner)


def test_scores_that_depend_on_the_number_of_threads_are_refused(tmp_path: Path) -> None:
    text = refusal(tmp_path)
    assert "scores its probe otherwise than when it was trained (deviation 0.0" in text
    assert "allowed 0.0001): train with one thread (OMP_NUM_THREADS=1 streamad train" in text


def test_what_the_refusal_says_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert trained(tmp_path, "uneven") == "0002"
    assert Registry(tmp_path).current(NAME) == "0002"


def test_scores_that_depend_on_company_are_refused_and_threads_are_not_blamed(tmp_path: Path) -> None:
    text = refusal(tmp_path, by="company")
    assert text.endswith("): name another model.detector, such as nearest or pca")


def test_a_process_that_is_killed_is_one_clear_line(tmp_path: Path) -> None:
    assert "was killed by signal 9 (out of memory?): free memory, then train again" in refusal(tmp_path, by="dies")


def test_a_process_that_hangs_is_one_clear_line(tmp_path: Path) -> None:
    text = refusal(tmp_path, partial(proved_in_new_process, limit_s=2.0), by="hangs")
    assert "did not load it within 2 s: end what keeps this machine busy, then train again" in text


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/nowhere/python",), "cannot be started (No such file or directory)"),
        ((sys.executable, "-c", "import nowhere"), "exit code 1 (ModuleNotFoundError: No module named 'nowhere')"),
        ((sys.executable, "-c", "print('not a result')"), "ended with exit code 0: mend that, then train again"),
    ],
)
def test_a_process_that_never_got_to_the_version_is_one_clear_line(
    tmp_path: Path, command: tuple[str, ...], words: str
) -> None:
    assert words in refusal(tmp_path, partial(proved_in_new_process, command=command))


def test_a_kind_that_the_new_process_does_not_find_is_refused(tmp_path: Path) -> None:
    """Its own kind is there in the training process only: ``streamad run`` would not find it either."""
    with pytest.raises(DetectorError, match=r"refuses it: no detector 'nowhere' .*: name another model\.detector"):
        train(tmp_path, settings=settings_of(model={"detector": "nowhere"}), prove=proved_in_new_process)
    assert Registry(tmp_path).current(NAME) is None


def test_an_interrupted_proof_leaves_no_version_and_resumes(tmp_path: Path) -> None:
    def interrupt(settings: Settings, model: ModelRef, folder: Path) -> tuple[RefusedBackend, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, prove=interrupt)
    assert Registry(tmp_path).versions(NAME) == ()
    detector = MeanDetector()
    assert train(tmp_path, detector=detector) == "0001"
    assert detector.epochs == [], "the fits were done"


def test_what_is_proved_is_the_version_that_is_published(tmp_path: Path) -> None:
    seen: dict[str, bytes] = {}

    def look(settings: Settings, model: ModelRef, folder: Path) -> tuple[RefusedBackend, ...]:
        assert Registry(tmp_path).versions(NAME) == ()
        seen.update({path.name: path.read_bytes() for path in folder.iterdir()})
        return ()

    steps: list[FitStep] = []
    version = train(tmp_path, prove=look, progress=steps.append)
    folder = Registry(tmp_path).folder(NAME, version)
    assert {path.name for path in folder.iterdir()} == set(seen)
    differ = {name for name, content in seen.items() if (folder / name).read_bytes() != content}
    assert differ == {"manifest.json"}, "it gets its number"
    assert steps[-1].phase == "proof"
    load(tmp_path, version)


def test_the_backend_of_a_refusal_decides(tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match=r"refuses it: cannot be loaded: name another model\.detector"):
        train(tmp_path, prove=lambda *_: (RefusedBackend(TORCHSCRIPT, "cannot be loaded: train anew"),))
