"""``streamad alerts tail``: prints alerts as they are committed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from streamad.commands.shared.console import Fields, err, note, out, print_json, run_async, stop_on_signals
from streamad.commands.shared.monitor import alert_line, attribution_line, unscorable_line, warning_line
from streamad.commands.shared.plants import load_plant
from streamad.errors import UsageError
from streamad.messages import Alert, Attribution, EarlyWarning, Verdict
from streamad.outputs.reading import subscription_of
from streamad.outputs.subscribing import Messages
from streamad.plugins import ConnectorContext, connect_subscription, split_url
from streamad.ports import EndingSubscription, Subscription
from streamad.system.clock import SystemClock

alerts = typer.Typer(help="Follow the alerts of a plant.", no_args_is_help=True)


@alerts.callback()
def _alerts() -> None:
    """Keep ``tail`` a command of the group: without a callback typer merges a group with its only command."""


@alerts.command("tail")
def tail(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="The plant's config, whose alerts sink is followed. [default: plant.yaml]",
            metavar="FILE",
        ),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Follow this URL instead, such as kafka://host:9092/alerts.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Consumer group that stores the position; it begins with the earliest alert.")
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the earliest alert instead of the next one.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each message as one JSON object on a line.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="End after this many messages; it waits for them without --no-follow.")
    ] = None,
    no_follow: Annotated[
        bool,
        typer.Option(
            "--no-follow", help="End after the messages that are there now: all, or with --group those it has not read."
        ),
    ] = False,
) -> None:
    """Print alerts as they are committed, until Ctrl-C, --limit, or with --no-follow the last one that is there.

    If the plant has no verdicts sink, its alerts sink also gets the sequences that could not be judged. With --url of
    the attributions sink it prints why each alert was raised, with that of the warnings sink the warnings.

    Example: streamad alerts tail --group shift-desk --json
    """
    if config is not None and url is not None:
        raise UsageError("--config and --url both name the alerts: leave one out")
    if url is None:
        plant = load_plant(config or Path("plant.yaml"))
        place, folder = plant.settings.sinks.alerts, plant.base_dir
    else:
        plant, place, folder = None, url, Path.cwd()
    is_missing = _is_missing(place, folder)
    wanted: dict[str, Any] = {"group": group} if group is not None else {}
    if from_start or (group is None and (no_follow or is_missing)):
        wanted["start"] = "earliest"
    if is_missing:
        wanted["warn_missing"] = False  # the note says so
    if plant is None:
        subscription = connect_subscription(place, wanted, ConnectorContext((), SystemClock(), folder))
    else:
        subscription = subscription_of(plant, "alerts", wanted)
    if no_follow:
        if not isinstance(subscription, EndingSubscription):
            raise UsageError(f"--no-follow: the messages of {place.partition('?')[0]} have no end")
        subscription.end_with_present()
    else:
        err.print(f"following {place.partition('?')[0]}, Ctrl-C ends")
    if is_missing:
        err.print(note("there is no such file yet" + ("" if no_follow else ": waiting for it")))
    run_async(_until_signal(_print(subscription, as_json=as_json, limit=limit)))


def _is_missing(url: str, folder: Path) -> bool:
    """Return whether ``url`` names a file that is not there."""
    scheme, path, _ = split_url(url)
    return scheme == "file" and not os.path.lexists(folder / path)


async def _print(subscription: Subscription, *, as_json: bool, limit: int | None) -> None:
    n_printed = 0
    kinds = (Alert, Attribution, Verdict, EarlyWarning)
    async with Messages[Alert | Attribution | Verdict | EarlyWarning](subscription, kinds) as messages:
        async for message in messages:
            if isinstance(message, Verdict) and message.decision != "unscorable":
                continue
            if as_json:
                print_json(message)
            else:
                out.print(_line(message))
            n_printed += 1
            if n_printed == limit:
                return


def _line(message: Alert | Attribution | Verdict | EarlyWarning) -> Fields:
    if isinstance(message, Alert):
        return alert_line(message)
    if isinstance(message, EarlyWarning):
        return warning_line(message)
    return attribution_line(message) if isinstance(message, Attribution) else unscorable_line(message)


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Do ``work`` until its end or the first Ctrl-C or SIGTERM."""
    task = asyncio.ensure_future(work)
    with stop_on_signals(task.cancel, ""), contextlib.suppress(asyncio.CancelledError):
        await task
