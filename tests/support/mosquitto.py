"""A real mosquitto on loopback that a test starts, restarts and kills, and its own client, which publishes."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.waiting import LIMIT_S

LEFT_OPEN = "ignore:unclosed <ssl.SSLSocket:ResourceWarning"
"""A filter of warnings: paho leaves a socket whose handshake fails to the garbage collector."""


def tool(name: str) -> str:
    """Return the path of a program of mosquitto; without it skip the test, but fail it in CI."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must test the bridge: install {name} (Debian: mosquitto, mosquitto-clients)", pytrace=False)
    pytest.skip(f"needs {name}")


class Mosquitto:
    """A broker in ``folder``, with further lines of ``mosquitto.conf``; it keeps sessions over a restart in order."""

    def __init__(self, folder: Path, *lines: str, port: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self._folder = folder
        self._config = folder / "mosquitto.conf"
        kept = ("persistence true", f"persistence_location {folder}/", "max_queued_messages 0")
        self.configure(*kept, *lines)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def configure(self, *lines: str) -> None:
        """Replace all lines but the listener's; those of a login or TLS follow it."""
        open_door = () if any(line.startswith("password_file") for line in lines) else ("allow_anonymous true",)
        user = f"user {getpass.getuser()}"  # started by root, it would be another one, who may not write here
        self._config.write_text("\n".join((f"listener {self.port} 127.0.0.1", user, *open_door, *lines, "")))

    def start(self) -> None:
        """Return once it answers."""
        with (self._folder / "log").open("ab") as log:
            command = [tool("mosquitto"), "-c", str(self._config)]
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S).close()
                return
            except OSError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < end, "mosquitto does not answer"
                time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it in order, or by another signal."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(LIMIT_S)
            self._process = None

    def kill(self) -> None:
        """End it at once: what it has not saved is gone."""
        self.stop(signal.SIGKILL)

    def publish(self, topic: str, messages: Sequence[str], *options: str) -> None:
        """Publish with QoS 1 by mosquitto's own client; return once the broker has acknowledged all."""
        command = [tool("mosquitto_pub"), "-p", str(self.port), "-q", "1", "-t", topic, "-l", *options]
        subprocess.run(command, input="".join(f"{text}\n" for text in messages).encode(), check=True, timeout=LIMIT_S)


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[Mosquitto]:
    """Run a broker for the block."""
    broker = Mosquitto(folder, *lines)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
