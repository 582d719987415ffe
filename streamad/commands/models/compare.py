"""``streamad models compare``: two versions on the same held-out sequences, injected faults and operators' marks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from streamad.commands.models.figures import figures_table
from streamad.commands.shared.console import Bar, ConfigOption, JsonOption, note, out, print_json, print_table
from streamad.commands.shared.figures.faults import print_references
from streamad.commands.shared.options import ModelOption
from streamad.commands.shared.plants import load_whole_plant
from streamad.errors import UsageError
from streamad.judge.bank import settings_for
from streamad.learn.parts import detector_for, registry_of
from streamad.learn.promotion.comparison import Comparison, compare_versions
from streamad.learn.promotion.review import waiting_version
from streamad.learn.promotion.silenced import Silenced
from streamad.learn.registry.registry import NoModelError
from streamad.outputs.stored import learning_of, one_model, open_store
from streamad.safe_text import visible_name

_SHOWN_SILENCED = 20
_ORDER = {"confirmed": 0, None: 1, "withdrawn": 1, "veto": 2, "false_alarm": 3}
"""Confirmed anomalies first: silencing them is the harm to look for."""


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A version.")],
    b: Annotated[str | None, typer.Argument(metavar="B", help="Another; default: the one in service.")] = None,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two versions: false alarms with their interval, detection of injected faults, operators' marks.

    Both judge the comparison half of the reserve, on which neither was trained; nothing is changed. The version in
    service is the first of the two, whatever their order here. Below are the stored alerts that the first would raise
    again and the second would silence, with operators' marks. Simple kinds of detectors, fitted on the accepted
    sequences (model.references), show what the least effort reaches there.

    Example: streamad models compare 0003 0004
    """
    plant = load_whole_plant(config)
    least = learning_of(plant).promotion.min_comparison
    name = one_model(plant, model)
    registry = registry_of(plant)
    a, other = registry.named(name, a), None if b is None else registry.named(name, b)
    a, b = _in_order(a, other, registry.current(name), name)
    with Bar("comparing", quiet=as_json) as bar:
        found = compare_versions(
            registry,
            open_store(plant, name),
            a,
            b,
            settings=settings_for(plant.settings, name),
            model=name,
            detector=detector_for(plant),
            progress=lambda done, total: bar.show("comparing", done, total),
        )
    if as_json:
        print_json({"model": name, "a": a, "b": b, "comparison": found})
    else:
        current = registry.current(name)
        heads = {"champion": a, "challenger": b}
        _print(
            found, name, least, {who: f"{one} (in service)" if one == current else one for who, one in heads.items()}
        )
        waiting = waiting_version(registry, name, current)
        if waiting is not None and waiting.version == b:
            which = "" if plant.settings.models is None else f" --model {name}"
            out.print(f"to take it: streamad models promote {b}{which}")
            out.print(f"to leave it: streamad models decline {b}{which}")


def _in_order(a: str, b: str | None, current: str | None, name: str) -> tuple[str, str]:
    """Return both versions, the one in service first. Raises NoModelError, UsageError."""
    other = b or current
    if other is None:
        raise NoModelError(f"model {name!r} has no version in service: name both versions")
    if a == other:
        raise UsageError(f"{a} and {other} are the same version: name two")
    return (other, a) if other == current else (a, other)


def _print(found: Comparison, name: str, least: int, heads: dict[str, str]) -> None:
    out.print(f"model {name}, at a configured false-alarm rate of {found.false_alarm_rate:g}")
    print_table(figures_table(found.figures(), heads))
    if found.silenced is not None:
        _print_silenced(found.silenced, heads)
    print_references({heads[who]: record for who, record in found.references.items()})
    if found.n_sequences < least:
        out.print(
            note(
                f"{found.n_sequences} sequences are few: a promotion needs {least} (learning.promotion.min_comparison)"
            )
        )
    if found.raised_threshold:
        who = heads["champion"]
        out.print(note(f"{who} alerts too often; its detections are counted at a raised threshold"))


def _print_silenced(found: Silenced, heads: dict[str, str]) -> None:
    """Print the alerts that the challenger would silence: confirmed anomalies, then those without a mark."""
    if not found.alerts:
        return
    champion, challenger = heads["champion"], heads["challenger"]
    out.print(f"stored alerts that {champion} would raise again and {challenger} would silence (if a false alarm")
    out.print(f"trains {challenger}, its high p there says nothing):")
    table = Table("alert", "sequence", "ended (UTC)", "mark", f"p by {champion}", f"p by {challenger}", box=None)
    for each in sorted(found.alerts, key=lambda one: _ORDER.get(one.judgement, 0))[:_SHOWN_SILENCED]:
        table.add_row(
            each.alert_id[:12],
            visible_name(f"{each.stream}/{each.sequence}"),
            f"{each.ended_at:%Y-%m-%d %H:%M}",
            "-" if each.judgement is None else each.judgement.replace("_", " "),
            f"{each.p_champion:.3g}",
            f"{each.p_challenger:.3g}",
        )
    print_table(table, whole=("alert", "sequence", "ended (UTC)"))
    if len(found.alerts) > _SHOWN_SILENCED:
        out.print(f"... and {len(found.alerts) - _SHOWN_SILENCED} more (all: --json)")
