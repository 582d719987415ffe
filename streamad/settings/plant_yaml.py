"""The config: every key of ``plant.yaml``, validated as a whole before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from streamad.errors import ConfigError, Problem, some_of
from streamad.plugins import split_url
from streamad.settings.fields import URL_LIKE, ConfigSection, Duration, Name, Size, Url
from streamad.settings.learning import LearningSettings, RoutingSettings
from streamad.settings.metrics import MetricsSettings
from streamad.settings.notify import NotifySettings
from streamad.settings.outputs import DisplaySettings, SinkSettings
from streamad.settings.readings import MissingNumbers, MissingTexts, QualitySettings
from streamad.settings.time_format import EXCEL, UNIX_UNITS, TimeFormat, TimeFormatText, TimeUnit
from streamad.settings.web import WebSettings
from streamad.settings.yaml_file import (
    deep_environment,
    environment_secrets,
    locate,
    nearest_key,
    read_yaml,
    secret_variables,
    stray_environment,
    validation_problems,
)
from streamad.types import ChannelSpec

ENV_PREFIX = "STREAMAD_"
# Folder of real recordings for tests and benchmarks; not part of the config.
_FOREIGN_ENVIRONMENT = frozenset({"STREAMAD_DATA"})


class ChannelSettings(ConfigSection):
    """One sensor signal."""

    name: Name
    """Name in alerts and arrays."""
    unit: str = ""
    """Physical unit, as text."""
    field: str | None = None
    """Its name in your messages if different (dotted path for nested ones)."""
    missing: MissingNumbers = ()
    """Numbers that mean a missing value, such as -9999."""
    quality: QualitySettings | None = None
    """Quality of this channel's readings, in a field beside its own; null: decode.quality."""


class SourceSettings(ConfigSection):
    """Where samples come from."""

    url: Url
    """Scheme and place: a path or glob for files, or kafka://host:port/topic; options may follow after '?'."""
    options: dict[str, Any] = Field(default={})
    """Options of the connector (`streamad check --options` lists them)."""


class FieldSettings(ConfigSection):
    """Field names of a plant's own messages; dotted paths reach into nested objects."""

    stream: str = "stream"
    """Field of the stream (reactor, line, athlete); `key`: the record's key."""
    sequence: str | None = "sequence"
    """Field of the sequence id; null: messages have none."""
    time: str = "time"
    """Field of the event time; `record`: the record's own time."""
    time_of_day: str | None = None
    """Field of the time of day, if that of `time` holds dates alone: both are read as one text, a space between."""
    end: str | None = "end"
    """Field that is true on the last sample of a sequence."""
    values: str | None = "values"
    """Object with one field per channel; null: the channels are fields of the message (flat)."""
    channel: str | None = None
    """One channel per message: the field with its name."""
    value: str | None = None
    """One channel per message: the field with its value."""
    ignore_unknown: bool = True
    """Flat and per-channel forms: skip fields not in `channels` (false: such messages are dead letters)."""

    @model_validator(mode="after")
    def _channel_and_value(self) -> FieldSettings:
        if (self.channel is None) != (self.value is None):
            raise ValueError("channel and value go together")
        return self

    @model_validator(mode="after")
    def _date_and_time(self) -> FieldSettings:
        if self.time_of_day is not None and self.time == "record":
            raise ValueError("time_of_day needs a field with dates: time is record")
        return self


