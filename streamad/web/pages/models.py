"""The page Models: which version judges and why, how it came about, trainings, and what a person may do about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamad.learn.registry.manifest import Manifest
from streamad.outputs.versions.figures import figure_rows
from streamad.pictures.html import Html, element
from streamad.web.pages.layout import rows_table
from streamad.web.rendering import count

_MOST_OPEN = 10  # versions with a form and a comparison: older ones are in the table


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of one model, the newest first, its trainings in words, and what may be done with them."""

    name: str
    current: str | None
    manifests: tuple[Manifest, ...]
    problems: tuple[str, ...]
    waiting: str | None
    trainings: Mapping[str, str]


def models(
    found: Sequence[Versions], *, may_act: bool, learns: bool, why_not: str, said: str, acted_on: str
) -> list[Html]:
    """Return the content: each model's versions with their decisions, and the forms if ``may_act``.

    ``said`` is a code of what was just done about the model ``acted_on``; any other text is not shown.
    """
    parts = [element("h1", "Models")]
    if (done := _done(found, said, acted_on, learns=learns)) is not None:
        parts.append(element("p", done, class_="said", role="status"))
    if not any(one.manifests for one in found):
        parts.append(element("p", "There is no model yet: streamad train makes one, or learning makes the first."))
    for one in found:
        parts += _model(one)
        if may_act:
            parts += _forms(one, may_relearn=learns)
    if not may_act:
        parts.append(element("p", why_not, class_="soft"))
    return parts


def _done(found: Sequence[Versions], said: str, acted_on: str, *, learns: bool) -> str | None:
    """Return what was done about a model, as the registry has it now; None if nothing was."""
    current = next((one.current for one in found if one.name == acted_on), None)
    if current is None:
        return None
    loaded = "running monitors load it within 2 s" if learns else "running monitors load it at their next start"
    return {
        "in_service": f"Model {acted_on} {current} is now in service; {loaded}.",
        "declined": f"The version of {acted_on} is declined: the same marks make no other one.",
        "asked": f"The training of {acted_on} is asked for; a running monitor takes it on.",
    }.get(said)


def overdue_text(newest: Manifest, schedule: str) -> str:
    """Return that no training has made a version although the ``schedule`` came twice."""
    made = f"its newest version, {newest.version}, was made on {newest.created_at:%Y-%m-%d %H:%M} UTC"
    return f"{made}, and retraining is scheduled ({schedule}): the page Models says what became of the last training"


def _model(one: Versions) -> list[Html]:
    parts = [element("h2", f"Model {one.name}")]
    if one.waiting is not None:
        text = f"{one.waiting} waits for a person: operators' marks have changed what it learned from."
        parts.append(element("p", text, class_="missing"))
    if (line := _lineage(one)) is not None:
        parts.append(element("p", line))
    parts += [element("p", f"{label}: {text}.") for label, text in one.trainings.items()]
    heads = ("version", "made (UTC)", "from", "trained on", "calibrated with", "decision")
    rows = [_row(each, one.current) for each in one.manifests]
    parts.append(rows_table(f"Versions of {one.name}, the newest first", heads, rows))
    parts += [element("p", problem, class_="missing") for problem in one.problems]
    parts += [each for manifest in one.manifests[:_MOST_OPEN] if (each := _compared(manifest)) is not None]
    return parts


def _lineage(one: Versions) -> str | None:
    """Return from which versions the one in service descends, the first one first; None if it has no parent."""
    parents = {each.version: each.parent for each in one.manifests}
    line: list[str] = []
    version = one.current
    while version is not None and version not in line:
        line.append(version)
        version = parents.get(version)
    if len(line) < 2:
        return None
    return f"{line[0]} descends from " + ", ".join(v if v in parents else f"{v} (gone)" for v in line[1:]) + "."


def _row(manifest: Manifest, current: str | None) -> tuple[str, ...]:
    return (
        f"{manifest.version} {'● in service' if manifest.version == current else '○'}",
        f"{manifest.created_at:%Y-%m-%d %H:%M}",
        manifest.parent or "",
        count(manifest.metrics.n_training, "sequence"),
        count(manifest.metrics.n_calibration, "score"),
        _decision(manifest),
    )


