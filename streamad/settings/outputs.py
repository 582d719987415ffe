"""The config's sections on outputs: messages, the page, metrics and notices."""

from __future__ import annotations

import ipaddress
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from streamad.errors import some_of
from streamad.messages import Window
from streamad.messages.accepting import MOST_BYTES
from streamad.plugins import secret_in
from streamad.settings.fields import ConfigSection, Duration, Name, SecretSource, Size, Url

DEFAULT_PORT = 9464
Level = Literal["viewer", "operator", "engineer"]
LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
_DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000
_FIRST_PRINTABLE = 33
_BYTES_A_POINT = 12
"""A value and a reading of a course in base64, and two bits: 11 bytes, and some for all else."""


class EarlySettings(ConfigSection):
    """Warnings while a sequence runs: looks at fixed ages, judged together at a rate of their own."""

    false_alarm_rate: float = Field(default=0.01, gt=0, lt=1)
    """A normal sequence is ever warned of with at most this probability."""
    looks: Annotated[int, Field(ge=1, le=50)] | Annotated[tuple[Duration, ...], Field(min_length=1, max_length=50)] = 10
    """How many looks, up to the usual length; or their ages (`[30m, 1h]`, with `window.resample`)."""

    def contradiction(self, resample: object) -> str | None:
        """Return why the ages cannot be used without a grid (``resample`` None), or at all; None if they can."""
        if isinstance(self.looks, int):
            return None
        if resample is None:
            return "early.looks names times, which need a grid: set window.resample, or give the number of looks"
        if list(self.looks) != sorted(set(self.looks)) or self.looks[0] <= 0:
            return "early.looks must rise from above 0: write for example [30m, 1h, 2h]"
        return None

    def beyond_learning(self, n_channels: int, length: int) -> str | None:
        """Return why a learner could not read windows of so many points with what looks saw; None if it can."""
        n_bytes, most = n_channels * length * _BYTES_A_POINT, MOST_BYTES[Window]
        if n_bytes <= most:
            return None
        return (
            f"alerts.early: windows of {n_channels} channels x {length} points, with what looks saw, take up to "
            f"{n_bytes >> 20} MiB, a learner reads {most >> 20}: lower window.length, or leave alerts.early out"
        )


class AlertSettings(ConfigSection):
    """When a sequence is an alert."""

    false_alarm_rate: float = Field(default=0.02, gt=0, lt=1)
    """Alert if the conformal p-value is at most this."""
    early: EarlySettings | None = None
    """Warnings while sequences run; null: none. `init` writes it where they take ten minutes."""


class SinkSettings(ConfigSection):
    """Where messages go, one URL per role; a missing role is not written."""

    alerts: Url = "stdout:"
    """Alerts (and, without a verdicts sink, unscorable verdicts)."""
    warnings: Url | None = None
    """Warnings of running sequences (`alerts.early`); null: they go to the alerts."""
    attributions: Url | None = None
    """The attribution of each alert."""
    verdicts: Url | None = None
    """The verdict of every sequence."""
    windows: Url | None = None
    """Judged windows to look at (`display.windows`); with `learning` of every scored sequence, then by default in
    STORE.windows.jsonl or the topic GROUP.windows."""
    dead_letters: Url | None = None
    """Unreadable records."""
    late: Url | None = None
    """Late samples."""
    events: Url | None = None
    """Events for the operator."""
    status: Url | None = None
    """Status of each worker: a topic, or a folder."""
    decisions: Url | None = None
    """Who decided what about models, config and marks (`streamad audit`); a file has one of people beside it."""
    options: dict[str, dict[str, Any]] = Field(default={})
    """Options of connectors by scheme (`kafka: {...}`)."""


class DisplaySettings(ConfigSection):
    """What is kept for people to look at."""

    windows: Literal["alerts", "all"] = "alerts"
    """Windows of alerts and 5 % of the others, or of `all`."""
    status_interval: Duration = Field(default=10_000_000, ge=1_000_000, le=3_600_000_000)
    """How often a worker writes its status."""
    open: bool = False
    """Write open sequences' readings so far with the status."""


def _network(text: str) -> str:
    ipaddress.ip_network(text)
    return text


class TokenSettings(ConfigSection):
    """A token for programs, sent as `Authorization: Bearer TOKEN`."""

    file: Path
    """File whose first line is the token."""
    level: Level = "viewer"
    """viewer: reads; operator: judges alerts, too; engineer: acts on models, too."""
    name: str = Field(default="token", min_length=1, max_length=80)
    """The name that marks made with it bear."""


