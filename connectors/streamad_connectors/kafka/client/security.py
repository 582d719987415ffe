"""The option ``security``: encryption and authentication; secrets are named by their place only."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamad.settings.fields import Secret

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Security(BaseModel):
    """Encryption and authentication; secrets are read only when a client is created."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        default="plaintext",
        description="ssl encrypts, sasl_ssl also logs in; plaintext and sasl_plaintext do not encrypt",
    )
    mechanism: Literal["plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "aws_msk_iam"] | None = Field(
        default=None, description="with sasl_*: the kind of login"
    )
    username: str | None = Field(default=None, description="plain, scram: the user")
    password: Secret | None = Field(default=None, description="plain, scram: {env: NAME} or {file: PATH}")
    token: Secret | None = Field(default=None, description="oauthbearer: place of a token, read at every connection")
    token_url: str | None = Field(
        default=None, description="oauthbearer: OIDC token endpoint (client credentials, KIP-768)"
    )
    client_id: str | None = Field(default=None, description="oauthbearer with token_url: the OIDC client")
    client_secret: Secret | None = Field(
        default=None, description="oauthbearer with token_url: {env: NAME} or {file: PATH}"
    )
    scope: str | None = Field(default=None, description="oauthbearer with token_url: the requested scope")
    region: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]+(-[a-z0-9]+)+$",
        description="aws_msk_iam: the cluster's AWS region; the credentials are those of AWS's own tools",
    )
    ca_file: Path | None = Field(default=None, description="PEM file of trusted authorities; default: the system's")
    cert_file: Path | None = Field(default=None, description="PEM file of our own certificate (mutual TLS)")
    key_file: Path | None = Field(default=None, description="PEM file of its key")
    key_password: Secret | None = Field(default=None, description="the key's password: {env: NAME} or {file: PATH}")
    check_hostname: bool = Field(default=True, description="refuse a broker whose certificate is for another host")

    @model_validator(mode="after")
    def _fits_together(self) -> Security:
        problems = [*_tls_problems(self), *_sasl_problems(self)]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def encrypts(self) -> bool:
        """Whether the connection uses TLS."""
        return self.protocol in ("ssl", "sasl_ssl")

    @property
    def uses_tokens(self) -> bool:
        """Whether the broker's mechanism is OAUTHBEARER."""
        return self.mechanism in ("oauthbearer", "aws_msk_iam")


def _given(security: Security, *names: str) -> list[str]:
    return [name for name in names if getattr(security, name) is not None]


def _tls_problems(security: Security) -> list[str]:
    problems = []
    tls = _given(security, "cert_file", "key_file", "key_password")
    if security.token_url is None:  # a token endpoint may need ca_file
        tls = [*_given(security, "ca_file"), *tls]
    if tls and not security.encrypts:
        problems.append(f"{', '.join(tls)} without encryption: set protocol to ssl or sasl_ssl")
    if (security.cert_file is None) != (security.key_file is None):
        problems.append("cert_file and key_file go together")
    if security.key_password is not None and security.key_file is None:
        problems.append("key_password without key_file")
    return problems


def _sasl_problems(security: Security) -> list[str]:
    login = ("username", "password")
    oidc = ("token_url", "client_id", "client_secret")
    mechanism = security.mechanism
    if not security.protocol.startswith("sasl_"):
        given = _given(security, "mechanism", *login, "token", *oidc, "scope", "region")
        wanted = "sasl_ssl" if security.encrypts else "sasl_ssl (or sasl_plaintext)"
        return [f"{', '.join(given)} without authentication: set protocol to {wanted}"] if given else []
    if mechanism is None:
        return [
            f"protocol {security.protocol} needs a mechanism: plain, scram-sha-256, scram-sha-512, oauthbearer or "
            "aws_msk_iam"
        ]
    if mechanism == "aws_msk_iam":
        return _iam_problems(security, _given(security, *login, "token", *oidc, "scope"))
    foreign = ["region only with mechanism aws_msk_iam"] if security.region is not None else []
    if mechanism == "oauthbearer":
        return _oauth_problems(security, oidc, _given(security, *login)) + foreign
    missing = [name for name in login if getattr(security, name) is None]
    problems = [f"mechanism {mechanism} needs {' and '.join(missing)}"] if missing else []
    tokens = _given(security, "token", *oidc, "scope")
    return problems + ([f"{', '.join(tokens)} only with mechanism oauthbearer"] if tokens else []) + foreign


def _iam_problems(security: Security, foreign: list[str]) -> list[str]:
    problems = (
        [f"{', '.join(foreign)} not with mechanism aws_msk_iam: AWS's own settings name the user"] if foreign else []
    )
    if security.region is None:
        problems.append("mechanism aws_msk_iam needs region, for example eu-central-1")
    if not security.encrypts:
        problems.append("mechanism aws_msk_iam needs protocol sasl_ssl: its ports speak TLS only")
    return problems


def _oauth_problems(security: Security, oidc: tuple[str, ...], login: list[str]) -> list[str]:
    problems = [f"{', '.join(login)} not with mechanism oauthbearer"] if login else []
    given = _given(security, *oidc)
    if security.token is not None and (given or security.scope is not None):
        problems.append("give either token or token_url, client_id and client_secret")
    elif security.token is None and len(given) < len(oidc):
        missing = [name for name in oidc if name not in given]
        alternative = "" if given else " (or token alone)"
        problems.append(f"mechanism oauthbearer needs {', '.join(missing)}{alternative}")
    if security.token_url is not None and not _is_safe_url(security.token_url):
        problems.append("token_url must be https (http only on this machine): a client secret goes there")
    return problems


def _is_safe_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return (parts.scheme == "https" and bool(host)) or (parts.scheme == "http" and host in _LOOPBACK)
