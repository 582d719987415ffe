"""The developer's interface: scripts/demo, test and check, and .ci/run, against stand-ins for Python and pip."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.messages import EarlyWarning, ModelRef, Verdict, WarningRef
from tests.support.scripts import script
from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ("bash", "cat", "cksum", "cp", "date", "dirname", "flock", "id", "ls", "mkdir", "rm", "touch")

# A Python that notes how it is called, installs nothing, and runs neither tests nor the demo.
STAND_IN = """#!/bin/bash
echo "$*" >>"{log}"
case "$*" in
    "-m pip install"*" torch") exit "${{TORCH_STATUS:-0}}" ;;
    *find_spec*torch*) exit "${{HAS_TORCH_STATUS:-0}}" ;;
    "-m pip install"*) exit "${{PIP_STATUS:-0}}" ;;
    "-m streamad"*) exit 0 ;;
    *demo_summary.py*) echo "summary: {{}}"; exit 0 ;;
    "-m pytest"*) echo "1 passed"; exit "${{TESTS_STATUS:-0}}" ;;
    *"import ensurepip"*) exit "${{ENSUREPIP_STATUS:-0}}" ;;
    *"(3, 11)"*) exit "${{VERSION_STATUS:-0}}" ;;
esac
exec "{python}" "$@"
"""


class Checkout:
    """A copy of the scripts with an active virtual environment whose Python is a stand-in."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.venv = folder / "venv"
        self.log = folder / "log"
        self.path = folder / "bin"
        shutil.copytree(ROOT / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "pyproject.toml").write_text("[project]\n")
        self.path.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            if found:
                (self.path / tool).symlink_to(found)
        (self.venv / "bin").mkdir(parents=True)
        self.stand_in(self.venv / "bin" / "python")

    def stand_in(self, path: Path) -> None:
        path.write_text(STAND_IN.format(log=self.log, python=sys.executable))
        path.chmod(0o755)

    def environment(self, **changes: str) -> dict[str, str]:
        return {"PATH": str(self.path), "HOME": str(self.root), "VIRTUAL_ENV": str(self.venv)} | changes

    def run(self, *command: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", *command],
            cwd=self.root,
            env=self.environment(**changes),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def installs(self) -> list[str]:
        """Return what pip was asked for since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.rpartition(" -e ")[2] for line in lines if line.startswith("-m pip install")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("name", ["demo", "test", "check"])
def test_help_needs_no_environment(checkout: Checkout, name: str) -> None:
    assert os.access(ROOT / "scripts" / name, os.X_OK)
    for flag in ("--help", "-h"):
        done = checkout.run(f"scripts/{name}", flag, VIRTUAL_ENV="/nowhere")
        assert done.returncode == 0
        assert done.stdout.startswith(f"usage: scripts/{name}")
    assert checkout.installs() == []


@pytest.mark.parametrize(
    "command",
    [
        ["demo", "--nonsense"],
        ["demo", "--web", "8484"],
        ["demo", "--seed"],
        ["demo", "--seed", "one"],
        ["demo", "--out", "scripts"],
        ["check", "x"],
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_line(checkout: Checkout, command: list[str]) -> None:
    done = checkout.run(f"scripts/{command[0]}", *command[1:])
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert (checkout.root / "scripts" / "demo").exists()


def test_the_first_run_installs_and_the_second_starts_at_once(checkout: Checkout) -> None:
    done = checkout.run("scripts/test", "-k", "settings")
    assert (done.returncode, done.stdout) == (0, "1 passed\n")
    assert "installing streamad and what it needs" in done.stderr
    assert "-m pytest -k settings" in checkout.log.read_text()
    assert checkout.installs() == [".[dev]"]
    done = checkout.run("scripts/test")
    assert (done.returncode, done.stderr) == (0, "")
    assert checkout.installs() == []


def test_without_arguments_all_tests_run_four_at_a_time_and_a_failure_fails_the_script(checkout: Checkout) -> None:
    done = checkout.run("scripts/test", TESTS_STATUS="1")
    assert (done.returncode, done.stdout) == (1, "1 passed\n")
    (run,) = (line for line in checkout.log.read_text().splitlines() if line.startswith("-m pytest"))
    assert run == "-m pytest tests --numprocesses=4 --dist=loadfile --no-loadscope-reorder --max-worker-restart=0"


@pytest.mark.parametrize("change", ["another pyproject", "another checkout"])
def test_another_project_is_installed_again(checkout: Checkout, change: str) -> None:
    checkout.run("scripts/test")
    checkout.installs()
    if change == "another pyproject":
        (checkout.root / "pyproject.toml").write_text("[project]\n# a new dependency\n")
    else:
        checkout.root = checkout.root.rename(checkout.root.with_name("elsewhere"))
    checkout.run("scripts/test")
    assert checkout.installs() == [".[dev]"]


def test_a_failed_installation_is_reported_and_repeated(checkout: Checkout) -> None:
    done = checkout.run("scripts/test", PIP_STATUS="1")
    assert done.returncode == 1
    assert "error: the installation failed" in done.stderr.splitlines()[-1]
    assert "passed" not in done.stdout
    assert checkout.installs() == [".[dev]"]
    assert checkout.run("scripts/test").returncode == 0
    assert checkout.installs() == [".[dev]"]


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="a machine with a GPU gets torch with CUDA")
@pytest.mark.parametrize(("torch", "said"), [("0", False), ("1", True)])
def test_without_a_gpu_torch_comes_without_cuda_where_its_index_is_reached(
    checkout: Checkout, torch: str, said: bool
) -> None:
    done = checkout.run("scripts/test", HAS_TORCH_STATUS="1", TORCH_STATUS=torch)
    assert done.returncode == 0
    assert ("torch comes from PyPI, with CUDA" in done.stderr) == said
    assert [line.rpartition("--index-url ")[2] for line in checkout.installs()] == [
        "https://download.pytorch.org/whl/cpu torch",
        ".[dev]",
    ]


def test_what_runs_needs_less_than_what_develops(checkout: Checkout) -> None:
    use = 'source scripts/_environment; use_environment "$0"; echo "$python"'
    done = checkout.run("-c", use, "")
    assert done.stdout == f"{checkout.venv}/bin/python\n"
    assert checkout.installs() == ["."]
    checkout.run("-c", use, "dev")
    assert checkout.installs() == [".[dev]"]
    checkout.run("-c", use, "")
    assert checkout.installs() == []


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock on this machine")
def test_two_scripts_at_once_install_once(checkout: Checkout) -> None:
    key = checkout.run("-c", "source scripts/_environment; install_key").stdout
    with (checkout.root / "pyproject.toml").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["bash", "scripts/test"]
        waiting = subprocess.Popen(
            command,
            cwd=checkout.root,
            env=checkout.environment(),
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("waiting for another installation")
        (checkout.venv / ".streamad-installed-dev").write_text(key)
    stdout, _ = waiting.communicate(timeout=LIMIT_S)
    assert (waiting.returncode, stdout) == (0, "1 passed\n")
    assert checkout.installs() == []


@pytest.mark.parametrize(
    ("environment", "error"),
    [
        ("", "no Python 3.11 or newer found"),
        ("/nowhere", "VIRTUAL_ENV names /nowhere, which has no bin/python: deactivate it and run this again\n"),
    ],
)
def test_without_python_the_error_names_the_remedy(checkout: Checkout, environment: str, error: str) -> None:
    done = checkout.run("scripts/test", VIRTUAL_ENV=environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {error}")
    assert done.stderr.count("\n") == 1


def test_an_old_python_is_passed_over(checkout: Checkout) -> None:
    checkout.stand_in(checkout.path / "python3")
    done = checkout.run("scripts/test", VIRTUAL_ENV="", VERSION_STATUS="1")
    assert done.stderr.startswith("error: no Python 3.11 or newer found")
    done = checkout.run("scripts/test", VERSION_STATUS="1")
    assert done.stderr.startswith(f"error: the active virtual environment {checkout.venv} is older than Python 3.11")


def test_on_debian_without_venv_the_error_names_the_package(checkout: Checkout) -> None:
    checkout.stand_in(checkout.path / "python3")
    done = checkout.run("scripts/test", VIRTUAL_ENV="", ENSUREPIP_STATUS="1")
    package = f"python3.{sys.version_info[1]}-venv"
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"python3 cannot make virtual environments: install the package {package}" in done.stderr


@pytest.mark.parametrize(
    ("checks", "tests", "status"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1), (0, 5, 5), (1, 2, 2), (3, 0, 3)]
)
def test_ci_runs_both_and_fails_if_either_does(checkout: Checkout, checks: int, tests: int, status: int) -> None:
    shutil.copytree(ROOT / ".ci", checkout.root / ".ci")
    for name, code in (("check", checks), ("test", tests)):
        (checkout.root / "scripts" / name).write_text(f'echo "$# {name} CI=$CI $(cat)"; exit {code}\n')
    done = checkout.run(".ci/run")
    assert done.returncode == status
    assert done.stdout.splitlines() == ["0 check CI=true ", "0 test CI=true "]
    assert done.stderr == ""


@pytest.mark.parametrize(("given", "seen"), [("true", "true"), ("1", "true"), ("yes", "true"), ("false", "false")])
def test_ci_is_true_for_every_value_that_a_service_gives_it(checkout: Checkout, given: str, seen: str) -> None:
    shutil.copytree(ROOT / ".ci", checkout.root / ".ci")
    for name in ("check", "test"):
        (checkout.root / "scripts" / name).write_text('echo "$CI"\n')
    assert checkout.run(".ci/run", CI=given).stdout.splitlines() == [seen, seen]
    assert checkout.run("-c", 'source scripts/_environment; echo "$CI"', CI=given).stdout == f"{seen}\n"


@pytest.fixture
def debian(checkout: Checkout) -> Checkout:
    """A machine of root's with an apt-get that notes how it is called; "first" is not among its packages."""
    for name, text in {
        "apt-get": f'echo "$* ${{DEBIAN_FRONTEND:-}}" >>"{checkout.log}"; [[ $* != *first ]]',
        "id": 'echo "${USER_ID:-0}"',
    }.items():
        (checkout.path / name).unlink(missing_ok=True)
        (checkout.path / name).write_text(f"#!/bin/bash\n{text}\n")
        (checkout.path / name).chmod(0o755)
    return checkout


NAMES = ("first", "second")
APT = "source scripts/_environment; apt_install first || apt_install second || echo neither"


@pytest.mark.parametrize("given", ["true", "1", "yes"])
def test_a_ci_machine_gets_packages_with_patience_from_fresh_lists(debian: Checkout, given: str) -> None:
    done = debian.run("-c", APT, CI=given)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "installing first with apt-get\ninstalling second with apt-get\n"
    patient = "-qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120"
    calls = [(f"{patient} update ", f"{patient} install -y --no-install-recommends {n} noninteractive") for n in NAMES]
    assert debian.log.read_text().splitlines() == [call for both in calls for call in both]


@pytest.mark.parametrize("given", ["", "false", "0"])
def test_a_person_s_machine_is_left_alone(debian: Checkout, given: str) -> None:
    done = debian.run("-c", APT, CI=given)
    assert (done.stdout, done.stderr) == ("neither\n", "")
    assert not debian.log.exists()


PROGRAMS = {"chromium": "chromium", "promtool": "prometheus", "mosquitto_pub": "mosquitto-clients"}
"""Programs that the tests need, and their packages, of several the last."""


@pytest.mark.parametrize("given", ["true", ""])
@pytest.mark.parametrize("there", [(), ("chromium",), ("promtool",), (*PROGRAMS,)])
def test_only_a_ci_machine_without_a_program_gets_it(debian: Checkout, given: str, there: tuple[str, ...]) -> None:
    (debian.root / "scripts" / "kafka").write_text("exit 0\n")
    for program in there:
        (debian.path / program).symlink_to("/bin/true")
    assert debian.run("scripts/test", CI=given).returncode == 0
    installs = [line for line in debian.log.read_text().splitlines() if "install -y" in line]
    missing = [package for program, package in PROGRAMS.items() if program not in there]
    assert [line.split()[-2] for line in installs] == (missing if given else [])


def test_a_ci_machine_without_root_gets_a_one_line_error(debian: Checkout) -> None:
    done = debian.run("-c", APT, CI="1", USER_ID="1000")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: cannot install first with apt-get, we are not root: install it before, or run this as root\n"
    )
    debian.stand_in(debian.path / "python3")
    done = debian.run("scripts/test", VIRTUAL_ENV="", ENSUREPIP_STATUS="1", CI="1", USER_ID="1000")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot install python3.{sys.version_info[1]}-venv with apt-get, we are not")
    assert done.stderr.count("\n") == 1


