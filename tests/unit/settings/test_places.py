"""No two places that a plant writes overlap: sinks, feedback, registry, store, checkpoint, config and recordings."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamad.commands.shared.plants import check_out, load_plant, load_whole_plant
from streamad.errors import ConfigError, UsageError
from streamad.plant import Plant
from streamad.settings.places import Places, folders_of, held_files
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock

NAMES = st.sampled_from(
    [
        "plant.yaml",
        "a",
        "a/b",
        "a/b/c",
        "d",
        "d/b",
        "link",
        "link/b",
        "twin.yaml",
        ".",
        "..",
        "a/../d",
        "file:a",
        "a.g.position",
        "out/e",
    ]
)


def problems(folder: Path, *, sinks: dict[str, str], source: str = "rec", **sections: Any) -> dict[str, str]:
    config = Settings(channels=[{"name": "temp_c"}], source={"url": source}, **sections)  # type: ignore[list-item, arg-type]
    places = Places(
        sinks,
        {"source.url": source},
        folder,
        folder / "plant.yaml",
        folders_of(config, folder),
        held_files(config, folder),
    )
    found = places.problems()
    assert len({problem.path for problem in found}) == len(found)
    return {problem.path: problem.message for problem in found}


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plant") / "inner"
    folder.mkdir()
    (folder / "plant.yaml").touch()
    (folder / "twin.yaml").hardlink_to(folder / "plant.yaml")
    (folder / "link").symlink_to(folder / "a")
    return folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.tuples(NAMES, NAMES, NAMES, NAMES, NAMES))
def test_what_is_accepted_does_not_overlap(plant: Path, names: tuple[str, str, str, str, str]) -> None:
    registry, checkpoint, store, alerts, feedback = names
    sections: dict[str, Any] = {
        "model": {"registry": registry},
        "run": {"checkpoint": checkpoint.removeprefix("file:")},
        "learning": {"store": store.removeprefix("file:")},
    }
    if problems(plant, sinks={"sinks.alerts": alerts, "learning.feedback": feedback}, **sections):
        return
    files = [(plant / name.removeprefix("file:")).resolve() for name in (alerts, feedback, "plant.yaml")]
    folders = [
        (plant / name).resolve() for name in (registry, checkpoint.removeprefix("file:"), store.removeprefix("file:"))
    ]
    for one, other in itertools.combinations([*files, *folders], 2):
        assert one != other
        assert not (one.exists() and other.exists() and one.samefile(other))
    for one, other in itertools.product(folders, [*files, *folders]):
        assert one == other or one not in other.parents


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("registry", "model.registry"),
        ("registry/default/versions/0001", "model.registry"),
        ("**/*.npz", "model.registry"),
        ("inliers/*.sqlite3", "learning.store"),
        ("inliers/*.json", "learning.store"),
        ("checkpoint/*.json", "run.checkpoint"),
        ("copies/*/default/versions/**/*.npz", "model.cache"),
    ],
)
def test_no_recordings_are_read_from_a_folder_of_the_plant(plant: Path, source: str, key: str) -> None:
    model = {"registry": "s3://bucket/models", "cache": "copies"} if key == "model.cache" else {}
    found = problems(plant, sinks={}, source=source, learning={"store": "inliers"}, model=model)
    assert (
        found[key]
        == f"{plant / key_folder(key)} would be read as recordings (source.url: {source}): name another folder"
    )


def key_folder(key: str) -> str:
    return {
        "model.cache": "copies",
        "model.registry": "registry",
        "learning.store": "inliers",
        "run.checkpoint": "checkpoint",
    }[key]


@pytest.mark.parametrize(
    ("sections", "key", "why"),
    [
        ({"sinks": {"events": "inliers.events.jsonl"}}, "learning.store.events", "is also the file of sinks.events"),
        ({"sinks": {"alerts": "inliers.events.jsonl"}}, "learning.store.events", "is also the file of sinks.alerts"),
        ({"sinks": {"alerts": "inliers.events.jsonl.g.position"}}, "sinks.alerts", "keep their position"),
        ({"model": {"registry": "inliers.events.jsonl"}}, "learning.store.events", "also the folder of model.registry"),
        ({"source": {"url": "*.events.jsonl"}}, "learning.store.events", "would be read as recordings"),
        ({"sinks": {"events": "stdout:", "alerts": "inliers.events.jsonl"}}, None, ""),
        ({"sinks": {"events": None, "alerts": "inliers.events.jsonl"}}, None, ""),
    ],
)
def test_nothing_else_lies_where_a_learner_writes_its_events(
    tmp_path: Path, sections: dict[str, Any], key: str | None, why: str
) -> None:
    content = {
        "channels": [{"name": "temp_c"}],
        "source": {"url": "rec"},
        "learning": {"store": "inliers"},
        **sections,
        "sinks": {"events": "out/events.jsonl", **sections.get("sinks", {})},
    }
    found = Plant(Settings(**content), tmp_path, SystemClock()).places.problems()  # type: ignore[arg-type]
    assert [problem.path for problem in found] == ([] if key is None else [key])
    assert all(why in problem.message for problem in found)


@pytest.mark.parametrize("source", ["rec", "rec/*.jsonl", "**/*.jsonl", "day.csv", "kafka://broker:9092/press"])
def test_the_usual_places_are_accepted(plant: Path, source: str) -> None:
    assert problems(plant, sinks={"sinks.alerts": "stdout:"}, source=source, learning={"store": "inliers"}) == {}


@pytest.mark.parametrize("key", ["model.registry", "learning.store"])
def test_a_second_name_of_a_file_in_a_folder_is_no_file_of_a_sink(tmp_path: Path, key: str) -> None:
    """Lines that are appended there would damage the model, or a stored sequence."""
    folders = {"model.registry": "registry", "learning.store": "store"}
    held = tmp_path / folders[key] / "default" / "CURRENT"
    held.parent.mkdir(parents=True)
    held.write_text("0001\n")
    (tmp_path / "twin").hardlink_to(held)
    found = problems(tmp_path, sinks={"sinks.events": "twin"}, learning={"store": "store"})
    assert list(found) == ["sinks.events"]
    assert f"lies in the folder of {key}" in found["sinks.events"]


def test_a_second_name_of_a_recording_is_no_file_of_a_sink(tmp_path: Path) -> None:
    (tmp_path / "batches.csv").write_text("time,temp_c\n")
    (tmp_path / "twin").hardlink_to(tmp_path / "batches.csv")
    found = problems(tmp_path, sinks={"sinks.events": "twin"}, source="batches.csv")
    assert "would be read as recordings" in found["sinks.events"]


SECURITY = {
    "protocol": "sasl_ssl",
    "password": {"file": "keys/password"},
    "ca_file": "keys/ca.pem",
    "key_file": "keys/key.pem",
    "key_password": {"env": "KEY"},
}


@pytest.mark.parametrize("name", ["password", "ca.pem", "key.pem"])
@pytest.mark.parametrize("way", ["path", "link", "hard link", "url"])
def test_nothing_is_written_to_a_secret_a_key_or_a_certificate(tmp_path: Path, name: str, way: str) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / name).write_text("secret")
    if way == "link":
        (tmp_path / "other").symlink_to(tmp_path / "keys" / name)
    elif way == "hard link":
        (tmp_path / "other").hardlink_to(tmp_path / "keys" / name)
    written = {"path": f"keys/{name}", "url": f"file://localhost{tmp_path}/keys/{name}"}.get(way, "other")
    for where in ("source", "sinks"):
        config: dict[str, Any] = {"channels": [{"name": "a"}], "source": {"url": "kafka://h:1/t"}}
        given = {"security": SECURITY}
        if where == "source":
            config["source"]["options"] = given
        else:
            config["sinks"] = {"options": {"kafka": given}}
        held = held_files(Settings(**config), tmp_path)
        assert len(held) == 3
        found = Places({"sinks.alerts": written}, {}, tmp_path, held=held).problems()
        assert [problem.path for problem in found] == ["sinks.alerts"]
        assert f".security.{name.partition('.')[0]}" in found[0].message
        assert "a secret or certificate: name another file" in found[0].message
        folder = Places({}, {}, tmp_path, None, {"run.checkpoint": (tmp_path / "keys" / name)}, held).problems()
        assert "name a folder of its own" in folder[0].message
        out = Places({}, {}, tmp_path, held=held).problem_of("--out", tmp_path / "keys" / name)
        assert out is not None
        assert "name another place with --out" in out


VIEWS = {
    "plant.yaml": "is the config itself",
    "registry/reactor/CURRENT": "lies in the folder of model.registry",
    "checkpoint/progress.json": "lies in the folder of run.checkpoint",
    "alerts.jsonl": "is also the file of sinks.alerts",
    "twin": "is also the file of sinks.alerts",
    "marks.jsonl": "is also the file of marks",
    "rec/B-17.csv": "would be read as recordings",
    "page": "is the file of web.auth.token.file",
    "~/view.sqlite3": "~ is not the home folder here",
    "events.jsonl-wal": None,
    "view.sqlite3": None,
    "rec/view.sqlite3": None,
}


@pytest.mark.parametrize("view", VIEWS)
def test_the_page_s_view_takes_no_other_place(tmp_path: Path, view: str) -> None:
    (tmp_path / "alerts.jsonl").touch()
    (tmp_path / "twin").hardlink_to(tmp_path / "alerts.jsonl")
    web = {"view": view, "auth": {"token": {"file": "page.token"}}}
    sinks = {"alerts": "alerts.jsonl", "events": "events.jsonl"}
    config: dict[str, Any] = {"channels": [{"name": "a"}], "source": {"url": "rec"}, "sinks": sinks, "web": web}
    (tmp_path / "rec").mkdir()
    plant = Plant(Settings(**config), tmp_path, SystemClock(), tmp_path / "plant.yaml")
    found, expected = plant.places.problems(), VIEWS[view]
    assert [each.path for each in found] == ([] if expected is None else ["web.view"])
    assert expected is None or expected in found[0].message


@pytest.mark.parametrize("ending", ["", ".token", ".lock", "-wal", "-shm"])
def test_nothing_is_written_to_the_page_s_view_or_beside_it(tmp_path: Path, ending: str) -> None:
    config: dict[str, Any] = {
        "channels": [{"name": "a"}],
        "source": {"url": "rec"},
        "sinks": {"alerts": f"view.sqlite3{ending}"},
    }
    plant = Plant(Settings(**config), tmp_path, SystemClock(), tmp_path / "plant.yaml")
    (problem,) = plant.places.problems()
    assert problem.path == "web.view"
    assert "is also the file of sinks.alerts: name another file, such as out/view.sqlite3" in problem.message
    with pytest.raises(UsageError, match=r"is also the file of web\.view"):
        check_out(plant, tmp_path / f"view.sqlite3{ending}", is_recording=False)


def test_nothing_is_written_to_the_file_of_the_page_s_token(tmp_path: Path) -> None:
    (tmp_path / "page.token").write_text("t" * 32)
    web = {"auth": {"token": {"file": "page.token"}}}
    found = problems(tmp_path, sinks={"sinks.alerts": "./page.token"}, web=web)
    assert "web.auth.token.file" in found["sinks.alerts"]


@pytest.mark.parametrize("written", ["feedback.jsonl.g.position", ".feedback.jsonl.g.position.lock", "link", "twin"])
def test_nothing_is_written_to_the_position_beside_a_followed_file(tmp_path: Path, written: str) -> None:
    position = tmp_path / "feedback.jsonl.g.position"
    position.write_text("{}")
    (tmp_path / "link").symlink_to(position)
    (tmp_path / "twin").hardlink_to(position)
    sinks = {"sinks.alerts": written, "learning.feedback": "feedback.jsonl"}
    found = problems(tmp_path, sinks=sinks)
    assert list(found) == ["sinks.alerts"]
    assert "readers of learning.feedback keep their position: name another file" in found["sinks.alerts"]
    assert problems(tmp_path, sinks={**sinks, "sinks.alerts": "alerts.jsonl"}) == {}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST"])
def test_a_url_of_this_host_is_a_local_path(tmp_path: Path, host: str) -> None:
    here = f"file://{host}{tmp_path}"
    found = problems(
        tmp_path,
        sinks={"sinks.alerts": f"{here}/plant.yaml", "sinks.events": f"{here}/store/events", "sinks.late": "rec"},
        source=f"{here}/rec",
        learning={"store": f"{tmp_path}/store"},
    )
    assert set(found) == {"sinks.alerts", "sinks.events", "sinks.late"}
    assert "is the config itself" in found["sinks.alerts"]
    assert "lies in the folder of learning.store" in found["sinks.events"]
    assert "would be read as recordings" in found["sinks.late"]


@pytest.mark.parametrize("url", ["s3://bucket/checkpoint", "file:///checkpoint", "abc://x"])
def test_a_checkpoint_is_a_folder_and_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="is no folder: the checkpoint is locked") as caught:
        Settings(channels=[{"name": "a"}], source={"url": "rec"}, run={"checkpoint": url})  # type: ignore[list-item, arg-type]
    assert "write a path, without a scheme" in str(caught.value)


def test_a_config_whose_sink_is_a_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "plant.yaml").write_text(
        "channels: [{name: a}]\n"
        "source: {url: rec.jsonl}\n"
        "sinks:\n"
        "  events: password\n"
        "  options: {kafka: {security: {password: {file: password}}}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_whole_plant(tmp_path / "plant.yaml")
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("sinks.events", 4)
    assert "is the file of sinks.options.kafka.security.password" in problem.message
    with pytest.raises(UsageError, match=r"--out .* is the file of sinks.options.kafka.security.password"):
        check_out(load_plant(tmp_path / "plant.yaml"), tmp_path / "password", is_recording=True)


@pytest.mark.parametrize("key", ["sinks.alerts", "run.checkpoint"])
def test_a_place_that_begins_with_a_tilde_is_refused(tmp_path: Path, key: str) -> None:
    sinks = {key: "~/out.jsonl"} if key == "sinks.alerts" else {}
    sections = {"run": {"checkpoint": "~/ckpt"}} if key == "run.checkpoint" else {}
    assert "write the whole path" in problems(tmp_path, sinks=sinks, **sections)[key]


@pytest.mark.parametrize("text", ["file:ckpt", "file:///ckpt", "s3:ckpt", "simplecache::/ckpt"])
def test_a_checkpoint_is_a_path_without_a_scheme(text: str) -> None:
    with pytest.raises(ValueError, match="without a scheme"):
        Settings(channels=[{"name": "temp_c"}], source={"url": "rec"}, run={"checkpoint": text})  # type: ignore[list-item, arg-type]
