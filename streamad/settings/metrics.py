"""The section ``metrics`` of the config: what a worker tells about itself over HTTP."""

from __future__ import annotations

import ipaddress

from pydantic import Field, field_validator

from streamad.settings.fields import ConfigSection

DEFAULT_PORT = 9464


class MetricsSettings(ConfigSection):
    """Metrics for Prometheus, and whether the worker is alive and ready."""

    listen: str | None = Field(default=None)
    """Address of /metrics, /livez and /readyz, such as 127.0.0.1:9464; null: off. It has no access control."""

    @field_validator("listen", mode="before")
    @classmethod
    def _is_text(cls, listen: object) -> object:
        return listen if listen is None else str(listen)  # YAML reads a port alone as a number

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, listen: str | None) -> str | None:
        if listen is not None:
            split_address(listen)
        return listen


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
