"""Rights, logins and TLS against a real broker: every refusal is one line that names what is missing; no secret."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import OutputError, SourceError
from streamad.partition_progress import Claim
from streamad.plugins import ConnectorContext
from streamad.ports import TopicFinding
from streamad.system.clock import SystemClock
from streamad_connectors.kafka.client.options import Client
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.writing.claims_topic import ClaimsTopic
from tests.support.kafka.broker import Broker, running, set_right
from tests.support.kafka.topics import DAY_US, TopicsPlant, errors_of, texts
from tests.support.ports import free_ports
from tests.support.waiting import LIMIT_S

PASSWORD = "hunter2-is-secret"
SCRAM_PASSWORD = "correct horse=battery"
OAUTH_LOGIN = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredBroker(Broker):
    """A broker with a second port where user "worker" logs in (PLAIN) and may do nothing but what it is granted.

    On that port "alice" logs in with SCRAM-SHA-256 or SCRAM-SHA-512, and OAUTHBEARER takes unsigned tokens (RFC 7515,
    A.5). A third port speaks TLS and wants our certificate: the broker's own, cert.pem and key.pem in ``certificates``.
    A fourth one offers PLAIN alone, a fifth one OAUTHBEARER over TLS, as Amazon MSK does.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "kafka", scram_users={"alice": SCRAM_PASSWORD})
        self.certificates = folder
        self.login_port, self.tls_port, self.plain_port, self.iam_port = free_ports(4)
        _make_certificate(folder)
        plain = f"PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.login_port}"
        plain += f",SSL://127.0.0.1:{self.tls_port},ONLYPLAIN://127.0.0.1:{self.plain_port}"
        plain += f",IAM://127.0.0.1:{self.iam_port}"
        users = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_worker="{PASSWORD}";'
        self.settings |= {
            "listeners": f"{plain},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": plain,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,ONLYPLAIN:SASL_PLAINTEXT,"
                "IAM:SASL_SSL"
            ),
            "listener.name.ssl.ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": str(folder / "store.pem"),
            "listener.name.ssl.ssl.truststore.type": "PEM",
            "listener.name.ssl.ssl.truststore.location": str(folder / "cert.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": OAUTH_LOGIN,
            "listener.name.iam.ssl.keystore.type": "PEM",
            "listener.name.iam.ssl.keystore.location": str(folder / "store.pem"),
            "listener.name.iam.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.iam.oauthbearer.sasl.jaas.config": OAUTH_LOGIN,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
            "listener.name.onlyplain.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.onlyplain.plain.sasl.jaas.config": users,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:CN=127.0.0.1",
        }

    async def grant(
        self, resource: int, name: str, operation: int, *, prefix: bool = False, user: str = "worker"
    ) -> None:
        await set_right(self.bootstrap, user, resource, name, operation, prefix=prefix)


def _make_certificate(folder: Path) -> None:
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "store.pem").write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())


