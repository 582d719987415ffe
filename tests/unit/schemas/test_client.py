"""Requests to a Schema Registry: what its answers mean, and that no answer is taken for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import ConfigError
from streamad.ingest.schemas.framing import SchemaKey
from streamad.ingest.schemas.registered import RegisteredSchema
from streamad.schemas.client import (
    Answer,
    LoginRefusedError,
    RegistryAwayError,
    SchemaAbsentError,
    SchemaRegistry,
)
from streamad.settings.schemas.registry import SchemaRegistrySettings
from tests.support.schemas.registry import Fault, StubRegistry, stub_registry

GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with stub_registry() as registry:
        yield registry


def asked(stub: StubRegistry, schema: SchemaKey, base_dir: Path = Path(), **more: Any) -> Answer:
    async def ask() -> Answer:
        registry = SchemaRegistry(SchemaRegistrySettings(url=stub.url, **more), base_dir)
        try:
            return await registry.schema(schema)
        finally:
            await registry.close()

    return asyncio.run(ask())


def test_schemas_are_found_by_id_and_by_guid(stub: StubRegistry) -> None:
    stub.add(7, '{"type": "double"}', "AVRO")
    stub.add(GUID, "{}", "JSON")
    assert asked(stub, 7).schema == RegisteredSchema("avro", '{"type": "double"}')
    assert asked(stub, GUID).schema == RegisteredSchema("json", "{}")
    assert stub.asked == ["/schemas/ids/7", f"/schemas/guids/{GUID}"]


def test_references_are_followed_to_their_ends_and_tell_schemas_apart(stub: StubRegistry) -> None:
    versions = "/subjects/a%2Fb/versions/2"
    stub.add(7, "outer", "AVRO", [{"name": "plant.Inner", "subject": "a/b", "version": 2}])
    stub.answers[f"{versions}?deleted=true"] = {"schema": "inner"}
    found = asked(stub, 7)
    assert found.schema == RegisteredSchema("avro", "outer", (("plant.Inner", RegisteredSchema("avro", "inner")),))
    stub.answers[f"{versions}?deleted=true"] = {"schema": "another"}
    assert asked(stub, 7).digest != found.digest


def test_protobuf_is_asked_for_as_its_registry_has_compiled_it(stub: StubRegistry) -> None:
    stub.add(7, 'syntax = "proto3";', "PROTOBUF")
    stub.answers["/schemas/ids/7?format=serialized"] = {"schema": "Cgh4", "schemaType": "PROTOBUF"}
    compiled = asked(stub, 7)
    assert compiled.schema.text == "Cgh4"
    stub.answers["/schemas/ids/7?format=serialized"] = None  # as text alone: the digest is that of the text
    assert asked(stub, 7) == Answer(RegisteredSchema("protobuf", 'syntax = "proto3";'), compiled.digest)
    stub.faults.extend([None, "501"])
    assert asked(stub, 7) == Answer(RegisteredSchema("protobuf", 'syntax = "proto3";'), compiled.digest)


@pytest.mark.parametrize("fault", ["500", "silent", "cut"])
def test_a_registry_that_goes_away_before_the_compiled_form_is_away(stub: StubRegistry, fault: Fault) -> None:
    stub.add(7, 'edition = "2023";', "PROTOBUF")
    stub.faults.extend([None, fault])
    with pytest.raises(RegistryAwayError):
        asked(stub, 7, timeout="200ms")


@pytest.mark.parametrize("schema", [8, GUID])
def test_an_absent_schema_is_that_only_if_the_registry_says_so(stub: StubRegistry, schema: SchemaKey) -> None:
    with pytest.raises(SchemaAbsentError, match=f"does not have schema {schema}: register it"):
        asked(stub, schema)


def test_what_a_registry_does_not_offer_is_absent_once_it_has_shown_to_be_one(stub: StubRegistry) -> None:
    """Older registries know no GUIDs; a message that begins as one by chance must not stop its partition."""
    path = f"/schemas/guids/{GUID}"
    stub.not_offered.add(path)
    with pytest.raises(SchemaAbsentError, match=f"answers, but has no address for schema {GUID}"):
        asked(stub, GUID)
    assert stub.asked == [path, "/schemas/types", path]
    stub.not_offered.add("/schemas/types")
    with pytest.raises(RegistryAwayError, match="not as a Schema Registry does"):
        asked(stub, GUID)


def test_json_needs_no_references(stub: StubRegistry) -> None:
    stub.add(7, "{}", "JSON", [{"name": "absent", "subject": "s", "version": 1}])
    assert asked(stub, 7).schema == RegisteredSchema("json", "{}")
    assert stub.asked == ["/schemas/ids/7"]


def test_an_absent_reference_is_no_schema(stub: StubRegistry) -> None:
    stub.add(7, "outer", "AVRO", [{"name": "Inner", "subject": "s", "version": 1}])
    with pytest.raises(SchemaAbsentError, match="does not have schema 7"):
        asked(stub, 7)


def test_a_circle_of_references_ends(stub: StubRegistry) -> None:
    reference = [{"name": "Self", "subject": "s", "version": 1}]
    stub.add(7, "outer", "AVRO", reference)
    stub.answers["/subjects/s/versions/1"] = {"schema": "self", "references": reference}
    with pytest.raises(SchemaAbsentError, match="refers to too many others, or to itself"):
        asked(stub, 7)
    assert len(stub.asked) == 2


AWAY: list[tuple[Fault, str]] = [
    ("refused", "cannot be reached"),
    ("silent", "has not answered within 0.2 s"),
    ("cut", "cannot be reached"),
    ("500", "answered 500 Internal Server Error"),
    ("429", "answered 429 Too Many Requests"),
    ("404", "not as a Schema Registry does"),
    ("302", "a redirect, which is not followed"),
    ("html", "gave no schema"),
    ("other", "gave no schema"),
    ("deep", "gave no schema"),
    ("deep 404", "not as a Schema Registry does"),
    ("gzip", "gave no schema"),
    ("endless", "more than 8000000 bytes|within"),
]


@pytest.mark.parametrize(("fault", "text"), AWAY)
def test_anything_else_is_no_answer(stub: StubRegistry, fault: Fault, text: str) -> None:
    stub.add(7)
    stub.fault = fault
    with pytest.raises(RegistryAwayError, match=text) as caught:
        asked(stub, 7, timeout="10s" if fault == "endless" else "200ms")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_nobody_at_the_address_is_no_answer(stub: StubRegistry) -> None:
    stub.url = "http://127.0.0.1:1"
    with pytest.raises(RegistryAwayError, match=r"http://127\.0\.0\.1:1 cannot be reached: "):
        asked(stub, 7)


@pytest.mark.parametrize("fault", ["401", "403"])
def test_a_refused_login_says_where_to_look(stub: StubRegistry, fault: Fault) -> None:
    stub.fault = fault
    with pytest.raises(LoginRefusedError, match=f"answered {fault} .*: look at the login in decode.registry"):
        asked(stub, 7)


def test_secrets_are_read_at_every_request_and_never_shown(stub: StubRegistry, tmp_path: Path) -> None:
    stub.add(7)
    (tmp_path / "token").write_text("hunter2\n")
    (tmp_path / "password").write_text("hunter3\n")
    asked(stub, 7, tmp_path, token={"file": "token"})
    asked(stub, 7, tmp_path, username="user", password={"file": "password"})
    assert stub.logins == ["Bearer hunter2", "Basic dXNlcjpodW50ZXIz"]
    stub.fault = "401"
    with pytest.raises(LoginRefusedError) as caught:
        asked(stub, 7, tmp_path, token={"file": "token"})
    assert "hunter" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"decode\.registry\.token: cannot read a secret from .*absent"):
        asked(stub, 7, tmp_path, token={"file": "absent"})


@pytest.mark.parametrize("token", ["hunter2\nhunter2", "hunter\r2", "hunter\x0b2", "hünter2", "hunter\udcff2"])
def test_a_token_that_no_header_can_carry_is_never_shown(
    stub: StubRegistry, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    stub.add(7)
    monkeypatch.setenv("TOKEN", token)
    with pytest.raises(ConfigError, match=r"decode\.registry\.token: must be one line of ASCII") as caught:
        asked(stub, 7, token={"env": "TOKEN"})
    assert "nter" not in str(caught.value)
    asked(stub, 7, username="user", password={"env": "TOKEN"})
    assert len(stub.asked) == 1


@pytest.mark.parametrize("proxy", ["http://user:hunter2@127.0.0.1:port", "gopher://user:hunter2@127.0.0.1"])
def test_a_proxy_that_cannot_be_used_is_one_line_without_its_login(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(ConfigError, match="https_proxy") as caught:
        SchemaRegistry(SchemaRegistrySettings(url="https://127.0.0.1:1"), Path())
    assert "hunter" not in str(caught.value)


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    settings = SchemaRegistrySettings(url="https://localhost", ca_file=Path("absent.pem"))
    with pytest.raises(ConfigError, match=r"decode\.registry\.ca_file: cannot use .*absent\.pem \(No such file"):
        SchemaRegistry(settings, tmp_path)
    (tmp_path / "ca.pem").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"decode\.registry\.ca_file: cannot use .*ca\.pem \(PEM"):
        SchemaRegistry(SchemaRegistrySettings(url="https://localhost", ca_file=Path("ca.pem")), tmp_path)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"url": "https://user:pass@host"}, "holds a login"),
        ({"url": "https://host/?token=x"}, "holds a login"),
        ({"url": "host:8081"}, "write the registry's address"),
        ({"url": "https://host/a#b"}, r"without what follows \? or #"),
        ({"url": "http://host:8081"}, "not encrypted: write https, or plaintext: true"),
        ({"url": "https://host", "password": "hunter2"}, "a secret must not stand in the config"),
        ({"url": "https://host", "username": "u"}, "username and password go together"),
        ({"url": "https://host", "cert_file": "c.pem"}, "cert_file and key_file go together"),
        ({"url": "http://localhost", "ca_file": "c.pem"}, "are for https"),
        (
            {"url": "https://host", "username": "u", "password": {"env": "P"}, "token": {"env": "T"}},
            "either token, or username",
        ),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        SchemaRegistrySettings(**given)
    assert "hunter2" not in str(caught.value).partition("[type=")[0]


def test_http_is_for_this_machine_unless_said_otherwise() -> None:
    assert SchemaRegistrySettings(url="http://[::1]:8081/").url == "http://[::1]:8081"
    assert SchemaRegistrySettings(url="http://registry:8081/apis/ccompat/v7", plaintext=True).plaintext
