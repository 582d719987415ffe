"""The registry of model versions: published whole or not at all, promoted by compare-and-swap."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from streamad.decisions.recording import Actor, DecisionLog, of_command
from streamad.errors import ArtifactError, RegistryError
from streamad.judge.envelope import Envelope
from streamad.learn.registry.approvals import NotApprovedError, check_approved, digest_of, with_approval
from streamad.learn.registry.artifact import LoadedModel, load_artifact, read_calibration, read_envelope
from streamad.learn.registry.manifest import Approval, Manifest, PromotionDecision
from streamad.learn.registry.places.folder import FolderPlace
from streamad.learn.registry.places.place import CURRENT_FILE, Current, Place, RegistryAwayError
from streamad.learn.registry.staging import StagedVersion
from streamad.learn.registry.verify import NAME, TRAIN_COMMAND, check_manifest_name
from streamad.messages import ModelRef
from streamad.ports import Detector
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray

_FULL_NUMBER = re.compile(r"[0-9]{4}|[1-9][0-9]{4,}")
_DECISIONS_KEPT = 50  # in which a version was the champion: with one training a night, seven weeks of them


class NoModelError(RegistryError):
    """Raised when no version of a model is in service; says how to train one."""


class CurrentError(RegistryError):
    """Raised when CURRENT is damaged or a folder; says how ``models promote`` writes it anew."""


class OvertakenError(RegistryError):
    """Raised when a promotion comes too late: another version is in service than the one to be replaced."""


def _plain(text: str, what: str) -> str:
    if not NAME.fullmatch(text):
        raise RegistryError(f"{what} {text[:80]!r} is not a plain name: use letters, digits, '.', '_' and '-' only")
    return text


class Registry:
    """The versions of every model in a place: a folder (a path) that many processes share, or an object store.

    With ``needs_approvals`` no version comes into service that two people have not approved. With a ``log`` nothing
    goes into service, and no version is turned down, without an entry in it: ``by`` whom, by default whoever runs the
    process.
    """

    def __init__(self, place: Path | Place, *, needs_approvals: bool = False, log: DecisionLog | None = None) -> None:
        self._place = FolderPlace(place) if isinstance(place, Path) else place
        self._log = log
        self.needs_approvals = needs_approvals

    @property
    def copies(self) -> Registry | None:
        """Return the registry of this machine's copies of an object store's versions; None for a folder.

        A worker begins with it while the store does not answer.
        """
        copies = self._place.copies
        return None if copies is None else Registry(copies, needs_approvals=self.needs_approvals)

    def names(self) -> tuple[str, ...]:
        """Return the names of all models that have a folder. Raises RegistryError."""
        return tuple(self._place.names())

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the versions of a model, oldest first, damaged ones too. Raises RegistryError.

        A folder without a manifest, or with that of another version (a copy, a link), is none.
        """
        return tuple(each for each, reason in self._entries(name) if reason is None)

    def other_folders(self, name: str) -> dict[str, str]:
        """Return why each folder among a model's versions that is none is none, by its name. Raises RegistryError."""
        return {each: reason for each, reason in self._entries(name) if reason is not None}

    def _entries(self, name: str) -> list[tuple[str, str | None]]:
        """Return each folder among the versions and why it is none (None: it is one), in the order of versions."""
        found = self._place.entries(_plain(name, "model name"))
        return sorted(found, key=lambda entry: (not entry[0].isdecimal(), len(entry[0]), entry[0]))

    def current(self, name: str) -> str | None:
        """Return the version in service or None. Raises CurrentError if CURRENT is damaged, RegistryError."""
        return self._named_by(self._place.current(_plain(name, "model name")), name)

    def _named_by(self, found: Current, name: str) -> str | None:
        """Return the version that CURRENT names. Raises CurrentError, RegistryError."""
        path = self._place.shown(name, CURRENT_FILE)
        if found.odd is not None:
            move = "move it away, then " if found.is_folder else ""
            raise CurrentError(f"cannot read {path}: {found.odd}: {move}{self._way_out(name)}")
        if found.content is None:
            return None
        version = found.content.decode("ascii", "backslashreplace").strip()
        if not NAME.fullmatch(version):
            raise CurrentError(f"{path} is damaged, it holds {version[:80]!r}: {self._way_out(name)}")
        if not self._place.has(name, version):
            raise CurrentError(f"{path} names version {version}, which does not exist: {self._way_out(name)}")
        return version

    def current_or_none(self, name: str) -> str | None:
        """Return the version in service; None if there is none or CURRENT is damaged. Raises RegistryError."""
        try:
            return self.current(name)
        except CurrentError:
            return None

    def _way_out(self, name: str) -> str:
        """Return what writes CURRENT anew."""
        if not (known := self.versions(name)):
            return f"there is no version, so remove it, then train one with: {TRAIN_COMMAND}"
        promote = f"streamad models promote VERSION --model {name} --config FILE"
        return f"put a version into service with: {promote} (there are: {_listed(known)})"

    def folder(self, name: str, version: str) -> Path:
        """Return the folder of a version, or of its local copy. Raises RegistryError."""
        return self._existing(name, version)

    def named(self, name: str, version: str) -> str:
        """Return the version that a person means by ``version``: 3 is 0003; else ``version``. Raises RegistryError."""
        if _FULL_NUMBER.fullmatch(version):
            return version
        known = [each for each, _ in self._entries(name)]
        if version in known or not (version.isascii() and version.isdecimal()):
            return version
        number = version.lstrip("0")  # as text: a person may have typed more digits than Python makes a number of
        return next((each for each in known if each.isdecimal() and each.lstrip("0") == number), version)

    def training_folder(self, name: str) -> Path:
        """Return the folder in which interrupted trainings of a model keep their state, always on this machine."""
        return self._place.training_folder(_plain(name, "model name"))

    def manifest(self, name: str, version: str) -> Manifest:
        """Return the manifest of a version.

        Raises RegistryError for none, ArtifactError for a damaged one and for that of another version.
        """
        manifest = self._place.manifest(_plain(name, "model name"), _plain(version, "version"))
        if manifest is None:
            raise self._unknown(name, version)
        check_manifest_name(self._place.shown(name, "versions", version), manifest, name, version)
        return manifest

    def new_version(self, name: str) -> AbstractContextManager[StagedVersion]:
        """Stage a new version: fill ``staged.folder``, then ``staged.publish(manifest)`` returns its number.

        Without ``publish`` there is no version, not after a kill either. Raises OutputError, RegistryError.
        """
        return self._place.new_version(_plain(name, "model name"), lambda: self._highest(name))

    def promote(
        self,
        name: str,
        version: str,
        *,
        expected: str | None,
        repairs: bool = False,
        by: Actor | None = None,
        kind: str = "promote",
        reason: str = "",
    ) -> None:
        """Put ``version`` into service if ``expected`` (None: nothing) still is; its files are verified first.

        A trainer passes the parent it started from, so that a late one cannot replace a newer champion. With
        ``repairs`` a damaged CURRENT counts as none, and is written anew, but no folder. Raises OvertakenError if
        another is in service, NotApprovedError, ArtifactError for a damaged version, CurrentError, RegistryError,
        OutputError.
        """
        try:
            self.check_approved(name, version)
        except NotApprovedError as error:
            self._log_decision(by, "refuse", f"{name} {version}", str(error), before=expected)
            raise
        manifest = self.manifest(name, version)
        self._place.verify(name, version, manifest)

        def check(found: Current) -> None:
            try:
                champion = self._named_by(found, name)
            except CurrentError:
                if not repairs or found.is_folder:
                    raise
                champion = None
            if champion != expected:
                raise OvertakenError(
                    f"model {name}: {version} not promoted, {champion or 'nothing'} is in service where "
                    f"{expected or 'nothing'} was expected: another was promoted meanwhile; compare the two first"
                )
            if not self._place.has(name, version):
                raise self._unknown(name, version)
            self.check_approved(name, version)  # as it is at this moment

        digest = digest_of(manifest)
        with self._deciding(by, kind, f"{name} {version}", reason, before=expected, digest=digest):
            self._place.set_current(name, version, check)

    def _log_decision(self, by: Actor | None, kind: str, subject: str, reason: str, **details: Any) -> None:
        """Record what leaves everything as it is."""
        if self._log is not None:
            actor = by or of_command()
            self._log.record(actor, actor.decides(kind, subject, reason, **details))

    @contextmanager
    def _deciding(self, by: Actor | None, kind: str, subject: str, reason: str, **details: Any) -> Iterator[None]:
        if self._log is None:
            yield
            return
        actor = by or of_command()
        with self._log.deciding(actor, actor.decides(kind, subject, reason, **details)):
            yield

    def check_approved(self, name: str, version: str) -> None:
        """Raise NotApprovedError if the version may not serve, RegistryError and ArtifactError if it cannot be read."""
        if self.needs_approvals:
            check_approved(self.manifest(name, version))

    def approve(self, name: str, version: str, approval: Approval, *, by: Actor | None = None) -> Manifest:
        """Keep a person's approval in the manifest, and return that.

        Raises UsageError if it is of another content or of the same person, RegistryError, ArtifactError, OutputError.
        """
        written: list[Manifest] = []

        def with_it(manifest: Manifest) -> Manifest:
            written.append(with_approval(manifest, approval))
            return written[-1]

        with_it(self.manifest(name, version))  # raises before anything is recorded
        with self._deciding(by, "approve", f"{name} {version}", approval.why, digest=approval.digest):
            self._rewrite(name, version, with_it)
        return written[-1]

    def record_decision(self, name: str, version: str, decision: PromotionDecision, *, by: Actor | None = None) -> None:
        """Record why ``version`` was promoted or not, in its manifest and in that of the champion it challenged.

        No other part of a version ever changes. A champion that is gone or damaged is left out.
        Raises RegistryError, ArtifactError for a damaged version, OutputError.
        """
        if not decision.promoted:
            kind = "wait" if decision.waits_for_review else "refuse"
            self._log_decision(by, kind, f"{name} {version}", decision.reason, before=decision.champion)
        self._rewrite(name, version, lambda manifest: msgspec.structs.replace(manifest, decision=decision))
        if decision.champion is None:
            return

        def challenged(champion: Manifest) -> Manifest | None:
            if decision in champion.challenged:
                return None  # an answer of an object store was lost
            return msgspec.structs.replace(champion, challenged=(*champion.challenged, decision)[-_DECISIONS_KEPT:])

        try:
            self._rewrite(name, decision.champion, challenged)
        except RegistryAwayError:
            raise
        except (RegistryError, ArtifactError):
            return

    def decline(self, name: str, version: str, *, by: Actor | None = None, reason: str = "") -> bool:
        """Record that a person does not want ``version``; False if it never waited for a review or an approval.

        It loses its approvals.
        Raises RegistryError, ArtifactError for a damaged version, OutputError.
        """

        def declined(manifest: Manifest) -> Manifest | None:
            decision = manifest.decision
            waits = decision is not None and (decision.waits_for_review or decision.declined)
            waited = waits or bool(manifest.approvals)
            if decision is not None and waits:
                decision = msgspec.structs.replace(decision, waits_for_review=False, declined=True)
            return msgspec.structs.replace(manifest, decision=decision, approvals=()) if waited else None

        if declined(self.manifest(name, version)) is None:
            return False
        with self._deciding(by, "decline", f"{name} {version}", reason):
            self._rewrite(name, version, declined)
        return True

    def _rewrite(self, name: str, version: str, change: Callable[[Manifest], Manifest | None]) -> None:
        where = self._place.shown(name, "versions", version)

        def changed(manifest: Manifest) -> Manifest | None:
            check_manifest_name(where, manifest, name, version)
            return change(manifest)

        if not self._place.rewrite(_plain(name, "model name"), _plain(version, "version"), changed):
            raise self._unknown(name, version)

    def load(
        self,
        name: str,
        version: str | None = None,
        *,
        settings: Settings,
        detector: Detector,
        measured: bool = False,
    ) -> LoadedModel:
        """Verify and load a version (None: the one in service) for a plant with ``settings``; see ``load_artifact``.

        Raises NoModelError, RegistryError, and ArtifactError for an artifact that is damaged, foreign, does not fit the
        plant, or scores otherwise than when it was trained.
        """
        chosen = version if version is not None else self.in_service(name)
        folder = self._existing(name, chosen)
        return load_artifact(folder, ModelRef(name, chosen), settings, detector, measured=measured)

    def calibration_terms(self, name: str, version: str) -> FloatArray:
        """Return the calibration terms float32 [n, K] of a version. Raises RegistryError, ArtifactError."""
        return read_calibration(self._existing(name, version), f"model {name} {version}")

    def envelope(self, name: str, version: str) -> Envelope:
        """Return the envelope of a version, without loading its model. Raises RegistryError, ArtifactError."""
        return read_envelope(self._existing(name, version), f"model {name} {version}")

    def in_service(self, name: str) -> str:
        """Return the version in service. Raises NoModelError, RegistryError."""
        version = self.current(name)
        if version is None:
            raise NoModelError(
                f"no model {name!r} in {self._place.shown()}: let streamad run learn one by itself with learning: {{}} "
                f"in the config, or train one with: {TRAIN_COMMAND}"
            )
        return version

    def pruning(self, name: str) -> AbstractContextManager[None]:
        """Keep other writers of the model out for the block, where a place needs that. Raises RegistryError."""
        return self._place.pruning(name)

    def clear(self, name: str) -> None:
        """Remove what killed writers left, once that is certain. Raises RegistryError, OutputError."""
        self._place.clear(name)

    def is_link(self, name: str, version: str) -> bool:
        """Return whether the version lies elsewhere, and a link in its place."""
        return self._place.is_link(name, version)

    def remove(self, name: str, version: str) -> bool:
        """Remove a version, which nobody ever sees half; False if it was put into service meanwhile, and stays.

        Raises RegistryError, OutputError.
        """
        return self._place.remove(name, version)

    def check_writable(self) -> None:
        """Try that an object store can be written and takes conditional writes. Raises RegistryError, OutputError."""
        self._place.check_writable()

    def _existing(self, name: str, version: str) -> Path:
        folder = self._place.folder(_plain(name, "model name"), _plain(version, "version"))
        if folder is None:
            raise self._unknown(name, version)
        return folder

    def _unknown(self, name: str, version: str) -> RegistryError:
        return RegistryError(f"model {name} has no version {version} (there are: {_listed(self.versions(name))})")

    def _highest(self, name: str) -> int:
        """Return the highest number of the versions and of the one in service, 0 without any."""
        content = self._place.current(name).content or b""
        known = [*self.versions(name), content.decode("ascii", "replace").strip()]
        return max((int(version) for version in known if version.isdecimal() and NAME.fullmatch(version)), default=0)


def registry_at(
    place: str | Path, copies: Path, *, needs_approvals: bool = False, log: DecisionLog | None = None
) -> Registry:
    """Return the registry in a folder (a path), or at a URL in an object store; ``copies`` is for that alone."""
    if isinstance(place, Path):
        return Registry(place, needs_approvals=needs_approvals, log=log)
    from streamad.learn.registry.places.objects import ObjectPlace  # noqa: PLC0415 - few need it
    from streamad.learn.registry.places.requests import BucketObjects  # noqa: PLC0415

    return Registry(ObjectPlace(BucketObjects(place), copies), needs_approvals=needs_approvals, log=log)


def folder_of(root: Path, name: str, version: str) -> Path:
    """Return where a version's folder is, or would be, in a registry's. Raises RegistryError for odd names."""
    return FolderPlace(root).path_of(_plain(name, "model name"), _plain(version, "version"))


def _listed(versions: tuple[str, ...]) -> str:
    return ", ".join(versions[-5:]) or "none"