class DecodeSettings(ConfigSection):
    """How messages are read."""

    format: Literal["auto", "json", "msgpack"] = "auto"
    """Wire format; auto: by the first byte of each message."""
    fields: FieldSettings | None = None
    """Field names of foreign messages; null: streamad's own format."""
    sequence_from: Literal["message", "file"] = "message"
    """Source of the sequence's id: the messages, or the file's name (one sequence a file)."""
    time: Literal["absolute", "relative"] = "absolute"
    """relative: times are seconds since the sequence's start."""
    time_unit: TimeUnit = "s"
    """Unit of numeric times, absolute or relative."""
    time_format: TimeFormatText | None = None
    """Format of times: strptime tokens, or excel, unix_s, unix_ms, unix_us, unix_ns; null: RFC 3339 or numbers."""
    timezone: str | None = None
    """IANA time zone of dates without a UTC offset; null: such dates are unreadable."""
    missing: MissingTexts = ()
    """Texts in place of numbers that mean a missing value, in any case; others are counted as unreadable values."""
    quality: QualitySettings | None = None
    """Quality of all readings of a message; null: messages have none."""
    default_stream: str | None = None
    """Stream of messages without one."""
    max_clock_skew: Duration = 3_600_000_000
    """Samples further ahead of their record's time are unreadable."""
    max_message_bytes: Size = 8_000_000
    """Longer messages are unreadable."""
    max_samples_per_message: int = Field(default=100_000, ge=1)
    """Longer chunks are unreadable."""
    max_dead_letter_bytes: Size = 65_536
    """Bytes of the original kept in a dead letter."""

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
        try:
            return name if name is None else ZoneInfo(name).key
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"no time zone {name!r}: write an IANA name such as Europe/Berlin or UTC") from error

    @model_validator(mode="after")
    def _dates(self) -> DecodeSettings:
        if self.time == "relative" and self.fields is not None and self.fields.time_of_day is not None:
            raise ValueError("fields.time_of_day is for absolute times: leave it out")
        text = self.time_format
        if text is None:
            return self
        if self.time == "relative" or (self.fields is not None and self.fields.time == "record"):
            raise ValueError("time_format is for absolute times in the messages: leave it out")
        if "time_unit" in self.model_fields_set:
            raise ValueError("time_format and time_unit: leave one of them out")
        needs_zone = text == EXCEL or (text not in UNIX_UNITS and not TimeFormat(text).has_offset)
        if needs_zone and self.timezone is None:
            raise ValueError(
                f"dates of time_format {text!r} have no UTC offset: set decode.timezone, such as Europe/Berlin or UTC"
            )
        return self

    @property
    def gives_ids(self) -> bool:
        """Return whether messages, or the files' names, can hold sequence ids."""
        return self.sequence_from == "file" or self.fields is None or self.fields.sequence is not None

    @property
    def unit(self) -> TimeUnit:
        """Return the unit of numeric times."""
        return UNIX_UNITS.get(self.time_format or "", self.time_unit)

    @model_validator(mode="after")
    def _one_id(self) -> DecodeSettings:
        given = FieldSettings(sequence=None) if self.fields is None else self.fields
        if self.sequence_from == "file" and given.sequence is not None and "sequence" in given.model_fields_set:
            raise ValueError(f"sequence_from: file and fields.sequence ({given.sequence}): leave one of them out")
        return self


class SequenceSettings(ConfigSection):
    """When a sequence ends, and its limits."""

    end: tuple[Literal["marker", "change", "gap", "length"], ...] = ("marker", "change")
    """Any of: marker (end: true), change (a new sequence id on the stream), gap, length."""
    gap: Duration | None = None
    """With `gap`: a longer pause ends the sequence."""
    length: int | None = Field(default=None, ge=1)
    """With `length`: samples (distinct times) of a sequence."""
    without_id: Literal["keep", "skip"] = "keep"
    """Samples without a sequence id, as in pauses: of sequences named by their start (keep), or only counted (skip)."""
    max_duration: Duration = 86_400_000_000
    """Limit in event time, always on."""
    max_samples: int = Field(default=1_000_000, ge=1)
    """Limit in samples, always on."""
    allowed_lateness: Duration = 0
    """Event time by which samples may arrive out of order."""
    closed_memory: Duration | None = None
    """How long ids of ended sequences are kept; null: max_duration + allowed_lateness."""
    max_streams: int = Field(default=10_000, ge=1)
    """Further streams are refused (dead letters)."""
    max_buffered_bytes: Size = 512_000_000
    """Memory for open sequences; above it the source is paused, then the largest sequence ends."""

    @model_validator(mode="after")
    def _modes_have_limits(self) -> SequenceSettings:
        if not self.end:
            raise ValueError("end names no mode: give at least one of marker, change, gap, length")
        if ("gap" in self.end) != (self.gap is not None):
            raise ValueError("end mode gap and the key gap go together")
        if ("length" in self.end) != (self.length is not None):
            raise ValueError("end mode length and the key length go together")
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
    """Sequences longer than L: cut at L, squeezed to L, or unscorable."""
    max_missing: float = Field(default=0.2, ge=0, le=1)
    """Larger share of a channel missing: unscorable."""
    min_samples: int = Field(default=2, ge=1)
    """Shorter sequences are unscorable."""


