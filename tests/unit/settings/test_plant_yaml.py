"""What a user's plant.yaml and environment get: settings, or every problem at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from streamad.errors import ConfigError
from streamad.settings.fields import SecretSource
from streamad.settings.plant_yaml import Settings, load_settings
from streamad.types import ChannelSpec

MINIMAL = "channels:\n- name: temp_c\n  unit: °C\nsource: {url: recordings/*.jsonl}\n"
RELEASE = f"streamad {version('streamad-monitor')}"

Load = Callable[..., Settings]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("STREAMAD_"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a config text under the given environment variables."""

    def load(text: str = MINIMAL, **environment: str) -> Settings:
        path = tmp_path / "plant.yaml"
        path.write_text(text, encoding="utf-8")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return load_settings(path)

    return load


def problems(load: Load, text: str = MINIMAL, **environment: str) -> list[str]:
    """Return the problems, each as a user sees it."""
    with pytest.raises(ConfigError) as caught:
        load(text, **environment)
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


def test_a_file_may_say_its_schema(load: Load) -> None:
    assert load("schema: 1\n" + MINIMAL) == load(MINIMAL)
    assert next(iter(Settings.model_json_schema()["properties"])) == "schema"


@pytest.mark.parametrize(
    ("number", "what"),
    [
        ("2", f"this file is of schema 2, {RELEASE} reads 1: update streamad"),
        ("0", f"0 is unknown, {RELEASE} reads 1: write schema: 1, or leave it out"),
        ("1.0", "1.0 is unknown"),
        ("true", "True is unknown"),
        ('"1"', "'1' is unknown"),
        ("", "None is unknown"),
        ("[[1]]", "[[1]] is unknown"),
    ],
)
def test_another_schema_is_one_line_whatever_else_the_file_holds(load: Load, number: str, what: str) -> None:
    (problem,) = problems(load, f"name: hall\nschema: {number}\nchanels: []\n")
    assert problem.startswith(f"schema (line 2): {what}")


@pytest.mark.parametrize("escape", ["\\0", "\\uDC80"])
@pytest.mark.parametrize(
    ("key", "section"),
    [("registry", "model: {registry: %s}"), ("checkpoint", "run: {checkpoint: %s}"), ("alerts", "sinks: {alerts: %s}")],
)
def test_a_text_that_no_path_can_hold_is_refused(load: Load, escape: str, key: str, section: str) -> None:
    (problem,) = problems(load, MINIMAL + section % f'"a{escape}b"' + "\n")
    assert f"{key} holds a NUL character or half a character: write it without" in problem


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_smallest_config_gets_every_default(load: Load) -> None:
    settings = load()
    assert settings.channel_specs == (ChannelSpec("temp_c", "°C"),)
    assert settings.source.url == "recordings/*.jsonl"
    assert settings.alerts.false_alarm_rate == 0.02
    assert settings.sequences.end == ("marker", "change")
    assert settings.sequences.max_duration == 24 * 3600 * 1_000_000
    assert settings.sinks.alerts == "stdout:"


def test_every_problem_comes_at_once_with_path_line_and_nearest_key(load: Load) -> None:
    text = (
        "channels:\n"
        "- name: temp_c\n"
        "- name: no spaces please\n"
        "- nmae: x\n"
        "sorce: {url: x.csv}\n"
        "window:\n"
        "  length: 1\n"
        "  longer: cut\n"
        "sequences:\n"
        "  gpa: 10m\n"
        "alerts: {false_alarm_rate: 1.0}\n"
        "web: {auth: {users: [kim]}}\n"
    )
    found = problems(load, text)
    starts = [
        "channels.1.name (line 3): String should match pattern",
        "channels.2.name (line 4): is required",
        "channels.2.nmae (line 4): unknown key 'nmae'; did you mean 'name'?",
        "sorce (line 5): unknown key 'sorce'; did you mean 'source'?",
        "source: is required",
        "window.length (line 7): Input should be greater than or equal to 2",
        "window.longer (line 8): Input should be 'truncate', 'resample' or 'reject'",
        "sequences.gpa (line 10): unknown key 'gpa'; did you mean 'gap'?",
        "alerts.false_alarm_rate (line 11): Input should be less than 1",
        "web.auth.users (line 12): must be the path of a file or folder, as text",
    ]
    assert len(found) == len(starts)
    for start in starts:
        assert any(problem.startswith(start) for problem in found), start


