"""Asks a Schema Registry by Confluent's REST interface; what an answer means lies here, how long to wait elsewhere."""

from __future__ import annotations

import asyncio
import base64
import ssl
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from streamad.errors import ConfigError, Problem
from streamad.ingest.schemas.framing import SchemaKey
from streamad.ingest.schemas.registered import (
    MAX_REFERENCES,
    MAX_SCHEMA_CHARACTERS,
    RegisteredSchema,
    SchemaKind,
)
from streamad.safe_text import one_line, text_of, visible_name
from streamad.settings.fields import secret_of
from streamad.settings.schemas.registry import SchemaRegistrySettings

KEY: Final = "decode.registry"
_KINDS: Final[dict[str, SchemaKind]] = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}
# Of Confluent's error codes those for a subject, a version or a schema that it does not have; others of 404 are a wrong
# address.
_ABSENT: Final = frozenset({40401, 40402, 40403})
_MOST_ANSWER_BYTES: Final = 2 * MAX_SCHEMA_CHARACTERS
_DEEPEST: Final = 30
_SHOWN: Final = 120
_NOT_OFFERED: Final = frozenset({400, 404, 405, 406, 415, 422, 501})
_ACCEPTED: Final = "application/vnd.schemaregistry.v1+json, application/json"
_DIGEST_CHARACTERS: Final = 16
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class _NoAnswerError(Exception):
    """Base of what this module raises instead of an answer; its text is one line, without secrets."""


class RegistryAwayError(_NoAnswerError):
    """Raised when there is no answer, or none of a Schema Registry: it may come later."""


class NoSuchAddressError(RegistryAwayError):
    """Raised when an address is not there: the registry does not offer it, or nothing at this place is a registry."""


class LoginRefusedError(_NoAnswerError):
    """Raised when the registry refuses the login (401) or its rights (403)."""


class SchemaAbsentError(_NoAnswerError):
    """Raised when the registry does not have a schema, or one that it refers to, or when it has one of another kind."""


class Answer(NamedTuple):
    """A schema, and the digest of its text and of those that it refers to, as the registry has stored them."""

    schema: RegisteredSchema
    digest: str


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str = "AVRO"
    references: list[_Reference] | None = None


class _Error(msgspec.Struct):
    error_code: int


_schema, _error = msgspec.json.Decoder(_Schema), msgspec.json.Decoder(_Error)