def _decision(manifest: Manifest) -> str:
    """Return what became of a version, and why."""
    decision = manifest.decision
    if decision is None:
        return "" if manifest.learning is None else manifest.learning.reason
    return f"declined by a person; {decision.reason}" if decision.declined else decision.reason


def _compared(manifest: Manifest) -> Html | None:
    """Return champion against challenger, as the decision on the version has it; None without figures."""
    decision = manifest.decision
    if decision is None:
        return None
    who = ("challenger",) if decision.champion is None else ("champion", "challenger")
    rows = figure_rows(decision.figures, who)
    if not rows:
        return None
    against = "" if decision.champion is None else f" against {decision.champion}"
    heads = [f"{version} ({each})" for each, version in zip(who, _names(manifest, decision.champion), strict=True)]
    caption = f"{manifest.version}{against}: false alarms and injected faults found"
    table = rows_table(caption, ("", *heads), rows, "narrow")
    return element(
        "details", element("summary", caption), table, data_fold=f"compared {manifest.name} {manifest.version}"
    )


def _names(manifest: Manifest, champion: str | None) -> tuple[str, ...]:
    return (manifest.version,) if champion is None else (champion, manifest.version)


# --- what a person may do ---


def _forms(one: Versions, *, may_relearn: bool) -> list[Html]:
    parts = [_promotion(each.version, one) for each in one.manifests[:_MOST_OPEN] if each.version != one.current]
    parent = next((each.parent for each in one.manifests if each.version == one.current), None)
    if one.current is not None and parent in {each.version for each in one.manifests}:
        parts.append(_rollback(one.name, one.current, str(parent)))
    if may_relearn:
        parts.append(_relearning(one.name))
    return parts


def _promotion(version: str, of: Versions) -> Html:
    """Return the form that puts ``version`` into service in place of the one that the page shows."""
    hidden = {"model": of.name, "version": version, "before": of.current or ""}
    typed = _field("typed", f"promote-{of.name}-{version}", f"Type {version} to put it into service ")
    more = [_button("decline", "Decline")] if version == of.waiting else []
    return _form(f"Put {version} into service", hidden, typed, _button("promote", "Put into service"), *more)


def _rollback(name: str, current: str, parent: str) -> Html:
    """Return the form that returns to the parent of the version in service."""
    why = f"{current} leaves service; if operators' marks had changed it, it counts as declined."
    typed = _field("typed", f"rollback-{name}", f"Type {parent} to return to it ")
    hidden = {"model": name, "version": current, "to": parent}
    summary = f"Roll back from {current} to {parent}"
    return _form(summary, hidden, element("p", why), typed, _button("rollback", "Roll back"))


def _relearning(name: str) -> Html:
    """Return the form that asks for a training after a lasting change of the plant."""
    why = (
        "For a plant that was changed for good, so that its normal sequences alert: a running monitor trains on all "
        "sequences stored since then, whatever their decision, but for confirmed anomalies. The version goes into "
        "service without a comparison, unless its training is in doubt."
    )
    since = _field(
        "since", f"since-{name}", "When it was changed (2026-11-01T08:00:00Z; 2026-11-01; 3d: three days ago) "
    )
    typed = _field("typed", f"relearn-{name}", f"Type {name} to relearn ")
    summary = f"Relearn {name} after a change of the plant"
    return _form(summary, {"model": name}, element("p", why), since, typed, _button("relearn", "Relearn"))


def _form(summary: str, hidden: Mapping[str, str], *parts: Html) -> Html:
    fields = [element("input", name=name, value=value, type="hidden") for name, value in hidden.items()]
    form = element("form", *fields, *parts, method="post", action="/models/act")
    return element("details", element("summary", summary), form, data_fold=summary)


def _field(name: str, identity: str, label: str) -> Html:
    """Return a labelled field; its identity lets what was typed survive a renewal of the page."""
    return element("label", label, element("input", name=name, id=identity, autocomplete="off"))


def _button(act: str, label: str) -> Html:
    return element("button", label, type="submit", name="act", value=act)
