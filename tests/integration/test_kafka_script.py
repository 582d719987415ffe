"""scripts/kafka, as a developer uses it: start, status, stop, and what it says where it cannot."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.broker import SCRIPT, create_topics, produce, read_committed, scratch_folder
from tests.support.ports import free_ports
from tests.support.waiting import LIMIT_S

# Stands in for Maven: notes the call, and puts one file, then another, where the jars belong.
MAVEN = """#!/bin/bash
echo called >>"{log}"
for word; do case $word in -DoutputDirectory=*) folder=${{word#*=}} ;; esac; done
[ -z "${{MAVEN_FAILS:-}}" ] || {{ echo "[ERROR] no route to host"; exit 1; }}
mkdir "$folder"
echo 1 >"$folder/first.jar"
echo 2 >"$folder/second.jar"
"""


def kafka_script(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", SCRIPT, *arguments],
        env=os.environ | {"CI": "false"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def kafka_maps(pid: str) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.fixture
def data(kafka_jars: Path) -> Iterator[Path]:
    """A folder for a broker, which is stopped at the end."""
    folder = scratch_folder() / "data"
    yield folder
    kafka_script("stop", "--data", folder)
    shutil.rmtree(folder.parent)


async def test_start_status_stop_and_start_again(data: Path) -> None:
    place = ("--data", data)
    port, controller_port, other_port = free_ports(3)
    ports = ("--controller-port", str(controller_port), "--port")
    started = kafka_script("start", *ports, str(port), *place)
    assert (started.returncode, started.stderr) == (0, "")
    said = re.fullmatch(r"Kafka \S+ answers on 127\.0\.0\.1:(\d+) \(pid (\d+), log (\S+)\)\n", started.stdout)
    assert said is not None
    assert said.group(1, 3) == (str(port), str(data / "kafka.log"))
    pid = said[2]
    if sys.platform == "linux":
        assert "/classes-" in kafka_maps(pid)  # without them a start costs twice as much
    await create_topics(f"127.0.0.1:{port}", {"kept": 1})
    await produce(f"127.0.0.1:{port}", "kept", [b"value"])

    status = kafka_script("status", *place)
    assert (status.returncode, status.stdout) == (0, f"running: 127.0.0.1:{port} (pid {pid}, log {data}/kafka.log)\n")
    again = kafka_script("start", *place)
    assert (again.returncode, again.stdout) == (0, f"Kafka is running already: 127.0.0.1:{port} (pid {pid})\n")
    elsewhere = kafka_script("start", "--port", "9", *place)
    assert elsewhere.returncode == 1
    assert elsewhere.stderr.startswith(f"error: the broker of {data} runs already, on port {port} (pid {pid}): stop it")
    taken = kafka_script("start", *ports, str(port), "--data", data.parent / "second")
    assert (taken.returncode, taken.stderr.count("\n")) == (1, 1)
    assert taken.stderr.startswith(f"error: port {port} is taken by another process: choose others with --port")

    stopped = kafka_script("stop", *place)
    assert (stopped.returncode, stopped.stdout) == (0, f"stopped (pid {pid})\n")
    assert kafka_script("status", *place).returncode == 1
    assert kafka_script("stop", *place).stdout == f"no broker of {data} is running\n"

    assert kafka_script("start", *ports, str(other_port), *place).returncode == 0
    assert [record.value for record in await read_committed(f"127.0.0.1:{other_port}", "kept")] == [b"value"]


def test_a_broker_that_cannot_start_prints_the_cause(data: Path) -> None:
    port, controller_port = map(str, free_ports(2))
    wrong = ("--set", "process.roles=butler")
    failed = kafka_script("start", "--port", port, "--controller-port", controller_port, "--data", data, *wrong)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert last == f"error: Kafka ended while it started: see above, or all of {data}/kafka.log"
    assert "butler" in failed.stderr


def test_an_old_pid_file_harms_no_stranger(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (tmp_path / "kafka.pid").write_text(f"{stranger.pid}\n")
        status = kafka_script("status", "--data", tmp_path)
        stop = kafka_script("stop", "--data", tmp_path)
        assert (status.returncode, status.stdout) == (1, f"not running: no broker of {tmp_path}\n")
        assert (stop.returncode, stop.stdout) == (0, f"no broker of {tmp_path} is running\n")
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_a_port_that_answers_otherwise_is_no_broker(kafka_jars: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        taken = kafka_script("start", "--port", str(port), "--data", tmp_path / "data")
    assert taken.returncode == 1
    assert taken.stderr.startswith(f"error: port {port} is taken by another process")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ([], "name a command: start, stop, status, run or fetch"),
        (["begin"], "unknown command begin"),
        (["start", "--prot", "1"], "unknown argument --prot"),
        (["start", "--port"], "--port needs a value"),
        (["start", "--port", "http"], "a port is a number from 1 to 65535, not http"),
        (["start", "--port", "65536"], "a port is a number from 1 to 65535, not 65536"),
        (["start", "--set", "a"], "--set takes NAME=VALUE, not a"),
        (["start", "--scram", "alice"], "--scram takes USER=PASSWORD, without comma or bracket"),
        (["start", "--scram", "alice=a,b"], "--scram takes USER=PASSWORD, without comma or bracket"),
        (["start", "--data", "/a,b"], "the path of --data holds a comma or a backslash: /a,b"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_line(arguments: list[str], wrong: str) -> None:
    done = kafka_script(*arguments)
    assert (done.returncode, done.stderr) == (2, f"error: {wrong} (see --help)\n")


def test_help_prints_the_usage(tmp_path: Path) -> None:
    for arguments in (["--help"], ["-h"], ["start", "--help"]):
        done = kafka_script(*arguments, HOME=str(tmp_path))
        assert done.returncode == 0
        assert done.stdout.startswith("usage: scripts/kafka COMMAND")
    assert os.access(SCRIPT, os.X_OK)


@pytest.fixture
def maven(tmp_path: Path) -> dict[str, str]:
    """The environment in which stand-ins for Java and Maven fetch into a cache of the test's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"mvn": MAVEN, "java": "#!/bin/bash\necho 'java.specification.version = 17'\n"}.items():
        (folder / name).write_text(text.format(log=tmp_path / "log") if name == "mvn" else text)
        (folder / name).chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "JAVA_HOME": "",
        "KAFKA_VERSION": "0.1",
        "STREAMAD_KAFKA_CACHE": str(tmp_path / "cache"),
    }


def test_jars_are_fetched_once_by_two_at_once(maven: dict[str, str], tmp_path: Path) -> None:
    both = [
        subprocess.Popen(["bash", SCRIPT, "fetch"], env=os.environ | maven, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    jars = tmp_path / "cache" / "0.1"
    assert [process.communicate(timeout=LIMIT_S)[0] for process in both] == [f"{jars}\n"] * 2
    assert sorted(path.name for path in jars.iterdir()) == ["first.jar", "second.jar"]
    assert (tmp_path / "log").read_text() == "called\n"
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == ["0.1"]


def test_a_failed_download_leaves_nothing_and_names_the_cause(maven: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache" / ".part-0.1-77").mkdir(parents=True)  # of a process that was killed
    failed = kafka_script("fetch", **maven, MAVEN_FAILS="1")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "error: Maven could not fetch Kafka 0.1: [ERROR] no route to host"
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []
    assert kafka_script("fetch", **maven).returncode == 0
