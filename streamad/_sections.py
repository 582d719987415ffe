"""What every section of the config is made of: unknown keys are errors, names are plain, URLs hold no password."""

from __future__ import annotations

__all__ = ["NAME_PATTERN", "ConfigSection", "Name", "Url"]

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NAME_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
_PASSWORD_IN_URL = re.compile(r"//[^/?#@]*:[^/?#@]+@")


def _no_password(url: str) -> str:
    if _PASSWORD_IN_URL.search(url):
        raise ValueError("holds a password: secrets come from the environment or a file, never from the config")
    return url


Url = Annotated[str, AfterValidator(_no_password)]


class ConfigSection(BaseModel):
    """A section of the config: frozen, unknown keys refused, docstrings of fields are their descriptions."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