T0 = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def demo_output(tmp_path: Path) -> Path:
    """What a demo leaves: of three faulty batches one found, one missed, one unscorable; of two normal ones one false
    alarm. Both streams have a batch 1. The first was warned of five hours before its end."""
    verdicts: list[tuple[str, str, int, Any, float | None]] = [
        *(("f1", "1", 1, "anomalous", 9.0), ("f1", "2", 1, "normal", 1.0), ("f1", "3", 1, "unscorable", None)),
        *(("f2", "1", 0, "normal", 2.0), ("f2", "2", 0, "anomalous", 5.0)),
    ]
    warning = EarlyWarning(
        warning_id="w", stream="f1", sequence="1", start_time=T0, time=T0 + timedelta(hours=5), n_points=30, age=0.5,
        look=5, score=9.0, p_value=0.01, false_alarm_rate=0.01, tail="empirical", model=ModelRef("m", "1"),
        created_at=T0,
    )  # fmt: skip
    (tmp_path / "live").mkdir()
    (tmp_path / "out").mkdir()
    rows = "".join(f"{stream},{sequence},{label},\n" for stream, sequence, label, _, _ in verdicts)
    (tmp_path / "live" / "labels.csv").write_text("stream,sequence,label,fault\n" + rows)
    (tmp_path / "out" / "warnings.jsonl").write_bytes(msgspec.json.encode(warning) + b"\n")
    with (tmp_path / "out" / "verdicts.jsonl").open("wb") as file:
        for stream, sequence, _, decision, score in verdicts:
            verdict = Verdict(
                verdict_id=f"{stream}-{sequence}", stream=stream, sequence=sequence, decision=decision, score=score,
                reason="marker", start_time=T0, end_time=T0 + timedelta(hours=10), n_samples=60, created_at=T0,
                warning=WarningRef("w", 0.5) if (stream, sequence) == ("f1", "1") else None,
            )  # fmt: skip
            file.write(msgspec.json.encode(verdict) + b"\n")
    return tmp_path


