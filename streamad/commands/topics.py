"""``streamad topics``: make and check the topics of a plant whose source is a broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from streamad.commands.shared.console import ConfigOption, JsonOption, out, print_json, run_async
from streamad.commands.shared.plants import load_whole_plant, name_config
from streamad.commands.shared.topics import folded, kept_topics
from streamad.errors import UsageError
from streamad.plant import Plant
from streamad.ports import TopicFinding

topics = typer.Typer(help="Make and check the topics of a plant whose source is a broker.", no_args_is_help=True)

_COLOURS = {"ok": "green", "warning": "yellow", "error": "bold red"}


@topics.command("create")
def create(
    config: ConfigOption = Path("plant.yaml"),
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Partitions of an input that is not there yet.")
    ] = 4,
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=32_767, help="Copies of each topic: 3 where there are 3 brokers.")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the topics that are missing: the input, its progress, what the sinks write to, feedback and control.

    A topic that is there stays as it is. Progress has the partitions of its input, outputs those of the largest input.
    Exit code 1 where a topic could not be made.

    Example: streamad topics create --partitions 8 --replicas 3
    """
    plant = load_whole_plant(config)
    _report(run_async(_create(plant, partitions, replicas, dry_run)), as_json)


@topics.command("check")
def check(config: ConfigOption = Path("plant.yaml"), as_json: JsonOption = False) -> None:
    """Check partitions, settings and rights of the plant's topics, without writing anything or joining the group.

    Exit code 1 where a run would fail.

    Example: streamad topics check
    """
    _report(run_async(_check(load_whole_plant(config))), as_json)


async def _create(plant: Plant, partitions: int, replicas: int, dry_run: bool) -> Sequence[TopicFinding]:
    async with kept_topics(plant) as keeper:
        if keeper is None:
            raise _keeps_none(plant)
        return await keeper.create(partitions=partitions, replicas=replicas, dry_run=dry_run)


async def _check(plant: Plant) -> Sequence[TopicFinding]:
    async with kept_topics(plant) as keeper:
        if keeper is None:
            raise _keeps_none(plant)
        return await keeper.check()


def _keeps_none(plant: Plant) -> UsageError:
    url = plant.settings.source.url
    return UsageError(f"the source {url} keeps no topics: only a broker has them (kafka://host:port/topic)")


def _report(findings: Sequence[TopicFinding], as_json: bool) -> None:
    findings = [finding._replace(text=name_config(finding.text)) for finding in findings]
    is_right = all(finding.level != "error" for finding in findings)
    if as_json:
        print_json({"ok": is_right, "topics": [finding._asdict() for finding in findings]})
    else:
        width = max((len(finding.topic) for finding in findings), default=0)  # several in one line may be longer
        for finding in folded(findings):
            mark = f"[{_COLOURS[finding.level]}]{finding.level:<8}[/]"
            out.print(f"{mark} {escape(f'{finding.topic:<{width}}  {finding.text}')}")
    if not is_right:
        raise typer.Exit(1)