class ProxySettings(ConfigSection):
    """A proxy that authenticates people (oauth2-proxy, Authelia) and names them in headers."""

    user_header: str = "X-Forwarded-User"
    """Header with the user's name."""
    groups_header: str = "X-Forwarded-Groups"
    """Header with the user's groups, separated by commas."""
    trusted: tuple[Annotated[str, AfterValidator(_network)], ...] = Field(min_length=1)
    """Addresses of the proxies (CIDR); requests from others are refused."""
    operators: tuple[str, ...] = ()
    """Groups that may judge alerts."""
    engineers: tuple[str, ...] = ()
    """Groups that may also act on models."""


class TlsSettings(ConfigSection):
    """What the page needs to serve https by itself."""

    certificate_file: Path
    """Certificate with its issuers' (PEM)."""
    key_file: Path
    """Its key, without a password (PEM)."""


class AuthSettings(ConfigSection):
    """Who may open the page."""

    users: Path | None = None
    """File of those who log in; null: the printed link."""
    idle: Duration = Field(default=43_200_000_000, ge=60_000_000)
    """Unused for so long, a session ends."""
    session: Duration = Field(default=604_800_000_000, ge=60_000_000)
    """The longest session."""

    token: TokenSettings | None = None
    """A token for programs; null: none."""
    proxy: ProxySettings | None = None
    """A proxy that names the users; null: whoever has the printed link."""

    @model_validator(mode="after")
    def _one_way(self) -> AuthSettings:
        if self.users is not None and self.proxy is not None:
            raise ValueError("people log in at the proxy or with a password: leave out either proxy or users")
        return self


class WebSettings(ConfigSection):
    """The page that `streamad web` serves."""

    host: str = "127.0.0.1"
    """Address to listen at; another than this machine's needs `web.auth.users` or `web.auth.proxy`."""
    port: int = Field(default=8484, ge=0, le=65_535)
    """Port to listen at; 0: any free one."""
    hosts: tuple[str, ...] = ()
    """More names of the page."""
    view: Path = Path("view.sqlite3")
    """File of its view of the outputs."""
    keep: Duration = 90 * 86_400_000_000
    """How long the view keeps a sequence."""
    max_bytes: Size = 5_000_000_000
    """Largest size of the view; windows of sequences without an alert go first."""
    max_browsers: int = Field(default=100, ge=1, le=10_000)
    """Pages open at a time."""
    language: Literal["auto", "en", "de"] = "auto"
    """`auto`: as the browser prefers; `en`, `de`."""
    allow: Literal["judging", "models"] = "judging"
    """`judging` of alerts, or also acts on models (`models`)."""
    tls: TlsSettings | None = None
    """Certificate and key, to serve https; null: http."""
    auth: AuthSettings = AuthSettings()
    """Who may open the page."""

    @model_validator(mode="after")
    def _closed(self) -> WebSettings:
        if self.host not in LOCAL_HOSTS and self.auth.proxy is None and self.auth.users is None:
            raise ValueError(
                f"host {self.host} lets other machines in: set web.auth.users (people log in with a password) or "
                "web.auth.proxy (a proxy that authenticates them), or leave host out and reach the page through an SSH "
                "tunnel"
            )
        return self


def _listened(listen: str | None) -> str | None:
    if listen is not None:
        split_address(listen)
    return listen


def _as_text(listen: object) -> object:
    return listen if listen is None else str(listen)  # YAML reads a port alone as a number


Listen = Annotated[str | None, BeforeValidator(_as_text), AfterValidator(_listened)]
"""An address with its port, or null."""


class MetricsSettings(ConfigSection):
    """Metrics for Prometheus, and whether the worker is alive and ready."""

    listen: Listen = None
    """Address of /metrics, /livez and /readyz, such as 127.0.0.1:9464; null: off. It has no access control."""


class BridgeSettings(ConfigSection):
    """What `streamad bridge` reads."""

    url: Url
    """Broker and topic: mqtts://HOST/plant/{stream}/{channel}; + and # are MQTT's wildcards."""
    options: dict[str, Any] = Field(default={})
    """The connector's options (docs/guide/mqtt.md)."""
    to: Url | None = None
    """Topic or `.jsonl` file that it writes; null: what `source.url` reads."""
    listen: Listen = None
    """Address of the bridge's own metrics."""


