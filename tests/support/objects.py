"""An object store on loopback: moto's S3, started once a session; each test has a bucket of its own."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.request import Request, urlopen

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTONLY",
    "AWS_SECRET_ACCESS_KEY": "hunter22-secret",
    "AWS_REGION": "us-east-1",
}


@dataclass(frozen=True)
class Bucket:
    """A bucket of the store at ``endpoint``; ``environment`` is what a process needs to use it."""

    name: str
    endpoint: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of the store that all tests of this process share: use buckets with names of your own."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - it loads much, and few tests need it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket; this process and those it starts have the environment to use it."""
    made = Bucket(f"streamad-{uuid.uuid4().hex[:12]}", s3_endpoint)
    urlopen(Request(f"{s3_endpoint}/{made.name}", method="PUT")).close()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made
