"""TLS contexts against a real TLS server, tokens from files and from a real HTTP endpoint."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.server
import json
import pickle
import shutil
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import ConfigError
from streamad_connectors.kafka.client.credentials import Credentials, TokenError, TokenSource
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, Place
from streamad_connectors.kafka.client.security import Security
from tests.support.waiting import LIMIT_S

SECRET = "hunter2-is-secret"
PASSPHRASE = "open-sesame"


def security(**given: Any) -> Security:
    return Security.model_validate(given)


# --- TLS ---


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Own certificates for 127.0.0.1: cert.pem with key.pem and, encrypted, locked.pem; other.pem with other.key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificates")
    for cert, key in (("cert.pem", "key.pem"), ("other.pem", "other.key")):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*command, "-keyout", folder / key, "-out", folder / cert], check=True, capture_output=True)
    command = ["openssl", "pkcs8", "-topk8", "-in", folder / "key.pem", "-out", folder / "locked.pem"]
    subprocess.run([*command, "-passout", f"pass:{PASSPHRASE}"], check=True, capture_output=True)
    (folder / "nonsense.pem").write_text("no certificate", encoding="utf-8")
    (folder / "passphrase").write_text(PASSPHRASE, encoding="utf-8")
    return folder


async def handshake(folder: Path, client: ssl.SSLContext, host: str = "127.0.0.1") -> bool:
    """Connect to a server with cert.pem that asks for a client certificate; say whether it got one."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "cert.pem"))
    server.load_cert_chain(str(folder / "cert.pem"), str(folder / "key.pem"))
    server.verify_mode = ssl.CERT_OPTIONAL
    asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result(bool(writer.get_extra_info("peercert")))
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=host)
        has_certificate = await asked
        writer.close()
    return has_certificate


async def test_a_broker_with_a_trusted_certificate_is_accepted(certificates: Path) -> None:
    context = Credentials(security(protocol="ssl", ca_file="cert.pem"), certificates).tls()
    assert not await handshake(certificates, context)


@pytest.mark.parametrize("ca_file", [None, "other.pem"])
async def test_a_broker_with_another_certificate_is_refused(certificates: Path, ca_file: str | None) -> None:
    context = Credentials(security(protocol="ssl", ca_file=ca_file), certificates).tls()
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
        await handshake(certificates, context)


