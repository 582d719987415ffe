"""What a user's URL and options for Kafka get: a client, or every problem at once; and never a secret shown."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from pydantic import ValidationError

from streamad.errors import ConfigError
from streamad.plugins import ConnectorContext, option_problems
from streamad.settings.fields import SecretSource
from streamad.system.clock import SystemClock
from streamad_connectors.kafka.client.options import (
    Client,
    ClientOptions,
    KafkaFeedOptions,
    KafkaSinkOptions,
    KafkaSourceOptions,
    KafkaSubscriptionOptions,
    group_of,
    is_topic_name,
    partition_name,
    place_of,
    progress_topic_of,
    transactional_id_of,
    with_source_defaults,
)

SECRET = "hunter2-is-secret"
OAUTH = {"protocol": "sasl_ssl", "mechanism": "oauthbearer"}
IAM = {"protocol": "sasl_ssl", "mechanism": "aws_msk_iam"}
LOGIN = {"protocol": "sasl_ssl", "mechanism": "scram-sha-512", "username": "plant", "password": {"env": "KAFKA_PW"}}


def context(url: str | None = None, **given: Any) -> ConnectorContext:
    return ConnectorContext((), SystemClock(), source_url=url, source_options=given.pop("options", {}), **given)


def problems(model: type[ClientOptions], options: Mapping[str, Any]) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(options)
    return {problem.path: problem.message for problem in option_problems(caught.value, model, "source.options")}


def place_problems(rest: str, options: ClientOptions, of: ConnectorContext | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        place_of(rest, options, of or context(), "source.url")
    assert {problem.path for problem in caught.value.problems} == {"source.url"}
    return [problem.message for problem in caught.value.problems]


def security_problem(**security: Any) -> str:
    return problems(KafkaSourceOptions, {"security": security})["source.options.security"]


# --- places ---


def test_a_url_names_brokers_and_topics() -> None:
    place = place_of("a:9092,b:9093/press,kiln", KafkaSourceOptions(), context())
    assert place.brokers == ("a:9092", "b:9093")
    assert place.topics == ("press", "kiln")
    assert place.topic == "press"


def test_an_ipv6_broker_stands_in_brackets() -> None:
    assert place_of("[::1]:9092/press", KafkaSinkOptions(), context()).brokers == ("[::1]:9092",)


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("broker/press", "broker 'broker' lacks its port: write for example broker:9092"),
        ("broker:/press", "broker 'broker:' lacks its port: write for example broker:9092"),
        ("broker:port/press", "broker 'broker:port' is no host:port: write for example broker:9092"),
        ("broker:65536/press", "broker 'broker:65536': a port is 1 to 65535"),
        ("broker:0/press", "broker 'broker:0': a port is 1 to 65535"),
        ("broker:9092", "kafka://broker:9092 names no topic: write kafka://host:port/topic"),
        ("broker:9092/", "kafka://broker:9092/ names no topic: write kafka://host:port/topic"),
        ("press", "kafka://press names no topic: write kafka://host:port/topic"),
        ("/press", "kafka:///press names no broker: write kafka://host:port/topic"),
        ("a:1/..", "no topic can be called '..': up to 249 of letters, digits, '.', '_' and '-'"),
        ("a:1/press/line", "no topic can be called 'press/line': up to 249 of letters, digits, '.', '_' and '-'"),
        ("a:1/press,press", "topic named twice: press"),
    ],
)
def test_a_problem_of_a_url_is_reported(rest: str, problem: str) -> None:
    assert place_problems(rest, KafkaSourceOptions()) == [problem]


def test_every_problem_of_a_url_is_reported_at_once() -> None:
    assert place_problems("a,b:x/ü,v w", KafkaSourceOptions()) == [
        "broker 'a' lacks its port: write for example broker:9092",
        "broker 'b:x' is no host:port: write for example broker:9092",
        "no topic can be called 'ü': up to 249 of letters, digits, '.', '_' and '-'",
        "no topic can be called 'v w': up to 249 of letters, digits, '.', '_' and '-'",
    ]


@pytest.mark.parametrize("options", [KafkaSinkOptions(), KafkaFeedOptions(), KafkaSubscriptionOptions()])
def test_only_a_source_takes_several_topics(options: ClientOptions) -> None:
    assert place_problems("a:1/alerts,events", options) == [
        "only a source takes several topics, here are 2: alerts, events"
    ]


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    (problem,) = place_problems(f"plant:{SECRET}@broker:9092/press", KafkaSourceOptions())
    assert SECRET not in problem
    assert "option security" in problem


@pytest.mark.parametrize(("name", "is_one"), [("a" * 249, True), ("a" * 250, False), ("", False), ("a.b_c-9", True)])
def test_topic_names_are_those_that_brokers_take(name: str, is_one: bool) -> None:
    assert is_topic_name(name) is is_one


def test_a_group_whose_progress_topic_would_have_too_long_a_name_is_refused() -> None:
    fits = KafkaSourceOptions(group="g" * (249 - len(".press.progress")))
    assert place_of("a:1/press", fits, context()).topic == "press"
    (problem,) = place_problems("a:1/press", KafkaSourceOptions(group=f"{fits.group}g"))
    assert problem.startswith("the name of its progress topic is too long, choose a shorter group: ")


def test_brokers_come_from_the_url_then_the_options_then_the_source() -> None:
    plant = context("kafka://plant:9092/press")
    given = KafkaSinkOptions(brokers="given:9092")
    assert place_of("url:9092/alerts", given, plant).brokers == ("url:9092",)
    assert place_of("/alerts", given, plant).brokers == ("given:9092",)
    assert place_of("/alerts", KafkaSinkOptions(), plant).brokers == ("plant:9092",)
    by_option = context("kafka:///press", options={"brokers": "a:1, b:2"})
    assert place_of("/alerts", KafkaSinkOptions(), by_option).brokers == ("a:1", "b:2")


@pytest.mark.parametrize("url", [None, "file:recordings", "recordings/*.csv"])
def test_a_sink_without_brokers_under_another_source_is_refused(url: str | None) -> None:
    hint = "write kafka://host:port/topic"
    hint += r" .*\(the plant's source is no Kafka either\)" if url is not None else "$"
    with pytest.raises(ConfigError, match=f"names no broker: {hint}"):
        place_of("/alerts", KafkaSinkOptions(), context(url), "sinks.alerts")


# --- what sinks share with the source ---


def test_a_sink_of_the_same_cluster_shares_what_it_leaves_unsaid() -> None:
    plant = context("kafka://a:1,b:2/press?request_timeout=3s", options={"security": LOGIN, "client_id": "line"})
    shared = with_source_defaults(KafkaSinkOptions(client_id="own", max_message_bytes=20_000), plant)
    assert shared.security.username == "plant"
    assert shared.request_timeout == 3_000_000
    assert (shared.client_id, shared.max_message_bytes) == ("own", 20_000)
    assert Client.of("b:2/alerts", KafkaSinkOptions(), plant).options.security.username == "plant"


def test_a_sink_of_another_cluster_shares_nothing() -> None:
    plant = context("kafka://a:1/press", options={"security": LOGIN})
    client = Client.of("c:3/alerts", KafkaSinkOptions(), plant)
    assert client.options == KafkaSinkOptions()
    assert not client.same_cluster(Client.of("a:1/press", KafkaSourceOptions(), plant))
    assert Client.of("/alerts", KafkaSinkOptions(), plant).same_cluster(Client.of("/press", KafkaSinkOptions(), plant))


def test_a_sink_leaves_it_to_the_source_to_complain_of_its_options() -> None:
    plant = context("kafka://a:1/press", options={"nonsense": 1})
    assert Client.of("/alerts", KafkaSinkOptions(), plant).place.brokers == ("a:1",)


def test_names_have_one_form() -> None:
    plant = context(plant="kiln-7")
    assert group_of(KafkaSourceOptions(), plant) == "streamad.kiln-7"
    assert group_of(KafkaSourceOptions(group="g"), plant) == "g"
    assert progress_topic_of("g", "press") == "g.press.progress"
    assert partition_name("press", 3) == "press-3"
    assert transactional_id_of("press", 3, "g") == "streamad:press:3:g"
    assert Client.of("a:1/t", KafkaSinkOptions(), plant).kwargs()["client_id"] == "streamad.kiln-7"


# --- options ---


def test_defaults_and_units() -> None:
    options = KafkaSourceOptions.model_validate({"session_timeout": "45s", "fetch_bytes": "2MB", "accept_gap": "true"})
    assert (options.session_timeout, options.heartbeat_interval) == (45_000_000, 1_000_000)
    assert (options.fetch_bytes, options.accept_gap) == (2_000_000, True)
    assert (options.start, options.group, options.instance) == ("earliest", None, None)


def test_heartbeats_must_come_three_times_in_a_session() -> None:
    assert KafkaSourceOptions(session_timeout="9s", heartbeat_interval="3s").heartbeat_interval == 3_000_000  # type: ignore[arg-type]
    found = problems(KafkaSourceOptions, {"session_timeout": "9s", "heartbeat_interval": "3001ms"})
    assert found == {"source.options": "heartbeat_interval must be at most a third of session_timeout"}


def test_several_wrong_options_are_reported_at_once() -> None:
    found = problems(
        KafkaSourceOptions,
        {
            "instance": "worker 1",
            "session_timeout": "999ms",
            "transaction_timeout": "2h",
            "grup": "g",
            "security": {"protocol": "sasl_ssl", "cert_file": "c.pem", "password": {"env": "X"}},
        },
    )
    assert set(found) == {
        f"source.options.{key}" for key in ("instance", "session_timeout", "transaction_timeout", "grup", "security")
    }
    assert found["source.options.grup"] == "unknown key 'grup'; did you mean 'group'?"
    assert found["source.options.security"] == (
        "cert_file and key_file go together; "
        "protocol sasl_ssl needs a mechanism: plain, scram-sha-256, scram-sha-512, oauthbearer or aws_msk_iam"
    )


@pytest.mark.parametrize(
    ("security", "problem"),
    [
        (
            {"mechanism": "plain", "username": "u", "password": {"env": "X"}},
            "mechanism, username, password without authentication: set protocol to sasl_ssl (or sasl_plaintext)",
        ),
        ({"protocol": "ssl", "username": "u"}, "username without authentication: set protocol to sasl_ssl"),
        ({"ca_file": "ca.pem"}, "ca_file without encryption: set protocol to ssl or sasl_ssl"),
        ({"protocol": "ssl", "cert_file": "c.pem"}, "cert_file and key_file go together"),
        ({"protocol": "ssl", "key_password": {"env": "X"}}, "key_password without key_file"),
        ({"protocol": "sasl_ssl", "mechanism": "plain", "username": "u"}, "mechanism plain needs password"),
        ({**LOGIN, "token": {"env": "X"}}, "token only with mechanism oauthbearer"),
        (OAUTH, "mechanism oauthbearer needs token_url, client_id, client_secret (or token alone)"),
        ({**OAUTH, "token_url": "https://id/t", "client_id": "c"}, "mechanism oauthbearer needs client_secret"),
        (
            {**OAUTH, "token": {"env": "X"}, "scope": "s"},
            "give either token or token_url, client_id and client_secret",
        ),
        ({**OAUTH, "token": {"env": "X"}, "username": "u"}, "username not with mechanism oauthbearer"),
        ({**OAUTH, "token": {"env": "X"}, "region": "eu-west-1"}, "region only with mechanism aws_msk_iam"),
        ({**LOGIN, "region": "eu-west-1"}, "region only with mechanism aws_msk_iam"),
        (IAM, "mechanism aws_msk_iam needs region, for example eu-central-1"),
        (
            {**IAM, "region": "eu-west-1", "password": {"env": "X"}},
            "password not with mechanism aws_msk_iam: AWS's own settings name the user",
        ),
        (
            {**IAM, "region": "eu-west-1", "protocol": "sasl_plaintext"},
            "mechanism aws_msk_iam needs protocol sasl_ssl: its ports speak TLS only",
        ),
        *(
            (
                {**OAUTH, "token_url": url, "client_id": "c", "client_secret": {"env": "X"}},
                "token_url must be https (http only on this machine): a client secret goes there",
            )
            for url in ("http://id.example/token", "file:///token", "id.example", "http://localhost.evil/t", "https://")
        ),
    ],
)
def test_security_that_does_not_fit_together_is_refused(security: dict[str, Any], problem: str) -> None:
    assert security_problem(**security) == problem


def test_a_secret_in_the_config_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValidationError) as caught:
        KafkaSourceOptions.model_validate({"security": {**LOGIN, "password": SECRET}})
    assert SECRET not in str(caught.value)
    (problem,) = option_problems(caught.value, KafkaSourceOptions, "source.options")
    assert problem.path == "source.options.security.password"
    assert problem.message == "a secret must not stand in the config: write {env: NAME} or {file: PATH}"


# --- clients ---


def takes(kind: Any) -> set[str]:
    return set(inspect.signature(kind.__init__).parameters)


@pytest.mark.parametrize("security", [{}, LOGIN, {**LOGIN, "mechanism": "plain", "protocol": "sasl_plaintext"}])
def test_every_client_of_aiokafka_takes_the_arguments(
    security: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PW", SECRET)
    client = Client.of("a:1,b:2/press", KafkaSourceOptions.model_validate({"security": security}), context())
    for kind in (AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient):
        assert set(client.kwargs()) <= takes(kind)
    assert set(client.consumer_kwargs()) <= takes(AIOKafkaConsumer)
    assert client.kwargs()["bootstrap_servers"] == ["a:1", "b:2"]
    assert client.kwargs()["request_timeout_ms"] == 10_000
    reading = client.consumer_kwargs()
    assert reading["isolation_level"] == "read_committed"
    assert (reading["enable_auto_commit"], reading["auto_offset_reset"]) == (False, "none")


def test_secrets_are_read_again_for_each_client_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n", encoding="utf-8")
    options = KafkaSourceOptions.model_validate({"security": {**LOGIN, "password": {"file": "password"}}})
    client = Client.of("a:1/press", options, context(base_dir=tmp_path))
    monkeypatch.chdir("/")  # a relative file means the config's folder
    arguments = client.kwargs()
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("plant", SECRET)
    assert (arguments["sasl_mechanism"], arguments["security_protocol"]) == ("SCRAM-SHA-512", "SASL_SSL")
    for shown in (repr(client), str(client.options), str(options.model_dump()), repr(pickle.dumps(client))):
        assert SECRET not in shown
    assert pickle.loads(pickle.dumps(client)) == client  # noqa: S301 - our own bytes
    (tmp_path / "password").write_text("another", encoding="utf-8")
    assert client.kwargs()["sasl_plain_password"] == "another"


@pytest.mark.parametrize(
    ("password", "problem"),
    [
        ({"env": "KAFKA_PW"}, "environment variable KAFKA_PW is not set"),
        ({"file": "nowhere"}, "cannot read a secret from {folder}/nowhere"),
        ({"file": "empty"}, "the secret in file {folder}/empty is empty"),
    ],
)
def test_a_secret_that_is_not_there_is_named_by_its_place(
    password: dict[str, str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_PW", raising=False)
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    options = KafkaSourceOptions.model_validate({"security": {**LOGIN, "password": password}})
    with pytest.raises(ConfigError) as caught:
        Client.of("a:1/press", options, context(base_dir=tmp_path)).kwargs()
    assert [found.message for found in caught.value.problems] == [problem.format(folder=tmp_path)]
    assert [found.path for found in caught.value.problems] == ["security.password"]


def test_a_secret_that_is_not_there_is_named_by_its_option_in_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PW", raising=False)
    security = {**LOGIN, "password": {"env": "KAFKA_PW"}}
    plant = context("kafka://a:1/press", options={"security": security})
    source = Client.of("a:1/press", KafkaSourceOptions.model_validate({"security": security}), plant, "source.url")
    sink = Client.of("/alerts", KafkaSinkOptions(), plant, "sinks")  # shares what the source says
    for client in (source, sink):
        with pytest.raises(ConfigError, match=r"source\.options\.security\.password: environment variable KAFKA_PW is"):
            client.kwargs()


def test_options_take_a_secret_source_made_by_a_program() -> None:
    security = {**LOGIN, "password": SecretSource(env="X")}
    assert KafkaSinkOptions.model_validate({"security": security}).security.password == SecretSource(env="X")


WITHOUT_ASSERTIONS = """
from streamad.system.clock import SystemClock
from streamad.errors import ConfigError
from streamad.plugins import ConnectorContext
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions
try:
    Client.of("a:1/press", KafkaSourceOptions(), ConnectorContext((), SystemClock()), "source.url")
except ConfigError as error:
    print(error)
"""


def test_without_python_s_assertions_there_is_no_client() -> None:
    for switches, said in (
        ([], ""),
        (["-O"], "1 problem\n  source.url: Kafka needs Python's assertions: run without python -O, and unset "),
    ):
        command = [sys.executable, *switches, "-c", WITHOUT_ASSERTIONS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (f"{said}PYTHONOPTIMIZE\n" if said else "")
