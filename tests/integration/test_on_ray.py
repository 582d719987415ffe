"""``--on ray``: the files are those of one process, also if an actor dies. Ray starts once, for seconds of a core."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from streamad.errors import ExecutorError
from streamad.learn.registry.registry import registry_at
from streamad.offline.on_ray import check_machines, connected
from tests.integration import test_several_models as several_models
from tests.integration.test_offline import N_FILES, PLUGINS, configure, counts, plant, printed, written
from tests.support.runtime.cli import CliPlant, streamad

__all__ = ["plant"]


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    """A Ray on this machine, whose processes find the test's detectors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYTHONWARNINGS", "ignore")
        with connected(None, 2):
            yield


@pytest.mark.usefixtures("_ray")
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_verdicts_that_are_printed_bit_for_bit_also_if_an_actor_is_killed(plant: CliPlant) -> None:
    """It takes 5 s of a core: Ray starts once, and three actors. Nothing of Ray stays in the process's builtins."""
    before = vars(builtins).copy()
    wanted = printed(plant)
    deaths = plant.folder / "deaths"
    deaths.write_text("1")
    configure(plant, model={"options": {"deaths": str(deaths)}})
    outcome = plant("score --json --on ray --jobs 2 --out out")
    assert (outcome.code, counts(outcome)) == (0, (N_FILES, 0, 0)), outcome.err
    assert deaths.read_text() == "0"
    assert written(plant.folder / "out") == wanted
    assert counts(plant("score --json --out out")) == (0, N_FILES, 0)
    assert vars(builtins) == before


@pytest.mark.usefixtures("_ray")
def test_a_machine_with_another_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_machines(ray, tmp_path / "new")
    monkeypatch.setattr("streamad.offline.on_ray.version", lambda _: "9.9")
    with pytest.raises(ExecutorError, match=r"of the cluster has streamad .*, and here is 9\.9: install the same"):
        check_machines(ray, tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]


@pytest.mark.usefixtures("_ray")
def test_what_ray_raises_when_it_is_lost_is_one_line(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise ConnectionError("the head does not answer")

    monkeypatch.setattr(ray, "wait", lost)
    plant("score --on ray --out out").assert_one_line_error(
        "Ray on this machine is lost", "the head does not answer", "the same command goes on"
    )


@pytest.mark.usefixtures("_ray")
@pytest.mark.filterwarnings("ignore")
def test_models_that_train_on_ray_are_those_of_one_process_bit_for_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 4 s of a core: two tasks of Ray, each with the proof of its version."""
    monkeypatch.syspath_prepend(PLUGINS)
    plant = CliPlant(tmp_path / "plant", capsys, monkeypatch)
    (plant.folder / "normal").mkdir(parents=True)
    files = []
    for registry, command in (("alone", "train --json"), ("ray", "train --json --on ray --jobs 2")):
        model = {"detector": "nearest", "options": {}, "references": [], "registry": registry, "device": "cpu"}
        several_models.configure(plant, model={"recordings": "normal", **model})
        several_models.write_csv(plant.folder / "normal", several_models.recordings(["PX-12", "7", None] * 16 + ["x"]))
        # In a process of its own, as each of Ray's: TorchScript names a class by what its process has scripted before.
        outcome = streamad(*command.split(), cwd=plant.folder) if registry == "alone" else plant(command)
        assert outcome.code == 1, "one recipe has a single sequence"
        made = {each["model"]: each for each in outcome.last_json["models"]}
        assert [name for name, each in made.items() if each.get("promoted")] == [
            "default",
            "default.7",
            "default.PX-12",
        ]
        assert "error" in made["default.x"]
        store = registry_at(plant.folder / registry, plant.folder / "copies")
        files.append({name: store.manifest(name, "0001").files for name in store.names() if store.current(name)})
        files[-1] = {name: {file: each.sha256 for file, each in of.items()} for name, of in files[-1].items()}
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("command", "says"),
    [("train --on ray", "this config has one: leave it out"), ("train --jobs 2", "--jobs goes with --on ray")],
)
def test_one_model_trains_in_one_process(plant: CliPlant, command: str, says: str) -> None:
    plant(command).assert_one_line_error(says, code=2)
