"""Every alert gets its attribution, by method "none" with the reason whatever the model does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from streamad.errors import ArtifactError
from streamad.judge.attribution import METHOD, Reference
from streamad.judge.explainer import LIMIT_S, Explainer, debt_of
from streamad.judge.scoring import JUDGING
from streamad.messages import NO_METHOD, EarlyWarning, ModelRef
from streamad.testing import ManualClock
from streamad.types import FloatArray, IntArray, Window, from_us
from tests.support.runtime.debts import Explaining, alert_of
from tests.support.runtime.early import AGES, looks, model
from tests.support.runtime.pipeline import CHANNELS, START_US, L, SquareScorer, model_of, settings_of, steps, until

WINDOW = Window(np.pad(np.full((len(CHANNELS), 5), 10.0, dtype=np.float32), ((0, 0), (0, L - 5))), 5)
TERMS = np.full(len(CHANNELS), 100.0, dtype=np.float32)


def explainer_with(load: Explaining, clock: ManualClock | None = None) -> Explainer:
    return Explainer(settings_of(), clock or ManualClock(START_US), load)


async def test_an_attribution_is_that_of_the_alert_and_its_model() -> None:
    load = Explaining()
    attribution = await explainer_with(load).attribution_of(debt_of(alert_of(3, "0007"), TERMS, WINDOW))
    assert (attribution.alert_id, attribution.model.version) == (alert_of(3).alert_id, "0007")
    assert (attribution.method, len(attribution.channels)) == (METHOD, len(CHANNELS))
    assert [term.term for term in attribution.terms] == TERMS.tolist()
    assert [model.version for model in load.loads] == ["0007"]


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("no room"),
        SystemExit(3),
        asyncio.CancelledError(),
        StopIteration(),
        BaseExceptionGroup("x", [KeyError()]),
    ],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.parametrize("where", ["failure", "load_failure"])
async def test_whatever_a_model_raises_the_alert_gets_an_attribution_with_the_reason(
    failure: BaseException, where: str
) -> None:
    load = Explaining()
    setattr(load, where, failure)
    explainer = explainer_with(load)
    attribution = await explainer.attribution(alert_of(1), TERMS, WINDOW)
    assert (attribution.method, attribution.terms, attribution.channels) == (NO_METHOD, [], [])
    assert "model test 0001" in str(attribution.detail)
    setattr(load, where, None)
    assert (await explainer.attribution(alert_of(2), TERMS, WINDOW)).method == METHOD


async def test_a_version_that_is_gone_is_named_and_secrets_are_masked() -> None:
    load = Explaining()
    load.load_failure = ArtifactError("s3://me:geheim@host/x is gone")
    attribution = await explainer_with(load).attribution(alert_of(1), TERMS, WINDOW)
    assert "cannot be loaded any more" in str(attribution.detail)
    assert "geheim" not in str(attribution.detail)


async def test_a_lost_window_ends_the_debt_too() -> None:
    debt = debt_of(alert_of(1), TERMS, WINDOW)
    attribution = await explainer_with(Explaining()).attribution_of(
        type(debt)(**{**{name: getattr(debt, name) for name in debt.__struct_fields__}, "window": b""})
    )
    assert (attribution.method, attribution.detail) == (NO_METHOD, "its window is gone")


async def test_an_attribution_that_takes_over_a_minute_is_given_up_and_other_models_are_explained() -> None:
    clock, load = ManualClock(START_US), Explaining(is_open=False)
    explainer = explainer_with(load, clock)
    hanging = asyncio.create_task(explainer.attribution(alert_of(1), TERMS, WINDOW))
    await until(lambda: load.n_waiting == 1 and clock.n_sleepers == 1)
    clock.advance(LIMIT_S - 1)
    await asyncio.sleep(0)
    assert not hanging.done()
    clock.advance(1)
    assert "longer than 60 s" in str((await hanging).detail)
    again = await explainer.attribution(alert_of(2), TERMS, WINDOW)
    assert (again.method, load.n_waiting) == (NO_METHOD, 1)
    assert "hangs" in str(again.detail)
    others = asyncio.create_task(explainer.attribution(alert_of(3, "0002"), TERMS, WINDOW))
    await until(lambda: load.n_waiting == 2)  # in a thread of its own
    load.gate.set()
    assert (await others).method == METHOD
    while (back := await explainer.attribution(alert_of(4), TERMS, WINDOW)).method == NO_METHOD:
        await steps(1)  # until the call that hung has returned
    assert back.method == METHOD


async def test_an_alert_that_waits_goes_before_all_debts_but_the_first() -> None:
    load, order = Explaining(is_open=False), []
    explainer = explainer_with(load)

    async def note(name: str, making: object) -> None:
        await making  # type: ignore[misc]
        order.append(name)

    debts = [
        asyncio.create_task(note(f"debt {n}", explainer.attribution_of(debt_of(alert_of(n), TERMS, WINDOW))))
        for n in range(3)
    ]
    await until(lambda: load.n_waiting == 1)
    alert = asyncio.create_task(note("alert", explainer.attribution(alert_of(9), TERMS, WINDOW)))
    await asyncio.sleep(0)
    load.gate.set()
    await asyncio.gather(alert, *debts)
    assert order == ["debt 0", "alert", "debt 1", "debt 2"]


async def test_two_versions_of_a_name_and_four_models_in_all_stay_in_memory() -> None:
    load = Explaining()
    explainer = explainer_with(load)

    async def loads(*names: str) -> list[str]:
        """Return which of the models are loaded if alerts of these are explained, in their order."""
        before = len(load.loads)
        for number, each in enumerate(names):
            name, _, version = each.partition(" ")
            alert = msgspec.structs.replace(alert_of(number), model=ModelRef(name, version))
            assert (await explainer.attribution(alert, TERMS, WINDOW)).method == METHOD
        return [f"{each.name} {each.version}" for each in load.loads[before:]]

    assert await loads("a 1", "a 2", "a 1", "a 2") == ["a 1", "a 2"]
    assert await loads("a 3", "a 2", "a 3", "a 1") == ["a 3", "a 1"], "the one needed last of a name stays"
    assert await loads("b 1", "c 1", "a 1", "a 3") == ["b 1", "c 1"]
    assert await loads("d 1", "b 1") == ["d 1", "b 1"]


async def test_an_alert_that_waits_for_its_attribution_stalls_no_run() -> None:
    """The limit is half of ``run.stall_timeout`` if that is shorter."""
    clock, load = ManualClock(START_US), Explaining(is_open=False)
    explainer = Explainer(settings_of(run={"stall_timeout": "20s"}), clock, load)
    hanging = asyncio.create_task(explainer.attribution(alert_of(1), TERMS, WINDOW))
    await until(lambda: load.n_waiting == 1 and clock.n_sleepers == 1)
    clock.advance(10)
    assert "longer than 10 s" in str((await hanging).detail)
    load.gate.set()


async def test_explaining_lets_windows_that_are_judged_go_first_a_few_windows_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamad.judge.explainer._PATIENCE_S", 60.0)
    scored: list[tuple[int, bool]] = []

    class Watching(SquareScorer):
        def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
            scored.append((len(windows), JUDGING.wait_until_idle(0)))
            return super().score(windows, lengths)

    explainer = Explainer(settings_of(), ManualClock(START_US), lambda _: model_of(Watching()))
    with JUDGING:
        call = asyncio.ensure_future(explainer.attribution(alert_of(1), TERMS, WINDOW))
        await steps()
        assert scored == []
    assert (await call).method == METHOD
    assert scored
    assert all(n <= 16 and was_idle for n, was_idle in scored)


def warning_of(look: int) -> EarlyWarning:
    start = from_us(START_US)
    return EarlyWarning(
        warning_id="0" * 32, stream="a", sequence="1", start_time=start, time=start, n_points=AGES[look], age=0.5,
        look=look + 1, score=9.0, p_value=0.01, false_alarm_rate=0.02, tail="empirical",
        model=ModelRef("test", "0001"), created_at=start,
    )  # fmt: skip


SEEN = Window(np.full((len(CHANNELS), AGES[1]), 10.0, dtype=np.float32), AGES[1])


async def test_reasons_of_a_warning_let_windows_that_are_judged_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.judge.explainer._PATIENCE_S", 60.0)
    scored: list[tuple[int, bool]] = []

    class Watching(SquareScorer):
        def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
            scored.append((len(windows), JUDGING.wait_until_idle(0)))
            return super().score(windows, lengths)

    early = looks()
    watched = tuple(replace(look, scorer=Watching((len(CHANNELS), look.form.n_points))) for look in early.looks)
    reference = Reference(np.ones((20, len(CHANNELS), L), np.float32), np.full(20, L))
    served = replace(model(early=replace(early, looks=watched)), reference=reference)
    explainer = Explainer(settings_of(), ManualClock(START_US), lambda _: served)
    with JUDGING:
        call = asyncio.ensure_future(explainer.of_look(warning_of(1), 1, SEEN))
        await steps()
        assert scored == []
    assert (await call).method == METHOD
    assert scored
    assert all(n <= 16 and was_idle for n, was_idle in scored)


@pytest.mark.parametrize(
    ("longer", "longest", "lengths", "method"),
    [
        ("resample", L - 1, [L, L], METHOD),
        ("resample", L, [L, L - 1], METHOD),
        ("resample", L, [L, L], NO_METHOD),
        ("resample", None, [L, 3], NO_METHOD),
        ("truncate", L, [L, L], METHOD),
    ],
)
async def test_reasons_of_a_warning_are_by_sequences_that_were_not_squeezed(
    longer: str, longest: int | None, lengths: list[int], method: str
) -> None:
    early = replace(looks(), longest=longest)
    reference = Reference(np.ones((2, len(CHANNELS), L), np.float32), np.array(lengths), ("s/squeezed", "s/1"))
    served = replace(model(early=early), reference=reference)
    plant = settings_of(window={"length": L, "longer": longer})
    found = await Explainer(plant, ManualClock(START_US), lambda _: served).of_look(warning_of(1), 1, SEEN)
    assert found.method == method
    assert (found.detail is None) == (method == METHOD)
    assert {each.sequence for each in found.nearest} <= ({"s/1"} if longest == L != lengths[1] else {*reference.names})


async def test_a_monitor_that_always_judges_explains_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.judge.explainer._PATIENCE_S", 0.001)
    with JUDGING:
        assert (await explainer_with(Explaining()).attribution(alert_of(1), TERMS, WINDOW)).method == METHOD
