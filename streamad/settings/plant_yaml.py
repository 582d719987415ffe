"""The config: every key of ``plant.yaml``, validated as a whole before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from streamad.errors import ConfigError, Problem, some_of
from streamad.plugins import gives_files, nearest_key, split_url
from streamad.settings.batch_table import Table, check_decode, contradiction, rules_of
from streamad.settings.boundaries import BoundaryRules, While
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.settings.fields import URL_LIKE, ConfigSection, Duration, Name, Size, Url
from streamad.settings.learning import LearningSettings, ModelSettings, RoutingSettings, unlocked
from streamad.settings.numerals import check_decimal, option_decimal
from streamad.settings.outputs import (
    AlertSettings,
    BridgeSettings,
    DisplaySettings,
    MetricsSettings,
    NotifySettings,
    SinkSettings,
    WebSettings,
)
from streamad.settings.yaml_file import (
    SCHEMA,
    SCHEMA_KEY,
    check_schema,
    environment_content,
    locate,
    read_yaml,
    secret_variables,
    stray_environment,
    validation_problems,
)
from streamad.types import ChannelSpec

ENV_PREFIX = "STREAMAD_"
# Folder of real recordings for tests and benchmarks; not part of the config.
_FOREIGN_ENVIRONMENT = frozenset({"STREAMAD_DATA", "STREAMAD_KAFKA_CACHE"})


class SourceSettings(ConfigSection):
    """Where samples come from."""

    url: Url
    """A path or glob for files, s3://bucket/folder and the like, or kafka://host:port/topic; after '?' options."""
    options: dict[str, Any] = Field(default={})
    """The connector's options (`streamad check --options`)."""


class SequenceSettings(ConfigSection):
    """When a sequence ends, and its limits."""

    end: tuple[Literal["marker", "change", "gap", "length", "restart", "while", "table"], ...] = ("marker", "change")
    """Any of: marker (end: true), change (a new id), gap, length, restart (times begin anew), while; or table."""
    gap: Duration | None = None
    """With `gap`: a longer pause ends the sequence."""
    length: int | None = Field(default=None, ge=1)
    """With `length`: samples (distinct times) of a sequence."""
    table: Table = None
    """With `table`: the CSV file of batches (stream, sequence, begin, end) that cuts recordings."""
    while_: While = Field(default=None, alias="while")
    """{field: state, in: [RUN]} or {tag: state, in: [RUN]}: samples of other states are in no sequence, and end it."""
    without_id: Literal["keep", "skip"] = "keep"
    """Samples without a sequence id, as in pauses: of sequences named by their start (keep), or only counted (skip)."""
    max_duration: Duration = 86_400_000_000
    """Limit in event time, always on."""
    max_samples: int = Field(default=1_000_000, ge=1)
    """Limit in samples, always on."""
    allowed_lateness: Duration = 0
    """How far samples may come out of order."""
    closed_memory: Duration | None = None
    """How long ended ids are remembered; null: max_duration + allowed_lateness."""
    max_late: float = Field(default=0.05, ge=0, le=1)
    """Larger share of a sequence's samples late before its end: unscorable."""
    max_merged: float = Field(default=0.05, ge=0, le=1)
    """Larger share that replaced another value of the same channel and time: unscorable."""
    max_streams: int = Field(default=10_000, ge=1)
    """Further streams are refused (dead letters)."""
    max_buffered_bytes: Size = 512_000_000
    """Memory of open sequences; then the source pauses, then the largest ends."""

    @model_validator(mode="after")
    def _modes_have_limits(self) -> SequenceSettings:
        if self.while_ is not None and "while" not in self.end:
            self.__dict__["end"] = (*self.end, "while")
        if not self.end:
            raise ValueError(
                "end names no mode: give at least one of marker, change, gap, length, restart, while, table"
            )
        if "while" in self.end and self.while_ is None:
            raise ValueError("end mode while needs the key while, as in while: {field: state, in: [RUN]}")
        if ("gap" in self.end) != (self.gap is not None):
            raise ValueError("end mode gap and the key gap go together")
        if ("length" in self.end) != (self.length is not None):
            raise ValueError("end mode length and the key length go together")
        if ("table" in self.end) != (self.table is not None):
            raise ValueError("end mode table and the key table go together: write end: [table] and table: batches.csv")
        if self.table is not None and len(self.end) > 1:
            raise ValueError("the table says where each sequence begins and ends: write end: [table] alone")
        if self.table is not None and self.without_id == "skip":
            raise ValueError("samples in no row of the table are only counted anyway: leave without_id out")
        if "restart" in self.end and self.allowed_lateness:
            raise ValueError(
                "end mode restart takes a time below the one before for the next sequence, so none may come late: "
                "write allowed_lateness: 0s, or leave restart out of end"
            )
        return self


