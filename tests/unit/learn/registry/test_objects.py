"""A registry in an object store: lost answers, races with pruning, leftovers, copies, and stores that are away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.decisions.chain import entry_in
from streamad.decisions.recording import TRAINER, DecisionLog
from streamad.errors import ArtifactError, DoubtfulError, ObjectError, OutputError, RegistryError
from streamad.learn.registry.manifest import MANIFEST_FILE, PROBE_FILE, Manifest
from streamad.learn.registry.places import conditional, objects
from streamad.learn.registry.places.objects import ObjectPlace
from streamad.learn.registry.places.place import RegistryAwayError
from streamad.learn.registry.places.requests import BucketObjects
from streamad.learn.registry.pruning import prune
from streamad.learn.registry.registry import Registry
from streamad.learn.registry.verify import verify_files
from streamad.plant import Plant
from streamad.testing import ManualClock
from tests.support.learning.places import NAME, FailingObjects, HeldInStore, Killed, dying_in_files
from tests.support.learning.plant import load, train, windows_of
from tests.support.objects import CREDENTIALS
from tests.support.runtime.pipeline import START_US, settings_of
from tests.support.s3_stub import StubS3
from tests.unit.learn.registry.test_laws import assert_whole, decided, second_version

NEVER = 10**6
Publish = Callable[..., str]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional, "_PAUSE_S", 0.0)


@pytest.fixture
def first(stored: HeldInStore, published: Publish) -> HeldInStore:
    """A registry with 0001 in service."""
    published(stored.registry())
    stored.registry().promote(NAME, "0001", expected=None)
    return stored


def failing(held: HeldInStore, number: int, machine: str = "here", **how: Any) -> tuple[Registry, FailingObjects]:
    store = FailingObjects(BucketObjects(held.url), number, **how)
    return held.registry(machine, store), store


# --- answers that are lost ---


@pytest.mark.parametrize("how", [{"after": False}, {"after": True}, {"after": True, "refusal": "changed"}])
def test_a_lost_answer_of_any_conditional_write_changes_nothing(
    first: HeldInStore, published: Publish, how: dict[str, Any]
) -> None:
    """Each write takes place once, also if it was carried out and nobody was told."""
    keys = [f"{NAME}/versions/0002/{MANIFEST_FILE}", f"{NAME}/CURRENT", f"{NAME}/versions/0001/{MANIFEST_FILE}"]
    for number in (7, 8, 9, 10):  # after the six files: the manifest, CURRENT, the manifest's decision, the champion's
        registry, store = failing(first, number, **how)
        second_version(registry, published)
        assert store.writes[number - 1] in keys
        assert registry.versions(NAME) == ("0001", "0002")
        assert registry.current(NAME) == "0002"
        assert registry.manifest(NAME, "0002").decision == decided("0002", "0001")
        assert registry.manifest(NAME, "0001").challenged == (decided("0002", "0001"),)
        first.registry().promote(NAME, "0001", expected="0002")
        assert prune(first.registry(), NAME, keep=1, owed=()) == ()
        first.registry().remove(NAME, "0002")
        first.damage("0001", MANIFEST_FILE, _without_decisions)


def _without_decisions(content: bytes) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(content), "challenged": []})


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [3, 7, 8, 9])
def test_a_store_that_goes_away_at_a_write_leaves_the_old_state_or_the_new(
    first: HeldInStore, published: Publish, number: int, after: bool
) -> None:
    registry, _ = failing(first, number, after=after, times=NEVER)
    with pytest.raises((OutputError, RegistryError), match="the store cannot be reached") as caught:
        second_version(registry, published)
    assert "\n" not in str(caught.value)
    assert_whole(first, "there")
    assert first.registry().current(NAME) in {"0001", "0002"}
    version = published(first.registry(), "0001")
    first.registry().promote(NAME, version, expected=first.registry().current(NAME))


def test_a_promotion_whose_answer_was_lost_is_known_though_another_has_followed(
    first: HeldInStore, published: Publish
) -> None:
    for _ in range(2):
        published(first.registry(), "0001")
    registry, store = failing(first, 1, after=True)

    def follow(key: str) -> None:
        store.on_write = lambda _: None
        first.registry("there").promote(NAME, "0003", expected="0002")

    store.on_write = follow
    registry.promote(NAME, "0002", expected="0001")  # it was in service, for a moment
    assert first.registry().current(NAME) == "0003"


@pytest.mark.parametrize("lost", ["request", "answer", "look"])
def test_a_promotion_that_may_have_taken_effect_is_doubtful_in_the_log(
    first: HeldInStore, published: Publish, tmp_path: Path, lost: str
) -> None:
    published(first.registry(), "0001")
    store = FailingObjects(
        BucketObjects(first.url), NEVER if lost == "look" else 1, after=lost == "answer", times=NEVER
    )
    if lost == "look":  # whether the version is still there, once CURRENT is written
        store.on_write = lambda _: setattr(store, "number", 1)
    plant = Plant(settings_of(sinks={"decisions": "log.jsonl"}), tmp_path, ManualClock(START_US), None)
    registry = Registry(ObjectPlace(store, tmp_path / "copies"), log=DecisionLog(plant))
    with pytest.raises(DoubtfulError):
        registry.promote(NAME, "0002", expected="0001", by=TRAINER)
    assert first.registry("there").current(NAME) == ("0001" if lost == "request" else "0002")
    lines = (tmp_path / "log-others.jsonl").read_bytes().splitlines()
    assert [entry_in(line).kind for line in lines] == ["promote", "doubtful"]


# --- pruning beside others ---


def test_a_version_that_is_promoted_while_it_is_removed_stays(first: HeldInStore, published: Publish) -> None:
    for _ in range(2):
        published(first.registry())
    pruning, store = failing(first, NEVER, after=True)

    def promote(key: str) -> None:
        """The manifest is gone: a promotion that had looked before writes CURRENT now."""
        store.on_write = lambda _: None
        first.damage_current(b"0002\n")

    store.on_write = promote
    assert prune(pruning, NAME, keep=1, owed=()) == ()
    assert first.registry().versions(NAME) == ("0001", "0002", "0003")
    assert_whole(first, "there")


def test_a_version_that_is_removed_while_it_is_promoted_does_not_serve(first: HeldInStore, published: Publish) -> None:
    published(first.registry())
    registry, store = failing(first, NEVER, after=True)

    def remove(key: str) -> None:
        store.on_write = lambda _: None
        first.objects.delete([f"{NAME}/versions/0002/{MANIFEST_FILE}"])

    store.on_write = remove
    with pytest.raises(RegistryError, match="0002 was removed while it was put into service"):
        registry.promote(NAME, "0002", expected="0001")
    assert first.registry().current(NAME) == "0001"


def files_of(held: HeldInStore) -> set[str]:
    return {each.key.split("/")[2] for each in held.objects.under(f"{NAME}/files")}


def half_published(held: HeldInStore, published: Publish, *, files: int) -> None:
    registry, _ = failing(held, files + 1, machine="killed", after=False, dies=True)
    with pytest.raises(BaseException, match=r"^$"):
        published(registry)


def test_what_a_killed_publisher_left_is_removed_a_day_later(
    first: HeldInStore, published: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_published(first, published, files=4)
    assert len(files_of(first)) == 2
    prune(first.registry(), NAME, keep=1, owed=())
    assert len(files_of(first)) == 2, "it may still be published"
    monkeypatch.setattr(objects, "_GRACE", timedelta(seconds=-60))
    first.damage("0001", MANIFEST_FILE, lambda content: content.replace(b'"streamad-model"', b'"streamad-model', 1))
    prune(first.registry(), NAME, keep=1, owed=())
    assert len(files_of(first)) == 2, "nobody knows which files a damaged manifest names"
    first.damage("0001", MANIFEST_FILE, lambda content: content.replace(b'"streamad-model', b'"streamad-model"', 1))
    prune(first.registry(), NAME, keep=1, owed=(), dry_run=True)
    assert len(files_of(first)) == 2
    found = first.objects.get(first.key_of("0001", MANIFEST_FILE))
    assert found is not None
    first.objects.create(f"{NAME}/versions/moved-by-hand/{MANIFEST_FILE}", found.content)
    first.objects.delete([first.key_of("0001", MANIFEST_FILE)])
    first.registry().clear(NAME)
    assert len(files_of(first)) == 1, "that of the manifest that a person has moved"
    first.objects.create(f"{NAME}/versions/0001/{MANIFEST_FILE}", found.content)
    assert_whole_but_one(first)
    assert [each.key for each in first.objects.under(".streamad-check")] == []


@pytest.mark.parametrize("content", [b'{"x":' + b"[" * 100_000, b'{"claim":"\xff"}'])
def test_a_manifest_that_is_no_json_at_all_keeps_the_files_that_it_may_name(
    content: bytes, first: HeldInStore, published: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_published(first, published, files=4)
    monkeypatch.setattr(objects, "_GRACE", timedelta(seconds=-60))
    first.damage("0001", MANIFEST_FILE, lambda _: content)
    first.registry().clear(NAME)
    assert len(files_of(first)) == 2


def test_of_a_long_current_only_the_beginning_counts(first: HeldInStore) -> None:
    first.damage_current(b"\xff" * 100_000)
    assert len(ObjectPlace(first.objects, first.machines).current(NAME).content or b"") < 5000


def test_an_object_that_is_larger_than_its_manifest_says_is_not_fetched(first: HeldInStore) -> None:
    first.damage("0001", PROBE_FILE, lambda content: content + b"x" * (1 << 20))
    with pytest.raises(ArtifactError, match=r"probe.npz is damaged \(\d+ bytes, the manifest says \d+;"):
        load(first.registry(), "0001")
    key = first.key_of("0001", PROBE_FILE)
    assert first.objects.fetch(key, path := first.machines / "x", 1)
    assert path.stat().st_blocks == 0


def assert_whole_but_one(held: HeldInStore) -> None:
    assert list(held.registry("there").other_folders(NAME)) == ["moved-by-hand"]
    held.objects.delete([f"{NAME}/versions/moved-by-hand/{MANIFEST_FILE}"])
    assert_whole(held, "there")


def test_a_publisher_that_slept_until_its_files_were_pruned_publishes_nothing(
    first: HeldInStore, published: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_GRACE", timedelta(seconds=-60))
    registry, store = failing(first, NEVER, after=True)

    def prune_now(key: str) -> None:
        if len(store.writes) == 6:
            prune(first.registry(), NAME, keep=1, owed=())

    store.on_write = prune_now
    with pytest.raises(OutputError, match="the publication took longer than"):
        published(registry)
    assert first.registry().versions(NAME) == ("0001",)
    assert len(files_of(first)) == 1


def test_files_that_a_manifest_names_by_now_are_left(
    first: HeldInStore, published: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_GRACE", timedelta(seconds=-60))
    half_published(first, published, files=6)
    (claim,) = files_of(first) - {first.key_of("0001", "model.npz").split("/")[2]}
    pruning, store = failing(first, NEVER, after=True)

    def publish(key: str) -> None:
        """The other process wakes up after the pruner has put its mark, and writes its manifest."""
        if key.endswith("/removed"):
            found = first.objects.get(f"{NAME}/versions/0001/{MANIFEST_FILE}")
            assert found is not None
            content = {**msgspec.json.decode(found.content), "version": "0002", "claim": claim}
            first.objects.create(f"{NAME}/versions/0002/{MANIFEST_FILE}", msgspec.json.encode(content))

    store.on_write = publish
    prune(pruning, NAME, keep=5, owed=())
    assert_whole(first, "there")
    assert first.registry().versions(NAME) == ("0001", "0002")


# --- conditions ---


class IgnoringObjects(FailingObjects):
    """A store that takes conditional writes and looks at no condition."""

    def __init__(self, url: str, ignored: str) -> None:
        super().__init__(BucketObjects(url), NEVER, after=True)
        self._ignored = ignored
        self._url = f"{url}?{ignored}"

    @property
    def root(self) -> str:
        return self._url

    def create(self, key: str, content: bytes) -> None:
        if self._ignored == "create":
            self.objects.delete([key])
        super().create(key, content)

    def replace(self, key: str, content: bytes, mark: Any) -> None:
        found = self.objects.get(key)
        assert found is not None
        super().replace(key, content, found.mark if self._ignored == "replace" else mark)


@pytest.mark.parametrize("ignored", ["create", "replace"])
def test_a_store_that_ignores_conditions_is_refused(
    stored: HeldInStore, published: Publish, tmp_path: Path, ignored: str
) -> None:
    registry = Registry(ObjectPlace(IgnoringObjects(stored.url, ignored), tmp_path))
    for use in (registry.check_writable, lambda: published(registry)):
        with pytest.raises(RegistryError, match="the store ignores conditions of writes") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert stored.objects.under(NAME) == []
    assert stored.objects.under(".streamad-check") == []


# --- copies ---


def test_a_damaged_copy_is_made_anew(first: HeldInStore) -> None:
    folder = first.registry().folder(NAME, "0001")
    (folder / "model.npz").write_bytes(b"damaged")
    (folder / "envelope.npz").unlink()
    assert load(first.registry()).ref.version == "0001"
    assert [path.name for path in folder.parent.iterdir()] == ["0001"]


def test_a_kill_at_any_moment_of_copying_leaves_no_half_copy(first: HeldInStore) -> None:
    number = 0
    while True:
        number += 1
        with dying_in_files(first.machines / "there", number) as changes:
            try:
                first.registry("there").folder(NAME, "0001")
            except Killed:
                pass
            else:
                break
        for folder in (first.machines / "there").glob(f"*/{NAME}/versions/0001"):
            verify_files(folder, first.registry().manifest(NAME, "0001"), "copy")
    assert number > 10, changes
    copies = first.registry("there").folder(NAME, "0001").parent
    shutil.rmtree(copies / "0001")
    first.registry("there").folder(NAME, "0001")
    assert [path.name for path in copies.iterdir()] == ["0001"], "what the killed ones left is removed"


def test_a_copy_that_another_process_has_made_meanwhile_stays(first: HeldInStore) -> None:
    """It may be read by now."""

    class Slow(FailingObjects):
        def fetch(self, key: str, path: Path, size_bytes: int) -> bool:
            self.inode = first.registry("there").folder(NAME, "0001").stat().st_ino
            return super().fetch(key, path, size_bytes)

    slow = Slow(BucketObjects(first.url), NEVER, after=True)
    assert first.registry("there", slow).folder(NAME, "0001").stat().st_ino == slow.inode


def test_another_registry_at_the_same_place_does_not_serve_from_old_copies(first: HeldInStore) -> None:
    before = load(first.registry()).calibration_terms
    for each in first.objects.under(NAME):
        first.objects.delete([each.key])
    assert train(first.registry(), data=windows_of(40, seed=7)) == "0001"
    assert len(load(first.registry()).calibration_terms) == 40 != len(before)


def test_copies_of_removed_versions_are_removed_with_the_next_copy(first: HeldInStore, published: Publish) -> None:
    registry = first.registry()
    for _ in range(2):
        published(registry)
    folder = registry.folder(NAME, "0002")
    registry.remove(NAME, "0002")
    assert folder.is_dir()
    assert registry.folder(NAME, "0003").parent == folder.parent
    assert sorted(path.name for path in folder.parent.iterdir()) == ["0001", "0003"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"claim": "../../x"}, "was not published here"),
        ({"claim": msgspec.UNSET}, "was not published here"),
        ({"version": "0002"}, "its manifest is that of default 0002"),
        ({"files": {"../evil": {"sha256": "0", "size_bytes": 1}}}, "names the file '../evil', which no artifact holds"),
    ],
)
def test_a_manifest_that_leads_elsewhere_is_refused(first: HeldInStore, change: dict[str, Any], said: str) -> None:
    def changed(content: bytes) -> bytes:
        fields = {**msgspec.json.decode(content), **change}
        return msgspec.json.encode({name: value for name, value in fields.items() if value is not msgspec.UNSET})

    first.damage("0001", MANIFEST_FILE, changed)
    with pytest.raises(ArtifactError, match=said):
        load(first.registry(), "0001")
    assert not list(first.machines.rglob("evil"))


def test_a_folder_s_version_moves_to_a_store_and_back_without_a_claim(
    stored: HeldInStore, published: Publish, tmp_path: Path
) -> None:
    published(stored.registry())
    folder = stored.registry().folder(NAME, "0001")
    there = Registry(tmp_path / "folder")
    with there.new_version(NAME) as staged:
        for path in folder.iterdir():
            if path.name != MANIFEST_FILE:
                shutil.copy(path, staged.folder)
        staged.publish(stored.registry().manifest(NAME, "0001"))
    assert "claim" not in json.loads((there.folder(NAME, "0001") / MANIFEST_FILE).read_bytes())


# --- a store that is away, and refusals ---


def test_what_is_in_the_copies_is_loaded_while_the_store_is_away(first: HeldInStore, published: Publish) -> None:
    published(first.registry())
    load(first.registry())
    away, _ = failing(first, 0, after=False, times=NEVER)
    with pytest.raises(RegistryAwayError, match=r"cannot read the registry at s3://.*: the store cannot be reached"):
        away.current(NAME)
    assert load(away, "0001").ref.version == "0001"
    with pytest.raises(RegistryAwayError):
        load(away, "0002")  # never copied
    assert away.copies is not None
    assert away.copies.in_service(NAME) == "0001"
    elsewhere, _ = failing(first, 0, machine="elsewhere", after=False, times=NEVER)
    with pytest.raises(RegistryAwayError):
        load(elsewhere, "0001")


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((403, "AccessDenied"), "the store refuses access"),
        ((403, "RequestTimeTooSkewed"), "the machine's clock is wrong"),
        ((404, "NoSuchBucket"), "there is no such bucket"),
    ],
)
def test_refusals_are_one_line_without_credentials(
    tmp_path: Path, bucket: object, monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, str], said: str
) -> None:
    with StubS3().serving() as stub:
        stub.refusal = refusal
        monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
        registry = Registry(ObjectPlace(BucketObjects("s3://refusing/models"), tmp_path))
        uses: Iterable[Callable[[], object]] = (
            lambda: registry.current(NAME),
            lambda: registry.versions(NAME),
            registry.names,
            lambda: registry.folder(NAME, "0001"),
            lambda: registry.new_version(NAME),
            registry.check_writable,
        )
        for use in uses:
            with pytest.raises((RegistryError, OutputError), match=said) as caught:
                use()
            assert not isinstance(caught.value, RegistryAwayError)
            text = str(caught.value)
            assert "\n" not in text
            assert not any(CREDENTIALS[name] in text for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))


def test_without_the_extra_it_is_one_line_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    registry = Registry(ObjectPlace(BucketObjects("s3://bucket/models"), tmp_path))
    for use in (lambda: registry.current(NAME), lambda: registry.new_version(NAME), registry.names):
        with pytest.raises((RegistryError, OutputError), match=r"pip install 'streamad-monitor\[objects\]'") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_manifests_hold_no_credentials(first: HeldInStore) -> None:
    found = first.objects.get(f"{NAME}/versions/0001/{MANIFEST_FILE}")
    assert found is not None
    assert not any(CREDENTIALS[name].encode() in found.content for name in CREDENTIALS if name != "AWS_REGION")
    assert msgspec.json.decode(found.content, type=Manifest).claim


def test_an_object_error_of_another_kind_is_no_absence(first: HeldInStore) -> None:
    """A store that refuses to show CURRENT has not said that there is none."""

    class Refusing(FailingObjects):
        def get(self, key: str) -> Any:
            raise ObjectError("refused", f"{self.root}/{key}: the store refuses access")

    registry = first.registry("here", Refusing(BucketObjects(first.url), NEVER, after=True))
    with pytest.raises(RegistryError, match="the store refuses access"):
        registry.current(NAME)
