"""Tokens for Amazon MSK: signed by AWS's own library with made-up credentials, by a stub where that cannot be had."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import logging
import os
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from streamad.errors import ConfigError
from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad_connectors.kafka.client.credentials import Credentials, TokenError, TokenSource
from streamad_connectors.kafka.client.errors import explain
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions
from streamad_connectors.kafka.client.security import Security
from tests.support.waiting import LIMIT_S

SECRET = "hunter2-is-secret"
SESSION = "session-is-secret"
IAM = {"protocol": "sasl_ssl", "mechanism": "aws_msk_iam", "region": "eu-central-1"}


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Credentials in variables, and none elsewhere: no files, no role of this machine."""
    for name in ("AWS_PROFILE", "AWS_CREDENTIAL_EXPIRATION", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": SESSION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def source(*, timeout_s: float = LIMIT_S) -> TokenSource:
    return TokenSource(Credentials(Security.model_validate(IAM), Path()), timeout_s)


def stub_signer(monkeypatch: pytest.MonkeyPatch, sign: Callable[[str], str]) -> None:
    """Put ``sign`` in the place of AWS's library."""

    class Provider:
        @staticmethod
        def generate_auth_token_from_credentials_provider(region: str, found: Any) -> tuple[str, int]:
            assert found.load().secret_key == SECRET
            return sign(region), 0

    module: Any = types.ModuleType("aws_msk_iam_sasl_signer")
    module.MSKAuthTokenProvider = Provider
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)


async def test_every_connection_gets_a_token_of_its_own_signed_beside_the_event_loop(aws: pytest.MonkeyPatch) -> None:
    threads = []

    def sign(region: str) -> str:
        threads.append(threading.current_thread())
        return f"{region}.{len(threads)}"

    stub_signer(aws, sign)
    tokens = source()
    assert [await tokens.token(), await tokens.token()] == ["eu-central-1.1", "eu-central-1.2"]
    assert threading.current_thread() not in threads


async def test_a_signer_that_hangs_is_given_up(aws: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def sign(region: str) -> str:
        goes_on.wait()
        return region

    stub_signer(aws, sign)
    try:
        with pytest.raises(TokenError, match=r"^AWS: no answer within 0.1 s$"):
            await source(timeout_s=0.1).token()
    finally:
        goes_on.set()


def signature_of(url: str) -> str:
    """Return what Signature Version 4 gives to ``url`` (AWS's reference: query parameters)."""
    parts = urlsplit(url)
    fields = {name: value for name, value in parse_qsl(parts.query) if name not in ("X-Amz-Signature", "User-Agent")}
    query = "&".join(f"{quote(name, safe='')}={quote(fields[name], safe='')}" for name in sorted(fields))
    nothing = hashlib.sha256(b"").hexdigest()
    request = f"GET\n{parts.path}\n{query}\nhost:{parts.netloc}\n\nhost\n{nothing}"
    scope = fields["X-Amz-Credential"].partition("/")[2]
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{fields['X-Amz-Date']}\n{scope}\n{digest}"
    return hmac.digest(key, text.encode(), "sha256").hex()


async def test_a_token_is_a_signed_request_to_connect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = source()
    token = await tokens.token()
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    fields = dict(parse_qsl(urlsplit(url).query))
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
    assert (fields["X-Amz-Expires"], fields["X-Amz-Security-Token"]) == ("900", SESSION)
    assert fields["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert fields["X-Amz-Credential"].endswith("/eu-central-1/kafka-cluster/aws4_request")
    assert fields["X-Amz-Signature"] == signature_of(url)
    for secret in (SECRET, SESSION, fields["X-Amz-Signature"], token):
        assert secret not in caplog.text + repr(tokens)


def write_profile(config: str) -> None:
    """Make the profile "plant" of these lines."""
    Path(os.environ["AWS_CONFIG_FILE"]).write_text(f"[profile plant]\n{config}\n", encoding="utf-8")


NONE = "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or give this machine a role"
EXPIRED = "the AWS credentials have expired: renew them (aws sso login, or the role's own source)"
UNUSABLE = "the AWS credentials cannot be loaded ({}): check AWS_PROFILE and the files in ~/.aws"
BY_PROFILE = {"AWS_PROFILE": "plant", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": "/nowhere"}


@pytest.mark.parametrize(
    ("variables", "config", "said"),
    [
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "", NONE),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "", NONE),
        ({"AWS_CREDENTIAL_EXPIRATION": "2020-01-01T00:00:00Z"}, "", EXPIRED),
        (
            BY_PROFILE,
            "sso_session = s\nsso_account_id = 1\nsso_role_name = r\n"
            "[sso-session s]\nsso_region = eu-central-1\nsso_start_url = https://example.com",
            EXPIRED,
        ),
        ({**BY_PROFILE, "AWS_PROFILE": "other"}, "", UNUSABLE.format("ProfileNotFound")),
        (
            BY_PROFILE,
            f"credential_process = {sys.executable} -c \"exit('{SECRET}')\"",
            UNUSABLE.format("CredentialRetrievalError"),
        ),
        (BY_PROFILE, "credential_process = /nowhere/to/be/found", UNUSABLE.format("FileNotFoundError")),
    ],
)
async def test_credentials_that_are_missing_or_expired_are_one_line_without_any_secret(
    aws: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variables: dict[str, str], config: str, said: str
) -> None:
    caplog.set_level(logging.DEBUG)
    write_profile(config)
    for name, value in variables.items():
        aws.setenv(name, value) if value else aws.delenv(name)
    tokens = source()
    with pytest.raises(TokenError) as caught:
        await tokens.token()
    assert str(caught.value) == tokens.trouble == said
    assert caught.value.__cause__ is None
    assert SECRET not in caplog.text
    assert explain(caught.value) == f"no token to log in with: {said}"


def test_without_the_extra_a_client_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    missing = {"aws_msk_iam_sasl_signer"}
    monkeypatch.setattr("streamad_connectors.kafka.client.msk.find_spec", lambda n: None if n in missing else find(n))
    options = KafkaSourceOptions.model_validate({"security": IAM})
    with pytest.raises(ConfigError) as caught:
        Client.of("a:1/t", options, ConnectorContext((), SystemClock()), "source.url")
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [
        (
            "source.options.security.mechanism",
            "aws_msk_iam needs the extra msk: pip install 'streamad-monitor[msk]'",
        )
    ]


def test_the_broker_is_asked_for_oauthbearer() -> None:
    arguments = Client.of(
        "a:1/t", KafkaSourceOptions.model_validate({"security": IAM}), ConnectorContext((), SystemClock())
    ).kwargs()
    assert arguments["sasl_mechanism"] == "OAUTHBEARER"
    assert isinstance(arguments["sasl_oauth_token_provider"], TokenSource)
