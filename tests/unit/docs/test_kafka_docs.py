"""The pages and the example of the Kafka connector name every option there is, with its default, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from streamad.commands.shared.plants import check_parts
from streamad.partition_progress import Progress, StreamProgress
from streamad.plant import Plant
from streamad.schemas.fetching import BACK, SILENT
from streamad.settings.places import sink_urls
from streamad.settings.plant_yaml import load_settings
from streamad.simulation.faults import CHANNELS
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import Counters, Gauges
from streamad_connectors.kafka.client.options import (
    ClientOptions,
    KafkaFeedOptions,
    KafkaSinkOptions,
    KafkaSourceOptions,
    KafkaSubscriptionOptions,
)
from streamad_connectors.kafka.client.security import Security

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs/guide/kafka.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples/plant.kafka.yaml"
ROW = re.compile(r"^- `([a-z_0-9]+)` \((.+?)\): (.+)$", re.MULTILINE)
MODELS: dict[str, type[BaseModel]] = {
    "Every client": ClientOptions,
    "Source": KafkaSourceOptions,
    "Sinks": KafkaSinkOptions,
    "Feeds": KafkaFeedOptions,
    "Subscriptions": KafkaSubscriptionOptions,
    "`security`": Security,
}


def section(title: str) -> str:
    """Return what stands below the heading ``title``, up to the next heading."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", DOC, re.MULTILINE | re.DOTALL)
    assert match is not None, title
    return match[1]


def own_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields that a table documents: not those that every client has."""
    shared = {} if model is ClientOptions or not issubclass(model, ClientOptions) else ClientOptions.model_fields
    return {name: field for name, field in model.model_fields.items() if name not in shared}


def options() -> Iterator[tuple[str, str]]:
    for title, model in MODELS.items():
        for name in own_fields(model):
            yield title, name


@pytest.mark.parametrize("title", MODELS)
def test_every_option_is_documented_once_and_no_other(title: str) -> None:
    rows = ROW.findall(section(title))
    assert sorted(name for name, _, _ in rows) == sorted(own_fields(MODELS[title]))
    assert all(meaning.endswith(".") for _, _, meaning in rows)


@pytest.mark.parametrize(("title", "name"), list(options()))
def test_the_documented_default_is_the_default(title: str, name: str) -> None:
    text = {row: default for row, default, _ in ROW.findall(section(title))}[name]
    field = own_fields(MODELS[title])[name]
    annotation: Any = field.annotation
    for item in field.metadata:
        annotation = Annotated[annotation, item]
    found = TypeAdapter(annotation).validate_python(yaml.safe_load(text.strip("`")))
    assert found == field.get_default(call_default_factory=True)


def test_every_counter_and_gauge_of_the_status_line_is_documented_once() -> None:
    keys = re.findall(r"^- `([a-z_0-9]+)`: ", section("The status line"), re.MULTILINE)
    assert sorted(keys) == sorted(
        [*Counters().as_dict(), "learning", *Gauges.__dataclass_fields__, "latency_p50_ms", "latency_p99_ms"]
    )


def test_the_example_is_valid() -> None:
    settings = load_settings(EXAMPLE)
    assert not check_parts(Plant(settings, EXAMPLE.parent, SystemClock()))
    assert [(channel.name, channel.unit) for channel in settings.channels] == list(CHANNELS)
    assert len({*sink_urls(settings).values()}) == 8


@pytest.mark.parametrize(
    ("model", "where"), [(KafkaSourceOptions, "source"), (KafkaSinkOptions, "sinks"), (Security, "source")]
)
def test_the_example_shows_every_option(model: type[BaseModel], where: str) -> None:
    blocks = re.split(r"^(?=\w+:)", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    block = next(text for text in blocks if text.startswith(f"{where}:"))
    missing = [name for name in model.model_fields if not re.search(rf"^[ #]* {name}:(?= \S|$| )", block, re.MULTILINE)]
    assert not missing


def test_the_options_that_the_example_states_are_the_defaults() -> None:
    settings = load_settings(EXAMPLE)
    assert KafkaSourceOptions.model_validate(settings.source.options) == KafkaSourceOptions()
    assert KafkaSinkOptions.model_validate(settings.sinks.options["kafka"]) == KafkaSinkOptions()


@pytest.mark.parametrize(
    ("login", "mechanism"),
    [
        ("username|password", "scram-sha-512"),
        ("token", "oauthbearer"),
        ("token_url|client_id|client_secret|scope", "oauthbearer"),
        ("region", "aws_msk_iam"),
    ],
)
def test_the_security_in_the_example_is_valid(login: str, mechanism: str) -> None:
    """What stands there as a comment works once it is no comment any more, for one kind of login at a time."""
    lines = re.findall(r"^    #   (\w+): (.*?)(?:  +#.*)?$", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE)
    logins = {"username", "password", "token", "token_url", "client_id", "client_secret", "scope", "region"}
    given = {name: yaml.safe_load(value) for name, value in lines if name not in logins or re.fullmatch(login, name)}
    security = Security.model_validate({**given, "mechanism": mechanism})
    assert security.encrypts
    assert security.model_fields_set >= set(login.split("|"))


@pytest.mark.parametrize("record", [Progress, StreamProgress])
def test_the_docstring_explains_every_field_of_the_progress(record: type[Progress | StreamProgress]) -> None:
    named = set(re.findall(r"``(\w+)``", record.__doc__ or ""))
    assert [name for name in record.__struct_fields__ if name not in named] == []


@pytest.mark.parametrize("page", ["docs/internals/exactly-once.md", "docs/guide/kafka.md"])
def test_files_and_tests_that_the_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|benchmarks|examples|scripts)/[\w./-]+)`", text)
    linked = re.findall(r"\]\(([\w./-]+\.(?:md|yaml))", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert [name for name in linked if not (ROOT / page).parent.joinpath(name).exists()] == []


def source_text(*folders: str) -> str:
    """Return all code of ``folders``, string literals that continue on the next line joined."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r'"\s*\n\s*(?:\+ )?f?"', "", text)


def test_every_event_is_documented_once_and_no_other() -> None:
    code = source_text("connectors/streamad_connectors/kafka")
    modules = ("runtime/pipeline.py", "runtime/submitter.py", "ingest/intake.py")
    code += "".join((ROOT / "streamad" / name).read_text() for name in modules)
    emitted = set(re.findall(r'(?:SourceNotice|Notice|\b_notice|\b_?emit)\(\s*"([a-z_]+)"', code)) | {SILENT, BACK}
    rows = re.findall(r"^- `([a-z_]+)`: ", section("Events"), re.MULTILINE)
    assert len(emitted) > 5
    assert sorted(rows) == sorted(emitted)


@pytest.mark.parametrize("line", re.findall(r"^- `([^`]+)`.*: ", section("Errors"), re.MULTILINE))
def test_the_documented_errors_are_the_raised_ones(line: str) -> None:
    assert line in source_text("connectors/streamad_connectors/kafka", "streamad")


@pytest.mark.parametrize("block", re.findall(r"^```yaml\n(security:.*?)^```", DOC, re.MULTILINE | re.DOTALL))
def test_the_security_blocks_of_the_documentation_are_valid(block: str) -> None:
    parts = list(yaml.safe_load_all(block))
    assert parts
    for part in parts:
        assert Security.model_validate(part["security"]).encrypts
