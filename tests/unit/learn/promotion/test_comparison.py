from __future__ import annotations

import msgspec
import numpy as np
import pytest

from streamad.errors import ArtifactError, RegistryError, TrainingDataError
from streamad.injected_faults import FAULT_KINDS
from streamad.judge.calibration import Calibration
from streamad.learn.promotion.comparison import (
    Comparison,
    compare,
    compare_versions,
)
from streamad.learn.promotion.operating import OperatingPoint
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.store.records import Mark, MarkKind, StoredSequence
from streamad.learn.training.selection import HeldOut, Selection
from streamad.messages import ModelRef
from streamad.types import Window, WindowSet
from tests.support.learning.life import MODEL, Life
from tests.support.learning.plant import C, L, MeanDetector

RATE = 0.02
COURSE = np.sin(np.linspace(0, 3, L)) * np.array([[1.0], [5.0], [20.0]])


def windows(n: int, seed: int, *, shifted: int = 0, shift: float = 5.0, prefix: str = "B") -> WindowSet:
    """``n`` normal windows, of which the last ``shifted`` read off by ``shift`` in one channel."""
    values = (COURSE + np.random.default_rng(seed).normal(0, 0.3, (n, C, L))).astype(np.float32)
    values[n - shifted :, 0] += shift
    return WindowSet(values, np.full(n, L, np.int64), tuple(f"{prefix}-{i}" for i in range(n)))


def held_out(data: WindowSet, normal: tuple[int, ...] = ()) -> HeldOut:
    sequences = tuple(
        StoredSequence(name, "r1", name, i, i, Window(values, L), "normal", p_value=0.5, model_version="0001")
        for i, (name, values) in enumerate(zip(data.ids, data.values, strict=True))
    )
    is_normal = np.isin(np.arange(len(data)), normal)
    return HeldOut(sequences, np.ones(len(data), bool), np.zeros(len(data), bool), is_normal)


def loaded(version: str, *, seed: int = 1, n_calibration: int = 399, **changes: float) -> LoadedModel:
    """A model of normal windows; ``lower`` scales its calibration scores, ``deaf`` dulls all channels but one."""
    fitted = MeanDetector().fit(windows(300, seed), seed=0, device="cpu")
    fitted.scale = fitted.scale * np.array([[1.0], [changes.get("deaf", 1.0)], [changes.get("deaf", 1.0)]], np.float32)
    calibration = windows(n_calibration, seed + 1000)
    terms = fitted.score(calibration.values, calibration.lengths) * np.float32(changes.get("lower", 1.0))
    return LoadedModel(fitted, ModelRef(MODEL, version), *(None, terms, None, None, None))  # type: ignore[arg-type]


def compared(
    challenger: LoadedModel,
    champion: LoadedModel | None,
    half: WindowSet,
    normal: tuple[int, ...] = (),
    marked: Selection | None = None,
) -> Comparison:
    return compare(challenger, champion, held_out(half, normal), marked, rate=RATE, seed=0)


def marked(said: dict[MarkKind, WindowSet], alerts: WindowSet | None = None) -> Selection:
    """Marks on the sequences of ``said``; the store has ``alerts``."""
    confirmed = held_out(said["confirmed"]).sequences if "confirmed" in said else ()
    marks = {id: Mark(id=id, judgement=mark, at_us=1) for mark, data in said.items() for id in data.ids}
    empty = held_out(windows(0, 0))
    raised = () if alerts is None else held_out(alerts).sequences
    return Selection((), (), (), empty, empty, frozenset(), 0, (), confirmed, raised, marks)


def test_two_good_models_look_alike() -> None:
    found = compared(loaded("0002"), loaded("0001", seed=7), windows(300, 3))
    assert found.champion is not None
    for figures in (found.challenger, found.champion):
        assert figures.interval[0] <= RATE <= figures.interval[1]
        assert figures.false_alarm_rate == figures.n_alerts / (300 - figures.n_presumed)
        assert set(figures.by_fault) == {kind.name for kind in FAULT_KINDS}
        assert set(figures.by_strength) == set(figures.by_fault)
        weak, medium, strong = (figures.by_strength["bias"][name] for name in ("weak", "medium", "strong"))
        assert weak < strong
        assert figures.by_fault["bias"] == pytest.approx((weak + medium + strong) / 3)  # all changed all 20 windows
    assert found.challenger.detection == pytest.approx(found.champion.detection, abs=0.05)
    assert found.figures()["challenger.detection.bias.weak"] == found.challenger.by_strength["bias"]["weak"]
    assert found.n_injected == pytest.approx(20 * 3 * len(FAULT_KINDS), rel=0.1)


def test_what_stands_apart_is_no_false_alarm_of_either() -> None:
    found = compared(loaded("0002"), loaded("0001", seed=7), windows(300, 3, shifted=30))
    assert found.champion is not None
    for figures in (found.challenger, found.champion):
        assert figures.n_presumed == pytest.approx(30, abs=7)
        assert figures.interval[0] <= RATE


def test_false_alarms_of_a_badly_calibrated_model_are_no_anomalies() -> None:
    found = compared(loaded("0002", lower=0.8), loaded("0001", seed=7), windows(300, 3))
    assert found.challenger.false_alarm_rate > 0.1


def test_what_an_operator_calls_normal_is_a_false_alarm_however_odd() -> None:
    half = windows(300, 3, shifted=5)
    marked = compared(loaded("0002"), None, half, normal=(295, 296, 297, 298, 299))
    assert marked.challenger.n_alerts >= 5
    assert marked.challenger.n_presumed == 0


