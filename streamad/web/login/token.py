"""The token that programs show instead of a password."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from streamad.errors import ConfigError, Problem
from streamad.settings.fields import SecretSource

KEY: Final = "web.auth.token.file"
_LEAST_CHARACTERS = 20


def token_of(path: Path) -> str:
    """Return the token that the file ``path`` holds. Raises ConfigError."""
    make = f"(umask 077; head -c 24 /dev/urandom | base64 >{path}) makes one"
    try:
        token = SecretSource(file=path).resolve().get_secret_value().strip()
    except ConfigError as error:
        raise ConfigError([Problem(KEY, f"{each.message}: {make}") for each in error.problems]) from None
    if len(token) < _LEAST_CHARACTERS:
        raise ConfigError([Problem(KEY, f"{path}: the token has less than {_LEAST_CHARACTERS} characters: {make}")])
    return token
