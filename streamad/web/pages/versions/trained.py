"""What a version reaches, as train printed it: the faults it finds beside simple kinds, its threshold, its looks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streamad.judge.calibration import certifiable_rate
from streamad.language import NO_BREAK, Words, catalogued, gettext, ngettext, numeral, percent
from streamad.learn.registry.manifest import EarlyRecord, FoundAtRate, Manifest, References
from streamad.messages import ModelRef
from streamad.web.rendering import digits
from streamad.web.site import Site

KINDS: Final = Words(
    {
        "pointwise": catalogued("each reading against the usual one at its place"),
        "pca": catalogued("what principal components of the readings leave over"),
        "nearest": catalogued("distance to the nearest training sequence"),
        "minirocket": catalogued("distance to the nearest training sequence, in features of random kernels"),
        "unfolded": catalogued("distance to the nearest training sequence, each channel and place on its own scale"),
        "mpca": catalogued("multiway principal components, as process engineers use"),
    }
)
"""What the simple kinds do, which a version is measured beside."""
_METHODS: Final = {
    "split": catalogued("held out of the training"),
    "out_of_fold": catalogued("scored out of fold"),
    "reserve": catalogued("of the reserve, which never trains"),
}


@dataclass(frozen=True, slots=True)
class Trained:
    """A version in words: sentences, and tables as heads and rows; what its training did not measure is empty."""

    version: str
    found: str
    doubt: str
    beside: list[tuple[str, ...]]
    left_out: list[str]
    fault_heads: list[str]
    by_fault: list[tuple[str, ...]]
    threshold: str
    certified: str
    warned: str
    looks: list[tuple[str, ...]]
    weights: list[tuple[str, str]]
    facts: list[tuple[str, str]]
    remarks: tuple[str, ...]


def trained(site: Site, manifest: Manifest) -> Trained:
    """Return what is known of a version from its manifest and its calibration."""
    references, early = manifest.references, manifest.early
    fault_heads, by_fault = _by_fault(references)
    return Trained(
        version=manifest.version,
        found="" if references is None else _found(references, site.rate),
        doubt="" if references is None else _doubt(references),
        beside=[] if references is None else _beside(references),
        left_out=_left_out(references),
        fault_heads=fault_heads,
        by_fault=by_fault,
        threshold=_threshold(site, manifest),
        certified=_certified(manifest, site.rate),
        warned=_warned(early),
        looks=_looks(early),
        weights=_weights(manifest.training.settings),
        facts=_facts(manifest),
        remarks=tuple(manifest.training.remarks),
    )


def _found(references: References, rate: float) -> str:
    found = references.found
    low, high = found.interval
    said = gettext(
        "It finds %(share)s of %(n)s faults that were injected into normal sequences, at a false-alarm rate of "
        "%(rate)s (90 %% interval: %(low)s to %(high)s).",
        share=percent(found.share),
        n=references.n_injected,
        rate=percent(found.rate, None),
        low=percent(low),
        high=percent(high),
    )
    if rate != found.rate:
        said += " " + gettext("The rate that is configured now is %(rate)s.", rate=percent(rate, None))
    return said


def _doubt(references: References) -> str:
    """Return what would find more for sure; "" if nothing would."""
    better = references.better
    if better is None or better.found is None:
        return ""
    return gettext(
        "%(kind)s finds more: %(share)s. Train it beside this model (model.detector), and replay recordings with both.",
        kind=better.kind,
        share=percent(better.found.share),
    )


def _beside(references: References) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (gettext("this version"), percent(references.found.share), "", digits(references.auc, 3))
    ]
    for one in references.others:
        if one.found is None:
            continue
        gain = ""
        if one.gain is not None and one.gain_interval is not None:
            low, high = one.gain_interval
            gain = f"{_points(one.gain)}{NO_BREAK}({_points(low)}{NO_BREAK}…{NO_BREAK}{_points(high)})"
        kind = f"{one.kind}: {KINDS[one.kind]}" if one.kind in KINDS else one.kind
        rows.append((kind, percent(one.found.share), gain, _auc(one.auc)))
    return rows if len(rows) > 1 else []


def _auc(auc: float | None) -> str:
    return "" if auc is None else numeral(f"{auc:.3f}")


def _left_out(references: References | None) -> list[str]:
    """Return the simple kinds that were not measured, and why."""
    if references is None:
        return []
    return [f"{one.kind}: {one.left_out}" for one in references.others if one.left_out is not None]


def _points(share: float) -> str:
    text = f"{100 * share:+.0f}".replace("-", "\N{MINUS SIGN}")
    return "0" if text[1:] == "0" else text


def _by_fault(references: References | None) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return heads and rows: which share of each kind of fault the version and each simple kind find."""
    if references is None or not references.found.by_fault:
        return [], []
    shares: dict[str, FoundAtRate] = {gettext("this version"): references.found}
    shares |= {one.kind: one.found for one in references.others if one.found is not None}
    rows = [
        (fault.replace("_", " "), *(_share_of(found, fault) for found in shares.values()))
        for fault in references.found.by_fault
    ]
    return [gettext("fault"), *shares], rows