def test_the_text_of_the_error_names_the_file_and_counts(load: Load, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(MINIMAL + "nmae: x\n")
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'plant.yaml'}: 1 problem",
        "  nmae (line 5): unknown key 'nmae'; did you mean 'name'?",
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("metrics: 127.0.0.1:9464", "metrics (line 5): holds keys, not a value: listen"),
        ("notify: {receivers: [{name: a, url: 'https://a.example', secret: hunter2}]}", "secret (line 5): holds keys"),
        ("notify: {receivers: [{name: a, apprise: hunter2}]}", "apprise (line 5): holds keys, not a value: env, file"),
        ("notify: [{name: a}]", "notify (line 5): holds keys, not a value: link, undelivered, receivers"),
        ("alerts: {zzz: 1}", "unknown key 'zzz'; known here: false_alarm_rate"),
        *((f"alerts: {{false_alarm_rate: {rate}}}", "greater than 0") for rate in ("0", "-0.1")),
        *((f"alerts: {{false_alarm_rate: {rate}}}", "less than 1") for rate in ("1", ".nan", ".inf")),
        ("alerts: {false_alarm_rate: two}", "unable to parse string as a number"),
        *((f"{key}: /etc/passwd", f"unknown key '{key}'") for key in ("_env_file", "_secrets_dir", "_cli_parse_args")),
        ("window: {1: 3}", "holds a key that is not text"),
        ("sequences: {end: []}", "end names no mode: give at least one of marker, change, gap, length, restart"),
        ("sequences: {end: [restart]}", "for times that count from a start: write decode.time: relative"),
        (
            "sequences: {end: [restart], allowed_lateness: 1s}",
            "none may come late: write allowed_lateness: 0s",
        ),
        ("sequences: {end: [gap]}", "end mode gap and the key gap go together"),
        ("sequences: {gap: 1s}", "end mode gap and the key gap go together"),
        ("sequences: {end: [length]}", "end mode length and the key length go together"),
        ("decode: {fields: {channel: c}}", "channel and value go together"),
        ("window: {resample: {period: 0}}", "must be longer than 0"),
        ("sequences: {max_duration: soon}", "'soon' is not a duration: write for example 250ms, 30s, 10m or 24h"),
        ("run: {batch_wait: true}", "True is not a duration: write for example 250ms, 30s, 10m or 24h"),
        ("learning: {max_training: 50}", "max_training (50) is below min_training (60)"),
        (
            "learning: {first_training: 5000}",
            "first_training (5000) is above what the store keeps (2800): no model would come",
        ),
        (
            "learning: {first_training: 60}",
            "and min_training (60) of them are needed: raise first_training to 75 or lower min_training or reserve",
        ),
        (
            "learning: {max_training: 149, first_training: 100}",
            "max_training (149) keeps 59 sequences in the reserve, less than three times promotion.min_comparison (20)",
        ),
        ("learning: {max_reserve: 60, max_aside: 90}", "max_reserve, max_aside: one key bounds all three"),
        ("learning: {max_accepted: 2000, max_reserve: 800, max_aside: 1000}", "write max_training: 2000"),
        ("learning: {max_reserve: 60, max_aside: 91}", "write max_training: 182"),
        ("learning: {max_accepted: many}", "write max_training: 2000"),
        ("learning: {schedule: nightly}", "write such as '0 3 * * *'"),
        ("model: {registry: 'ftp://host/models'}", "no place in an object store: write s3://BUCKET/PREFIX"),
        ("model: {registry: 's3://key:hunter22@bucket/models'}", "holds more than bucket and prefix: write those"),
        ("model: {registry: 's3://bucket/models?token=hunter22'}", "credentials come from the environment"),
        ("model: {registry: 'S3://bucket/models'}", "no place in an object store: write s3://BUCKET/PREFIX"),
        ("model: {registry: 's3:bucket/models'}", "no place in an object store: write s3://BUCKET/PREFIX"),
        ("model: {registry: 's3://bucket/../models'}", "has an empty part, or one of dots alone"),
        ("model: {cache: 's3://bucket/copies'}", "'s3:/bucket/copies' is no folder: write the path of one"),
        ("model: {backend: onnx}", "'onnxruntime' or 'openvino'; did you mean 'onnxruntime'?"),
        ("model: {backend: OpenVINO}", "did you mean 'openvino'?"),
        ("model: {backend: 7}", "Input should be 'auto', 'torchscript', 'onnxruntime' or 'openvino'"),
        ("model: {device: gpu}", "String should match pattern '^(auto|cpu|cuda(:\\d+)?)$'"),
    ],
)
def test_keys_that_contradict_each_other_or_their_meaning(load: Load, section: str, message: str) -> None:
    (problem,) = problems(load, MINIMAL + section + "\n")
    assert message in problem
    assert "(line 5)" in problem
    assert "hunter22" not in problem


