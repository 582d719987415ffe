"""Plug-ins: found by entry point, ours and third parties' alike; mistakes name the nearest."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from streamad.errors import ConfigError, PluginError
from streamad.plugins import (
    ConnectorContext,
    ContainedError,
    available,
    connect_sink,
    connect_source,
    contained,
    failure_of,
    load,
    make_detector,
    plugin_failure,
    split_url,
)
from streamad.safe_text import described, text_of
from streamad.testing import ManualClock
from streamad.types import ChannelSpec

CONTEXT = ConnectorContext((ChannelSpec("temp_c", "°C"),), ManualClock())

MODULE = """
from collections.abc import AsyncIterator, Mapping, Sequence
from pydantic import BaseModel, ConfigDict, Field

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    unit_id: int = Field(default=1, ge=0, le=247)
    mode: str = "tcp"

class Source:
    options_model = Options
    def __init__(self, rest, options, context):
        self.rest, self.options, self.context = rest, options, context
    async def batches(self):
        return
        yield
    async def seek(self, partition, offset):
        pass
    async def close(self):
        pass

class Sink(Source):
    async def write(self, records):
        pass
    async def flush(self):
        pass

class Detector:
    options_model = Options
    def __init__(self, options):
        self.options = options

class Failing:
    options_model = Options
    def __init__(self, *parts):
        raise RuntimeError("no license\\nfor kafka://kim:hunter22@broker")

class Bare:
    pass
"""
ENTRY_POINTS = """
[streamad.sources]
opc-ua = acme_streamad:Source
acme+tls = acme_streamad:Source
acme-broken = acme_streamad_missing:Source
acme-nothing = acme_streamad:Nothing
acme-crash = acme_streamad_crash:Source
acme-exit = acme_streamad_exit:Source
acme-bare = acme_streamad:Bare
acme-failing = acme_streamad:Failing

[streamad.sinks]
acme = acme_streamad:Sink

[streamad.detectors]
acme_forest = acme_streamad:Detector
acme_failing = acme_streamad:Failing
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install a third party's distribution, as pip leaves it on disk."""
    (tmp_path / "acme_streamad.py").write_text(MODULE)
    (tmp_path / "acme_streamad_crash.py").write_text("1 / 0")
    (tmp_path / "acme_streamad_exit.py").write_text("raise SystemExit(7)")
    info = tmp_path / "acme_streamad-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-streamad\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("acme_streamad")
    sys.modules.pop("acme_streamad", None)


# --- URLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("recordings/*.csv", ("file", "recordings/*.csv", {})),
        ("batch-?.csv", ("file", "batch-?.csv", {})),
        ("file:recordings", ("file", "recordings", {})),
        ("file:///var/data/x.npz?split=train", ("file", "/var/data/x.npz", {"split": "train"})),
        ("FILE:x.csv", ("file", "x.csv", {})),
        ("file://localhost/var/data/x.npz", ("file", "/var/data/x.npz", {})),
        ("File://LocalHost/x", ("file", "/x", {})),
        ("file://localhost", ("file", "localhost", {})),
        ("file:localhost/x", ("file", "localhost/x", {})),
        ("kafka://localhost/x", ("kafka", "localhost/x", {})),
        ("/data/run:7.csv", ("file", "/data/run:7.csv", {})),
        ("C:\\data\\x.csv", ("file", "C:\\data\\x.csv", {})),
        ("stdout:", ("stdout", "", {})),
        ("opc-ua://plc:4840/line", ("opc-ua", "plc:4840/line", {})),
        ("acme+tls://h?mode=a%20b&empty=", ("acme+tls", "h", {"mode": "a b", "empty": ""})),
        ("", ("file", "", {})),
    ],
)
def test_urls(url: str, expected: tuple[str, str, dict[str, str]]) -> None:
    assert split_url(url) == expected


@given(st.from_regex(r"[a-z][a-z0-9+.-]{1,10}", fullmatch=True), st.text(st.characters(exclude_characters="?")))
def test_a_url_splits_into_scheme_and_place(scheme: str, place: str) -> None:
    assert split_url(f"{scheme}://{place}") == (scheme, place, {})


