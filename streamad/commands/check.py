"""``streamad check``: would a run work, and would it judge what is meant?"""

from __future__ import annotations

__all__ = ["check"]

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from streamad.commands._check_findings import Finding, failure, ok, warning
from streamad.commands._check_places import check_checkpoint, check_sinks
from streamad.commands._check_source import check_recordings, check_source, check_topics
from streamad.commands._common import ConfigOption, JsonOption, Plant, load_plant, out, print_json
from streamad.errors import StreamadError
from streamad.judge.calibration import certifiable_rate
from streamad.learn.registry import NoModelError
from streamad.wiring import detector_for, model_in_service

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def check(
    config: ConfigOption = Path("plant.yaml"),
    as_json: JsonOption = False,
    fast: Annotated[bool, typer.Option("--fast", help="Leave out the model, which takes seconds to load.")] = False,
) -> None:
    """Check that a run would work, without writing anything.

    Reads the first records of the source and says what becomes of them, looks whether every output can be written, and
    loads the model in service. Exit code 1 if a check failed, 2 if the config itself is wrong.
    """
    plant = load_plant(config)
    findings = [ok("config", f"{config}: {len(plant.settings.channels)} channels")]
    steps: list[Callable[[Plant], list[Finding]]] = [_check_source_and_sinks, check_checkpoint, check_recordings]
    if not fast:
        steps.append(lambda plant: _check_model(plant, config))
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
    topics, told = check_topics(plant)
    is_readable = all(finding.outcome != "failed" for finding in topics)
    return [*topics, *(check_source(plant) if is_readable else []), *check_sinks(plant, told)]


def _check_model(plant: Plant, config: Path) -> list[Finding]:
    try:
        detector_for(plant.settings)
    except StreamadError as error:
        return failure("model.options", error)
    rate = plant.settings.alerts.false_alarm_rate
    try:
        model = model_in_service(plant.settings, plant.base_dir)
    except NoModelError:
        name = plant.settings.model.name
        return [warning("model", f"no version of model {name!r} is in service", f"streamad train --config {config}")]
    except StreamadError as error:
        return failure("model", error)
    n = model.calibration.n
    if rate < certifiable_rate(n):
        message = f"{n} calibration sequences certify {certifiable_rate(n):.3g} at best; {rate:g} is extrapolated"
        advice = f"train on more recordings ({-(-1 // rate) - 1:.0f} for calibration), or raise alerts.false_alarm_rate"
        return [ok("model", f"{model.ref.name} {model.ref.version}"), warning("alerts", message, advice)]
    return [ok("model", f"{model.ref.name} {model.ref.version}, verified; {n} sequences calibrate it for {rate:g}")]


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        mark = f"[{_COLOURS[finding.outcome]}]{finding.outcome:<8}[/]"
        out.print(f"{mark} {escape(f'{finding.check:<20} {finding.message}')}")
        if finding.advice:
            out.print(f"{'':30}{escape(f'-> {finding.advice}')}")


def _summary(n_failed: int, n_warnings: int) -> str:
    if not n_failed and not n_warnings:
        return "all checks passed"
    return f"{n_failed} failed, {n_warnings} warning{'s' * (n_warnings != 1)}"