def test_a_channel_named_twice(load: Load) -> None:
    text = "channels: [{name: a}, {name: b}, {name: a}]\nsource: {url: x}\n"
    assert problems(load, text) == ["channels (line 1): channel named twice: a"]


@pytest.mark.parametrize("name", ["..", ".hidden", "a/b", "a b", "", "x" * 65, "Öl", "a\\nb"])
def test_names_that_could_become_a_path_or_a_key_of_their_own_are_refused(load: Load, name: str) -> None:
    (problem,) = problems(load, MINIMAL + f'name: "{name}"\n')
    assert problem.startswith("name (line 5)")


@pytest.mark.parametrize("name", ["a", "-", "_x", "B-1042.v2", "x" * 64])
def test_names_at_the_edge_are_accepted(load: Load, name: str) -> None:
    assert load(MINIMAL + f'name: "{name}"\n').name == name


def test_settings_cannot_be_changed(load: Load) -> None:
    settings = load()
    with pytest.raises(ValueError, match="frozen"):
        settings.window.length = 3


# --- the environment -------------------------------------------------------------------------------------------------


def test_the_environment_wins_over_the_file(load: Load) -> None:
    text = MINIMAL + "window: {length: 64, longer: reject}\n"
    window = load(text, STREAMAD_WINDOW__LENGTH="256").window
    assert (window.length, window.longer) == (256, "reject")


def test_the_environment_may_hold_what_the_file_lacks(load: Load) -> None:
    settings = load("name: line-3\n", STREAMAD_CHANNELS='[{"name": "a"}]', STREAMAD_SOURCE__URL="x.csv")
    assert (settings.channel_specs, settings.source.url) == ((ChannelSpec("a"),), "x.csv")


def test_lists_and_sections_are_json(load: Load) -> None:
    sequences = load(
        STREAMAD_SEQUENCES='{"gap": "5s", "max_samples": 9}', STREAMAD_SEQUENCES__END='["gap", "marker"]'
    ).sequences
    assert (sequences.end, sequences.gap, sequences.max_samples) == (("gap", "marker"), 5_000_000, 9)


def test_options_of_a_connector_can_be_overridden(load: Load) -> None:
    text = MINIMAL.replace("}", ", options: {group: a, deep: {x: 1}}}")
    assert load(text, STREAMAD_SOURCE__OPTIONS__GROUP="b").source.options == {"group": "b", "deep": {"x": 1}}


def test_null_switches_a_value_off(load: Load) -> None:
    assert load(STREAMAD_RUN__CHECKPOINT="null").run.checkpoint is None


def test_variables_count_in_any_case(load: Load) -> None:
    assert load(streamad_name="lower").name == "lower"
    (problem,) = problems(load, streamad_nmae="x")
    assert problem == "environment variable streamad_nmae: unknown key 'nmae'; did you mean 'name'?"


