"""Checks the models: which of them the sample's sequences need, and whether those in service can be loaded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from streamad.commands.check.findings import Finding, failure, ok, warning
from streamad.commands.check.sample import Sample
from streamad.commands.shared.figures.certification import METHODS, uncertified
from streamad.commands.shared.figures.faults import found_faults
from streamad.errors import ConfigError, StreamadError
from streamad.ingest.windowing import Unscorable
from streamad.judge.bank import Router
from streamad.judge.calibration import certifiable_rate
from streamad.judge.scoring import ModelInService
from streamad.language import percents
from streamad.learn.parts import check_references, detector_for, registry_of, versions_of
from streamad.learn.registry.backends import AUTO, TORCHSCRIPT, is_installed
from streamad.learn.registry.registry import NoModelError
from streamad.plant import Plant
from streamad.ports import BackendDetector
from streamad.settings.learning import RoutingSettings
from streamad.settings.plant_yaml import Settings

_MANY_NAMES = 8
_REMEDY = "train anew, install what is missing, or name another model.backend"


def check_routes(plant: Plant, sample: Sample) -> list[Finding]:
    """Return the models of the sample's sequences; no finding if one model judges all."""
    routing = plant.settings.models
    if routing is None or not sample.sequences:
        return []
    n, n_routed = len(sample.sequences), sum(bool(sequence.routes) for sequence in sample.sequences)
    found = [Router.of(plant.settings).name_for(sequence.routes) for sequence in sample.sequences]
    if not n_routed:
        advice = "check models.field: the name of a field of the messages, or a dotted path to it"
        return [warning("models", f"no message of the sample has {routing.field}", advice)]
    findings = [*_unscorable(found), *_too_many(plant, routing, found), *_untrained(plant, found)]
    names = Counter(name for name in found if not isinstance(name, Unscorable)).most_common()
    listed = ", ".join(f"{name} {count}" for name, count in names[:_MANY_NAMES])
    more = f", and {len(names) - _MANY_NAMES} more" if len(names) > _MANY_NAMES else ""
    return findings or [ok("models", f"{routing.field} in {n_routed} of {n} sequences: {listed}{more}")]


def _unscorable(found: list[str | Unscorable]) -> list[Finding]:
    reasons = Counter(name.detail for name in found if isinstance(name, Unscorable))
    if not reasons:
        return []
    (most, _), *_ = reasons.most_common(1)
    message = f"{reasons.total()} of {len(found)} sequences have no model, most of them because: {most}"
    return [warning("models", message, "their verdicts are unscorable: see models in docs/learning/learning.md")]


def _too_many(plant: Plant, routing: RoutingSettings, found: list[str | Unscorable]) -> list[Finding]:
    n = len({name for name in found if not isinstance(name, Unscorable)} - {plant.settings.model.name})
    if n <= routing.max_models:
        return []
    message = f"{n} values of {routing.field} in the sample, models.max_models is {routing.max_models}"
    return [warning("models", message, "raise it, or choose another field: the sequences beyond it are unscorable")]


def _untrained(plant: Plant, found: list[str | Unscorable]) -> list[Finding]:
    if plant.settings.learning is not None:
        return []
    registry = registry_of(plant)
    try:
        names = sorted({name for name in found if not isinstance(name, Unscorable) and registry.current(name) is None})
    except StreamadError:
        return []  # check_models reports a broken registry
    if not names:
        return []
    more = f" and {len(names) - _MANY_NAMES} more" if len(names) > _MANY_NAMES else ""
    message = f"no version of {', '.join(names[:_MANY_NAMES])}{more} is in service: their sequences are unscorable"
    return [warning("models", message, "streamad train, or a section learning: {} in the config")]


def check_models(plant: Plant, config: Path) -> list[Finding]:
    """Load the models that the config names, and those of further values that are in service."""
    if wrong := _wrong_parts(plant):
        return wrong
    try:
        names = [*Router.of(plant.settings).known_names(), *_further_names(plant)]
    except StreamadError as error:
        return failure("model", error)
    found = [finding for name in dict.fromkeys(names) for finding in _check_model(plant, name, config)]
    return [*found, *_cannot_learn(plant)]


def _wrong_parts(plant: Plant) -> list[Finding]:
    wrong = []
    try:
        detector_for(plant)
    except StreamadError as error:
        wrong += failure("model.options" if isinstance(error, ConfigError) else "model.detector", error)
    try:
        check_references(plant.settings.model)
    except ConfigError as error:
        wrong += failure("model.references", error)
    return wrong


def _further_names(plant: Plant) -> list[str]:
    if plant.settings.models is None:
        return []
    registry, name = registry_of(plant), plant.settings.model.name
    ours = [other for other in registry.names() if other == name or other.startswith(f"{name}.")]
    return [other for other in ours if registry.current(other) is not None]


