"""The manifest of a model version: training, plant, promotion decision, checksums of the files."""

from __future__ import annotations

import math
import platform
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from streamad.errors import ArtifactError
from streamad.judge.calibration import CalibrationMethod
from streamad.judge.early.model import LookForm
from streamad.language import catalogued
from streamad.learn.store.records import WindowForm
from streamad.ports import TrainingSummary
from streamad.system.opening import read_regular
from streamad.system.rights import is_refusal, missing_right
from streamad.system.untrusted_json import decode_json
from streamad.types import ChannelSpec, UnixUs

MANIFEST_FILE = "manifest.json"
MANIFEST_VERSION = 1
UNCOMPARED = catalogued("promoted without comparison")  # the reason of a decision that no rule made
WAITS = catalogued("waits for two people, without comparison")
_PACKAGES = {
    "streamad": "streamad-monitor",
    "numpy": "numpy",
    "torch": "torch",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
}
CALIBRATION_FILE = "calibration.npy"
PROBE_FILE = "probe.npz"
REFERENCE_FILE = "reference.npz"
TRAINING_IDS_FILE = "training_ids.npy"
ENVELOPE_FILE = "envelope.npz"
CORE_FILES = frozenset({"model.ts", CALIBRATION_FILE, PROBE_FILE, REFERENCE_FILE, TRAINING_IDS_FILE, ENVELOPE_FILE})
"""Files of the version itself: damage to one refuses the version, not a backend."""


class FileRecord(msgspec.Struct, frozen=True):
    """Checksum and size of one file of the version."""

    sha256: str
    size_bytes: int


class DetectorRecord(msgspec.Struct, frozen=True):
    """Kind of detector (its entry point) and the options it was trained with."""

    kind: str
    options: dict[str, Any] = {}


class TrainingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The training of the exported model, as the detector reported it; ``terms`` names its K terms, if they differ."""

    n_sequences: int
    n_epochs: int
    best_epoch: int
    best_loss: float | None
    duration_s: float
    device: str
    settings: dict[str, Any] = {}
    remarks: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()

    @classmethod
    def of(cls, summary: TrainingSummary) -> TrainingRecord:
        """Return the record of ``summary``; a loss that is not finite becomes null, because JSON has no NaN."""
        return cls(
            n_sequences=summary.n_sequences,
            n_epochs=summary.n_epochs,
            best_epoch=summary.best_epoch,
            best_loss=float(summary.best_loss) if math.isfinite(summary.best_loss) else None,
            duration_s=summary.duration_s,
            device=summary.device,
            settings=dict(summary.settings),
            remarks=summary.remarks,
            terms=summary.terms,
        )


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The calibration of the threshold; ``score_quantiles`` are of the held-out scores, keyed by probability.

    ``fold_medians`` (out_of_fold only) are the median held-out scores per fold: their spread shows how much the scales
    of the fold models differ. ``training_median`` is the exported model's median score on its training data.
    ``n_presumed`` sequences were left out of the calibration as presumed anomalies.
    """

    n_training: int
    n_calibration: int
    method: CalibrationMethod
    score_quantiles: dict[str, float]
    training_median: float
    fold_medians: list[float] = []
    n_presumed: int = 0


class LargerCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate: the ``share`` of the injected faults that ``n_calibration`` sequences would find."""

    n_calibration: int
    share: float


class FoundAtRate(msgspec.Struct, frozen=True, kw_only=True):
    """The ``share`` of the injected faults with a p-value of at most ``rate``, by ``n_calibration`` sequences.

    ``interval`` is its 90 % interval. ``by_fault`` has the share of each kind, ``with_more`` estimates for more
    calibration sequences, if they would change the threshold.
    """

    rate: float
    n_calibration: int
    share: float
    interval: tuple[float, float]
    by_fault: dict[str, float]
    with_more: tuple[LargerCalibration, ...] = ()


class ReferenceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector of another ``kind``, fitted on the same windows, reaches; or why it was ``left_out``.

    ``auc`` is the mean over ``by_fault``; ``difference`` is that to the model, with its 90 % ``interval``. ``found`` is
    what it finds at the configured rate, ``gain`` how much more than the model, with the 90 % ``gain_interval``.
    """

    kind: str
    auc: float | None = None
    by_fault: dict[str, float] = {}
    difference: float | None = None
    interval: tuple[float, float] | None = None
    left_out: str | None = None
    found: FoundAtRate | None = None
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None