def unsigned_token(user: str) -> str:
    """Return a token that says who we are and is signed by nobody."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
READ, WRITE, DESCRIBE = 3, 4, 8


@pytest.fixture(scope="module")
def secured(kafka_jars: Path) -> Iterator[SecuredBroker]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    with running(SecuredBroker) as broker:
        yield broker


def worker(broker: SecuredBroker, password: str = "WORKER_PASSWORD", **security: Any) -> TopicsPlant:
    login = {"protocol": "sasl_plaintext", "mechanism": "plain", "username": "worker", "password": {"env": password}}
    return TopicsPlant(f"127.0.0.1:{broker.login_port}", security={**login, **security})


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_PASSWORD", PASSWORD)
    monkeypatch.setenv("WRONG_PASSWORD", f"not-{PASSWORD}")


async def eventually(
    check: Callable[[], Awaitable[list[TopicFinding]]], is_right: Callable[[list[TopicFinding]], bool]
) -> list[TopicFinding]:
    """Check until rights that were just granted have reached the broker."""
    deadline_s = time.monotonic() + LIMIT_S
    while not is_right(found := await check()) and time.monotonic() < deadline_s:  # noqa: ASYNC110 - only the broker knows
        await asyncio.sleep(0.1)
    return found


async def test_each_missing_right_is_named_until_none_is(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant = worker(secured)
    where = f"kafka {plant.bootstrap}: not allowed of user worker: grant "
    cannot_see = ", or create the topic if it is missing (without the right nobody can tell)"
    names = [plant.inputs[0], plant.progress[0], plant.claims, f"{plant.name}.alerts", f"{plant.name}.dead"]
    refused = [
        *((name, f"{where}DESCRIBE on topic {name}{cannot_see}") for name in names),
        ("(group)", f"{where}READ on group {plant.group}"),
        ("(transactions)", f"{where}WRITE and DESCRIBE on transactional id {plant.transactional_id}"),
    ]
    assert errors_of(await plant.check()) == refused
    made = await plant.create()
    assert [text for _, text in errors_of(made)] == [text for _, text in refused[:5]]

    await TopicsPlant.create(as_root(plant, secured))
    for name in names:
        await secured.grant(TOPIC, name, DESCRIBE)
    found = await eventually(plant.check, lambda found: len(texts(found, names[1])) == 2)
    assert texts(found, names[0]) == [f"{where}READ and DESCRIBE on topic {names[0]}"]
    assert texts(found, names[1]) == [
        f"{where}READ and DESCRIBE on topic {names[1]}",
        f"{where}WRITE and DESCRIBE on topic {names[1]}",
    ]
    assert texts(found, names[3]) == [f"{where}WRITE and DESCRIBE on topic {names[3]}"]

    for name in names[:3]:
        await secured.grant(TOPIC, name, READ)
    for name in names[1:]:
        await secured.grant(TOPIC, name, WRITE)
    await secured.grant(GROUP, plant.group, READ)
    await secured.grant(TRANSACTIONAL_ID, plant.transactional_id, WRITE)
    found = await eventually(plant.check, lambda found: not errors_of(found))
    assert texts(found, "(transactions)", "warning") == [
        f"cannot be tried: grant WRITE and DESCRIBE on transactional ids streamad:{plant.inputs[0]}:*"
    ]
    await secured.grant(TRANSACTIONAL_ID, f"streamad:{plant.inputs[0]}:", WRITE, prefix=True)
    found = await eventually(plant.check, lambda found: len(texts(found, "(transactions)", "ok")) == 2)
    assert errors_of(found) == []
    (unseen,) = [text for text in texts(found, "(cluster)", "warning") if "DESCRIBE_CONFIGS" in text]
    assert unseen == f"settings could not be checked, grant DESCRIBE_CONFIGS on: {', '.join(names)}, the cluster"
    assert PASSWORD not in caplog.text
    assert "aiokafka" in caplog.text


def as_root(plant: TopicsPlant, secured: SecuredBroker) -> TopicsPlant:
    """The same plant through the port where nobody has to log in."""
    root = TopicsPlant(secured.bootstrap)
    root.name, root.inputs, root.group, root.progress = plant.name, plant.inputs, plant.group, plant.progress
    root.rest, root.sink_topics = f"{secured.bootstrap}/{','.join(plant.inputs)}", plant.sink_topics
    root.context = ConnectorContext(
        (), SystemClock(), plant=plant.name, source_url=f"kafka://{root.rest}", max_duration_us=DAY_US
    )
    return root


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"password": "WRONG_PASSWORD"},
            "authentication of user worker refused: check security (mechanism, user, secret)",
        ),
        (
            {"mechanism": "scram-sha-256", "username": "alice", "password": "WRONG_PASSWORD"},
            "authentication of user alice refused: check security (mechanism, user, secret)",
        ),
        (
            {"mechanism": "scram-sha-256", "username": "nobody"},
            "authentication of user nobody refused: check security (mechanism, user, secret)",
        ),
        (
            {"mechanism": "scram-sha-512", "username": "alice", "password": "WRONG_PASSWORD"},
            "authentication of user alice refused: check security (mechanism, user, secret)",
        ),
        ({"protocol": "sasl_ssl"}, "the broker ended the connection: is security.protocol right for this port?"),
    ],
)
async def test_a_login_that_fails_is_one_line_without_the_password(
    secured: SecuredBroker, changes: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant = worker(secured, **changes)
    with pytest.raises(SourceError) as caught:
        await plant.check()
    assert str(caught.value) == f"kafka {plant.bootstrap}: {said}"
    assert PASSWORD not in caplog.text + str(caught.value)


@pytest.mark.parametrize("mechanism", ["scram-sha-256", "scram-sha-512"])
async def test_a_scram_user_logs_in(
    mechanism: str, secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ALICE_PASSWORD", SCRAM_PASSWORD)
    plant = worker(secured, "ALICE_PASSWORD", mechanism=mechanism, username="alice")
    await secured.grant(GROUP, plant.group, READ, user="alice")
    found = await eventually(plant.check, lambda found: texts(found, "(group)", "ok") != [])
    assert texts(found, "(group)", "ok") == [f"allowed to read group {plant.group}"]
    assert texts(found, "(transactions)") == [
        f"kafka {plant.bootstrap}: not allowed of user alice: grant WRITE and DESCRIBE on transactional id "
        f"{plant.transactional_id}"
    ]
    assert "aiokafka" in caplog.text
    assert SCRAM_PASSWORD not in caplog.text


async def test_a_mechanism_that_the_broker_does_not_offer_is_named(secured: SecuredBroker) -> None:
    security = {"protocol": "sasl_plaintext", "mechanism": "scram-sha-512", "username": "worker"}
    plant = TopicsPlant(
        f"127.0.0.1:{secured.plain_port}", security={**security, "password": {"env": "WORKER_PASSWORD"}}
    )
    with pytest.raises(SourceError, match=r"the broker does not offer security\.mechanism scram-sha-512$"):
        await plant.check()


async def test_a_token_logs_in_as_its_subject(secured: SecuredBroker, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(unsigned_token("worker"), encoding="utf-8")
    security = {"protocol": "sasl_plaintext", "mechanism": "oauthbearer", "token": {"file": str(tmp_path / "token")}}
    plant = TopicsPlant(f"127.0.0.1:{secured.login_port}", security=security)
    await secured.grant(GROUP, plant.group, READ)
    found = await eventually(plant.check, lambda found: texts(found, "(group)", "ok") != [])
    assert texts(found, "(group)", "ok") == [f"allowed to read group {plant.group}"]
    assert len(texts(found, "(transactions)")) == 1


async def test_a_token_that_is_refused_or_missing_is_reported(secured: SecuredBroker, tmp_path: Path) -> None:
    security = {"protocol": "sasl_plaintext", "mechanism": "oauthbearer", "token": {"file": str(tmp_path / "token")}}
    plant = TopicsPlant(f"127.0.0.1:{secured.login_port}", security=security)
    with pytest.raises(SourceError, match=r"source\.options\.security\.token: cannot read a secret from"):
        await plant.check()
    (tmp_path / "token").write_text("not.a.token", encoding="utf-8")
    with pytest.raises(SourceError, match="it has most likely refused the token"):
        await plant.check()


def by_iam(secured: SecuredBroker) -> TopicsPlant:
    security = {"protocol": "sasl_ssl", "mechanism": "aws_msk_iam", "region": "eu-central-1"}
    return TopicsPlant(
        f"127.0.0.1:{secured.iam_port}", security={**security, "ca_file": str(secured.certificates / "cert.pem")}
    )


async def test_a_token_of_the_signer_of_msk_logs_in(secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a signer whose tokens Apache Kafka takes, through the same client, thread and mechanism."""
    monkeypatch.setattr("streamad_connectors.kafka.client.credentials.signed_token", lambda _: unsigned_token("worker"))
    plant = by_iam(secured)
    await secured.grant(GROUP, plant.group, READ)
    found = await eventually(plant.check, lambda found: texts(found, "(group)", "ok") != [])
    assert texts(found, "(group)", "ok") == [f"allowed to read group {plant.group}"]


