"""The section ``web`` of the config: the page that ``streamad web`` serves."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from streamad.settings.fields import ConfigSection, Duration, Size

_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


def _network(text: str) -> str:
    ipaddress.ip_network(text)
    return text


Level = Literal["viewer", "operator", "engineer"]


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
    """Groups that may act on models, too (with `web.allow: models`)."""


class AuthSettings(ConfigSection):
    """Who may open the page."""

    token: TokenSettings | None = None
    """A token for programs; null: none."""
    proxy: ProxySettings | None = None
    """A proxy that names the users; null: whoever has the printed link."""


class WebSettings(ConfigSection):
    """The page that `streamad web` serves."""

    host: str = "127.0.0.1"
    """Address to listen at; another than this machine's needs `web.auth.proxy`."""
    port: int = Field(default=8484, ge=0, le=65_535)
    """Port to listen at; 0: any free one."""
    hosts: tuple[str, ...] = ()
    """Further names of the page in browsers, such as that of the proxy."""
    view: Path = Path("view.sqlite3")
    """File of the page's view of the outputs; if it is deleted, it is built again."""
    keep: Duration = 90 * 86_400_000_000
    """How long the view keeps a sequence, before the newest."""
    max_bytes: Size = 5_000_000_000
    """Largest size of the view; the oldest go first."""
    max_browsers: int = Field(default=100, ge=1, le=10_000)
    """Pages that are open at a time; further ones get a sentence."""
    allow: Literal["judging", "models"] = "judging"
    """What may be done on the page: judge alerts, or also promote, decline, roll back and relearn."""
    auth: AuthSettings = AuthSettings()
    """Who may open the page."""

    @model_validator(mode="after")
    def _closed(self) -> WebSettings:
        if self.host not in _LOCAL and self.auth.proxy is None:
            raise ValueError(
                f"host {self.host} lets other machines in: set web.auth.proxy (a proxy that authenticates people), or "
                "leave host out and reach the page through an SSH tunnel"
            )
        return self