@given(st.text())
def test_any_text_is_a_url(text: str) -> None:
    scheme, rest, _ = split_url(text)
    assert scheme
    assert rest in text


# --- ours ------------------------------------------------------------------------------------------------------------


def test_ours_are_found() -> None:
    assert {"file", "memory"} <= set(available("sources"))
    assert {"file", "memory", "stdout"} <= set(available("sinks"))
    assert "neutral_ad" in available("detectors")


@pytest.mark.parametrize(
    ("group", "name", "nearest"),
    [("sources", "fil", "file"), ("sinks", "stdoutt", "stdout"), ("detectors", "neutralad", "neutral_ad")],
)
def test_an_unknown_name_gets_the_nearest_and_the_list(group: Any, name: str, nearest: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(group, name)
    text = str(caught.value)
    assert text.startswith(f"no {group[:-1]} '{name}'; did you mean '{nearest}'? (installed: ")
    assert all(known in text for known in available(group))
    assert caught.value.exit_code == 2


def test_a_name_like_no_other_gets_the_list_alone() -> None:
    with pytest.raises(PluginError, match=r"^no source 'zzz' \(installed: .*file"):
        connect_source("zzz://x", {}, CONTEXT)


# --- a third party's -------------------------------------------------------------------------------------------------


def test_a_third_partys_source_is_made_as_ours(acme: Any) -> None:
    source: Any = connect_source("opc-ua://plc:4840/line?mode=rtu", {"unit_id": 7, "mode": "tcp"}, CONTEXT)
    assert type(source) is acme.Source
    assert source.rest == "plc:4840/line"
    assert source.context is CONTEXT
    assert source.options == acme.Options(unit_id=7, mode="rtu")  # the URL wins
    asyncio.run(source.close())


def test_a_third_partys_sink_and_detector(acme: Any) -> None:
    sink: Any = connect_sink("acme:alerts", {}, CONTEXT)
    assert (type(sink), sink.rest) == (acme.Sink, "alerts")
    detector: Any = make_detector("acme_forest", {"unit_id": "3"})
    assert (type(detector), detector.options.unit_id) == (acme.Detector, 3)


@pytest.mark.usefixtures("acme")
def test_all_wrong_options_are_reported_with_their_paths() -> None:
    with pytest.raises(ConfigError) as caught:
        connect_source("acme+tls://plc?unit_id=248&moed=x", {"deep": {"x": 1}}, CONTEXT)
    assert sorted(map(str, caught.value.problems)) == [
        "source.options.deep: unknown key 'deep'; known here: unit_id, mode",
        "source.options.moed: unknown key 'moed'; did you mean 'mode'?",
        "source.options.unit_id: Input should be less than or equal to 247",
    ]
    with pytest.raises(ConfigError, match=r"sinks\.alerts\.unit_id: Input should be a valid integer"):
        connect_sink("acme:x?unit_id=one", {}, CONTEXT, where="sinks.alerts")
    with pytest.raises(ConfigError, match=r"model\.options\.mode: Input should be a valid string"):
        make_detector("acme_forest", {"mode": 3})


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("acme-broken", "'acme_streamad_missing': install the package that has the module 'acme_streamad_missing'$"),
        ("acme-nothing", "has no attribute 'Nothing'"),
        ("acme-crash", "division by zero"),
        ("acme-exit", "SystemExit: 7"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_named_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(PluginError, match=rf"^source '{name}' \(acme_streamad\w*:\w+\) cannot be loaded: .*{why}"):
        load("sources", name)


@pytest.mark.usefixtures("acme")
def test_what_is_no_plug_in_is_refused() -> None:
    with pytest.raises(PluginError, match=r"^source 'acme-bare' \(acme_streamad:Bare\) is no plug-in"):
        connect_source("acme-bare:x", {}, CONTEXT)


@pytest.mark.usefixtures("acme")
def test_a_plug_in_that_cannot_be_made_is_one_line_without_secrets() -> None:
    why = r"cannot be made: RuntimeError: no license for kafka://\*\*\*@broker$"
    with pytest.raises(PluginError, match=rf"^source 'acme-failing' {why}"):
        connect_source("acme-failing:x", {}, CONTEXT)
    with pytest.raises(PluginError, match=rf"^detector 'acme_failing' {why}"):
        make_detector("acme_failing", {})


@pytest.mark.usefixtures("acme")
def test_a_third_partys_scheme_is_suggested_too() -> None:
    with pytest.raises(PluginError, match="did you mean 'opc-ua'"):
        load("sources", "opcua")


def test_every_installed_plug_in_has_options_that_refuse_unknown_keys() -> None:
    for group in ("sources", "sinks", "detectors"):
        for name in available(group):
            if (group, name) == ("detectors", "broken"):
                continue  # of the tests' own plug-in, if it is on the path: it cannot be loaded, on purpose
            model = load(group, name).options_model
            assert issubclass(model, BaseModel)
            assert model.model_config.get("extra") == "forbid", f"{group} {name}"


def test_the_installed_distributions_are_looked_through_once_however_often_a_plug_in_is_asked_for(
    acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del acme  # another path than that of the test before
    scans = []
    monkeypatch.setattr("streamad.plugins.entry_points", lambda group: scans.append(group) or entry_points(group=group))
    for _ in range(3):
        assert {"acme+tls", "file"} <= set(available("sources"))
        load("detectors", "acme_forest")
    assert scans == ["streamad.sources", "streamad.detectors"]


# --- at work ---------------------------------------------------------------------------------------------------------


def test_a_failure_is_that_of_the_plug_in_whose_code_raised_it(acme: Any) -> None:
    """Not of one that was only called on the way, nor of the library in which it was raised."""
    namespace = {"__name__": "acme_streamad.parts.deep"}
    exec("import json\ndef read(): json.loads('')\ndef call(step): step()", namespace)
    load("sources", "opc-ua")
    make_detector("acme_forest", {})
    with pytest.raises(ValueError, match="Expecting value") as caught:
        namespace["read"]()  # type: ignore[operator]
    who = plugin_failure(caught.value)
    assert who is not None
    assert "source 'opc-ua' (acme_streamad:Source)" in who
    assert "failed: JSONDecodeError: Expecting value" in who
    assert plugin_failure(ExceptionGroup("several", [caught.value])) == who
    assert plugin_failure(ExceptionGroup("several", [KeyError("ours"), caught.value])) == who
    with pytest.raises(ConfigError) as ours:
        namespace["call"](lambda: connect_source("acme+tls://p?unit_id=x", {}, CONTEXT))  # type: ignore[operator]
    assert plugin_failure(ours.value) is None
    assert plugin_failure(ValueError("raised by nobody")) is None
    assert acme is not None


@pytest.mark.usefixtures("acme")
def test_an_error_that_was_never_raised_has_the_frames_of_its_group_and_of_what_contains_it() -> None:
    load("sources", "opc-ua")
    namespace = {"__name__": "acme_streamad.parts.deep"}
    exec("def raise_it(error): raise error", namespace)
    group = ExceptionGroup("several", [ExceptionGroup("deep", [LookupError("inner")])])
    with pytest.raises(ExceptionGroup) as caught:
        namespace["raise_it"](group)  # type: ignore[operator]
    assert (plugin_failure(caught.value) or "").endswith("failed: LookupError: inner")
    with pytest.raises(ContainedError) as contains:
        contained(namespace["raise_it"], StopIteration("x"))  # type: ignore[arg-type]
    assert (plugin_failure(contains.value) or "").endswith("failed: StopIteration: x")
    assert failure_of(LookupError("a\nb")) == r"LookupError('a\nb')"


@pytest.mark.parametrize("raised", [ValueError, SystemExit, GeneratorExit])
@pytest.mark.usefixtures("acme")
def test_an_error_without_a_text_is_still_named(raised: type[BaseException]) -> None:
    load("sources", "opc-ua")
    namespace = {"__name__": "acme_streamad.parts.deep", "raised": raised}
    exec(
        "class Mute(Exception):\n    def __str__(self): raise raised('x')\n    __repr__ = __str__\n"
        "def fail(): raise Mute\n",
        namespace,
    )
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its class has no text to match
        namespace["fail"]()  # type: ignore[operator]
    assert (plugin_failure(caught.value) or "").endswith("failed: Mute: no reason given")
    assert (text_of(caught.value), described(caught.value)) == ("", "Mute")