async def test_aws_credentials_that_the_broker_refuses_are_one_line_without_them(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Signed by AWS's own library; Apache Kafka takes no token of it, as MSK takes none with expired credentials."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SCRAM_PASSWORD)
    plant = by_iam(secured)
    with pytest.raises(SourceError) as caught:
        await plant.check()
    assert str(caught.value) == (
        f"kafka {plant.bootstrap}: the broker ended the connection: it has most likely refused the AWS credentials: "
        "are they expired, for this region and account, and allowed kafka-cluster:Connect?"
    )
    for secret in (PASSWORD, SCRAM_PASSWORD, "X-Amz-Signature", base64.b64encode(b"https://kafka.eu").decode()[:16]):
        assert secret not in caplog.text


def over_tls(secured: SecuredBroker, *names: str) -> TopicsPlant:
    files = {name: str(secured.certificates / f"{name.removesuffix('_file')}.pem") for name in names}
    security = {"protocol": "ssl", **files}
    if "ca_file" in files:
        security["ca_file"] = str(secured.certificates / "cert.pem")
    return TopicsPlant(f"127.0.0.1:{secured.tls_port}", security=security)


async def test_mutual_tls_works_with_a_broker(secured: SecuredBroker) -> None:
    plant = over_tls(secured, "ca_file", "cert_file", "key_file")
    assert errors_of(await plant.create()) == []
    assert errors_of(await plant.check()) == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            (),
            "the broker's certificate is not trusted (self-signed certificate): check security.ca_file and the host's",
        ),
        (
            ("ca_file",),
            "the broker ended the connection: does it require a client certificate (security.cert_file, key_file)",
        ),
    ],
)
async def test_tls_that_fails_is_one_clear_line(secured: SecuredBroker, names: tuple[str, ...], said: str) -> None:
    plant = over_tls(secured, *names)
    with pytest.raises(SourceError) as caught:
        await plant.check()
    assert str(caught.value).startswith(f"kafka {plant.bootstrap}: {said}")