@pytest.fixture
def summary(demo_output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Sum up the demo's output: its sentences, and its figures."""

    def summary() -> tuple[list[str], dict[str, Any]]:
        monkeypatch.chdir(demo_output)
        monkeypatch.setattr(sys, "argv", ["demo_summary.py", "--started", str(time.time() - 60)])
        script("demo_summary").main()
        *said, last = capsys.readouterr().out.splitlines()
        return said, json.loads(last.removeprefix("summary: "))

    return summary


def test_the_summary_of_the_demo_counts_an_unscorable_batch_as_missed(summary: Any) -> None:
    said, figures = summary()
    assert said == [
        "faulty batches found: 33.3\u00a0%; false alarms: 50.0\u00a0%",
        "faulty batches warned of before their end: 50.0\u00a0%, 5\u00a0h before it (median); normal ones: 0.0\u00a0%",
    ]
    assert 60 <= figures.pop("wall_s") < 120
    assert figures == {
        "detection_rate": pytest.approx(1 / 3),
        "false_alarm_rate": 0.5,
        "unscorable": 1,
        "sequences": 5,
        "alerts": 2,
        "faults_warned_of": 0.5,  # the unscorable one is counted apart
        "normal_ever_warned_of": 0.0,
        "median_lead_s": 5 * 3600,
    }


def test_the_summary_of_a_demo_without_faulty_batches_states_it(demo_output: Path, summary: Any) -> None:
    labels = demo_output / "live" / "labels.csv"
    labels.write_text(labels.read_text().replace(",1,\n", ",0,\n"))
    said, figures = summary()
    assert said == [
        "faulty batches found: none to find; false alarms: 40.0\u00a0%",
        "faulty batches warned of before their end: none to find; normal ones: 25.0\u00a0%",
    ]
    assert figures["detection_rate"] is None


def test_the_demo_simulates_trains_runs_and_sums_up(checkout: Checkout) -> None:
    done = checkout.run("scripts/demo", "--out", "shown", "--seed", "7")
    assert done.returncode == 0, done.stderr
    folder = checkout.root / "shown"
    calls = [line for line in checkout.log.read_text().splitlines() if "streamad" in line or "summary" in line]
    *commands, summary = [line for line in calls if not line.startswith("-m pip")]
    simulate = "-m streamad simulate --out . --seed 7 --normal 150 --faulty 50"
    assert commands == [simulate, "-m streamad train", "-m streamad run"]
    assert summary.startswith(f"{checkout.root}/scripts/demo_summary.py --started 1")
    assert done.stdout.splitlines()[-2:] == [
        f"to see these results on a page: cd {folder} && streamad web",
        "summary: {}",
    ]
    assert (folder / ".streamad-demo").exists()
    assert checkout.installs() == [".[web,plots]"]


def test_files_are_counted_against_the_limits(tmp_path: Path) -> None:
    file_sizes = script("file_sizes")
    for folder, n_lines in (("streamad", 300), ("connectors", 301), ("models", 501), ("tests", 999)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module.py").write_text("\n" * n_lines)
    assert file_sizes.long_files(tmp_path) == [(Path("models/module.py"), 501), (Path("connectors/module.py"), 301)]


def test_a_folder_of_more_than_twelve_modules_is_reported(tmp_path: Path) -> None:
    for folder, n_modules in (("streamad/full", 13), ("streamad/ok", 12), ("benchmarks", 20)):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("__init__", *(f"module{number}" for number in range(n_modules))):
            (tmp_path / folder / f"{name}.py").touch()
    assert script("file_sizes").full_folders(tmp_path) == [(Path("streamad/full"), 13)]