async def test_the_name_in_the_certificate_counts_unless_switched_off(certificates: Path) -> None:
    strict = Credentials(security(protocol="ssl", ca_file="cert.pem"), certificates).tls()
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere'"):
        await handshake(certificates, strict, "elsewhere")
    lax = Credentials(security(protocol="ssl", ca_file="cert.pem", check_hostname=False), certificates).tls()
    assert not await handshake(certificates, lax, "elsewhere")
    assert lax.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "key", [{"key_file": "key.pem"}, {"key_file": "locked.pem", "key_password": {"file": "passphrase"}}]
)
async def test_mutual_tls_shows_our_certificate(certificates: Path, key: dict[str, Any]) -> None:
    ours = security(protocol="ssl", ca_file="cert.pem", cert_file="cert.pem", **key)
    client = Client(Place(("a:1",), ("t",)), KafkaSourceOptions(security=ours), certificates)
    assert await handshake(certificates, client.kwargs()["ssl_context"])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"ca_file": "nowhere.pem"}, "ca_file {folder}/nowhere.pem: No such file or directory"),
        ({"ca_file": "nonsense.pem"}, "ca_file {folder}/nonsense.pem: holds no certificate in PEM form"),
        ({"cert_file": "no.pem", "key_file": "key.pem"}, "cert_file {folder}/no.pem: No such file or directory"),
        ({"cert_file": "cert.pem", "key_file": "no.pem"}, "key_file {folder}/no.pem: No such file or directory"),
        (
            {"cert_file": "cert.pem", "key_file": "other.key"},
            "cannot use cert_file {folder}/cert.pem with key_file {folder}/other.key: is the key the certificate's?",
        ),
        (
            {"cert_file": "cert.pem", "key_file": "locked.pem"},
            "cannot use cert_file {folder}/cert.pem with key_file {folder}/locked.pem: "
            "its key_password is wrong or missing",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(certificates: Path, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Credentials(security(protocol="ssl", **given), certificates).tls()
    assert [found.message for found in caught.value.problems] == [problem.format(folder=certificates)]


# --- tokens ---


class Endpoint(http.server.ThreadingHTTPServer):
    """An OIDC token endpoint: keeps the requests, answers what the test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, str | None, dict[str, list[str]]]] = []
        self.answer: Callable[[int], tuple[int, dict[str, str], bytes]] = lambda n: granted(f"token-{n}")
        self.answers = threading.Event()  # cleared: it stays silent
        self.answers.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.server.requests.append((self.path, self.headers.get("Authorization"), urllib.parse.parse_qs(body)))
        self.server.answers.wait()
        status, headers, answer = self.server.answer(len(self.server.requests))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(answer)), **headers}.items():
            self.send_header(name, value)
        with contextlib.suppress(BrokenPipeError):  # a client that gave up
            self.end_headers()
            self.wfile.write(answer)

    do_GET = do_POST = _serve  # noqa: N815 - names that http.server gives

    def log_message(self, *args: Any) -> None:
        pass


def granted(token: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 100, **more}).encode()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Watch:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch, watch: Watch) -> Callable[..., TokenSource]:
    def make(url: str, *, timeout_s: float = LIMIT_S, **more: Any) -> TokenSource:
        monkeypatch.setenv("CLIENT_SECRET", SECRET)
        ours = security(
            protocol="sasl_ssl",
            mechanism="oauthbearer",
            token_url=url,
            client_id="streamad@plant",
            client_secret={"env": "CLIENT_SECRET"},
            **more,
        )
        return TokenSource(Credentials(ours, Path()), timeout_s, monotonic_s=watch)

    return make


async def test_a_token_is_asked_for_with_client_credentials(
    endpoint: Endpoint, tokens: Callable[..., TokenSource]
) -> None:
    source = tokens(endpoint.url, scope="kafka plant")
    assert await source.token() == "token-1"
    ((path, authorization, form),) = endpoint.requests
    assert path == "/token"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka plant"]}
    # RFC 6749, 2.3.1: both parts form-encoded before base64.
    assert authorization == "Basic " + base64.b64encode(f"streamad%40plant:{SECRET}".encode()).decode()
    for shown in (repr(source), repr(pickle.dumps(source))):
        assert SECRET not in shown
        assert "token-1" not in shown
    assert source.trouble is None


async def test_a_token_is_used_for_four_fifths_of_its_life(
    endpoint: Endpoint, tokens: Callable[..., TokenSource], watch: Watch
) -> None:
    source = tokens(endpoint.url)
    assert await source.token() == "token-1"
    watch.now_s += 79.9
    assert await source.token() == "token-1"
    watch.now_s += 0.1
    assert await source.token() == "token-2"


async def test_clients_that_connect_at_once_ask_once(endpoint: Endpoint, tokens: Callable[..., TokenSource]) -> None:
    source = tokens(endpoint.url)
    assert await asyncio.gather(*(source.token() for _ in range(5))) == ["token-1"] * 5
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            (401, {}, json.dumps({"error": "invalid_client", "error_description": f"not {SECRET}"}).encode()),
            "refused: HTTP 401 (invalid_client)",
        ),
        ((400, {}, json.dumps({"error": f"is {SECRET}!"}).encode()), "refused: HTTP 400"),
        ((500, {}, SECRET.encode()), "refused: HTTP 500"),
        ((302, {"Location": "/elsewhere"}, b""), "refused: HTTP 302"),
        ((200, {}, b"<html>log in here</html>"), "answered without an access_token"),
        ((200, {}, b'{"expires_in": 3}'), "answered without an access_token"),
        ((200, {}, b"[]"), "answered without an access_token"),
        (granted("a", expires_in="soon"), "answered without an access_token"),
    ],
)
async def test_a_refusal_is_reported_without_the_secret(
    endpoint: Endpoint, tokens: Callable[..., TokenSource], answer: tuple[int, dict[str, str], bytes], text: str
) -> None:
    endpoint.answer = lambda _: answer
    source = tokens(endpoint.url)
    with pytest.raises(TokenError) as caught:
        await source.token()
    assert str(caught.value) == source.trouble == f"token endpoint {endpoint.url} {text}"
    assert caught.value.__cause__ is None
    assert [path for path, *_ in endpoint.requests] == ["/token"]  # a redirect would have carried the secret there


async def test_a_token_cannot_break_out_of_its_message(endpoint: Endpoint, tokens: Callable[..., TokenSource]) -> None:
    endpoint.answer = lambda _: granted("token\x01host=evil")
    with pytest.raises(TokenError, match="no bearer token"):
        await tokens(endpoint.url).token()


async def test_a_silent_endpoint_is_given_up(endpoint: Endpoint, tokens: Callable[..., TokenSource]) -> None:
    endpoint.answers.clear()
    with pytest.raises(TokenError, match=r"no answer within 0.1 s|cannot be reached: (timed out|TimeoutError)"):
        await tokens(endpoint.url, timeout_s=0.1).token()


async def test_an_unreachable_endpoint_is_reported_and_asked_again(
    endpoint: Endpoint, tokens: Callable[..., TokenSource]
) -> None:
    source = tokens("http://127.0.0.1:9/token")
    with pytest.raises(TokenError, match="cannot be reached: Connection refused"):
        await source.token()
    assert source.trouble == "token endpoint http://127.0.0.1:9/token cannot be reached: Connection refused"
    back = tokens(endpoint.url)
    endpoint.answer = lambda n: (503, {}, b"") if n == 1 else granted("token")
    with pytest.raises(TokenError, match="HTTP 503"):
        await back.token()
    assert await back.token() == "token"
    assert back.trouble is None


async def test_a_token_in_a_file_is_read_again_every_time(tmp_path: Path) -> None:
    ours = security(protocol="sasl_ssl", mechanism="oauthbearer", token={"file": "token"})
    client = Client(Place(("a:1",), ("t",)), KafkaSourceOptions(security=ours), tmp_path)
    source = client.kwargs()["sasl_oauth_token_provider"]
    assert client.kwargs()["sasl_oauth_token_provider"] is source
    (tmp_path / "token").write_text("first.of-two\n", encoding="utf-8")
    assert await source.token() == "first.of-two"
    (tmp_path / "token").write_text("second", encoding="utf-8")
    assert await source.token() == "second"
    (tmp_path / "token").unlink()
    with pytest.raises(TokenError, match="cannot read a secret from"):
        await source.token()
    assert client.trouble == f"security.token: cannot read a secret from {tmp_path / 'token'}"