class ResampleSettings(ConfigSection):
    """A uniform time grid."""

    period: Duration
    """Distance of grid points."""

    @field_validator("period")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("must be longer than 0")
        return value


class WindowSettings(ConfigSection):
    """How a sequence becomes a fixed-length window."""

    length: int = Field(default=128, ge=2, le=65_536)
    """L, the window length in samples."""
    resample: ResampleSettings | None = None
    """Uniform time grid for multi-rate sensors; null: none."""
    longer: Literal["truncate", "resample", "reject"] = "resample"
    """Longer than L: cut at L, squeezed, or unscorable."""
    max_missing: float = Field(default=0.2, ge=0, le=1)
    """Larger share of a channel missing: unscorable."""
    min_samples: int = Field(default=2, ge=1)
    """Shorter sequences are unscorable."""


class RunSettings(ConfigSection):
    """The runtime's limits."""

    checkpoint: Path | None = Path("checkpoint")
    """Folder of the local checkpoint; null: every run starts anew."""
    batch_windows: int = Field(default=64, ge=1)
    """Most windows scored together."""
    batch_wait: Duration = 50_000
    """Longest wait for a batch."""
    commit_interval: Duration = 1_000_000
    """Longest time between commits while outputs wait."""
    outage_after: Duration = 10_000_000
    """Silence of the source that counts as an outage."""
    report_interval: Duration = 60_000_000
    """Interval of the status line; 0: never."""
    stall_timeout: Duration = 300_000_000
    """End with an error if work waits and nothing moves; 0: never."""
    stop_timeout: Duration = 10_000_000
    """Longest wait for verdicts at a stop; the rest is read again."""

    @field_validator("checkpoint")
    @classmethod
    def _is_a_folder(cls, folder: Path | None) -> Path | None:
        if folder is not None and URL_LIKE.match(str(folder)):  # Path has made one slash of two
            raise ValueError(
                f"{str(folder)!r} is no folder: the checkpoint is locked and written with the outputs, so it lies on a "
                "local disk: write a path, without a scheme"
            )
        return folder