def test_a_model_that_is_deaf_to_most_channels_finds_less() -> None:
    found = compared(loaded("0002", deaf=100.0), loaded("0001", seed=7), windows(300, 3))
    assert found.champion is not None
    assert found.challenger.detection < found.champion.detection - 0.05


def test_a_champion_that_alerts_at_everything_is_not_praised_for_what_it_finds() -> None:
    """Its threshold is raised, for what it finds alone, until it alerts no oftener than it should."""
    eager, half = loaded("0001", seed=7, lower=0.5), windows(300, 3)
    found = compared(loaded("0002"), eager, half)
    assert found.champion is not None
    assert found.raised_threshold
    assert found.champion.false_alarm_rate > 0.3
    assert found.champion.detection == pytest.approx(found.challenger.detection, abs=0.05)
    alone = compared(eager, None, half)
    assert alone.challenger.detection > found.champion.detection + 0.1


def test_a_champion_within_its_rate_keeps_its_threshold() -> None:
    found = compared(loaded("0002"), loaded("0001", seed=7, lower=1.3), windows(300, 3))
    assert not found.raised_threshold


def test_a_whole_number_of_false_alarms_is_not_rounded_up() -> None:
    """0.07 times 100 is 7.000000000000001 in floating point."""
    model = loaded("0001")
    calibration = Calibration.from_terms(model.calibration_terms)
    for n, expected in ((100, 7), (101, 8)):
        operating = OperatingPoint(model, 0.07, calibration, np.zeros(n), np.zeros(n, np.bool_))
        assert operating.n_allowed == expected


def test_marks_are_counted_and_change_no_other_figure() -> None:
    confirmed, half = windows(12, 5, shifted=8, prefix="bad"), windows(100, 3)
    said = marked({"confirmed": confirmed, "false_alarm": half.take(range(94, 100))})
    found = compared(loaded("0002"), loaded("0001", seed=7), half, marked=said)
    assert (found.n_confirmed, found.n_false_alarms) == (12, 6)
    assert 8 <= found.challenger.n_confirmed <= 9
    assert 0 <= found.challenger.n_raised <= 1
    plain = compared(loaded("0002"), loaded("0001", seed=7), half).figures()
    changed = {name for name, value in found.figures().items() if plain.get(name) != value}
    assert all("confirmed" in name or "false_alarms" in name or "silenced" in name for name in changed)


def test_alerts_that_only_the_champion_raises_are_silenced_and_their_marks_are_shown() -> None:
    alerts = windows(20, 5, shifted=20, prefix="odd")
    said = marked({"confirmed": alerts.take(range(3)), "withdrawn": alerts.take(range(3, 5))}, alerts)
    deaf = loaded("0002")
    deaf.scorer.scale = deaf.scorer.scale * np.array([[100.0], [1.0], [1.0]], np.float32)  # type: ignore[attr-defined]
    found = compared(deaf, loaded("0001", seed=7), windows(300, 3), marked=said).silenced
    assert found is not None
    assert (found.n_raised, len(found.alerts)) == (20, 20)
    assert (found.count("confirmed"), found.n_without_mark) == (3, 17)
    assert [each.ended_at for each in found.alerts] == sorted((each.ended_at for each in found.alerts), reverse=True)
    assert all(each.p_champion <= RATE < each.p_challenger for each in found.alerts)
    alike = compared(loaded("0002"), loaded("0001", seed=7), windows(300, 3), marked=said).silenced
    assert alike is not None
    assert (alike.n_raised, alike.alerts) == (20, ())


def test_figures_are_flat_finite_and_named_after_whose_they_are() -> None:
    figures = compared(loaded("0002"), loaded("0001", seed=7), windows(100, 3)).figures()
    assert msgspec.json.decode(msgspec.json.encode(figures), type=dict[str, float]) == figures
    assert np.isfinite(list(figures.values())).all()
    ours = {name.removeprefix("challenger.") for name in figures if name.startswith("challenger.")}
    theirs = {name.removeprefix("champion.") for name in figures if name.startswith("champion.")}
    assert ours == theirs - {"raised_threshold"}
    assert {"false_alarm_rate", "false_alarm_rate_low", "detection", "detection.time_warp", "alerts"} <= ours


class TestVersions:
    @pytest.fixture
    def life(self, tmp_path_factory: pytest.TempPathFactory) -> Life:
        life = Life(tmp_path_factory.mktemp("life"))
        life.run(300)
        assert life.retrain("first").promoted
        life.run(300)
        assert life.retrain().version == "0002"
        return life

    def compared(self, life: Life, challenger: str) -> Comparison:
        return compare_versions(
            life.registry, life.store, "0001", challenger, settings=life.settings, model=MODEL, detector=life.detector
        )

    def test_versions_are_compared_whichever_is_in_service(self, life: Life) -> None:
        both = self.compared(life, "0002")
        assert both.champion is not None
        assert (both.champion.version, both.challenger.version) == ("0001", "0002")
        recorded = life.manifest("0002").decision
        assert recorded is not None
        shown = {name: value for name, value in both.figures().items() if not name.startswith("silenced.")}
        assert shown.items() <= recorded.figures.items()  # nothing has come since

    def test_unknown_and_damaged_versions_are_errors(self, life: Life) -> None:
        with pytest.raises(RegistryError, match="has no version 0009"):
            self.compared(life, "0009")
        (life.registry.folder(MODEL, "0001") / "model.npz").write_bytes(b"damaged")
        with pytest.raises(ArtifactError, match=r"model\.npz is damaged"):
            self.compared(life, "0002")

    def test_an_empty_store_cannot_compare(self, life: Life) -> None:
        life.store.purge(share="reserve")
        with pytest.raises(TrainingDataError, match="holds no sequences to compare on"):
            self.compared(life, "0002")
