"""``streamad check``: checks that a run would work and judge the right sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.check.findings import Finding, ok, warning
from streamad.commands.check.models import check_models
from streamad.commands.check.page import check_page
from streamad.commands.check.places import check_bridge, check_checkpoint, check_notify, check_sinks, check_store
from streamad.commands.check.source import check_recordings, check_schemas, check_source, check_topics, list_options
from streamad.commands.check.table import check_table
from streamad.commands.shared.console import (
    ConfigOption,
    Fields,
    JsonOption,
    count,
    judge_on_one_thread,
    local_url,
    out,
    print_json,
    row,
)
from streamad.commands.shared.plants import load_plant
from streamad.plant import Plant
from streamad.runtime.wiring import reading_from
from streamad.system.import_name import REMEDY, name_clash

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "bold red"}
_MESSAGE = 30
"""The column at which the message of a finding begins."""


def check(
    config: ConfigOption = Path("plant.yaml"),
    as_json: JsonOption = False,
    fast: Annotated[bool, typer.Option("--fast", help="Skip the model, which takes seconds to load.")] = False,
    options: Annotated[bool, typer.Option("--options", help="Also list the options of the source.")] = False,
    from_url: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Check only what this path or URL holds.")
    ] = None,
) -> None:
    """Check that a run would work; nothing is written.

    Decodes and cuts the first records of the source, checks that every output and the inlier store can be written,
    reads the secrets of notify.receivers and the page's users, and loads the model in service. Exit code 1 if a check
    failed, 2 if the config is invalid.

    Example: streamad check --from batch-17.csv
    """
    judge_on_one_thread()  # as `run` does, whose loading of the model is tried here
    plant = load_plant(config)
    if from_url is not None:
        plant = reading_from(plant, local_url(from_url))
    findings = [ok("config", f"{config}: {len(plant.settings.channels)} channels")]
    if (clash := name_clash()) is not None:
        findings.append(warning("installation", clash, REMEDY))
    if options:
        findings += list_options(plant)
    steps: list[Callable[[Plant], list[Finding]]] = [
        _check_source_and_sinks,
        check_checkpoint,
        check_store,
        check_recordings,
        check_notify,
        check_bridge,
        check_page,
    ]
    if not fast:
        steps.append(lambda plant: check_models(plant, config))
    if from_url is not None:
        steps = [check_source]
    if not as_json:
        _print(findings)
    for step in steps:
        found = step(plant)
        findings += found
        if not as_json:
            _print(found)
    n_failed = sum(finding.outcome == "failed" for finding in findings)
    n_warnings = sum(finding.outcome == "warning" for finding in findings)
    if as_json:
        print_json({"ok": not n_failed, "failed": n_failed, "warnings": n_warnings, "checks": findings})
    else:
        out.print(_summary(n_failed, n_warnings))
    if n_failed:
        raise typer.Exit(1)


def _check_source_and_sinks(plant: Plant) -> list[Finding]:
    topics, broken = check_topics(plant)
    refused, schemas = check_table(plant), check_schemas(plant)
    is_readable = not refused and all(finding.outcome != "failed" for finding in [*topics, *schemas])
    return [*topics, *refused, *schemas, *(check_source(plant) if is_readable else []), *check_sinks(plant, broken)]


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        line = Fields(_MESSAGE).add(f"{finding.outcome:<8}", _COLOURS[finding.outcome])
        out.print(line.add(f"{finding.check:<20}", gap=" ").add_words(finding.message))
        if finding.advice:
            out.print(row("", f"-> {finding.advice}", _MESSAGE))


def _summary(n_failed: int, n_warnings: int) -> str:
    if not n_failed and not n_warnings:
        return "all checks passed"
    return f"{n_failed} failed, {count(n_warnings, 'warning')}"
