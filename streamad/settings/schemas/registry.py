"""The section ``decode.registry``: where the schemas of framed messages are, and how to ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from streamad.plugins import secret_in
from streamad.settings.fields import ConfigSection, Duration, Secret

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_FIRST_PRINTABLE: Final = 33


def _base_url(url: str) -> str:
    if any(ord(character) < _FIRST_PRINTABLE for character in url):
        raise ValueError("a web address holds no spaces or line ends")
    if secret_in(url) is not None or "@" in url:
        raise ValueError("holds a login: write the address without it, and username and password: {env: NAME}")
    address = urlsplit(url)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise ValueError("write the registry's address, such as https://registry.plant.example:8081")
    if address.query or address.fragment:
        raise ValueError("is the registry's base address, without what follows ? or #")
    _ = address.port  # raises ValueError for none
    return url.rstrip("/")


class SchemaRegistrySettings(ConfigSection):
    """A Schema Registry (Confluent's REST interface) with the schemas of messages that a serializer has framed."""

    url: Annotated[str, AfterValidator(_base_url)]
    """Its base address; Apicurio: with `/apis/ccompat/v7`."""
    username: str | None = None
    """User (Confluent Cloud: the API key); null: none."""
    password: Secret | None = None
    """Its password: {env: NAME} or {file: PATH}."""
    token: Secret | None = None
    """Bearer token in place of user and password, read at every request: {env: NAME} or {file: PATH}."""
    ca_file: Path | None = None
    """PEM of authorities; null: the known ones."""
    cert_file: Path | None = None
    """PEM of our certificate (mutual TLS)."""
    key_file: Path | None = None
    """PEM file of its key, without a password."""
    plaintext: bool = False
    """Allow http:// to another machine: schemas, and a login, pass unencrypted."""
    timeout: Duration = Field(default=10_000_000, ge=100_000, le=300_000_000)
    """Longest wait for a whole answer."""
    give_up_after: Duration = Field(default=600_000_000, ge=1_000_000)
    """Without an answer for so long: exit."""

    @model_validator(mode="after")
    def _fits_together(self) -> SchemaRegistrySettings:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        if self.token is not None and self.username is not None:
            raise ValueError("give either token, or username and password")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file go together")
        address = urlsplit(self.url)
        if address.scheme == "https":
            return self
        if self.ca_file is not None or self.cert_file is not None:
            raise ValueError("ca_file and cert_file are for https: the url begins with http")
        if address.hostname not in _LOOPBACK and not self.plaintext:
            raise ValueError("http to another machine is not encrypted: write https, or plaintext: true")
        return self
