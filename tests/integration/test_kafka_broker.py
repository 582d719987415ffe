"""The broker that the tests of Kafka rely on: it ends with the test run, and CI does not go without it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.kafka.broker import SCRIPT, jars_or_skip
from tests.support.waiting import LIMIT_S


def test_the_broker_ends_with_a_test_run_that_is_killed(kafka_jars: Path, tmp_path: Path) -> None:
    run = f"""
import threading
from pathlib import Path
from tests.support.kafka.broker import Broker
broker = Broker(Path({str(tmp_path)!r}))
thread = threading.Thread(target=broker.start)  # its end must not end the broker
thread.start()
thread.join()
print(broker.pid, broker.is_running, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=SCRIPT.parents[1],
    ) as child:
        assert child.stdout is not None
        pid, is_running = child.stdout.readline().split()
        assert is_running == "True"
        assert "kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_text()
        os.kill(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + LIMIT_S
    while (command := Path(f"/proc/{pid}/cmdline")).exists() and command.read_text():  # a zombie's is empty
        assert time.monotonic() < deadline, "the broker outlived the test run"
        time.sleep(0.02)


@pytest.mark.parametrize(("missing", "what"), [("java", "Java 17"), ("mvn", "Maven")])
def test_a_machine_without_kafka_skips_tests_but_fails_them_in_ci(
    missing: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "flock", "id", "mkdir", "rm", "sed"):
        if (found := shutil.which(tool)) is not None:
            (tmp_path / "bin" / tool).symlink_to(found)
    if missing == "mvn":
        java = tmp_path / "bin" / "java"
        java.write_text("#!/bin/bash\necho 'java.specification.version = 17'\n")
        java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("STREAMAD_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception, match=f"needs a real Kafka: no {what} .*found.*install it"):
        jars_or_skip()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"CI must test against a real Kafka: no {what} .*found"):
        jars_or_skip()