class _Environment(EnvSettingsSource):
    """Leaves a value that is not JSON as it is, so that validation reports its variable with all other problems."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def _with_schema_key(schema: dict[str, Any]) -> None:
    """Add the number of the schema, which is read before all keys, to the JSON Schema of the config."""
    about = "The schema of this file; may be left out."
    schema["properties"] = {SCHEMA_KEY: {"const": SCHEMA, "description": about}, **schema["properties"]}


class Settings(BaseSettings):
    """The whole of ``plant.yaml``; every key can be overridden as STREAMAD_SECTION__KEY in the environment."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_parse_none_str="null",
        use_attribute_docstrings=True,
        json_schema_extra=_with_schema_key,
    )

    name: Name = "plant"
    """Name of this monitor."""
    channels: tuple[ChannelSettings, ...] = Field(min_length=1)
    """The sensor signals, in the order of every array."""
    source: SourceSettings
    """Where samples come from."""
    decode: DecodeSettings = Field(default=DecodeSettings(), validate_default=True)
    """How messages are read."""
    sequences: SequenceSettings = SequenceSettings()
    """When a sequence ends."""
    window: WindowSettings = WindowSettings()
    """How a sequence becomes a window."""
    model: ModelSettings = ModelSettings()
    """The detector."""
    models: RoutingSettings | None = None
    """Models chosen by a field of the messages; null: one model."""
    alerts: AlertSettings = AlertSettings()
    """When a sequence is an alert."""
    learning: LearningSettings | None = None
    """How the model follows the plant; null: only `streamad train` makes models; {}: all defaults."""
    marks: Url = "marks.jsonl"
    """File or topic of operators' marks and of requests to the learner; another for each plant."""
    sinks: SinkSettings = Field(default=SinkSettings(), validate_default=True)
    """Where messages go."""
    display: DisplaySettings = DisplaySettings()
    """What is kept for people to look at."""
    web: WebSettings = WebSettings()
    """The page that `streamad web` serves."""
    metrics: MetricsSettings = MetricsSettings()
    """What a worker tells about itself over HTTP."""
    notify: NotifySettings = NotifySettings()
    """Who is told of alerts, by `streamad notify`."""
    bridge: BridgeSettings | None = None
    """What `streamad bridge` brings from an MQTT broker; null: nothing."""
    run: RunSettings = RunSettings()
    """The runtime's limits."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment override the file, whose content is the init arguments."""
        return _Environment(settings_cls), init_settings

    @field_validator("decode")
    @classmethod
    def _fits_source(cls, decode: DecodeSettings, info: ValidationInfo) -> DecodeSettings:
        """Give numbers in text the decimal mark of the source's options, if it has one."""
        source: SourceSettings | None = info.data.get("source")
        if source is None:
            return decode
        check_source_gives(decode, source.url)
        decimal = option_decimal(source.url, source.options)
        if decimal is not None and "decimal" not in decode.model_fields_set:
            decode = decode.model_copy(update={"decimal": decimal})
        check_decimal(decode.decimal, source.url, source.options)
        if decode.decimal == decode.thousands:
            other = "," if decode.decimal == "." else "."
            raise ValueError(f"decimal and thousands are both {decode.decimal!r}: write for example decimal: {other!r}")
        return decode

    @field_validator("sequences")
    @classmethod
    def _some_have_ids(cls, sequences: SequenceSettings, info: ValidationInfo) -> SequenceSettings:
        decode = info.data.get("decode")
        if sequences.without_id == "skip" and decode is not None and not decode.gives_ids:
            raise ValueError("without_id: skip leaves all samples out: decode.fields.sequence is null")
        if sequences.table is not None and decode is not None:
            check_decode(decode)
        if "restart" in sequences.end and decode is not None and decode.time != "relative":
            raise ValueError(
                "end mode restart is for times that count from a start: write decode.time: relative, "
                "or leave restart out of end"
            )
        modes, skips = sequences.end, sequences.without_id == "skip"
        given = {"has_table": sequences.table is not None, "has_marker": "marker" in modes, "skips": skips}
        if decode is not None and (text := contradiction(decode, sequences.while_, **given)):
            raise ValueError(text)
        return sequences

    @field_validator("alerts")
    @classmethod
    def _looks_have_a_grid(cls, alerts: AlertSettings, info: ValidationInfo) -> AlertSettings:
        window = info.data.get("window")
        if alerts.early is not None and window is not None and (text := alerts.early.contradiction(window.resample)):
            raise ValueError(text)
        return alerts

    @field_validator("learning")
    @classmethod
    def _limits_fit(cls, learning: LearningSettings | None, info: ValidationInfo) -> LearningSettings | None:
        data = info.data
        locked = "model" in data and data["model"].locked
        if learning is not None and (contradiction := unlocked(learning) if locked else learning.contradiction()):
            raise ValueError(contradiction)
        early = (
            data["alerts"].early if learning is not None and {"channels", "window", "alerts"} <= data.keys() else None
        )
        if early is not None and (text := early.beyond_learning(len(data["channels"]), data["window"].length)):
            raise ValueError(text)
        return learning

    @field_validator("sinks")
    @classmethod
    def _learner_reads_windows(cls, sinks: SinkSettings, info: ValidationInfo) -> SinkSettings:
        """Give the windows a place if a learner reads them: a topic of the source's cluster, else beside its store."""
        learning, source = info.data.get("learning"), info.data.get("source")
        if learning is None or sinks.windows is not None or source is None:
            return sinks
        url = windows_topic(source, info.data.get("name", "plant")) or f"{learning.store}.windows.jsonl"
        return sinks.model_copy(update={"windows": url})

    @model_validator(mode="after")
    def _tags_are_no_channels(self) -> Settings:
        fields, state = self.decode.fields, self.sequences.while_
        tags = {fields and fields.id_tag, state and state.tag}
        for channel in self.channels:
            if (channel.field or channel.name) in tags:
                raise ValueError(
                    f"channel {channel.name} is also a tag that says where sequences begin (sequences.while, "
                    "decode.fields.sequence): leave it out of channels"
                )
        return self

    @field_validator("channels")
    @classmethod
    def _names_differ(cls, channels: tuple[ChannelSettings, ...]) -> tuple[ChannelSettings, ...]:
        counts = Counter(channel.name for channel in channels)
        if twice := sorted(name for name in counts if counts[name] > 1):
            raise ValueError(f"channel named twice: {some_of(twice)}")
        return channels

    @model_validator(mode="after")
    def _marks_have_one_place(self) -> Settings:
        """Let marks lie where ``learning.feedback``, their former key, says, unless the config names their place."""
        learning = self.learning
        if learning is None:
            return self
        if "marks" not in self.model_fields_set:
            self.__dict__["marks"] = learning.feedback or self.marks
        elif learning.feedback not in (None, self.marks):
            raise ValueError("learning.feedback is the former name of marks: leave it out, and keep this line")
        if learning.feedback_principal is not None and not self.marks.startswith("kafka:"):
            raise ValueError(
                "learning.feedback_principal names a header of Kafka messages, and this is no topic: write "
                "marks: kafka:///TOPIC"
            )
        return self

    @property
    def channel_specs(self) -> tuple[ChannelSpec, ...]:
        """Name, unit and fill of each channel, in the order of every array."""
        return tuple(
            ChannelSpec(channel.name, channel.unit, "hold" if channel.fill == "hold" else UNSET)
            for channel in self.channels
        )

    @property
    def holds(self) -> dict[int, str]:
        """Index and name of each channel whose values hold."""
        return {index: channel.name for index, channel in enumerate(self.channels) if channel.fill == "hold"}

    @property
    def needs_marks(self) -> bool:
        """Whether ``run`` uses the place of marks, or the config names it."""
        return self.learning is not None or "marks" in self.model_fields_set

    @property
    def needs_approvals(self) -> bool:
        """Whether a version needs the approvals of two people before it serves."""
        return self.model.locked or (self.learning is not None and self.learning.promote == "person")

    @property
    def route_field(self) -> str | None:
        """Field of the messages that chooses the model; None if there is only one model."""
        return None if self.models is None else self.models.field

    @property
    def boundaries(self) -> BoundaryRules | None:
        """How states, words and tags say where sequences begin; None if only ids and end marks do."""
        return rules_of(self.decode, self.sequences.while_)


