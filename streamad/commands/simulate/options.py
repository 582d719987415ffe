"""``streamad simulate --to``: reads its options, feeds the plant and prints progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamad.commands.shared.console import err, note, out, parse_speed, print_json, run_async, stop_on_signals
from streamad.commands.shared.plants import load_plant
from streamad.commands.shared.progress_bar import Bar
from streamad.commands.simulate.feeder import FeedReport, PlantFeeder, batch_line
from streamad.errors import OutputError, UsageError
from streamad.plugins import ConnectorContext, connect_feed, split_url
from streamad.ports import Clock, Feed
from streamad.ranges import parse_time_us
from streamad.settings.fields import parse_duration_us
from streamad.simulation.messages import PlantMessage, PlantTime, longest_us, plant_messages
from streamad.simulation.sensors import CHANNELS
from streamad.system.clock import SystemClock
from streamad.types import ChannelSpec, from_us

_MAX_SPEED = 1e6  # samples are ten minutes apart: at a higher speed their times would be nearly equal


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The options of ``streamad simulate --to``, as typed."""

    to: str
    config: Path | None
    speed: str
    start: str | None
    batches: int | None
    duration: str | None
    fault_share: float
    chunk: int
    labels: Path | None
    first_index: int
    seed: int
    streams: int
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Pace:
    """``time`` of the samples; ``rate``: microseconds of it in one of the clock's (None: at full speed)."""

    time: PlantTime
    rate: float | None

    def text(self) -> str:
        """Return the pace for a person."""
        begins = f"from {from_us(self.time.start_us):%Y-%m-%d %H:%M:%S} UTC on"
        if self.rate is None:
            return f"at full speed, {begins}"
        if self.time.shrink == 1:
            return f"{self.rate:g} times as fast as real, {begins}"
        return f"{self.time.shrink:g} times as fast as real, times are those of the clock"


def feed_plant(options: FeedOptions) -> None:
    """Feed the simulated plant to its end, for the duration asked for or until Ctrl-C, and print a summary.

    Raises UsageError, ConfigError, PluginError, OutputError.
    """
    clock = SystemClock()
    for_us = None if options.duration is None else _duration_us(options.duration)
    pace = _pace(options, clock.now_us())
    context = _context(options, clock)
    run_async(_feed(options, pace, for_us, context))


async def _feed(options: FeedOptions, pace: _Pace, for_us: int | None, context: ConnectorContext) -> None:
    feed: Feed = connect_feed(options.to, {}, context, "--to")
    place = options.to.partition("?")[0]
    if not options.as_json:
        many = f"{options.streams} fermenters" if options.streams > 1 else "1 fermenter"
        err.print(f"feeding {place}: {many}, {pace.text()}; Ctrl-C ends")
    prints = pace.rate is not None and not options.as_json
    with Bar("simulating the first batches", quiet=options.as_json, is_endless=True) as bar:
        feeder = PlantFeeder(
            feed,
            plant_messages(
                pace.time,
                seed=options.seed,
                first_index=options.first_index,
                n_batches=options.batches,
                n_streams=options.streams,
                fault_share=options.fault_share,
                chunk_samples=options.chunk,
            ),
            context.clock,
            start_us=pace.time.start_us,
            rate=pace.rate,
            labels=options.labels,
            on_progress=lambda report, message: _show(bar, report, message, options.batches, prints),
        )
        try:
            try:
                with stop_on_signals(feeder.stop, "sending what is under way"):
                    report = await feeder.run(for_us)
            finally:
                await feed.close()
        except OutputError as error:
            raise OutputError(f"{error}; {_fed(feeder.report, options.batches)}") from error
    _emit(options, place, report)


def _fed(report: FeedReport, n_batches: int | None) -> str:
    of = "" if n_batches is None else f" of {n_batches}"
    return f"fed {report.batches}{of} whole batches, {report.messages} messages"


def _pace(options: FeedOptions, now_us: int) -> _Pace:
    start_us = None if options.start is None else parse_time_us(options.start, now_us, "--start")
    now_us -= now_us % 1000
    factor = parse_speed(options.speed, _MAX_SPEED)
    if factor is None:
        if start_us is None and options.batches is None:
            raise UsageError("--speed max needs --batches or --start, for the times of the samples")
        if start_us is None:
            # All samples are then in the past: a broker refuses records of the future.
            assert options.batches is not None
            start_us = now_us - longest_us(options.batches, options.streams)
        return _Pace(PlantTime(start_us), None)
    if start_us is None:
        return _Pace(PlantTime(now_us, factor), 1.0)
    return _Pace(PlantTime(start_us), factor)


def _duration_us(text: str) -> int:
    try:
        return parse_duration_us(text)
    except ValueError as error:
        raise UsageError(f"--for {error}") from error


def _context(options: FeedOptions, clock: Clock) -> ConnectorContext:
    config, scheme = options.config, split_url(options.to)[0]
    if config is None and scheme != "file" and options.to.lower().startswith(f"{scheme}:///"):
        config = Path("plant.yaml")  # it names the host
        if not config.exists():
            text = f"write {scheme}://HOST:PORT/..., or name the plant's config: --config plant.yaml"
            raise UsageError(f"--to {options.to} names no host: {text}")
    if config is not None:
        return load_plant(config).context
    channels = tuple(ChannelSpec(name, unit) for name, unit in CHANNELS)
    return ConnectorContext(channels, clock, Path.cwd(), plant="fermenters")


def _show(bar: Bar, report: FeedReport, message: PlantMessage, n_batches: int | None, prints: bool) -> None:
    """Show what was fed so far, and print a line for a batch that is complete."""
    if message.batch is not None and prints:
        err.print(batch_line(message.batch))
    of = "" if n_batches is None else f" of {n_batches}"
    counted = f"{report.batches}{of} batches ({report.faulty} faulty), {report.samples:,} samples"
    behind = f", {report.behind_us / 1e6:.0f} s behind" if report.behind_us > 1_000_000 else ""
    bar.show(f"{counted}, now {from_us(message.time_us):%Y-%m-%d %H:%M:%S}{behind}")


def _emit(options: FeedOptions, place: str, report: FeedReport) -> None:
    if options.as_json:
        labels = None if options.labels is None else str(options.labels)
        print_json({"to": place, "labels": labels, **report.as_dict()})
        return
    how = "interrupted after" if report.interrupted else "fed"
    out.print(
        f"{how} {report.batches} whole batches ({report.faulty} of them faulty): "
        f"{report.samples} samples in {report.messages} messages to {place}"
    )
    if report.behind_us > 1_000_000:
        err.print(
            note(
                f"{report.behind_us / 1e6:.0f} s behind at the end: a lower --speed, fewer --streams or a larger "
                "--chunk keeps up"
            )
        )
    if options.labels is not None and report.batches:
        out.print(f"the truth about them: {options.labels}")