def test_wrong_values_name_their_variable_among_the_problems_of_the_file(load: Load) -> None:
    text = MINIMAL + "alerts: {false_alarm_rate: 2}\nwindow: {length: 64}\n"
    found = problems(
        load,
        text,
        STREAMAD_WINDOW__LENGTH="long",
        STREAMAD_SEQUENCES__END="gap",
        STREAMAD_MODEL='{"folds": 1, "nmae": "x"}',
    )
    assert sorted(found) == [
        "alerts.false_alarm_rate (line 5): Input should be less than 1",
        "environment variable STREAMAD_MODEL, folds: Input should be greater than or equal to 2",
        "environment variable STREAMAD_MODEL, nmae: unknown key 'nmae'; did you mean 'name'?",
        "environment variable STREAMAD_SEQUENCES__END: must be a list (in an environment variable: as JSON)",
        "environment variable STREAMAD_WINDOW__LENGTH: "
        "Input should be a valid integer, unable to parse string as an integer",
    ]


DEEP = ("[" * 100_000, '{"a":' * 100_000, "[" * 60 + "]" * 60, '{"env":' * 51 + "1" + "}" * 51)


@pytest.mark.parametrize("text", DEEP, ids=["lists", "mappings", "closed", "one too deep"])
@pytest.mark.parametrize("variable", ["STREAMAD_MODEL", "STREAMAD_SOURCE__OPTIONS", "STREAMAD_NAME", "STREAMAD_NMAE"])
def test_json_that_is_nested_too_deeply_is_one_problem(load: Load, variable: str, text: str) -> None:
    assert problems(load, **{variable: text}) == [f"environment variable {variable}: is nested too deeply"]


def test_json_as_deep_as_a_file_may_be_is_read(load: Load) -> None:
    text = '{"a":' * 50 + "1" + "}" * 50
    assert str(load(STREAMAD_SOURCE__OPTIONS=text).source.options).count("'a'") == 50


def test_typos_are_reported_once_each(load: Load) -> None:
    found = problems(load, STREAMAD_NMAE="x", STREAMAD_SEQUENCES__GPA="1s", STREAMAD_CHANNELS__0__NAME="b")
    assert found == [
        "environment variable STREAMAD_CHANNELS__0__NAME: "
        "a list is overridden as a whole: set STREAMAD_CHANNELS to all of it, as JSON",
        "environment variable STREAMAD_NMAE: unknown key 'nmae'; did you mean 'name'?",
        "environment variable STREAMAD_SEQUENCES__GPA: unknown key 'gpa'; did you mean 'gap'?",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "STREAMAD_DATA",
        "STREAMAD_KAFKA_CACHE",
        "STREAMAD_SERVICE_HOST",
        "STREAMAD_PORT",
        "STREAMAD_PORT_8080_TCP_ADDR",
        "STREAMAD_METRICS_SERVICE_PORT_HTTP",
    ],
)
def test_variables_that_others_set_are_no_typos(load: Load, name: str) -> None:
    assert load(**{name: "tcp://10.0.0.1:8080"}).name == "plant"


def test_a_wrong_section_is_no_variable_of_kubernetes(load: Load) -> None:
    (problem,) = problems(load, STREAMAD_WINDOWS__PORT="1")
    assert problem.startswith(
        "environment variable STREAMAD_WINDOWS__PORT: unknown key 'windows'; did you mean 'window'"
    )


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    secret = SecretSource(env="KAFKA_PASSWORD").resolve()
    assert isinstance(secret, SecretStr)
    assert secret.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(secret) + str(secret)


@pytest.mark.parametrize("content", ["hunter2", "hunter2\n", "hunter2\r\nsecond line\n"])
def test_a_secret_is_the_first_line_of_its_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(content.encode())
    assert SecretSource(file=path).resolve().get_secret_value() == "hunter2"


def test_a_missing_secret_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment variable NOT_SET_ANYWHERE is not set"):
        SecretSource(env="NOT_SET_ANYWHERE").resolve()
    with pytest.raises(ConfigError, match=r"cannot read a secret from .*nowhere"):
        SecretSource(file=tmp_path / "nowhere").resolve()
    with pytest.raises(ConfigError, match="cannot read a secret from"):
        SecretSource(file=tmp_path).resolve()


