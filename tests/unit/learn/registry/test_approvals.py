"""The law of approvals: with it no path puts a version into service that two people have not approved as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from threading import Barrier

import msgspec
import pytest

from streamad.errors import RegistryError, UsageError
from streamad.learn.registry.approvals import NotApprovedError, approved, checked_words, digest_of, identity_of
from streamad.learn.registry.manifest import (
    MANIFEST_FILE,
    Approval,
    DetectorRecord,
    FileRecord,
    Manifest,
    Metrics,
    PromotionDecision,
    TrainingRecord,
)
from streamad.learn.registry.pruning import prune
from streamad.learn.registry.registry import Registry
from streamad.learn.store.records import WindowForm
from streamad.types import ChannelSpec
from tests.support.learning.places import NAME, Held, Killed

AT = datetime(2026, 3, 2, tzinfo=UTC)
PEOPLE = {
    "anna": ("Anna", " ANNA ", "\uff41\uff4e\uff4e\uff41", "An\u200bna"),
    "bernd": ("Bernd", "bernd."),
    "cleo": ("Cléo", "cle\u0301o"),
}


def strict(held: Held, machine: str = "here") -> Registry:
    registry = held.registry(machine)
    registry.needs_approvals = True
    return registry


def approve(registry: Registry, version: str, by: str) -> Manifest:
    """What a person does who sees the version as it is, beside the one in service."""
    digest = digest_of(registry.manifest(NAME, version))
    beside = registry.current_or_none(NAME)
    return registry.approve(NAME, version, Approval(by=by, why="looked at it", at=AT, digest=digest, beside=beside))


def served(registry: Registry) -> str | None:
    """Return the version that a worker takes which starts now."""
    with suppress(RegistryError):
        registry.check_approved(NAME, version := registry.in_service(NAME))
        return version
    return None


def changed(content: bytes) -> bytes:
    manifest = json.loads(content)
    return json.dumps({**manifest, "seed": manifest["seed"] + 1}).encode()


class Oracle:
    """Who has approved what, without the code under test."""

    def __init__(self) -> None:
        self.given: dict[str, list[tuple[str, str | None]]] = {}

    def may_serve(self, version: str) -> bool:
        given = self.given.get(version, [])
        return any(len({who for who, beside in given if beside == each}) >= 2 for _, each in given)


@pytest.mark.parametrize("seed", range(4))
def test_no_path_puts_a_version_into_service_without_two_approvals(
    held: Held, published: Callable[..., str], seed: int
) -> None:
    """Any order of what people, trainers, other configs, backups and damage do to a registry."""
    draw, oracle, registry = Random(seed), Oracle(), strict(held)
    n_steps, n_served, versions = (120 if held.kind == "folder" else 25), 0, [published(registry)]
    for step in range(n_steps):
        action = draw.choice(
            ["publish", "approve", "approve", "approve", "promote", "promote", "foreign", "change", "decline"]
        )
        version, who = draw.choice(versions[-3:]), draw.choice([*PEOPLE])
        current = registry.current_or_none(NAME)
        given = oracle.given.setdefault(version, [])
        if action == "publish":
            versions.append(published(registry, current))
        elif action == "approve":
            with suppress(UsageError):
                approve(strict(held, f"machine-{who}"), version, draw.choice(PEOPLE[who]))
                given[:] = [each for each in given if each[1] == current]
                assert who not in {each for each, _ in given}, "the same person twice"
                given.append((who, current))
        elif action == "promote":  # a trainer, a person's promote, a rollback, a restart that goes on
            if oracle.may_serve(version):
                registry.promote(NAME, version, expected=current)
            else:
                with pytest.raises(NotApprovedError, match="two people have to approve it"):
                    registry.promote(NAME, version, expected=current)
        elif action == "foreign":  # another config, a notebook, a restored CURRENT, an editor
            held.registry("other").promote(NAME, version, expected=current)
        elif action == "change":
            held.damage(version, MANIFEST_FILE, changed)
            given.clear()
        else:
            registry.decline(NAME, version)
            given.clear()
        serves = served(strict(held, f"worker-{step % 2}"))
        assert serves is None or oracle.may_serve(serves), (step, action, version)
        assert (serves is not None) == ((now := registry.current_or_none(NAME)) is not None and oracle.may_serve(now))
        n_served += serves is not None
    assert n_served or held.kind != "folder"


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_write_between_the_approvals_leaves_what_a_person_finishes(
    held: Held, published: Callable[..., str], after: bool
) -> None:
    if held.kind == "folder" and after:
        return  # the change before the next one is the same moment
    registry = held.registry()
    published(registry)
    registry.promote(NAME, "0001", expected=None)
    published(registry, "0001")
    number, kills = 0, 0
    while True:
        number += 1
        with held.killed_at(number, after=after) as (dying, writes):
            dying.needs_approvals = True
            try:
                for by in ("Anna", "Bernd"):
                    approve(dying, "0002", by)
                dying.promote(NAME, "0002", expected="0001")
            except Killed:
                kills += 1
            else:
                break
        there = strict(held, f"after-{number}")
        is_approved = approved(there.manifest(NAME, "0002")) is not None
        assert there.current(NAME) == "0001" or is_approved
        for by in ("Anna", "Bernd"):
            with suppress(UsageError):
                approve(there, "0002", by)
        there.promote(NAME, "0002", expected=there.current(NAME))
        assert served(there) == "0002"
        held.registry().promote(NAME, "0001", expected="0002")
        assert there.decline(NAME, "0002")
        assert there.manifest(NAME, "0002").approvals == ()
    assert kills >= 3, writes


def test_of_one_person_at_many_machines_one_approval_counts(held: Held, published: Callable[..., str]) -> None:
    published(strict(held))
    start = Barrier(4)

    def run(number: int) -> str:
        start.wait()
        try:
            approve(strict(held, f"machine-{number}"), "0001", PEOPLE["anna"][number])
        except UsageError as error:
            return str(error).partition(" has ")[2]
        return ""

    with ThreadPoolExecutor(4) as pool:
        refused = "approved model default 0001 already: a second person has to"
        assert sorted(pool.map(run, range(4))) == ["", refused, refused, refused]
    with pytest.raises(NotApprovedError, match="alone has approved it"):
        strict(held).promote(NAME, "0001", expected=None)


def test_an_approval_is_of_the_content_that_was_seen_and_beside_what_served(
    held: Held, published: Callable[..., str]
) -> None:
    registry = strict(held)
    for _ in range(3):
        published(registry)
    seen = digest_of(registry.manifest(NAME, "0001"))
    held.damage("0001", MANIFEST_FILE, changed)
    with pytest.raises(UsageError, match="0001 has changed since it was looked at"):
        registry.approve(NAME, "0001", Approval(by="Anna", why="good", at=AT, digest=seen))
    approve(registry, "0001", "Anna")
    held.damage("0001", MANIFEST_FILE, changed)
    with pytest.raises(NotApprovedError, match="it has changed since it was approved"):
        registry.promote(NAME, "0001", expected=None)
    approve(registry, "0002", "Anna")
    for by in ("Bernd", "Cleo"):  # a newer one overtakes 0002, which waited for its second approval
        approve(registry, "0003", by)
    registry.promote(NAME, "0003", expected=None)
    (only,) = approve(registry, "0002", "Bernd").approvals
    assert (only.by, only.beside) == ("Bernd", "0003")
    with pytest.raises(NotApprovedError, match="Bernd alone has approved it: streamad models approve 0002"):
        registry.promote(NAME, "0002", expected="0003")
    approve(registry, "0002", "Anna")
    registry.promote(NAME, "0002", expected="0003")
    with pytest.raises(UsageError, match="is approved by Bernd and Anna: no further approval is needed"):
        approve(registry, "0002", "Cleo")
    registry.promote(NAME, "0003", expected="0002")  # back to what two people had approved


def test_approvals_in_a_manifest_that_another_hand_wrote_count_as_people_not_as_lines() -> None:
    manifest = draft()
    given = Approval(by="Anna", why="good", at=AT, digest=digest_of(manifest), beside="0001")
    for second, is_approved in (
        ({"by": "Bernd"}, True),
        ({"by": "ANNA"}, False),
        ({"by": "Bernd", "beside": "0002"}, False),
        ({"by": "Bernd", "digest": "0" * 64}, False),
    ):
        both = (given, msgspec.structs.replace(given, **second))
        assert (approved(msgspec.structs.replace(manifest, approvals=both)) is not None) is is_approved, second


def test_a_version_that_is_declined_while_it_is_put_into_service_does_not_come(
    held: Held, published: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = strict(held)
    published(registry)
    for by in ("Anna", "Bernd"):
        approve(registry, "0001", by)
    read, n_read = registry.manifest, 0

    def meanwhile(name: str, version: str) -> Manifest:
        nonlocal n_read
        n_read += 1
        manifest = read(name, version)
        if n_read == 2:  # it was found approved
            assert held.registry("there").decline(name, version)
        return manifest

    monkeypatch.setattr(registry, "manifest", meanwhile)
    with pytest.raises(NotApprovedError):
        registry.promote(NAME, "0001", expected=None)
    assert n_read == 3
    assert held.registry().current(NAME) is None


def test_pruning_keeps_what_a_person_approved_and_the_newest_that_waits(
    held: Held, published: Callable[..., str]
) -> None:
    registry = held.registry()
    for _ in range(6):
        version = published(registry)
        decision = PromotionDecision(promoted=False, reason="", decided_at=AT, champion="0001", waits_for_review=True)
        if version == "0001":
            registry.promote(NAME, version, expected=None)
        else:
            registry.record_decision(NAME, version, decision)
    approve(registry, "0003", "Anna")
    assert prune(registry, NAME, keep=1, owed=()) == ("0002", "0004", "0005")


@pytest.mark.parametrize(
    "name",
    [
        *(" anna  berg", "ANNA BERG", "Anna\u00a0Berg", "\uff21nna \uff22erg", "\U0001d400nna Berg"),
        *("Anna\u200b Berg\ufe0f", "anna.berg", "Anna-Berg"),
    ],
)
def test_one_person_is_not_two_by_how_the_name_is_written(name: str) -> None:
    assert identity_of(name) == "annaberg"


def test_people_are_told_apart() -> None:
    names = ["Anna Berg", "Anne Berg", "Änna Berg", "Anna Berg 2", "अनिल", "अनिला", "Straße 1", "李", "王"]
    assert len({identity_of(name) for name in names}) == len(names)
    assert identity_of("Straße") == identity_of("STRASSE")


@pytest.mark.parametrize(
    ("by", "why"), [(" ", "good"), ("...", "good"), ("Anna", " "), ("Anna", "-"), ("A" * 201, "x")]
)
def test_who_says_nothing_approves_nothing(by: str, why: str) -> None:
    with pytest.raises(UsageError, match=r"--by|--note"):
        checked_words(by, why)


def test_a_reason_is_one_line_without_a_password() -> None:
    by, why = checked_words(" Anna\n Berg ", "see\nhttps://anna:geheim@host/report")
    assert (by, "\n" in why, "geheim" in why) == ("Anna Berg", False, False)


def draft() -> Manifest:
    return Manifest(
        name=NAME,
        version="0001",
        files={"model.npz": FileRecord(sha256="ab" * 32, size_bytes=12)},
        detector=DetectorRecord(kind="mean"),
        channels=(ChannelSpec("temp", "degC"),),
        window=WindowForm(length=8, longer="resample", max_missing=0.2, min_samples=2, resample_period_us=None),
        seed=0,
        training=TrainingRecord(
            n_sequences=10, n_epochs=1, best_epoch=1, best_loss=0.5, duration_s=0.25, device="cpu"
        ),
        metrics=Metrics(
            n_training=10, n_calibration=5, method="split", score_quantiles={"0.5": 1.5}, training_median=1.25
        ),
        parent=None,
        packages={"python": "3.12"},
        created_at=AT,
    )  # fmt: skip


def test_a_digest_stays_as_it_was_with_later_streamads() -> None:
    """Another digest would take every plant's approvals away: a new field of a manifest has an empty default."""
    assert digest_of(draft()) == "d295a313f2c830e66457562b7b2a905794c1e55457310f193a7ecdbf5986bd44"


def test_a_digest_is_of_all_that_a_version_is() -> None:
    manifest = draft()
    file = {"model.npz": FileRecord(sha256="ac" * 32, size_bytes=12)}
    for change in (
        {"files": file},
        {"files": {**manifest.files, "more.npz": file["model.npz"]}},
        {"version": "0002"},
        {"name": "other"},
        {"seed": 1},
        {"parent": "0001"},
        {"channels": (ChannelSpec("temp", "K"),)},
        {"detector": DetectorRecord(kind="mean", options={"n": 1})},
        {"window": msgspec.structs.replace(manifest.window, length=9)},
        {"metrics": msgspec.structs.replace(manifest.metrics, n_calibration=6)},
        {"backends": {"onnxruntime": ("model.onnx",)}},
    ):
        assert digest_of(msgspec.structs.replace(manifest, **change)) != digest_of(manifest), change
    decision = PromotionDecision(promoted=False, reason="", decided_at=AT)
    approval = Approval(by="Anna", why="good", at=AT, digest="")
    said = {"decision": decision, "challenged": (decision,), "approvals": (approval,), "claim": "ab" * 16}
    assert digest_of(msgspec.structs.replace(manifest, **said)) == digest_of(manifest)