def _check_model(plant: Plant, name: str, config: Path) -> list[Finding]:
    rate = plant.settings.alerts.false_alarm_rate
    try:
        model = versions_of(plant, name, measured=True).load()
    except NoModelError:
        return _no_model(plant, name, config)
    except StreamadError as error:
        return failure("model", error)
    refused = [warning("model", line, _REMEDY) for line in model.refused]
    found = [*_found(plant, model), *_alone(plant, model), *looks_of(plant.settings, model)]
    if (below := uncertified(model.calibration, model.method, plant.settings)) is not None:
        in_service = ok("model", f"{model.ref.name} {model.ref.version}{_backend(model)}")
        return [in_service, *refused, warning("alerts", below.fact, below.remedy), *found]
    said = f"{model.calibration.n} sequences {METHODS[model.method]} calibrate it for {rate:g}"
    estimate = ", an estimate" if model.method == "out_of_fold" else ""
    in_service = ok("model", f"{model.ref.name} {model.ref.version}, verified; {said}{estimate}{_backend(model)}")
    return [in_service, *refused, *found]


def _found(plant: Plant, model: ModelInService) -> list[Finding]:
    """Return what share of injected faults the model finds at the configured rate, if that was measured."""
    references = registry_of(plant).manifest(model.ref.name, model.ref.version).references
    if (found := found_faults(references, plant.settings)) is None:
        return []
    if found.is_low:
        return [warning("faults", found.fact, found.remedy)]
    return [ok("faults", found.fact)]


def _alone(plant: Plant, model: ModelInService) -> list[Finding]:
    """Return how ``auto`` gets a quicker backend, if it has TorchScript alone."""
    settings, detector = plant.settings.model, detector_for(plant)
    if settings.backend != AUTO or settings.device not in ("auto", "cpu") or not isinstance(detector, BackendDetector):
        return []
    if model.backend != TORCHSCRIPT or model.choice or model.refused or detector.backends[0] == TORCHSCRIPT:
        return []
    fastest = detector.backends[0]
    do = f"pip install 'streamad-monitor[{fastest}]', then train anew"
    return [ok("model.backend", f"{TORCHSCRIPT}: no other is both installed and exported; to be quicker: {do}")]


def looks_of(settings: Settings, model: ModelInService) -> list[Finding]:
    """Return what is to say of the looks at running sequences of ``model``, if the config wants some."""
    if settings.alerts.early is None:
        return []
    rate, early = settings.alerts.early.false_alarm_rate, model.early
    if early is None:
        what = f"{model.ref.name} {model.ref.version} was trained without them, so no running sequence is warned of"
        return [
            warning("alerts.early", what, "streamad train" if settings.learning is None else "streamad models retrain")
        ]
    n, ages = early.calibration.n, [look.form.n_points / early.usual for look in early.looks]
    shown = f"{len(ages)} looks at {percents(ages[0], ages[-1])} of the usual length"
    if rate < certifiable_rate(n):
        fact = f"{shown}; {n} sequences cannot certify {rate:g}: the tail is extrapolated"
        advice = f"set alerts.early.false_alarm_rate to {certifiable_rate(n):.2g} or more, or train on more sequences"
        return [warning("alerts.early", fact, advice)]
    if isinstance(settings.alerts.early.looks, int) and early.usual > settings.window.length:
        fact = f"{shown}, which has {early.usual} points: the window holds {settings.window.length}"
        return [warning("alerts.early", fact, "raise window.length, or window.resample.period, and train anew")]
    return [ok("alerts.early", f"{shown}; {n} sequences calibrate them for {rate:g}")]


def _cannot_learn(plant: Plant) -> list[Finding]:
    learning = plant.settings.learning
    if learning is None or learning.process == "elsewhere" or is_installed(TORCHSCRIPT):
        return []
    if not isinstance(detector_for(plant), BackendDetector):
        return []
    advice = "install torch here, or let `streamad learn` train where it is: set learning.process to elsewhere"
    return [warning("learning", "torch is not installed: this worker cannot train", advice)]


def _backend(model: ModelInService) -> str:
    """Return what serves, if it is not TorchScript, torch is missing or it was chosen by measurement."""
    missing = "" if is_installed(TORCHSCRIPT) else "; torch: not installed"
    if model.backend == TORCHSCRIPT and not model.choice:
        return missing
    choice = f" ({model.choice})" if model.choice else ""
    return f"{missing}{', ' if missing else '; '}serving with {model.backend}{choice}"


def _no_model(plant: Plant, name: str, config: Path) -> list[Finding]:
    learning = plant.settings.learning
    if learning is not None:
        message = f"no version of model {name!r} yet: it learns from the first {learning.first_training} sequences"
        return [ok("model", message)]
    return [warning("model", f"no version of model {name!r} is in service", f"streamad train --config {config}")]
