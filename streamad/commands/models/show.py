"""Prints a version of a model: training data, calibration, scores, promotion decision and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from streamad.commands.models.figures import figures_table
from streamad.commands.shared.console import out, print_table, row, styled
from streamad.commands.shared.figures.certification import calibration_text
from streamad.commands.shared.figures.faults import FoundFaults, print_by_fault, print_references
from streamad.commands.shared.figures.warnings import print_expected
from streamad.errors import some_of
from streamad.language import percent
from streamad.learn.registry.approvals import approval_text, counted
from streamad.learn.registry.backends import TORCHSCRIPT
from streamad.learn.registry.manifest import Manifest, PromotionDecision
from streamad.outputs.stored import time_text

_SHOWN_CHALLENGES = 5
_LABEL = 12


def show_page(
    manifest: Manifest, current: str | None, below_certified: str | None = None, found: FoundFaults | None = None
) -> None:
    """Print the page; ``current`` is the version in service, ``below_certified`` a note about the configured rate.

    ``found`` is what is said of the injected faults that it finds.
    """
    serves = "in service" if manifest.version == current else f"not in service ({current or 'none'} is)"
    out.print(styled((f"model {manifest.name} {manifest.version}", "bold"), f", {serves}"))
    packages = ", ".join(f"{name} {version}" for name, version in manifest.packages.items())
    _line(
        "made",
        f"{manifest.created_at:%Y-%m-%d %H:%M:%S} UTC" + (f", from {manifest.parent}" if manifest.parent else ""),
    )
    _line("by", packages)
    options = ", ".join(f"{name}: {value}" for name, value in manifest.detector.options.items())
    _line("detector", manifest.detector.kind + (f" ({options})" if options else "") + f", seed {manifest.seed}")
    if manifest.training.terms:
        _line("terms", some_of(manifest.training.terms))
    _members(manifest.training.settings)
    _line("channels", some_of([f"{one.name}{f' [{one.unit}]' if one.unit else ''}" for one in manifest.channels]))
    _line("windows", _windows(manifest))
    _line("backends", ", ".join([TORCHSCRIPT, *manifest.backends]))
    _line("trained", _training(manifest))
    _line("calibrated", calibration_text(manifest.metrics))
    if below_certified is not None:
        out.print(row("note", below_certified, _LABEL, "yellow"))
    if found is not None:
        _line("faults", found.line(below_certified=below_certified is not None))
    _line(
        "scores",
        _scores(manifest.metrics.score_quantiles) + f"; of training sequences {manifest.metrics.training_median:.4g}",
    )
    if manifest.decision is not None:
        _decision(manifest, manifest.decision)
    for approval in counted(manifest):
        _line("approved", approval_text(approval))
    for challenge in manifest.challenged[-_SHOWN_CHALLENGES:]:
        _line(
            "challenged", f"{challenge.decided_at:%Y-%m-%d %H:%M:%S} UTC by {challenge.challenger}: {challenge.reason}"
        )
    if manifest.references is not None:
        print_references({"this model": manifest.references}, names_better=found is None or not found.is_low)
        print_by_fault("this model", manifest.references)
    print_expected(manifest.early)
    print_table(_files(manifest))


def _line(label: str, text: str) -> None:
    out.print(row(label, text, _LABEL))


def _members(settings: Mapping[str, Any]) -> None:
    """Print the effort and the members' weights, if the detector has them: its settings are its own."""
    if (effort := settings.get("effort")) is not None:
        _line("effort", str(effort))
    weights = settings.get("weights")
    if isinstance(weights, Mapping) and weights:
        _line("weights", ", ".join(f"{name} {weight}" for name, weight in weights.items()))


def _windows(manifest: Manifest) -> str:
    form = manifest.window
    grid = "" if form.resample_period_us is None else f", on a grid of {form.resample_period_us / 1e6:g} s"
    return (
        f"{form.length} samples{grid}; longer: {form.longer}; missing at most {percent(form.max_missing)} of a channel"
    )


def _training(manifest: Manifest) -> str:
    record, learning = manifest.training, manifest.learning
    loss = "" if record.best_loss is None else f", loss {record.best_loss:.4g}"
    epochs = f"best epoch {record.best_epoch} of {record.n_epochs}{loss}" if record.n_epochs else ""
    parts = [f"{record.n_sequences} sequences", epochs, f"{record.duration_s:.0f} s on {record.device}"]
    if learning is not None:
        parts.append(f"because of: {learning.reason}")
        parts.append("" if not learning.n_feedback else f"{learning.n_feedback} of them called false alarms")
        parts.append("" if not learning.n_excluded else f"{learning.n_excluded} more kept out by operators' marks")
        parts.append("" if not learning.n_dropped else f"{learning.n_dropped} worst-scoring ones dropped")
        parts.append(
            "" if learning.since_us is None else f"the plant was another before {time_text(learning.since_us)}"
        )
    parts += record.remarks
    return ", ".join(part for part in parts if part)


def _scores(quantiles: Mapping[str, float]) -> str:
    names = {"0.5": "median", "0.95": "95 %", "0.99": "99 %", "1": "highest"}
    return "calibration " + ", ".join(f"{name} {quantiles[key]:.4g}" for key, name in names.items() if key in quantiles)


def _decision(manifest: Manifest, decision: PromotionDecision) -> None:
    _line("decision", f"{decision.decided_at:%Y-%m-%d %H:%M:%S} UTC: {decision.reason}")
    heads = {"challenger": manifest.version}
    if decision.champion is not None:
        heads = {"champion": decision.champion, **heads}
    table = figures_table(decision.figures, heads)
    if table.row_count:
        print_table(table)


def _files(manifest: Manifest) -> Table:
    table = Table("file", "bytes", "sha256", box=None)
    for name, record in manifest.files.items():
        table.add_row(name, str(record.size_bytes), f"{record.sha256[:16]}...")
    return table
