"""``streamad bridge``: brings what devices publish to an MQTT broker into a topic or a followed file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamad.bridge.bridging import Bridge, BridgeCounts
from streamad.bridge.inlet import Inlet
from streamad.bridge.lines import TOPIC
from streamad.commands.shared.console import Bar, count, err, local_url, out, run_async, stop_on_signals
from streamad.commands.shared.plants import check_bridged, check_out, load_plant, need_mqtt
from streamad.errors import UsageError
from streamad.plant import Plant
from streamad.plugins import ConnectorContext, connect_feed, connect_inlet, split_url
from streamad.system.clock import SystemClock

_CONFIG = Path("plant.yaml")


@dataclass(frozen=True, slots=True)
class _Way:
    """From where to where."""

    url: str
    options: dict[str, Any]
    to: str
    context: ConnectorContext
    listen: str | None


def bridge(
    *,
    url: Annotated[
        str | None,
        typer.Argument(help="Broker and topics, such as mqtts://HOST/plant/+/samples.", metavar="[URL]"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="kafka://HOST:PORT/TOPIC, or a .jsonl file. Default: the config's source.", metavar="PLACE"),
    ] = None,
    username: Annotated[str | None, typer.Option(help="The broker's user.", metavar="NAME")] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the user's password.", metavar="FILE")
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(help="Trusted authorities (PEM), for mqtts://; default: the system's.", metavar="FILE"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The plant's config. [default: plant.yaml, if no URL is given]"),
    ] = None,
) -> None:
    """Bring what devices publish to an MQTT broker into a topic or a file, from where `streamad run` reads it.

    A message is acknowledged once it is on the disk, or at Kafka's brokers in sync, and the broker keeps a session with
    all that comes while the bridge is away: a kill of the bridge loses nothing. Ctrl-C ends it after what is in flight.

    Topics: + is any level, # all that follow. {stream}, {channel} and {sequence} are levels that name something.
    A reading may be JSON, a bare number or a text.

    ```yaml
    source: {url: kafka://kafka:9092/samples}
    bridge:                                           # in plant.yaml, for streamad bridge alone
      url: mqtts://broker.plant.example/plant/{stream}/{channel}
      options:
        security: {username: streamad, password: {file: mqtt.secret}}
    ```

    Examples: streamad bridge; streamad bridge mqtt://localhost/plant/+/samples --to samples.jsonl
    """
    need_mqtt()
    if url is not None and "://" not in url:
        raise UsageError(f"{url}: begin it with mqtt:// or, for TLS, mqtts://, as in mqtts://HOST/plant/+/samples")
    login = {"username": username, "password": password_file and {"file": password_file.absolute()}}
    security = {name: value for name, value in login.items() if value is not None}
    if ca_file is not None:
        security["ca_file"] = ca_file.absolute()
    way = _from_config(config or _CONFIG, to) if url is None else _typed(url, to, config)
    if security:
        way.options["security"] = {**way.options.get("security", {}), **security}
    run_async(_run(way))


def _from_config(config: Path, to: str | None) -> _Way:
    plant = load_plant(config)
    given = plant.settings.bridge
    if given is None:
        raise UsageError(f"{config} has no section bridge: add bridge: {{url: mqtts://HOST/TOPIC}}, or type the URL")
    return _Way(given.url, dict(given.options), _place(plant, to), plant.context, given.listen)


def _typed(url: str, to: str | None, config: Path | None) -> _Way:
    if config is None and to is not None and not to.lower().startswith("kafka:///"):
        return _Way(url, {}, local_url(to), ConnectorContext((), SystemClock(), Path.cwd()), None)
    if config is None and not _CONFIG.exists():
        raise UsageError("say where messages go: --to FILE.jsonl, or --to kafka://HOST:PORT/TOPIC")
    plant = load_plant(config or _CONFIG)
    given = plant.settings.bridge
    options, listen = ({}, None) if given is None else (dict(given.options), given.listen)
    return _Way(url, options, _place(plant, to), plant.context, listen)


def _place(plant: Plant, to: str | None) -> str:
    """Return the place to write to: ``to`` (relative to the working directory), else the config's."""
    given = plant.settings.bridge
    if to is None and given is not None and given.to is not None:
        check_bridged(plant, given.to)
        return given.to
    if to is None:
        scheme, rest, _ = split_url(plant.settings.source.url)
        return rest if scheme == "file" else f"{scheme}://{rest}"
    place = local_url(to)
    if split_url(place)[0] == "file":
        check_out(plant, Path(split_url(place)[1]), is_recording=True, option="--to")
    return place


async def _run(way: _Way) -> None:
    scheme, rest, _ = split_url(way.to)
    is_file = scheme == "file"
    if is_file and not rest.endswith((".jsonl", ".ndjson")):
        raise UsageError(f"{way.to}: messages become JSON lines: name a file that ends in .jsonl")
    options = {"label_header": TOPIC} if scheme == "kafka" else {}
    inlet: Inlet = connect_inlet(way.url, way.options, way.context, "bridge.options")
    feed = connect_feed(f"jsonl:{rest}" if is_file else way.to, options, way.context, "--to")
    try:
        await feed.send([])  # a broker that is not there is told now, not at the first message
    except BaseException:
        await feed.close()
        raise
    err.print(f"from {inlet.place} to {way.to}; Ctrl-C ends")
    with Bar("waiting for messages", is_endless=True) as bar:

        def show(counts: BridgeCounts) -> None:
            bar.show(f"{counts.safe:,} messages, {bar.rate(counts.safe):.0f}/s, {inlet.counts.in_flight} in flight")

        bridge = Bridge(inlet, feed, as_lines=is_file, on_progress=show)
        async with _metrics(way.listen, inlet, bridge.counts):
            with stop_on_signals(bridge.stop, "finishing what is in flight"):
                await bridge.run()
    out.print(f"{count(bridge.counts.safe, 'message')} written and acknowledged")


@asynccontextmanager
async def _metrics(listen: str | None, inlet: Inlet, counts: BridgeCounts) -> AsyncIterator[None]:
    """Serve the bridge's metrics during the block, if ``listen`` is an address. Raises OutputError."""
    if listen is None:
        yield
        return
    from streamad.bridge.metrics import BridgeCollector  # noqa: PLC0415 - for those who want it
    from streamad.runtime.metrics import MetricsServer  # noqa: PLC0415

    server = MetricsServer(listen, BridgeCollector(inlet, counts), lambda: inlet.is_connected)
    try:
        yield
    finally:
        await server.close()