class References(msgspec.Struct, frozen=True, kw_only=True):
    """How well the model and other kinds tell injected faults from ``n_held_out`` normal sequences.

    ``auc`` is the model's mean over ``by_fault``, its AUC for each kind of fault, ``n_injected`` windows in all, made
    of ``n_bases`` of the normal sequences. ``found`` is what it finds at the configured rate.
    """

    n_held_out: int
    n_injected: int
    n_bases: int
    auc: float
    by_fault: dict[str, float]
    found: FoundAtRate
    others: tuple[ReferenceFigures, ...] = ()

    @property
    def better(self) -> ReferenceFigures | None:
        """Return the kind that finds most at the configured rate, of those that find more than the model for sure.

        That is, whose whole interval of the gain lies above 0.
        """
        above = [one for one in self.others if one.gain_interval is not None and one.gain_interval[0] > 0]
        return max(above, key=lambda one: one.gain or 0.0, default=None)


class LearningRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a retraining from the inlier store.

    ``reason`` is that of the request at ``requested_us``, or ``recordings``: trained on those, in place of a version
    with this ``since_us``. Nothing from before ``since_us`` was used, because the plant changed then; later versions
    inherit it.

    ``uses_marks``: operators' marks on false alarms have changed this version (a second challenger). ``n_feedback``
    training sequences are false alarms; ``feedback`` has the ids of all false alarms that count as normal here, those
    of the reserve included: once this version is in service, they count for later ones too. Marks kept ``n_excluded``
    sequences out of training; ``n_capped`` more were beyond ``learning.feedback_share``.

    ``n_dropped`` were dropped as the worst of a first fit.
    """

    reason: str
    requested_us: UnixUs | None = None
    since_us: UnixUs | None = None
    uses_marks: bool = False
    n_feedback: int = 0
    feedback: tuple[str, ...] = ()
    n_excluded: int = 0
    n_capped: int = 0
    n_dropped: int = 0


class PromotionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Why a challenger was promoted or not, with every figure of the comparison.

    ``champion`` is the version that it would replace, None if none was in service. ``waits_for_review``: it uses marks
    of operators, or two people have to approve it; ``declined``: a person has declined it, or taken it back.
    ``still_raised``, if marks chose what it learned from: the sequences called false alarms on which it alerts all the
    same, beyond chance, so no person has been shown them as silenced, and they are not reviewed (None: unknown, and
    nothing is reviewed).
    """

    promoted: bool
    reason: str
    decided_at: datetime
    figures: dict[str, float] = {}
    challenger: str = ""
    champion: str | None = None
    waits_for_review: bool = False
    declined: bool = False
    still_raised: tuple[str, ...] | None = None


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """That a person wants the version in service, and why; ``at`` that time ``beside`` served (None: nothing).

    ``authenticated``: a login of the page knew the person, else the name is as given. ``digest`` is that of the content
    that was approved.
    """

    by: str
    why: str
    at: datetime
    digest: str
    authenticated: bool = False
    beside: str | None = None


class EarlyExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """Which share of injected faults that begin midway is ``warned`` of at ``rate`` by each look, and had ``begun``.

    There are ``n_faults`` in ``n_bases`` held-out sequences; ``interval`` is the 90 % interval of the last share.
    """

    rate: float
    n_faults: int
    n_bases: int
    begun: tuple[float, ...]
    warned: tuple[float, ...]
    interval: tuple[float, float]


class EarlyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The looks at running sequences: the kind of their ``detector``, their forms, by rising age.

    ``usual`` is the median length of the training sequences in points; no sequence of the training is longer than
    ``longest``. ``backends`` names the files of each backend beside TorchScript in the folder of each look.
    ``expected`` informs only.
    """

    detector: DetectorRecord
    looks: tuple[LookForm, ...]
    usual: int
    longest: int | None = None
    backends: dict[str, tuple[str, ...]] = {}
    expected: EarlyExpectation | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest; ``name``, ``version`` and ``files`` are filled in when the version is published.

    ``decision`` is about the version itself; ``challenged`` holds the latest decisions in which it was the champion.
    ``approvals`` are about the version, too.
    ``references`` inform only: they are no part of the model, its calibration or a decision. ``backends`` names the
    files of each backend beside TorchScript. ``early`` are the looks at running sequences, if the config wanted them.
    ``claim``, in an object store, is the publication's own mark, under which its files lie.
    """

    format: Literal["streamad-model"] = "streamad-model"
    schema_version: int = MANIFEST_VERSION
    name: str = ""
    version: str = ""
    files: dict[str, FileRecord] = {}
    detector: DetectorRecord
    channels: tuple[ChannelSpec, ...]
    window: WindowForm
    seed: int
    training: TrainingRecord
    metrics: Metrics
    parent: str | None
    packages: dict[str, str]
    created_at: datetime
    learning: LearningRecord | None = None
    decision: PromotionDecision | None = None
    challenged: tuple[PromotionDecision, ...] = ()
    approvals: tuple[Approval, ...] = ()
    references: References | None = None
    backends: dict[str, tuple[str, ...]] = {}
    early: EarlyRecord | None = None
    claim: str | msgspec.UnsetType = msgspec.UNSET

    def waits_beside(self, current: str | None) -> bool:
        """Return whether it waits for a review: it was compared with ``current``, the version in service."""
        return self.decision is not None and self.decision.waits_for_review and self.decision.champion == current


class ManifestHead(msgspec.Struct):
    """The fields of a manifest that say whose it is, in every schema."""

    format: str = ""
    schema_version: int = 0
    name: Any = ""
    version: Any = ""

    @property
    def is_ours(self) -> bool:
        """Return whether it is a manifest of streamad's."""
        return self.format == "streamad-model"


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that determine a model."""
    found = {"python": platform.python_version()}
    for label, distribution in _PACKAGES.items():
        try:
            found[label] = version(distribution)
        except PackageNotFoundError:
            continue
    return found


def _plain(value: object) -> object:
    item = getattr(value, "item", None)  # numpy scalars in a detector's summary
    return item() if callable(item) else str(value)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest, enc_hook=_plain), indent=2) + b"\n"


def read_manifest(folder: Path, label: str) -> Manifest:
    """Read the manifest of the version in ``folder``; ``label`` names the version in errors.

    Raises ArtifactError: missing, damaged, not streamad's, or written by another version's schema.
    """
    try:
        content = read_regular(folder / MANIFEST_FILE)
    except OSError as error:
        repair = f"restore {folder} from a backup or train anew"
        remedy = missing_right(folder / MANIFEST_FILE, "read") if is_refusal(error) else repair
        raise ArtifactError(f"{label}: {MANIFEST_FILE} cannot be read ({error.strerror}): {remedy}") from error
    return decode_manifest(content, label, str(folder))


def decode_manifest(content: bytes, label: str, where: str) -> Manifest:
    """Return the manifest that ``content`` is; ``where`` names the place of the version in errors.

    Raises ArtifactError: damaged, not streamad's, or written by another version's schema.
    """
    try:
        head = decode_json(content, ManifestHead)
        if not head.is_ours:
            raise ArtifactError(
                f"{label}: {MANIFEST_FILE} is not a streamad manifest: move {where} out of the registry"
            )
        if head.schema_version != MANIFEST_VERSION:
            raise ArtifactError(_other_schema(label, head.schema_version))
        return decode_json(content, Manifest)
    except msgspec.DecodeError as error:
        raise ArtifactError(
            f"{label}: {MANIFEST_FILE} is damaged ({error}): restore {where} from a backup or train anew"
        ) from error


def _other_schema(label: str, found: int) -> str:
    what = "upgrade streamad or train anew" if found > MANIFEST_VERSION else "train anew"
    return f"{label}: manifest schema {found}, this streamad reads {MANIFEST_VERSION}: {what}"
