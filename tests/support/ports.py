"""Ports for programs that a test starts: nobody else gets them while they start."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from pathlib import Path

from streamad.system.locks import lock_open_file

# Below the ports that the kernel gives to clients: any of them could otherwise be given a port before its server
# listens there, and one that keeps connecting to a stopped server would talk to itself.
PORTS = range(20_000, 32_000)


def free_ports(n: int) -> list[int]:
    """Return ports on which nothing listens now; no other test process gets them while this one lives.

    A broker takes seconds to listen: without the locks two that start at the same time could be given one port.
    """
    ports: list[int] = []
    while len(ports) < n:
        port = PORTS.start + secrets.randbelow(len(PORTS))
        if _is_ours(port):
            with socket.socket() as trial, contextlib.suppress(OSError):
                trial.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def free_port() -> int:
    """Return one of ``free_ports``."""
    (port,) = free_ports(1)
    return port


def _is_ours(port: int) -> bool:
    folder = Path(tempfile.gettempdir(), "streamad-test-ports")
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    if lock_open_file(descriptor):
        return True  # until this process ends
    os.close(descriptor)
    return False
