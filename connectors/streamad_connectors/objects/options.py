"""The options of recordings in object stores: those of files, and what a web server wants to know."""

from __future__ import annotations

from typing import Self
from urllib.parse import parse_qsl

from pydantic import Field, model_validator

from streamad.safe_text import is_secret_name
from streamad.settings.fields import SecretSource
from streamad_connectors.files.formats.options import FileOptions


class ObjectOptions(FileOptions):
    """Options for reading recordings from an object store: those of files that do not grow."""

    @model_validator(mode="after")
    def _check_finite(self) -> Self:
        if self.follow:
            raise ValueError("follow is for files of this machine; leave it out, and run again when more is there")
        if "links" in self.model_fields_set:
            raise ValueError("links is for files of this machine; leave it out")
        return self


class HttpOptions(ObjectOptions):
    """Options for reading a recording from a web server."""

    query: SecretSource | str = Field(
        "",
        description="what stands behind the ? of the URL; of a signed one {env: NAME} or {file: PATH}, as it is secret",
    )
    authorization: SecretSource | None = Field(
        None, description="the header Authorization, such as Bearer TOKEN, as {env: NAME} or {file: PATH}"
    )

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        if isinstance(self.query, str):
            secret = next((name for name, _ in parse_qsl(self.query) if is_secret_name(name)), None)
            if secret is not None:
                raise ValueError(f"query holds the secret {secret}: write query: {{env: NAME}}")
        return self