def split_address(listen: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; IPv6 addresses stand in brackets. Raises ValueError."""
    host, colon, port = listen.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        ipaddress.IPv6Address(host)
    elif ":" in host:
        raise ValueError(f"{listen!r}: write an IPv6 address in brackets and quotes, such as '[::1]:{DEFAULT_PORT}'")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ValueError(f"{listen!r} is no address with a port: write such as 127.0.0.1:{DEFAULT_PORT}")
    return host, int(port)


def _address(url: str) -> SplitResult:
    if any(ord(character) < _FIRST_PRINTABLE for character in url):
        raise ValueError("a web address holds no spaces or line ends")
    if secret_in(url) is not None or "@" in url.partition("?")[0]:
        raise ValueError("holds a password or a token: write the address without it (`secret` signs each notice)")
    address = urlsplit(url)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise ValueError("write a web address that begins with https:// or http:// and a host")
    _ = address.port  # raises ValueError for none
    return address


def _web_address(url: str) -> str:
    _address(url)
    return url


def _base_address(url: str) -> str:
    address = _address(url)
    if address.query or address.fragment:
        raise ValueError("is the page's base address, without what follows ? or #")
    return url.rstrip("/")


class ReceiverSettings(ConfigSection):
    """Who is told of alerts, of which, and how often."""

    name: Name
    """Its name, also of its position."""
    url: Annotated[str, AfterValidator(_web_address)] | None = None
    """Webhook: the address that gets JSON by POST."""
    secret: SecretSource | None = None
    """Webhook: what each notice is signed with (Standard Webhooks); base64, `whsec_` may precede it."""
    ca_file: Path | None = None
    """Webhook: authorities to trust; null: the known ones."""
    apprise: SecretSource | None = None
    """Mail, Teams, Slack: the apprise URL, such as `mailtos://...`; it holds passwords."""
    on: tuple[Literal["alerts", "warnings"], ...] = Field(default=("alerts",), min_length=1)
    """What it is told of: `alerts`, `warnings`."""
    picture: bool = True
    """Mail, Teams, Slack: attach a picture."""
    streams: tuple[str, ...] = ()
    """Patterns (`reactor-*`) of streams; []: all."""
    models: tuple[str, ...] = ()
    """Patterns of models; []: all."""
    max_p: float | None = Field(default=None, gt=0, le=1)
    """Largest p-value of its alerts; null: all."""
    digest: Duration | None = Field(default=None, le=_DAY_US)
    """At most one notice in so much time; null: 0 for a webhook, 1m for others."""
    quiet: Duration = Field(default=0, le=_DAY_US)
    """After a notice on a stream, its further alerts wait so long."""
    tries: int = Field(default=20, ge=1, le=1_000)
    """How often a notice is tried, with doubling pauses."""
    start: Literal["latest", "earliest"] = "latest"
    """The first time: the next alert, or the earliest kept."""

    @model_validator(mode="after")
    def _one_way(self) -> ReceiverSettings:
        if (self.url is None) == (self.apprise is None):
            raise ValueError("name either url (a webhook) or apprise (mail, Teams, Slack)")
        if self.url is not None and self.secret is None:
            raise ValueError("a webhook needs a secret: the receiver knows by it that a notice comes from here")
        if self.apprise is not None and (self.secret is not None or self.ca_file is not None):
            raise ValueError("secret and ca_file are for a webhook: leave them out")
        if self.url is not None and "picture" in self.model_fields_set:
            raise ValueError("picture is for mail, Teams and Slack, a webhook gets none: leave it out")
        return self

    @property
    def digest_us(self) -> int:
        """Return the time between two notices; 0: every alert by itself."""
        if self.digest is None:
            return _MINUTE_US if self.apprise is not None else 0
        return self.digest


class NotifySettings(ConfigSection):
    """Who is told of alerts, by `streamad notify`."""

    link: Annotated[str, AfterValidator(_base_address)] | None = None
    """Base address of the page, for links; null: none."""
    undelivered: Url | None = None
    """File or topic of events for notices given up; null: the log."""
    receivers: tuple[ReceiverSettings, ...] = ()
    """Who is told."""

    @field_validator("receivers")
    @classmethod
    def _names_differ(cls, receivers: tuple[ReceiverSettings, ...]) -> tuple[ReceiverSettings, ...]:
        counts = Counter(receiver.name for receiver in receivers)
        if twice := sorted(name for name in counts if counts[name] > 1):
            raise ValueError(f"receiver named twice: {some_of(twice)}")
        return receivers
