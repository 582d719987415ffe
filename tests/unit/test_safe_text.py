"""Text from elsewhere: controls are seen, secrets are not."""

from __future__ import annotations

import json
from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import ConfigError, Problem, SourceError, StreamadError
from streamad.safe_text import is_secret_name, masked, one_line, visible, visible_json, visible_name

SECRETS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Z"], exclude_characters="\"'<>"), min_size=6, max_size=30
).map(lambda text: f"sEcReT{text}")
SCHEMES = st.sampled_from(
    ["kafka://", "http://", "https://", "s3://", "opc.tcp://", "KAFKA://", "mqtt+ssl://", "kafka:"]
)
NAMES = st.sampled_from(
    ["password", "Password", "sasl_password", "sasl.password", "passwd", "pwd", "credential", "sig"]
)
NAMES |= st.sampled_from(["key", "api_key", "api-key", "aws_secret_access_key", "secret", "client_secret", "token"])
AROUND = st.sampled_from(["", " ", "error: ", '"', "'", "(see "])


@given(SCHEMES, st.sampled_from(["user:", "", ":", "a@b:"]), SECRETS, AROUND, AROUND)
def test_no_user_or_password_of_a_url_is_left(scheme: str, user: str, secret: str, before: str, after: str) -> None:
    """A password may hold any character but spaces and quotes, also those that end other parts of a URL."""
    text = masked(f"{before}{scheme}{user}{secret}@broker:9092/topic?group=g{after}")
    assert text == f"{before}{scheme}***@broker:9092/topic?group=g{after}"


@given(SCHEMES, NAMES, SECRETS, st.sampled_from(["?", "?group=g&", "?a=1;"]), AROUND)
def test_no_secret_parameter_of_a_url_is_left(scheme: str, name: str, secret: str, first: str, after: str) -> None:
    secret = secret.replace("&", "").replace(";", "").replace("@", "")
    text = masked(f"{scheme}broker/topic{first}{name}={secret}&start=latest{after}")
    assert text == f"{scheme}broker/topic{first}{name}=***&start=latest{after}"
    assert is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("s3:/kim:hunter22@bucket/models is no folder", "s3:/***@bucket/models is no folder"),
        ("kafka:///kim:hunter22@h/t", "kafka:///***@h/t"),
        ("kafka://h/t#sasl_password=hunter22", "kafka://h/t#sasl_password=***"),
        ("kafka://h/t?sasl_password%3Dhunter22", "kafka://h/t?sasl_password%3D***"),
        ("http://h/t?pw=hunter22", "http://h/t?pw=***"),
        ("kafka://kim:hun'ter\"22@h/t", "kafka://***@h/t"),
        ("kim:hun'ter\"22@broker:9092", "***@broker:9092"),
        ('{"a":"kafka://h/t","b":"c@d"}', '{"a":"kafka://h/t","b":"c@d"}'),
        ("x:" * 32_000 + "kim:hunter22@broker:9092", "x:" * 31_749 + "***@broker:9092"),
    ],
    ids=["path", "slashes", "fragment", "encoded", "short", "quotes", "bare quotes", "json", "long"],
)
def test_no_secret_of_a_url_that_is_written_wrongly_is_left(text: str, seen: str) -> None:
    assert masked(text) == seen


@given(st.sampled_from(["kim", "k", "kim.o-1", "größe"]), SECRETS, AROUND)
def test_no_user_or_password_of_a_broker_without_a_scheme_is_left(user: str, secret: str, before: str) -> None:
    secret = secret.lstrip("/")
    assert masked(f"{before}{user}:{secret}@broker:9092") == f"{before}***@broker:9092"
    listed = masked(f"{before}a:9092,{user}:{secret}@[::1]:9092: no host")
    assert listed == f"{before}***@[::1]:9092: no host"  # a password may hold commas: what stands before it may be one


@pytest.mark.parametrize("unit", ["a:", "a:/", "ab://", "kafka:", "a@", "a:b@", "'a:"])
def test_a_long_hostile_text_without_a_secret_stays_as_it_is(unit: str) -> None:
    """The time for it grows with its length, not with its square: a fault of that shows as a test that never ends."""
    text = "@" + unit * (50_000 // len(unit))
    assert masked(text) == text


@given(st.text())
def test_what_is_masked_stays_as_it_is(text: str) -> None:
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "kafka://broker:9092,other:9092/batches?group=g&start=latest",
        "file:///data/site@plant/batch.csv",
        "/data/site@plant/batch.csv: cannot read it",
        "r1@2026-03-23T06:00:00",
        "line:3@plant/batch:7",
        "file:///data/a:b@site:92/x.csv",
        "/data/a:b@site:92",
        "broker:9092,other:9093",
        '{"stream":"r1","at":"kim@host:9092"}',
        "marked by kim@example.com",
        "batch-?.csv?keyed=1&tokens=2",
        "offset=3 key=4 (line 5: the record's key)",
    ],
)
def test_nothing_else_is_masked(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x1b[2J\x07", r"a\x1b[2J\x07"),
        ("a\u202eb\u2066c\u200fd", r"a\u202eb\u2066c\u200fd"),
        ("a\u200bb\u00adc\ufeffd\U000e0041", r"a\u200bb\xadc\ufeffd\U000e0041"),
        ("a\udcffb", r"a\udcffb"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("a\tb\nc", "a\tb\nc"),
    ],
    ids=["escapes", "direction", "no width", "surrogate", "joiner", "layout"],
)
def test_controls_are_shown(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_a_name_begins_no_line_of_its_own() -> None:
    assert visible_name("B-1\nALERT\tx") == r"B-1\nALERT\tx"
    assert one_line("kim\n  5f0c  ") == "kim 5f0c"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_without_controls_means_the_same(text: str) -> None:
    seen = visible_json(json.dumps({"id": text}, ensure_ascii=False))
    assert json.loads(seen) == {"id": text}
    assert visible(seen) == seen


def test_no_error_holds_a_secret() -> None:
    """Errors end on terminals and in logs, events and files."""
    url = "kafka://kim:hunter22@broker:9092/t?token=hunter22"
    one = SourceError(f"{url}: no such topic")
    config = ConfigError([Problem("source.url", f"{url} is wrong")], source=url)
    for error in (one, config, copy(one), copy(config)):
        assert "hunter22" not in f"{error} {error!r} {error.args}"
        assert "kafka://***@broker:9092/t?token=***" in str(error)
    assert str(config.problems[0]) == "source.url: kafka://***@broker:9092/t?token=*** is wrong"
    assert str(StreamadError()) == ""
