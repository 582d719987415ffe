"""The section ``notify`` of the config: who is told of alerts, by ``streamad notify``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from streamad.errors import some_of
from streamad.plugins import secret_in
from streamad.settings.fields import ConfigSection, Duration, Name, SecretSource, Url

_DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000
_FIRST_PRINTABLE = 33


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
    """Its name in the log; its position is kept under it."""
    url: Annotated[str, AfterValidator(_web_address)] | None = None
    """Webhook: the address that gets JSON by POST."""
    secret: SecretSource | None = None
    """Webhook: what each notice is signed with (Standard Webhooks); base64, `whsec_` may precede it."""
    ca_file: Path | None = None
    """Webhook: certificates of the authorities that its address is checked with; null: the known ones."""
    apprise: SecretSource | None = None
    """Mail, Teams, Slack: the apprise URL, such as `mailtos://...`; it holds passwords."""
    picture: bool = True
    """Mail, Teams, Slack: attach a picture of the first alert of a notice, if its window is kept."""
    streams: tuple[str, ...] = ()
    """Patterns (`reactor-*`) of the streams whose alerts it gets; []: all."""
    models: tuple[str, ...] = ()
    """Patterns of the models whose alerts it gets; []: all."""
    max_p: float | None = Field(default=None, gt=0, le=1)
    """Largest p-value of the alerts it gets; null: all."""
    digest: Duration | None = Field(default=None, le=_DAY_US)
    """At most one notice in so much time, of all alerts since the last; null: 0 for a webhook, 1m for others."""
    quiet: Duration = Field(default=0, le=_DAY_US)
    """After a notice on a stream, its further alerts wait so long, and then come in one notice."""
    tries: int = Field(default=20, ge=1, le=1_000)
    """How often a notice is tried before it is given up; the pauses double from 1 s to 10 min."""
    start: Literal["latest", "earliest"] = "latest"
    """Where it begins the first time: with the next alert, or with all that are kept."""

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
    """Base address of the page, for the link to each sequence (`LINK/s/ID`); null: no link."""
    undelivered: Url | None = None
    """File or topic that gets an event for each notice that is given up; null: the log alone."""
    receivers: tuple[ReceiverSettings, ...] = ()
    """Who is told."""

    @field_validator("receivers")
    @classmethod
    def _names_differ(cls, receivers: tuple[ReceiverSettings, ...]) -> tuple[ReceiverSettings, ...]:
        counts = Counter(receiver.name for receiver in receivers)
        if twice := sorted(name for name in counts if counts[name] > 1):
            raise ValueError(f"receiver named twice: {some_of(twice)}")
        return receivers