Effort: TypeAlias = Literal["quick", "normal", "thorough"]


class ModelSettings(ConfigSection):
    """The detector and where its versions are kept."""

    name: Name = "default"
    """Name in the registry."""
    recordings: Url | None = None
    """Recordings of normal sequences for `streamad train`; null: the source."""
    registry: Path = Path("registry")
    """Folder of the model registry."""
    detector: str = "ensemble"
    """Kind of detector (entry point)."""
    options: dict[str, Any] = Field(default={})
    """Options of the detector."""
    keep: int | None = Field(default=None, ge=1)
    """Versions kept: after a training older ones are removed, never those that may still be needed; null: all."""
    seed: int = Field(default=0, ge=0)
    """Seed of training: same data and seed, same model."""
    backend: Literal["auto", "torchscript", "onnxruntime", "openvino"] = "torchscript"
    """What scores: torchscript; onnxruntime or openvino, which need no torch; auto: the fastest that is installed."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """auto, cpu, cuda or cuda:i."""
    calibration: float = Field(default=0.5, gt=0, lt=1)
    """Share of the recordings held out for calibration (from 150 sequences on; below, out of fold)."""
    folds: int = Field(default=5, ge=2)
    """Folds of the out-of-fold calibration."""
    references: tuple[str, ...] = ("pointwise", "pca", "nearest", "minirocket", "unfolded", "mpca")
    """Kinds of detectors, with their default options, that a trained model is compared with; []: none, no faults."""
    effort: Effort | None = None
    """Effort of training: quick (seconds), normal (minutes), thorough; null: the detector's default."""
    time_limit: Duration | None = None
    """Longest time of one fit (each fold and the final model is one), which ends at an epoch's end; null: none."""

    @field_validator("time_limit")
    @classmethod
    def _longer_than_nothing(cls, limit: int | None) -> int | None:
        if limit == 0:
            raise ValueError("must be longer than 0 (null: no limit)")
        return limit

    @field_validator("registry")
    @classmethod
    def _is_a_folder(cls, folder: Path) -> Path:
        if ":/" in str(folder):  # Path has made one slash of two
            raise ValueError(
                f"{str(folder)!r} is no folder: a model is promoted by an atomic rename under a lock, so the registry "
                "lies on a POSIX file system (mount one that all workers share)"
            )
        return folder


class AlertSettings(ConfigSection):
    """When a sequence is an alert."""

    false_alarm_rate: float = Field(default=0.02, gt=0, lt=1)
    """Alert if the conformal p-value is at most this."""


class RunSettings(ConfigSection):
    """The runtime's limits."""

    checkpoint: Path | None = Path("checkpoint")
    """Folder of the local checkpoint; null: every run starts anew."""
    batch_windows: int = Field(default=64, ge=1)
    """Most windows scored together."""
    batch_wait: Duration = 50_000
    """Longest wait of a window for its batch."""
    commit_interval: Duration = 1_000_000
    """Longest time between commits while outputs wait."""
    outage_after: Duration = 10_000_000
    """Silence of the source (no empty poll either) that counts as an outage: idle time starts anew."""
    report_interval: Duration = 60_000_000
    """Interval of the status line in the log; 0: never."""
    stall_timeout: Duration = 300_000_000
    """The process ends with an error if work waits and nothing moves for so long; 0: never."""
    stop_timeout: Duration = 10_000_000
    """After Ctrl-C or SIGTERM, longest wait for verdicts; the rest is read again by the next run."""

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


