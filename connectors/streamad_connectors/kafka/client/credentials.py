"""Passwords, TLS contexts and OAUTHBEARER tokens, also those of AWS, read when they are needed."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from streamad.errors import ConfigError, Problem
from streamad.settings.fields import SecretSource, secret_of
from streamad_connectors.kafka.client.msk import SigningError, signed_token

if TYPE_CHECKING:
    from streamad_connectors.kafka.client.security import Security

_Answer = TypeVar("_Answer")

# RFC 6749, 5.2 (an error code that may be shown) and RFC 7628, 3.1 (the characters of a token).
_ERROR_CODE = re.compile(r"[a-z_]{1,60}")
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_MAX_ANSWER_BYTES = 1_000_000
_DEFAULT_LIFETIME_S = 300
_USED_LIFETIME = 0.8


class TokenError(KafkaError):  # type: ignore[misc]  # aiokafka ships no types
    """Raised when no token can be obtained; a KafkaError, so that aiokafka's background tasks retry."""

    retriable = True

    def __str__(self) -> str:
        return RuntimeError.__str__(self)  # KafkaError puts the class's name before the text


@dataclass(frozen=True)
class Credentials:
    """The secrets of ``security``, read on demand; relative files start at ``base_dir``, errors name ``path``."""

    security: Security
    base_dir: Path
    path: str = "security"

    def secret(self, option: str) -> str:
        """Read the secret of ``option``. Raises ConfigError naming option and place."""
        source = cast("SecretSource", getattr(self.security, option))
        return secret_of(source, self.base_dir, f"{self.path}.{option}")

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context of a broker connection. Raises ConfigError naming an unusable file."""
        security = self.security
        context = self._trusting(security.ca_file)
        context.check_hostname = security.check_hostname
        if security.cert_file is not None and security.key_file is not None:
            self._load_certificate(context, security.cert_file, security.key_file)
        return context

    def _trusting(self, ca_file: Path | None) -> ssl.SSLContext:
        if ca_file is None:
            return ssl.create_default_context()
        path = self.base_dir / ca_file
        try:
            return ssl.create_default_context(cafile=str(path))
        except (OSError, ValueError) as error:
            raise self._unusable("ca_file", path, error) from error

    def _load_certificate(self, context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
        cert, key = self.base_dir / cert_file, self.base_dir / key_file
        for name, path in (("cert_file", cert), ("key_file", key)):
            try:
                path.open("rb").close()
            except OSError as error:
                raise self._unusable(name, path, error) from error
        secret = self.secret("key_password") if self.security.key_password is not None else ""
        try:
            # A password is always given: without one OpenSSL would prompt on the terminal.
            context.load_cert_chain(str(cert), str(key), password=secret)
        except (OSError, ValueError) as error:
            hint = (
                "its key_password is wrong or missing"
                if _wants_password(error, key)
                else "is the key the certificate's?"
            )
            text = f"cannot use cert_file {cert} with key_file {key}: {hint}"
            raise ConfigError([Problem(self.path, text)]) from None

    def _unusable(self, name: str, path: Path, error: Exception) -> ConfigError:
        strerror = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
        text = f"{name} {path}: {strerror or 'holds no certificate in PEM form'}"
        return ConfigError([Problem(self.path, text)])

    def token_request(self) -> tuple[urllib.request.Request, urllib.request.OpenerDirector]:
        """Return the client-credentials request (RFC 6749, 4.4 and 2.3.1) and its opener, without redirects."""
        security = self.security
        assert security.token_url is not None
        assert security.client_id is not None
        assert security.client_secret is not None
        pair = f"{quote(security.client_id, safe='')}:{quote(self.secret('client_secret'), safe='')}"
        form = {"grant_type": "client_credentials", **({"scope": security.scope} if security.scope else {})}
        request = urllib.request.Request(
            security.token_url,
            data=urlencode(form).encode(),
            headers={
                "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if security.token_url.startswith("http:"):
            handlers.append(urllib.request.ProxyHandler({}))  # plain http stays on this machine: no proxy
        else:
            context = ssl.create_default_context()
            if security.ca_file is not None:
                context.load_verify_locations(str(self.base_dir / security.ca_file))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return request, urllib.request.build_opener(*handlers)


def _wants_password(error: Exception, key: Path) -> bool:
    # ValueError: the password is too long for OpenSSL.
    return isinstance(error, ValueError) or b"ENCRYPTED" in key.read_bytes()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would carry the client secret elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Token(NamedTuple):
    value: str
    use_until_s: float


class TokenSource(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka ships no types
    """Provides aiokafka with OAUTHBEARER tokens.

    A token in a file or variable is read every time (projected service-account tokens change), one of AWS signed every
    time. One from an OIDC endpoint (KIP-768) is fetched in a thread and used for 80 % of its life; ``timeout_s`` bounds
    the fetch.
    """

    def __init__(
        self, credentials: Credentials, timeout_s: float, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._monotonic_s = monotonic_s
        self._cached: _Token | None = None
        self._lock: asyncio.Lock | None = None
        self.trouble: str | None = None

    def __repr__(self) -> str:
        return "TokenSource()"

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenSource, (self._credentials, self._timeout_s)  # never the token

    async def token(self) -> str:
        """Return a token. Raises TokenError, without any secret in its text."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            try:
                token = await self._token()
            except (TokenError, ConfigError) as error:
                self.trouble = str(error).partition("\n  ")[2] or str(error)
                raise TokenError(self.trouble) from None
        self.trouble = None
        return token

    async def _token(self) -> str:
        security = self._credentials.security
        if security.token is not None:
            return _checked(await asyncio.to_thread(self._credentials.secret, "token"))
        if security.region is not None:
            return _checked(await self._in_thread(partial(_signed, security.region), "AWS"))
        if self._cached is None or self._monotonic_s() >= self._cached.use_until_s:
            asked_s = self._monotonic_s()
            value, lifetime_s = await self._in_thread(self._fetch, self._endpoint)
            self._cached = _Token(value, asked_s + _USED_LIFETIME * lifetime_s)
        return self._cached.value

    async def _in_thread(self, call: Callable[[], _Answer], whose: str) -> _Answer:
        try:
            # urllib's own time-out applies to each read, this one to the whole request.
            return await asyncio.wait_for(asyncio.to_thread(call), self._timeout_s)
        except TimeoutError:
            raise TokenError(f"{whose}: no answer within {self._timeout_s:g} s") from None

    @property
    def _endpoint(self) -> str:
        parts = urlsplit(self._credentials.security.token_url or "")
        return f"token endpoint {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _fetch(self) -> tuple[str, float]:
        try:
            request, opener = self._credentials.token_request()
            with opener.open(request, timeout=self._timeout_s) as answer:
                body = answer.read(_MAX_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                code = _error_code(error)
            raise TokenError(f"{self._endpoint} refused: HTTP {error.code}{code}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            text = getattr(reason, "strerror", None) or type(reason).__name__
            raise TokenError(f"{self._endpoint} cannot be reached: {text}") from None
        return self._parsed(body)

    def _parsed(self, body: bytes) -> tuple[str, float]:
        try:
            content = json.loads(body)
            token, lifetime_s = content["access_token"], content.get("expires_in", _DEFAULT_LIFETIME_S)
            if not isinstance(token, str):
                raise TypeError
            return _checked(token), float(lifetime_s)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise TokenError(f"{self._endpoint} answered without an access_token") from None


def _signed(region: str) -> str:
    try:
        return signed_token(region)
    except SigningError as error:
        raise TokenError(str(error)) from None


def _checked(token: str) -> str:
    # Other characters than those of RFC 6750 could break the SASL message.
    token = token.strip()
    if _TOKEN.fullmatch(token) is None:
        raise TokenError("the token is no bearer token (letters, digits and -._~+/= only)")
    return token


def _error_code(error: urllib.error.HTTPError) -> str:
    # RFC 6749, 5.2; the description is left out because some servers echo the request in it.
    try:
        code = json.loads(error.read(_MAX_ANSWER_BYTES)).get("error")
    except (OSError, ValueError, AttributeError):
        return ""
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