async def test_claims_that_may_not_be_read_or_written_are_one_line_with_the_right(secured: SecuredBroker) -> None:
    plant = worker(secured)
    await TopicsPlant.create(as_root(plant, secured))
    client = Client.of(plant.rest, plant.options, plant.context, "source.url")
    state = SourceState(client, plant.options, plant.group, SystemClock())
    where = f"kafka {plant.bootstrap}: not allowed of user worker: grant "

    unseen = ClaimsTopic(state, lambda: None)
    with pytest.raises(SourceError) as caught:
        await unseen.catch_up()
    assert str(caught.value) == f"{where}READ and DESCRIBE on topic {plant.claims}"
    await unseen.close()

    for right in (READ, DESCRIBE):
        await secured.grant(TOPIC, plant.claims, right)
    await secured.grant(TOPIC, f"{plant.name}.alerts", WRITE)  # a producer needs this right on any topic
    has_news = asyncio.Event()
    readable = ClaimsTopic(state, has_news.set)
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await readable.catch_up()
                break
            except SourceError:  # the right has not reached the broker yet
                await asyncio.sleep(0.1)
        readable.write([Claim("a", "in-0")])
        await has_news.wait()
    with pytest.raises(OutputError) as refused:
        readable.take()
    assert str(refused.value) == f"{where}WRITE and DESCRIBE on topic {plant.claims}"
    await readable.close()
