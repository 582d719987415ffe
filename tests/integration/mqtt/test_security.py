"""TLS, certificates and passwords, in the words of Kafka's options: nothing is lost behind TLS, no secret is shown."""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from streamad.errors import ConfigError, OutputError
from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad.types import FeedRecord
from streamad_connectors.mqtt import MqttInlet, MqttsFeed, MqttsInlet
from streamad_connectors.mqtt.options import MqttInletOptions, MqttOptions
from tests.support.mosquitto import LEFT_OPEN, Mosquitto, mosquitto, tool
from tests.support.runtime.pipeline import until

SECRET = "open-sesame-29"
CONTEXT = ConnectorContext((), SystemClock(), Path())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that asks for TLS, our certificate, and a password."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    for name in ("own", "other"):
        keys = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")]
        subprocess.run([*command, *keys], check=True, capture_output=True)
    passwords = tmp_path / "passwords"
    subprocess.run([tool("mosquitto_passwd"), "-b", "-c", str(passwords), "ada", SECRET], check=True)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    tls = [f"{key} {tmp_path}/own.{end}" for key, end in (("cafile", "pem"), ("certfile", "pem"), ("keyfile", "key"))]
    with mosquitto(tmp_path / "broker", *tls, "require_certificate true", f"password_file {passwords}") as broker:
        yield broker


def security(folder: Path, **more: Any) -> dict[str, Any]:
    files = {"ca_file": folder / "own.pem", "cert_file": folder / "own.pem", "key_file": folder / "own.key"}
    login = {"username": "ada", "password": {"file": folder / "secret"}}
    return {"security": {**files, **login, **more}}


async def test_behind_tls_every_message_comes_and_no_secret_is_shown(guarded: Mosquitto, tmp_path: Path) -> None:
    options = MqttInletOptions.model_validate(security(tmp_path))
    inlet = MqttsInlet(f"{guarded.address}/plant/+", options, CONTEXT)
    feed = MqttsFeed(f"{guarded.address}/plant/{{stream}}", MqttOptions.model_validate(security(tmp_path)), CONTEXT)
    with capture_logs() as logs:
        messages = inlet.messages()
        first = anext(messages)
        await feed.send([FeedRecord(b"x", b"r0")])  # it comes before there is a session, and is not taken
        await feed.flush()
        sent = [FeedRecord(b"%d" % n * 50, b"r1") for n in range(2_000)]
        found = []

        async def read() -> None:
            found.append(await first)
            async for record in messages:
                found.append(record)

        reading = asyncio.create_task(read())
        await until(lambda: inlet.counts.connections == 1)
        for begin in range(0, 2_000, 100):
            await feed.send(sent[begin : begin + 100])
            await feed.flush()
            await until(lambda: len(found) == begin + 100)  # noqa: B023 - at once
            inlet.release(100)
        inlet.stop()
        await reading
        await inlet.close()
        await feed.close()
    assert [record.value for record in found] == [record.value for record in sent]
    assert SECRET not in str(logs) + repr(options) + repr(inlet.place)


@pytest.mark.filterwarnings(LEFT_OPEN)
async def test_a_foreign_certificate_and_a_missing_secret_are_one_line(guarded: Mosquitto, tmp_path: Path) -> None:
    for more, said in (
        ({"ca_file": tmp_path / "other.pem"}, "its certificate is not trusted"),
        ({"password": {"file": tmp_path / "nowhere"}}, "cannot read a secret"),
        ({"password": {"env": "NO_SUCH_SECRET"}}, "NO_SUCH_SECRET is not set"),
    ):
        options = MqttOptions.model_validate(security(tmp_path, **more))
        feed = MqttsFeed(f"{guarded.address}/plant", options, CONTEXT)
        with pytest.raises((OutputError, ConfigError), match=said) as caught:
            await feed.send([FeedRecord(b"1")])
        assert SECRET not in str(caught.value)
        del caught, feed
        gc.collect()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ca_file": "ca.pem"}, "without encryption: write mqtts://"),
        ({"password": {"env": "X"}}, "password without username"),
        ({"username": "ada", "password": SECRET}, "must not stand in the config"),
    ],
)
def test_security_that_contradicts_itself_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=said) as caught:
        MqttInlet("host/plant", MqttInletOptions.model_validate({"security": given}), CONTEXT)
    assert SECRET not in str(caught.value)