@pytest.mark.parametrize("file", ["/dev/zero", "a\0b", "/"])
def test_a_secret_that_no_file_holds(file: str) -> None:
    with pytest.raises(ConfigError, match="cannot read a secret from"):
        SecretSource(file=Path(file)).resolve()


def test_an_unreadable_secret_stays_out_of_the_error(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"hunter2\xff\n")
    with pytest.raises(ConfigError) as caught:
        SecretSource(file=path).resolve()
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("given", [{}, {"env": "A", "file": "b"}])
def test_a_secret_has_one_place(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="name either env or file"):
        SecretSource.model_validate(given)


def test_a_secret_cannot_stand_in_the_config() -> None:
    with pytest.raises(ValueError, match="valid dictionary or instance of SecretSource"):
        SecretSource.model_validate("hunter2")


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("source: {url: 'kafka://me:hunter2@host/topic'}", "source.options"),
        ("sinks: {late: 'mine://:hunter2@h'}", "sinks.options.mine"),
        ("notify: {undelivered: 'kafka://me:hunter2@h:1/t'}", "sinks.options.kafka"),
        ("learning: {feedback: 'kafka://me:hunter2@h:1/t'}", "sinks.options.kafka"),
        ("model: {recordings: 'kafka://me:hunter2@h:1/t'}", "source.options"),
    ],
)
def test_a_url_that_holds_a_password_is_refused_without_showing_it(load: Load, key: str, place: str) -> None:
    text = "channels: [{name: a}]\n" if key.startswith("source") else MINIMAL
    (problem,) = problems(load, text + key + "\n")
    assert f"holds a password: name its variable or file in the options, as in {place}.security.password: {{" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "store",
    ["s3://me:hunter2@bucket/store", "s3://bucket", "file:///store", "file:store", "zip::store.zip", "dir::/store"],
)
def test_a_url_of_the_store_is_refused_without_showing_a_password(load: Load, store: str) -> None:
    (problem,) = problems(load, MINIMAL + f"learning: {{store: '{store}'}}\n")
    assert (
        "learning.store (line 5): is a URL, and the store is a file of the learner's machine: name a folder" in problem
    )
    assert "hunter2" not in problem


@pytest.mark.parametrize("process", ["worker", "nowhere"])
def test_the_learner_is_started_here_or_elsewhere(load: Load, process: str) -> None:
    (problem,) = problems(load, MINIMAL + f"learning: {{process: {process}}}\n")
    assert "learning.process (line 5): Input should be 'here' or 'elsewhere'" in problem
    learning = load(MINIMAL + "learning: {}\n").learning
    assert learning is not None
    assert learning.process == "here"


@pytest.mark.parametrize("key", ["policy: newest", "flush_interval: 10s"])
def test_keys_of_stores_that_workers_wrote_are_unknown(load: Load, key: str) -> None:
    (problem,) = problems(load, MINIMAL + f"learning: {{{key}}}\n")
    assert "unknown key" in problem


@pytest.mark.parametrize(
    ("source", "windows"),
    [
        ("{url: recordings/*.jsonl}", "kept/inliers.windows.jsonl"),
        ("{url: 'stdin:'}", "kept/inliers.windows.jsonl"),
        ("{url: 'kafka://h:1,i:2/press'}", "kafka://h:1,i:2/streamad.line-4.windows"),
        ("{url: 'kafka://h:1/press', options: {group: theirs}}", "kafka://h:1/theirs.windows"),
        ("{url: 'kafka://h:1/press?group=ours'}", "kafka://h:1/ours.windows"),
        ("{url: 'kafka://h:1/press?group=ours', options: {group: theirs}}", "kafka://h:1/ours.windows"),
        ("{url: 'kafka://h:1/press?group=a&group=ours'}", "kafka://h:1/ours.windows"),
    ],
)
def test_a_plant_that_learns_writes_windows_where_its_learner_reads_them(load: Load, source: str, windows: str) -> None:
    text = f"name: line-4\nchannels: [{{name: a}}]\nsource: {source}\n"
    learning = "learning: {store: kept/inliers}\n"
    assert load(text).sinks.windows is None
    assert load(text + learning).sinks.windows == windows
    assert load(text + learning + "sinks: {windows: mine.jsonl}\n").sinks.windows == "mine.jsonl"


