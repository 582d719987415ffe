"""Options of all MQTT clients, and what the URL says: host, port and topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from streamad.errors import ConfigError, Problem
from streamad.plugins import ConnectorContext
from streamad.settings.fields import Duration, Secret, Size
from streamad_connectors.kafka.client.credentials import Credentials
from streamad_connectors.kafka.client.security import Security

_HOST = re.compile(r"([^\s/:@,\[\]]+|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?")
_WEEK = 7 * 86_400_000_000


class MqttSecurity(BaseModel):
    """Login and certificates, in the words of Kafka's option; ``mqtts://`` encrypts."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    username: str | None = Field(default=None, description="the user")
    password: Secret | None = Field(default=None, description="{env: NAME} or {file: PATH}")
    ca_file: Path | None = Field(default=None, description="PEM file of trusted authorities; default: the system's")
    cert_file: Path | None = Field(default=None, description="PEM file of our own certificate (mutual TLS)")
    key_file: Path | None = Field(default=None, description="PEM file of its key")
    key_password: Secret | None = Field(default=None, description="the key's password: {env: NAME} or {file: PATH}")
    check_hostname: bool = Field(default=True, description="refuse a broker whose certificate is for another host")


class MqttOptions(BaseModel):
    """Options of every MQTT client."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    security: MqttSecurity = Field(default_factory=MqttSecurity, description="login and certificates")
    client_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=65_535,
        description="name of the session that the broker keeps; default: of the plant, the topics and the place",
    )
    connect_timeout: Duration = Field(default=10_000_000, ge=100_000, description="longest wait for an answer")
    keep_alive: Duration = Field(
        default=30_000_000, ge=1_000_000, le=65_535_000_000, description="a broker that is silent for so long is gone"
    )
    receive_maximum: int = Field(
        default=1_000, ge=1, le=65_535, description="most messages in flight: received and not acknowledged"
    )
    max_packet_size: Size = Field(
        default=1_100_000,
        ge=1_000,
        le=268_435_455,
        description="larger packets are dropped by the broker (MQTT 5, 3.1.2.11)",
    )


class MqttInletOptions(MqttOptions):
    """Options of the bridge's side that reads."""

    topics: tuple[str, ...] = Field(default=(), description="further topics, as the URL has one")
    session_expiry: Duration = Field(
        default=_WEEK, ge=1_000_000, description="how long the broker keeps what comes while the bridge is away"
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A broker with the topic of the URL ("": none)."""

    host: str
    port: int
    topic: str

    @classmethod
    def of(cls, rest: str, *, encrypts: bool) -> Place:
        """Read the URL's ``rest``. Raises ConfigError."""
        address, _, topic = rest.partition("/")
        match = _HOST.fullmatch(address)
        scheme = "mqtts" if encrypts else "mqtt"
        if "@" in address:
            raise _problem("the URL holds an '@': the user goes into security.username, the password beside it")
        if match is None or int(match[2] or 1) not in range(1, 65_536):
            raise _problem(f"{address!r} is no broker: write {scheme}://HOST:PORT/TOPIC")
        return cls(match[1].strip("[]"), int(match[2] or (8883 if encrypts else 1883)), topic)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _problem(text: str) -> ConfigError:
    return ConfigError([Problem("url", text)])


def credentials_of(security: MqttSecurity, base_dir: Path, *, encrypts: bool) -> Credentials:
    """Return what reads the secrets and certificates of ``security``. Raises ConfigError."""
    given = {name for name, value in security.model_dump().items() if value is not None} - {"check_hostname"}
    problems = []
    if "password" in given and "username" not in given:
        problems.append("password without username")
    if ("cert_file" in given) != ("key_file" in given):
        problems.append("cert_file and key_file go together")
    if "key_password" in given and "key_file" not in given:
        problems.append("key_password without key_file")
    tls = sorted(given & {"ca_file", "cert_file", "key_file", "key_password"})
    if tls and not encrypts:
        problems.append(f"{', '.join(tls)} without encryption: write mqtts:// in place of mqtt://")
    if problems:
        raise ConfigError([Problem("security", text) for text in problems])
    # In Kafka's words, whose checks are done above: its login is SASL, MQTT's is not.
    fields = {name: getattr(security, name) for name in MqttSecurity.model_fields}
    whole = Security.model_construct(protocol="ssl" if encrypts else "plaintext", **fields)
    return Credentials(whole, base_dir)


def client_id_of(options: MqttOptions, context: ConnectorContext, *parts: str) -> str:
    """Return the stable name of the session; another plant, topic or place has another one.

    23 characters at most, of letters and digits: every broker takes those (MQTT 5, section 3.1.3.1).
    """
    if options.client_id is not None:
        return options.client_id
    digest = sha256("\0".join((context.plant, *parts)).encode()).hexdigest()
    return f"streamad{digest[:15]}"
