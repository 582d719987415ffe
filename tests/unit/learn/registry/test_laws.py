"""The laws of the registry, in a folder and in an object store: races, kills, damage, versions whole or absent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest

from streamad.errors import ArtifactError, OutputError, RegistryError
from streamad.learn.registry.manifest import MANIFEST_FILE, PromotionDecision
from streamad.learn.registry.pruning import prune
from streamad.learn.registry.registry import CurrentError, NoModelError, OvertakenError, Registry
from streamad.learn.registry.verify import verify_files
from tests.support.learning.places import NAME, Held, Killed
from tests.support.learning.plant import load, train, windows_of

RACERS = 6


def decided(challenger: str, champion: str | None) -> PromotionDecision:
    decided_at = datetime(2026, 3, 2, tzinfo=UTC)
    return PromotionDecision(
        promoted=False,
        reason="no",
        decided_at=decided_at,
        challenger=challenger,
        champion=champion,
        waits_for_review=True,
    )


def assert_whole(held: Held, machine: str) -> None:
    """Every version that a new process on a new machine sees is whole, and the one in service is one of them."""
    registry = held.registry(machine)
    for version in registry.versions(NAME):
        manifest = registry.manifest(NAME, version)
        verify_files(registry.folder(NAME, version), manifest, version)
    assert registry.other_folders(NAME) == {}
    assert registry.current(NAME) in (None, *registry.versions(NAME))


def test_a_version_is_trained_promoted_and_loaded_on_another_machine(held: Held) -> None:
    registry = held.registry()
    assert registry.names() == ()
    with pytest.raises(NoModelError):
        load(registry)
    assert train(registry) == "0001"
    assert train(registry, data=windows_of(30, seed=1)) == "0002"
    there = held.registry("there")
    assert (there.names(), there.versions(NAME), there.current(NAME)) == ((NAME,), ("0001", "0002"), "0002")
    loaded = load(there)
    assert (loaded.ref.version, loaded.manifest.parent) == ("0002", "0001")
    assert loaded.manifest.decision is not None
    data = windows_of(3)
    assert loaded.scorer.score(data.values, data.lengths).shape == (3, 3)
    assert there.folder(NAME, "0002") == held.registry("there").folder(NAME, "0002"), "a copy is made once"
    assert len(there.calibration_terms(NAME, "0001")) == 30
    assert there.named(NAME, "1") == "0001"
    with pytest.raises(RegistryError, match=r"has no version 0009 \(there are: 0001, 0002\)"):
        there.manifest(NAME, "0009")


def test_racing_publishers_get_distinct_numbers(held: Held, published: Callable[..., str]) -> None:
    start = Barrier(RACERS)

    def run(number: int) -> str:
        start.wait()
        return published(held.registry(f"machine-{number}"))

    with ThreadPoolExecutor(RACERS) as pool:
        versions = sorted(pool.map(run, range(RACERS)))
    assert versions == [f"{number:04d}" for number in range(1, RACERS + 1)]
    assert held.registry().versions(NAME) == tuple(versions)
    assert_whole(held, "there")


def test_one_of_racing_promotions_wins(held: Held, published: Callable[..., str]) -> None:
    versions = [published(held.registry()) for _ in range(RACERS)]
    held.registry().promote(NAME, versions[0], expected=None)
    start = Barrier(RACERS - 1)

    def run(version: str) -> str:
        start.wait()
        try:
            held.registry().promote(NAME, version, expected=versions[0])
        except OvertakenError:
            return "overtaken"
        return version

    with ThreadPoolExecutor(RACERS) as pool:
        ended = Counter(pool.map(run, versions[1:]))
    assert ended.pop("overtaken") == RACERS - 2
    assert list(ended) == [held.registry().current(NAME)]


def test_a_late_promotion_is_overtaken_and_a_rollback_is_not(held: Held, published: Callable[..., str]) -> None:
    registry = held.registry()
    for _ in range(3):
        published(registry)
    registry.promote(NAME, "0001", expected=None)
    registry.promote(NAME, "0002", expected="0001")
    for expected in ("0001", None):
        wanted = f"0003 not promoted, 0002 is in service where {expected or 'nothing'} was expected"
        with pytest.raises(OvertakenError, match=wanted) as caught:
            registry.promote(NAME, "0003", expected=expected)
        assert "\n" not in str(caught.value)
    with pytest.raises(RegistryError, match="has no version 0009") as unknown:
        registry.promote(NAME, "0009", expected="0002")
    assert not isinstance(unknown.value, OvertakenError)
    registry.promote(NAME, "0001", expected="0002")
    assert held.registry("there").current(NAME) == "0001"


def second_version(registry: Registry, published: Callable[..., str]) -> None:
    """Publish a second version, promote it and record the decision: every kind of write."""
    version = published(registry, "0001")
    registry.promote(NAME, version, expected="0001")
    registry.record_decision(NAME, version, decided(version, "0001"))


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_write_leaves_the_old_state_or_the_new(
    held: Held, published: Callable[..., str], after: bool
) -> None:
    """20 writes of an object each before and after; of a folder each change of it, once."""
    if held.kind == "folder" and after:
        return  # the change before the next one is the same moment
    registry = held.registry()
    published(registry)
    registry.promote(NAME, "0001", expected=None)
    number, kills = 0, 0
    while True:
        number += 1
        before = held.registry().versions(NAME)
        with held.killed_at(number, after=after) as (dying, writes):
            try:
                second_version(dying, published)
            except Killed:
                kills += 1
            else:
                break
        assert_whole(held, f"after-{number}")
        now = held.registry().versions(NAME)
        assert now[: len(before)] == before
        current = held.registry().current(NAME)
        assert current in {"0001", *now[len(before) :]}
        if current != "0001":
            held.registry().promote(NAME, "0001", expected=current)
    assert kills >= 9, writes
    assert held.registry().manifest(NAME, held.registry().versions(NAME)[-1]).decision is not None
    assert held.registry().current(NAME) == held.registry().versions(NAME)[-1]


@pytest.mark.parametrize("file", ["model.npz", "envelope.npz"])
@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content[:-1] + b"?"])
def test_a_damaged_file_is_neither_promoted_nor_loaded(
    held: Held, published: Callable[..., str], file: str, change: Callable[[bytes], bytes]
) -> None:
    registry = held.registry()
    published(registry)
    held.damage("0001", file, change)
    for use in (lambda: registry.promote(NAME, "0001", expected=None), lambda: load(held.registry("there"), "0001")):
        with pytest.raises(ArtifactError, match=rf"model default 0001: {file} is damaged") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert registry.current(NAME) is None


def test_a_damaged_manifest_stays_a_version_and_gives_no_number(held: Held, published: Callable[..., str]) -> None:
    registry = held.registry()
    published(registry)
    published(registry)
    held.damage("0002", MANIFEST_FILE, lambda _: b'{"format": "streamad-model", "schema_v')
    registry = held.registry()
    assert (registry.versions(NAME), registry.other_folders(NAME)) == (("0001", "0002"), {})
    with pytest.raises(ArtifactError, match=r"manifest\.json is damaged"):
        registry.manifest(NAME, "0002")
    assert published(registry) == "0003"
    assert prune(registry, NAME, keep=1, owed=()) == ("0001",)
    held.damage("0003", MANIFEST_FILE, lambda content: content.replace(b'"0003"', b'"0009"'))
    assert list(held.registry().other_folders(NAME)) == ["0003"]


@pytest.mark.parametrize(
    "content", [b"", b"../../outside", b"0001\n0002\n", b"\xff\xfe\x00", b"A" * 10_000, b"0001\0", b"0009\n"]
)
def test_a_damaged_current_is_one_line_until_a_person_writes_it_anew(
    held: Held, published: Callable[..., str], content: bytes
) -> None:
    registry = held.registry()
    published(registry)
    registry.promote(NAME, "0001", expected=None)
    held.damage_current(content)
    with pytest.raises(CurrentError, match=r"models promote VERSION .*\(there are: 0001\)$") as caught:
        load(registry)
    assert "\n" not in str(caught.value)
    assert registry.current_or_none(NAME) is None
    with pytest.raises(CurrentError):
        registry.promote(NAME, "0001", expected=None)
    registry.promote(NAME, "0001", expected=None, repairs=True)
    assert registry.current(NAME) == "0001"


def test_decisions_are_recorded_in_both_manifests_and_taken_back(held: Held, published: Callable[..., str]) -> None:
    registry = held.registry()
    published(registry)
    published(registry)
    registry.record_decision(NAME, "0002", decided("0002", "0001"))
    registry.record_decision(NAME, "0002", decided("0002", "gone"))
    assert registry.manifest(NAME, "0001").challenged == (decided("0002", "0001"),)
    assert registry.decline(NAME, "0002")
    assert not registry.decline(NAME, "0001")
    decision = held.registry("there").manifest(NAME, "0002").decision
    assert decision is not None
    assert (decision.declined, decision.waits_for_review, decision.champion) == (True, False, "gone")
    for use in (lambda: registry.decline(NAME, "0009"), lambda: registry.record_decision(NAME, "0009", decision)):
        with pytest.raises(RegistryError, match="has no version 0009"):
            use()


def test_pruning_keeps_what_serves_and_numbers_are_not_given_again(held: Held, published: Callable[..., str]) -> None:
    registry = held.registry()
    for parent in (None, "0001", "0002", "0003", "0004"):
        published(registry, parent)
    registry.promote(NAME, "0003", expected=None)
    assert prune(registry, NAME, keep=1, owed=["0001"], dry_run=True) == ("0004",)
    assert prune(registry, NAME, keep=1, owed=["0001"]) == ("0004",)
    assert held.registry("there").versions(NAME) == ("0001", "0002", "0003", "0005")
    assert prune(registry, NAME, keep=1, owed=()) == ("0001",)
    assert_whole(held, "there")
    assert published(registry) == "0006"


def test_a_file_in_place_of_the_local_folder_is_one_line(held: Held, published: Callable[..., str]) -> None:
    local = Path(held.root) if held.kind == "folder" else Path(held.machines) / "here"  # type: ignore[attr-defined]
    local.parent.mkdir(exist_ok=True)
    local.write_text("no folder")
    with pytest.raises(OutputError, match="a file is in the way where a folder is needed"):
        published(held.registry())
