"""Types of config fields: names, URLs, durations (250ms, 30s, 10m), sizes (64MB), secrets."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    model_validator,
)

from streamad.errors import ConfigError, Problem
from streamad.objects.stores import SCHEMES
from streamad.plugins import secret_advice, secret_in
from streamad.safe_text import masked

NAME_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


_KEYS = {"url": "source.url", "recordings": "model.recordings"}
"""Keys of the config by the names of their fields; all other URLs are places that are written as ``sinks`` are."""


def _no_password(url: str, info: ValidationInfo) -> str:
    if (what := secret_in(url)) is not None:
        where = _KEYS.get(info.field_name or "", "sinks")
        raise ValueError(f"holds {what}: {secret_advice(url, where)}")
    return url


_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
URL_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|.*:/")
"""Matches what a person means as a URL where the config wants the path of a folder."""
Url = Annotated[str, AfterValidator(_no_password)]


def _registry_place(place: str) -> str:
    scheme = place.partition(":")[0]
    if ":/" not in place and scheme not in SCHEMES:
        return place
    parts = urlsplit(place)
    if scheme not in SCHEMES or not parts.netloc:
        raise ValueError(f"{masked(place)!r} is no folder and no place in an object store: write s3://BUCKET/PREFIX")
    is_account = scheme == "abfss" and ":" not in parts.netloc
    if parts.query or parts.fragment or ":" in parts.netloc or ("@" in parts.netloc and not is_account):
        raise ValueError("holds more than bucket and prefix: write those; credentials come from the environment")
    if not all(part.strip(".") for part in parts.path.rstrip("/").split("/")[1:]):
        raise ValueError(f"{place!r} has an empty part, or one of dots alone: write s3://BUCKET/PREFIX")
    return place.rstrip("/")


def _as_text(place: object) -> object:
    return str(place) if isinstance(place, Path) else place


def _local_folder(folder: Path) -> Path:
    if URL_LIKE.match(str(folder)):  # Path has made one slash of two
        raise ValueError(f"{str(folder)!r} is no folder: write the path of one on this machine")
    return folder


RegistryPlace = Annotated[str, BeforeValidator(_as_text), AfterValidator(_registry_place)]
"""The path of a folder, or the URL of a bucket with a prefix."""
LocalFolder = Annotated[Path, AfterValidator(_local_folder)]


class ConfigSection(BaseModel):
    """A section of the config: frozen, unknown keys refused, docstrings of fields are their descriptions."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _check_characters(cls, values: object) -> object:
        """Refuse texts that no path, message or checkpoint can hold."""
        for key, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, str) and _IMPOSSIBLE.search(value):
                raise ValueError(f"{key} holds a NUL character or half a character: write it without")
        return values


_DURATION_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_SIZE_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-zµμ]*)\s*")
_LONGEST_SECRET = 1 << 20  # bytes: a device never ends a line
_LIMIT = 2**63  # values are int64


def _quantity(value: object, units: dict[str, int], plain: int, what: str, example: str) -> int:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    unit = match.group(2).replace("µ", "u").replace("μ", "u") if match else ""
    factor = plain if not unit else units.get(unit, units.get(unit.upper() if plain == 1 else unit.lower(), 0))
    if match is None or not factor:
        raise ValueError(f"{value!r} is not a {what}: write {example}")
    quantity = Decimal(match.group(1)) * factor
    if quantity >= _LIMIT:
        raise ValueError(f"{text!r} is too large for a {what}")
    return round(quantity)


def parse_duration_us(value: object) -> int:
    """Return microseconds of "250ms", "30s", "10m", "24h", "7d"; a bare number means seconds. Raises ValueError."""
    return _quantity(value, _DURATION_US, 1_000_000, "duration", "for example 250ms, 30s, 10m or 24h")


def parse_size_bytes(value: object) -> int:
    """Return bytes of "64MB", "1GiB"; a bare number means bytes. Raises ValueError."""
    return _quantity(value, _SIZE_BYTES, 1, "size", "for example 500KB, 64MB or 1GiB")


Duration = Annotated[
    int,
    BeforeValidator(parse_duration_us),
    # A bare number would be read back as seconds.
    PlainSerializer("{}us".format, return_type=str, when_used="json"),
]
"""Microseconds, written as 250ms, 30s, 10m, 24h or a number of seconds."""

Size = Annotated[int, BeforeValidator(parse_size_bytes)]
"""Bytes, written as 500KB, 64MB, 1GiB or a number of bytes."""


class SecretSource(ConfigSection):
    """The source of a secret: an environment variable or a file, never the config itself."""

    env: str | None = None
    """Name of the environment variable that holds the secret."""
    file: Path | None = None
    """File whose first line is the secret."""

    @model_validator(mode="after")
    def _one_place(self) -> SecretSource:
        if (self.env is None) == (self.file is None):
            raise ValueError("name either env or file")
        return self

    def resolve(self) -> SecretStr:
        """Read the secret; raises ConfigError with the source, never the content."""
        if self.env is not None:
            if self.env not in os.environ:
                raise ConfigError([Problem("secret", f"environment variable {self.env} is not set")])
            return SecretStr(os.environ[self.env])
        assert self.file is not None
        try:
            with self.file.open("rb") as file:
                line = file.readline(_LONGEST_SECRET)
            if len(line) == _LONGEST_SECRET:
                raise ValueError("the line does not end")
            return SecretStr(line.decode("utf-8").splitlines()[0])
        except (OSError, IndexError, ValueError):
            # Without its cause: a decoding error holds the file's bytes.
            raise ConfigError([Problem("secret", f"cannot read a secret from {self.file}")]) from None


def _secret_place(value: Any) -> Any:
    if isinstance(value, (SecretSource, dict)) or value is None:
        return value
    raise ValueError("a secret must not stand in the config: write {env: NAME} or {file: PATH}")


Secret = Annotated[SecretSource, BeforeValidator(_secret_place)]
"""A secret, named by its place only."""


def secret_of(source: SecretSource, base_dir: Path, key: str) -> str:
    """Read a secret, of a file relative to ``base_dir``. Raises ConfigError naming ``key`` and the place."""
    if source.file is not None:
        source = SecretSource(file=base_dir / source.file)
    try:
        value = source.resolve().get_secret_value()
    except ConfigError as error:
        raise ConfigError([Problem(key, problem.message) for problem in error.problems]) from None
    if not value:
        place = f"environment variable {source.env}" if source.env is not None else f"file {source.file}"
        raise ConfigError([Problem(key, f"the secret in {place} is empty")])
    return value