def _share_of(found: FoundAtRate, fault: str) -> str:
    share = found.by_fault.get(fault)
    return "" if share is None else percent(share)


def _threshold(site: Site, manifest: Manifest) -> str:
    calibration = site.cases.normals.of_model(ModelRef(manifest.name, manifest.version), site.rate).calibration
    if calibration is None:
        return ""
    lowest = calibration.alert_score(site.rate)
    if math.isinf(lowest):
        return gettext("No score can alert at the configured rate of %(rate)s.", rate=percent(site.rate, None))
    quantiles = manifest.metrics.score_quantiles
    return gettext(
        "A sequence alerts from a score of %(score)s on. Normal sequences that did not train score %(median)s in the "
        "middle and %(highest)s at most.",
        score=digits(lowest, 4),
        median=digits(quantiles.get("0.5"), 4),
        highest=digits(quantiles.get("1"), 4),
    )


def _certified(manifest: Manifest, rate: float) -> str:
    """Return how many sequences the threshold rests on, and which rates they certify."""
    metrics = manifest.metrics
    lowest = certifiable_rate(metrics.n_calibration)
    said = percent(math.ceil(1_000 * lowest) / 1_000, 1)  # rounded up it is certified as well
    rests = ngettext(
        "The threshold rests on %(num)s sequence %(how)s.",
        "The threshold rests on %(num)s sequences %(how)s.",
        metrics.n_calibration,
        how=gettext(_METHODS[metrics.method]),
    )
    if metrics.method == "out_of_fold":
        can = gettext("They estimate false-alarm rates from %(rate)s on and certify none.", rate=said)
    else:
        can = gettext("They certify a false-alarm rate of %(rate)s at best.", rate=said)
    below = (
        gettext("The configured rate, %(rate)s, is extrapolated.", rate=percent(rate, None)) if rate < lowest else ""
    )
    return " ".join(filter(None, (rests, can, below)))


def _warned(early: EarlyRecord | None) -> str:
    if early is None or (expected := early.expected) is None:
        return ""
    low, high = expected.interval
    return gettext(
        "While they run, %(share)s of %(n)s injected faults that begin midway are warned of before the end (90 %% "
        "interval: %(low)s to %(high)s), and at most %(rate)s of the normal sequences.",
        share=percent(expected.warned[-1]),
        n=expected.n_faults,
        low=percent(low),
        high=percent(high),
        rate=percent(expected.rate, None),
    )


def _looks(early: EarlyRecord | None) -> list[tuple[str, ...]]:
    """Return the age of each look, and which shares of the faults had begun and were warned of by it."""
    if early is None or (expected := early.expected) is None:
        return []
    return [
        (percent(look.n_points / early.usual), percent(begun), percent(warned))
        for look, begun, warned in zip(early.looks, expected.begun, expected.warned, strict=False)
    ]


def _weights(settings: Mapping[str, object]) -> list[tuple[str, str]]:
    weights = settings.get("weights")
    if not isinstance(weights, Mapping):
        return []
    return [(str(name), digits(float(weight), 3)) for name, weight in weights.items()]


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    """Return how the version was made, for experts."""
    record, form = manifest.training, manifest.window
    effort = record.settings.get("effort")
    grid = "" if form.resample_period_us is None else f", {form.resample_period_us / 1e6:g} s"
    epochs = f", {record.best_epoch} / {record.n_epochs}" if record.n_epochs else ""
    return [
        (gettext("detector"), manifest.detector.kind + (f", {effort}" if effort is not None else "")),
        (gettext("random seed"), str(manifest.seed)),
        (gettext("window"), gettext("%(n)s samples", n=form.length) + f"{grid}; {form.longer}"),
        (
            gettext("training"),
            gettext("%(n)s sequences", n=record.n_sequences) + f", {record.duration_s:.0f} s, {record.device}{epochs}",
        ),
        (gettext("software"), ", ".join(f"{name} {version}" for name, version in manifest.packages.items())),
    ]