class Settings(BaseSettings):
    """The whole of ``plant.yaml``; every key can be overridden as STREAMAD_SECTION__KEY in the environment."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_parse_none_str="null",
        use_attribute_docstrings=True,
    )

    name: Name = "plant"
    """Name of this monitor."""
    channels: tuple[ChannelSettings, ...] = Field(min_length=1)
    """The sensor signals, in the order of every array."""
    source: SourceSettings
    """Where samples come from."""
    decode: DecodeSettings = DecodeSettings()
    """How messages are read."""
    sequences: SequenceSettings = SequenceSettings()
    """When a sequence ends."""
    window: WindowSettings = WindowSettings()
    """How a sequence becomes a window."""
    model: ModelSettings = ModelSettings()
    """The detector."""
    models: RoutingSettings | None = None
    """Several models, chosen by a field of the messages (recipe, product, exercise); null: one model."""
    alerts: AlertSettings = AlertSettings()
    """When a sequence is an alert."""
    learning: LearningSettings | None = None
    """How the model follows the plant; null: only `streamad train` makes models."""
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
    def _files_give_ids(cls, decode: DecodeSettings, info: ValidationInfo) -> DecodeSettings:
        if decode.sequence_from == "file" and (source := info.data.get("source")) is not None:
            check_file_ids(source.url)
        return decode

    @field_validator("sequences")
    @classmethod
    def _some_have_ids(cls, sequences: SequenceSettings, info: ValidationInfo) -> SequenceSettings:
        decode = info.data.get("decode")
        if sequences.without_id == "skip" and decode is not None and not decode.gives_ids:
            raise ValueError("without_id: skip leaves all samples out: decode.fields.sequence is null")
        return sequences

    @field_validator("learning")
    @classmethod
    def _limits_fit(cls, learning: LearningSettings | None) -> LearningSettings | None:
        if learning is not None and (contradiction := learning.contradiction()):
            raise ValueError(contradiction)
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

    @field_validator("channels")
    @classmethod
    def _names_differ(cls, channels: tuple[ChannelSettings, ...]) -> tuple[ChannelSettings, ...]:
        counts = Counter(channel.name for channel in channels)
        if twice := sorted(name for name in counts if counts[name] > 1):
            raise ValueError(f"channel named twice: {some_of(twice)}")
        return channels

    @property
    def channel_specs(self) -> tuple[ChannelSpec, ...]:
        """Name and unit of each channel, in the order of every array."""
        return tuple(ChannelSpec(channel.name, channel.unit) for channel in self.channels)

    @property
    def route_field(self) -> str | None:
        """Field of the messages that chooses the model; None if there is only one model."""
        return None if self.models is None else self.models.field


def windows_topic(source: SourceSettings, plant: str) -> str | None:
    """Return the topic GROUP.windows beside a source in Kafka, None of another source."""
    scheme, place, options = split_url(source.url)
    if scheme != "kafka":
        return None
    group = options.get("group") or source.options.get("group") or f"streamad.{plant}"
    return f"kafka://{place.rpartition('/')[0]}/{group}.windows"


def check_file_ids(url: str) -> None:
    """Raise ValueError if the records of ``url`` lie in no files, so that none could name a sequence."""
    if (scheme := split_url(url)[0]) != "file":
        raise ValueError(f"sequence_from: file needs recordings in files, not {scheme}: leave it out, or read files")


def load_settings(path: Path) -> Settings:
    """Read and validate a config file with the environment's overrides.

    Raises ConfigError holding all problems at once, each with its dotted path and line, the nearest known key named.
    """
    content, lines, problems = read_yaml(path)
    # pydantic-settings takes keyword arguments such as _env_file for its own.
    private = [key for key in content if key.startswith("_")]
    problems += [Problem(key, nearest_key(Settings, (key,)), lines.get((key,))) for key in private]
    if deep := deep_environment(ENV_PREFIX):
        raise ConfigError([*problems, *deep], source=str(path))
    secrets = {*secret_variables(content), *environment_secrets(ENV_PREFIX)}
    stray = stray_environment(Settings, ENV_PREFIX, _FOREIGN_ENVIRONMENT | secrets)
    problems += stray.values()
    try:
        settings = Settings(**{key: value for key, value in content.items() if key not in private})
    except ValidationError as error:
        problems += validation_problems(error, Settings, ENV_PREFIX, lines, stray)
    if problems:
        raise ConfigError(problems, source=str(path))
    return settings


def located_problems(problems: Sequence[Problem], path: Path) -> list[Problem]:
    """Return ``problems`` with the line in ``path``, or the environment variable, of their key.

    Raises ConfigError if the file cannot be read any more.
    """
    _, lines, _ = read_yaml(path)
    return [locate(problem, ENV_PREFIX, lines) for problem in problems]