def test_a_password_in_an_overriding_url_is_refused_without_a_word_that_environments_are_right(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMAD_SOURCE__URL", "kafka://me:hunter2@host/topic")
    (problem,) = problems(load, MINIMAL)
    assert "STREAMAD_SOURCE__URL: holds a password: name its variable or file in the options, as in" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("url", ["kafka://host:9092/topic", "file:///data/a:b@c.csv", "kafka://me@host/topic"])
def test_ports_and_user_names_are_no_passwords(load: Load, url: str) -> None:
    assert load(f"channels: [{{name: a}}]\nsource: {{url: '{url}'}}\n").source.url == url


def test_a_secret_may_live_in_a_variable_with_our_prefix(load: Load) -> None:
    text = MINIMAL.replace("}", ", options: {password: {env: STREAMAD_KAFKA_PASSWORD}}}")
    settings = load(text, STREAMAD_KAFKA_PASSWORD="hunter2")
    assert "hunter2" not in repr(settings)
    assert SecretSource.model_validate(settings.source.options["password"]).resolve().get_secret_value() == "hunter2"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STREAMAD_SOURCE__OPTIONS__SECURITY__PASSWORD__ENV", "STREAMAD_KAFKA_PASSWORD"),
        ("STREAMAD_SOURCE__OPTIONS", '{"security": {"password": {"env": "streamad_kafka_password"}}}'),
        ("STREAMAD_SINKS__OPTIONS__KAFKA", '{"security": {"password": {"env": "STREAMAD_KAFKA_PASSWORD"}}}'),
    ],
)
def test_the_environment_too_may_name_the_variable_of_a_secret(load: Load, variable: str, value: str) -> None:
    settings = load(MINIMAL, **{variable: value, "STREAMAD_KAFKA_PASSWORD": "hunter2"})
    options = settings.source.options or settings.sinks.options["kafka"]
    assert options["security"]["password"]["env"].upper() == "STREAMAD_KAFKA_PASSWORD"
    with pytest.raises(ConfigError, match="unknown key 'kafka_passwort'"):
        load(MINIMAL, STREAMAD_KAFKA_PASSWORT="hunter2")


def test_without_ids_no_sample_may_be_left_out_for_want_of_one(load: Load) -> None:
    skip = "sequences: {end: [gap], gap: 1s, without_id: skip}\n"
    assert load(MINIMAL + skip).sequences.without_id == "skip"
    assert load(MINIMAL + skip + "decode: {fields: {time: ts}}\n").sequences.without_id == "skip"
    no_field = "decode: {fields: {sequence: null}}\n"
    with pytest.raises(ConfigError, match=r"without_id: skip leaves all samples out: decode\.fields\.sequence is null"):
        load(MINIMAL + skip + no_field)
    by_file = "decode: {fields: {sequence: null}, sequence_from: file}\n"
    assert load(MINIMAL + skip + by_file).sequences.without_id == "skip"


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({}, "marks.jsonl"),
        ({"learning": {}}, "marks.jsonl"),
        ({"learning": {"feedback": "said.jsonl"}}, "said.jsonl"),
        ({"learning": {}, "marks": "marks.jsonl"}, "marks.jsonl"),
    ],
)
def test_marks_lie_where_the_config_or_their_former_key_says(sections: dict[str, Any], place: str) -> None:
    assert Settings(channels=[{"name": "a"}], source={"url": "x.csv"}, **sections).marks == place


def test_two_places_of_marks_are_refused_also_if_one_is_the_usual_one() -> None:
    with pytest.raises(ValidationError, match="former name of marks"):
        Settings(
            channels=[{"name": "a"}],
            source={"url": "x.csv"},
            learning={"feedback": "said.jsonl"},
            marks="marks.jsonl",
        )