def windows_topic(source: SourceSettings, plant: str) -> str | None:
    """Return the topic GROUP.windows beside a source in Kafka, None of another source."""
    scheme, place, options = split_url(source.url)
    if scheme != "kafka":
        return None
    group = options.get("group") or source.options.get("group") or f"streamad.{plant}"
    return f"kafka://{place.rpartition('/')[0]}/{group}.windows"


def check_source_gives(decode: DecodeSettings, url: str) -> None:
    """Raise ValueError if ``decode`` needs records in files, and those of ``url`` lie in none."""
    scheme = split_url(url)[0]
    ids = decode.sequence_from
    needs = {f"sequence_from: {ids}": ids != "message", "time: row": decode.time == "row"}
    setting = next((setting for setting, is_set in needs.items() if is_set), None)
    if not gives_files(url) and setting is not None:
        raise ValueError(f"{setting} needs recordings in files, not {scheme}: leave it out, or read files")


def load_settings(path: Path) -> Settings:
    """Read and validate a config file with the environment's overrides.

    Raises ConfigError holding all problems at once, each with its dotted path and line, the nearest known key named; of
    a file in another schema that alone.
    """
    content, lines, problems = read_yaml(path)
    check_schema(content, lines, path)
    # pydantic-settings takes keyword arguments such as _env_file for its own.
    private = [key for key in content if key.startswith("_")]
    problems += [Problem(key, nearest_key(Settings, (key,)), lines.get((key,))) for key in private]
    overrides, deep = environment_content(ENV_PREFIX)
    if deep:
        raise ConfigError([*problems, *deep], source=str(path))
    secrets = {*secret_variables(content), *secret_variables(overrides)}
    stray = stray_environment(Settings, ENV_PREFIX, _FOREIGN_ENVIRONMENT | secrets)
    problems += stray.values()
    try:
        settings = Settings(**{key: value for key, value in content.items() if key not in private})
    except ValidationError as error:
        problems += validation_problems(error, Settings, ENV_PREFIX, lines, stray)
    if problems:
        raise ConfigError(problems, source=str(path))
    return settings


def located_problems(problems: Sequence[Problem], config: Path | None) -> list[Problem]:
    """Return ``problems`` with the line in ``config``, or the environment variable, of their key.

    They stay as they are without a config, and if it cannot be read any more.
    """
    try:
        return list(problems) if config is None else _located(problems, config)
    except ConfigError:
        return list(problems)


def _located(problems: Sequence[Problem], config: Path) -> list[Problem]:
    _, lines, _ = read_yaml(config)
    return [locate(problem, ENV_PREFIX, lines) for problem in problems]