class SchemaRegistry:
    """A registry at one address; files of secrets and certificates are relative to ``base_dir``.

    Secrets are read at every request, so that one that was changed is used. Raises ConfigError for those that cannot be
    read now.
    """

    def __init__(self, settings: SchemaRegistrySettings, base_dir: Path) -> None:
        self.place = settings.url
        self._settings = settings
        self._base_dir = base_dir
        self._timeout_s = settings.timeout / 1e6
        self._authorization()
        is_encrypted = urlsplit(settings.url).scheme == "https"
        tls = _tls(settings, base_dir) if is_encrypted else False
        try:
            self._client = httpx2.AsyncClient(
                follow_redirects=False,
                timeout=self._timeout_s,
                verify=tls,
                trust_env=is_encrypted,  # no proxy for what is not encrypted
            )
        except (httpx2.InvalidURL, ImportError, ValueError):  # whose texts may hold the proxy's login
            text = "the environment's proxy cannot be used: look at https_proxy and all_proxy"
            raise ConfigError([Problem(f"{KEY}.url", text)]) from None

    async def schema(self, schema: SchemaKey) -> Answer:
        """Return the schema of an id or a GUID. Raises RegistryAwayError, LoginRefusedError, SchemaAbsentError."""
        path, what = (f"/schemas/{'ids' if isinstance(schema, int) else 'guids'}/{schema}"), f"schema {schema}"
        try:
            return await _Gathering(self, what).schema(path, _DEEPEST)
        except NoSuchAddressError:
            await self.check()  # it is a registry, which may not know GUIDs, or takes no such id
        try:
            return await _Gathering(self, what).schema(path, _DEEPEST)
        except NoSuchAddressError:
            raise SchemaAbsentError(f"{self.place} answers, but has no address for {what}") from None

    async def check(self) -> None:
        """Ask for what every registry has. Raises RegistryAwayError, LoginRefusedError."""
        content = await self.get("/schemas/types", "the kinds of schemas")
        try:
            msgspec.json.decode(content, type=list[str])
        except _UNREADABLE:
            raise RegistryAwayError(f"{self.place} is no Schema Registry: is decode.registry.url right?") from None

    async def get(self, path: str, what: str) -> bytes:
        """Return an answer's content. Raises RegistryAwayError, LoginRefusedError, SchemaAbsentError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = {"accept": _ACCEPTED, "accept-encoding": "identity"}
                authorization = self._authorization()
                if authorization is not None:
                    headers["authorization"] = authorization
                async with self._client.stream("GET", self.place + path, headers=headers) as answer:
                    return self._judged(answer, await _content(answer), what)
        except (TimeoutError, httpx2.TimeoutException):
            raise RegistryAwayError(f"{self.place} has not answered within {self._timeout_s:g} s") from None
        except ConfigError as error:
            raise RegistryAwayError("; ".join(problem.message for problem in error.problems)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            why = visible_name(one_line(text_of(error)))[:_SHOWN]
            raise RegistryAwayError(f"{self.place} cannot be reached: {why or type(error).__name__}") from None
        finally:
            self._client.cookies.clear()

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        await self._client.aclose()

    def _judged(self, answer: httpx2.Response, content: bytes, what: str) -> bytes:
        status = answer.status_code
        if status == HTTPStatus.OK:
            return content
        said = f"{self.place} answered {status} {_phrase(status)}".rstrip()
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise LoginRefusedError(f"{said}: look at the login in decode.registry, and at its rights")
        if status == HTTPStatus.NOT_FOUND and _error_code(content) in _ABSENT:
            raise SchemaAbsentError(f"{self.place} does not have {what}: register it, or correct decode.registry.url")
        if status in _NOT_OFFERED:
            raise NoSuchAddressError(f"{said} for {what}, not as a Schema Registry does: is decode.registry.url right?")
        if answer.has_redirect_location:
            raise RegistryAwayError(f"{said}, a redirect, which is not followed: write the final address")
        raise RegistryAwayError(f"{said} for {what}")

    def _authorization(self) -> str | None:
        settings = self._settings
        if settings.token is not None:
            token = secret_of(settings.token, self._base_dir, f"{KEY}.token").strip()
            if not (token.isascii() and token.isprintable()):  # the client's own error would show it
                raise ConfigError([Problem(f"{KEY}.token", "must be one line of ASCII characters")])
            return f"Bearer {token}"
        if settings.username is None or settings.password is None:
            return None
        pair = f"{settings.username}:{secret_of(settings.password, self._base_dir, f'{KEY}.password')}"
        return "Basic " + base64.b64encode(pair.encode(errors="surrogateescape")).decode()


class _Gathering:
    """One schema and all that it refers to."""

    def __init__(self, registry: SchemaRegistry, what: str) -> None:
        self._registry = registry
        self._what = what
        self._found: dict[str, Answer] = {}
        self._open: set[str] = set()  # asked for, some of them gathered in full by now
        self._n_bytes = 0

    async def schema(self, path: str, depth: int) -> Answer:
        """Return the schema at ``path``."""
        if path in self._found:
            return self._found[path]
        if path in self._open or depth == 0 or len(self._found) > MAX_REFERENCES:
            raise SchemaAbsentError(f"{self._what} of {self._registry.place} refers to too many others, or to itself")
        self._open.add(path)
        content = await self._get(path)
        try:
            found = _schema.decode(content)
        except _UNREADABLE:
            place = self._registry.place
            raise RegistryAwayError(f"{place} gave no schema for {self._what}: is decode.registry.url right?") from None
        kind = _KINDS.get(found.schema_type)
        if kind is None:
            shown = visible_name(found.schema_type)[:_SHOWN]
            raise SchemaAbsentError(f"{self._what} of {self._registry.place} is of the kind {shown}, which is not read")
        references, digests = [], []
        for reference in (found.references or ()) if kind != "json" else ():  # JSON is read without its schema
            version = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}?deleted=true"
            answer = await self.schema(version, depth - 1)
            references.append((reference.name, answer.schema))
            digests += [reference.name, answer.digest]
        text = found.schema if kind != "protobuf" else await self._serialized(path, found.schema)
        digest = sha256("\0".join([kind, found.schema, *digests]).encode("utf-8", "surrogatepass")).hexdigest()
        answer = Answer(RegisteredSchema(kind, text, tuple(references)), digest[:_DIGEST_CHARACTERS])
        self._found[path] = answer
        return answer

    async def _serialized(self, path: str, text: str) -> str:
        """Return a Protobuf schema as its registry has compiled it; as text if the registry does not do that."""
        mark = "&" if "?" in path else "?"
        try:
            return _schema.decode(await self._get(f"{path}{mark}format=serialized")).schema
        except (NoSuchAddressError, SchemaAbsentError, *_UNREADABLE):
            return text

    async def _get(self, path: str) -> bytes:
        content = await self._registry.get(path, self._what)
        self._n_bytes += len(content)
        if self._n_bytes > _MOST_ANSWER_BYTES:
            raise SchemaAbsentError(f"{self._what} of {self._registry.place} is too long, with what it refers to")
        return content


async def _content(answer: httpx2.Response) -> bytes:
    """Return the answer's content. Raises RegistryAwayError for an endless one."""
    content = bytearray()
    async for piece in answer.aiter_raw():
        content += piece
        if len(content) > _MOST_ANSWER_BYTES:
            raise RegistryAwayError(f"an answer of more than {_MOST_ANSWER_BYTES} bytes")
    return bytes(content)


def _tls(settings: SchemaRegistrySettings, base_dir: Path) -> ssl.SSLContext:
    ca_file = None if settings.ca_file is None else base_dir / settings.ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError([_unusable("ca_file", ca_file, error)]) from None
    if settings.cert_file is not None and settings.key_file is not None:
        cert, key = base_dir / settings.cert_file, base_dir / settings.key_file
        try:
            context.load_cert_chain(cert, key, password="")
        except (OSError, ValueError) as error:
            raise ConfigError([_unusable("cert_file", cert, error)]) from None
    return context


def _unusable(name: str, path: Path | None, error: Exception) -> Problem:
    why = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    return Problem(f"{KEY}.{name}", f"cannot use {path} ({why or 'PEM, and a key without a password, are needed'})")


def _error_code(content: bytes) -> int | None:
    try:
        return _error.decode(content).error_code
    except _UNREADABLE:
        return None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
