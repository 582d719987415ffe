"""``streamad topics``: creates and checks the topics of a plant whose source is a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import ConfigOption, JsonOption, out, print_json, run_async, styled
from streamad.commands.shared.plants import load_whole_plant, merged_errors, name_config, topics_of
from streamad.errors import UsageError
from streamad.plant import Plant
from streamad.ports import TopicFinding, Topics
from streamad.settings.fields import parse_duration_us

topics = typer.Typer(help="Create and check the topics of a plant whose source is a broker.", no_args_is_help=True)

_US_PER_MS = 1_000
_LONGEST_MS = 1 << 62
_COLOURS = {"ok": "green", "warning": "yellow", "error": "bold red"}


def _history_ms(text: str) -> int:
    """Return milliseconds of a duration such as 90d. Raises typer.BadParameter."""
    try:
        kept_ms = parse_duration_us(text) // _US_PER_MS
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not 0 < kept_ms < _LONGEST_MS:
        raise typer.BadParameter(f"{text!r} is no time that a topic can keep messages for: write for example 90d")
    return kept_ms


@topics.command("create")
def create(
    *,
    config: ConfigOption = Path("plant.yaml"),
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Partitions of an input topic that does not exist yet.")
    ] = 4,
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=32_767, help="Copies of each topic; 3 with three brokers or more.")
    ] = 1,
    history: Annotated[
        int | None,
        typer.Option(
            "--history",
            parser=_history_ms,
            metavar="DURATION",
            help="How long new topics of verdicts, alerts, attributions, windows and events keep messages, "
            "such as 90d: what the page and reports look back on; 30d if not given.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which topics would be created.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create the missing topics: input, progress, sinks and feedback.

    An existing topic stays as it is. The progress topic gets as many partitions as its input, outputs as many as the
    largest input. Exit code 1 if a topic could not be created.

    Example: streamad topics create --partitions 8 --replicas 3 --history 90d
    """
    plant = load_whole_plant(config)

    def wanted(topics: Topics) -> Awaitable[Sequence[TopicFinding]]:
        return topics.create(partitions=partitions, replicas=replicas, history_ms=history or 0, dry_run=dry_run)

    _report(run_async(_asked(plant, wanted)), as_json)


@topics.command("check")
def check(config: ConfigOption = Path("plant.yaml"), as_json: JsonOption = False) -> None:
    """Check topics, settings, permissions and an empty transaction; no topic is written, no group is joined.

    Exit code 1 if a run would fail.

    Example: streamad topics check
    """
    _report(run_async(_asked(load_whole_plant(config), lambda topics: topics.check())), as_json)


async def _asked(plant: Plant, ask: Callable[[Topics], Awaitable[Sequence[TopicFinding]]]) -> Sequence[TopicFinding]:
    """Return what ``ask`` finds out about the plant's topics. Raises UsageError if its source has none."""
    async with topics_of(plant) as found:
        if found is None:
            url = plant.settings.source.url
            raise UsageError(f"the source {url} has no topics: only a broker has them (kafka://host:port/topic)")
        return await ask(found)


def _report(findings: Sequence[TopicFinding], as_json: bool) -> None:
    findings = [finding._replace(text=name_config(finding.text)) for finding in findings]
    is_right = all(finding.level != "error" for finding in findings)
    if as_json:
        print_json({"ok": is_right, "topics": [finding._asdict() for finding in findings]})
    else:
        width = max((len(finding.topic) for finding in findings), default=0)  # merged lines may be longer
        for finding in merged_errors(findings):
            mark = (f"{finding.level:<8}", _COLOURS[finding.level])
            out.print(styled(mark, f" {finding.topic:<{width}}  {finding.text}"))
    if not is_right:
        raise typer.Exit(1)
