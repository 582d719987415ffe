"""The pipeline with several models: one verdict for every sequence, by its own model or while that is learning."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from typing import Any

from streamad.judge.bank import ModelBank
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import ModelRef, Verdict
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource
from tests.support.runtime.pipeline import (
    Run,
    TickingClock,
    line,
    model_of,
    records_of,
    run_pipeline,
    settings_of,
    until,
)
from tests.support.waiting import LIMIT_S


def version_of(name: str, version: str = "0001") -> ModelInService:
    known = model_of()
    return ModelInService(ModelRef(name, version), known.scorer, known.calibration, known.reference)


def sequence(stream: str, number: int, recipe: str | None, value: float = 1.0) -> bytes:
    whole = json.loads(line(stream, f"{stream}-{number}", [8.0 * number + i for i in range(5)], value, end=True))
    return json.dumps({**whole, "recipe": recipe}).encode()


def routing(**models: Any) -> Settings:
    return settings_of(models={"field": "recipe", **models}, run={"batch_windows": 4, "commit_interval": "1ms"})


def told(verdicts: list[Verdict]) -> dict[str, str | None]:
    return {verdict.sequence: verdict.model and f"{verdict.model.name} {verdict.model.version}" for verdict in verdicts}


async def test_every_sequence_is_judged_by_the_model_of_its_recipe() -> None:
    settings, clock = routing(), TickingClock(0.001)
    messages = [
        sequence(stream, n, "AB"[n % 2] if n < 8 else None, 10.0 if n == 3 else 1.0)
        for n in range(9)
        for stream in "rs"
    ]
    bank = ModelBank(settings, clock, version_of)
    run = await run_pipeline(ListSource.of({"p": records_of(messages)}), settings, clock=clock, batchers=bank)
    expected = {f"{s}-{n}": f"default.{'AB'[n % 2]} 0001" if n < 8 else "default 0001" for s in "rs" for n in range(9)}
    assert told(run.verdicts) == expected
    assert len(run.verdicts) == len(expected)
    assert [alert.sequence for alert in run.messages("alerts")] == ["r-3", "s-3"]
    assert [why.model.name for why in run.messages("attributions")] == ["default.B", "default.B"]
    assert Counter(judged.model_name for judged in run.judged) == {
        "default.A": 8,
        "default.B": 8,
        "default": 2,
    }


async def test_a_first_model_that_comes_in_the_middle_judges_all_that_follows_and_nothing_twice() -> None:
    settings, clock = routing(), TickingClock(0.001)
    messages = [sequence("r", n, "AB"[n % 2]) for n in range(400)]
    bank = ModelBank(settings, clock, lambda name: version_of(name) if name == "default.A" else None)

    async def bring_the_first(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(run.judged) > 40)
        batcher = await bank.batcher_for(("B",))
        assert isinstance(batcher, MicroBatcher)
        await batcher.swap(version_of("default.B"))

    run = await run_pipeline(
        ListSource.of({"p": records_of(messages)}, batch_records=5),
        settings,
        clock=clock,
        batchers=bank,
        while_running=bring_the_first,
    )
    assert [verdict.sequence for verdict in run.verdicts] == [f"r-{n}" for n in range(400)]
    of_a, of_b = run.verdicts[::2], run.verdicts[1::2]
    assert {verdict.decision for verdict in of_a} == {"normal"}
    decisions = [verdict.decision for verdict in of_b]
    n_learning = decisions.count("learning")
    assert 0 < n_learning < 200
    assert decisions == ["learning"] * n_learning + ["normal"] * (200 - n_learning)
    assert set(told(of_b[n_learning:]).values()) == {"default.B 0001"}
    assert run.pipeline.counters.verdicts == {"normal": 400 - n_learning, "learning": n_learning}


async def test_a_model_that_loads_slowly_holds_back_its_own_partition_only() -> None:
    settings, clock = routing(), TickingClock(0.001)
    gate = threading.Event()

    def load(name: str) -> ModelInService:
        assert name == "default.A" or gate.wait(LIMIT_S)
        return version_of(name)

    bank = ModelBank(settings, clock, load)
    partitions = {
        "slow": records_of([sequence("r", n, "B" if n == 1 else "A") for n in range(4)]),
        "quick": records_of([sequence("s", n, "A") for n in range(4)]),
    }

    async def open_the_gate(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(run.judged) == 5)  # all of the quick one, and what ended before in the slow one
        gate.set()

    run = await run_pipeline(
        ListSource.of(partitions), settings, clock=clock, batchers=bank, while_running=open_the_gate
    )
    assert {verdict.sequence for verdict in run.verdicts[:5]} == {"r-0", "s-0", "s-1", "s-2", "s-3"}
    assert [verdict.sequence for verdict in run.verdicts[5:]] == ["r-1", "r-2", "r-3"]


async def test_unscorable_routes_go_to_the_alerts_if_no_sink_takes_verdicts() -> None:
    settings, clock = routing(missing="unscorable"), TickingClock(0.001)
    messages = [line("r", "mixed", [0.0], 1.0), sequence("r", 0, "A"), sequence("s", 1, None)]
    two = [json.dumps({**json.loads(messages[0]), "recipe": recipe}).encode() for recipe in "AB"]
    bank = ModelBank(settings, clock, version_of)
    run = await run_pipeline(
        ListSource.of({"p": records_of([*two, *messages[1:]])}),
        settings,
        clock=clock,
        batchers=bank,
        with_verdicts=False,
    )
    assert {message.sequence: message.detail for message in run.messages("alerts")} == {
        "mixed": "two values of recipe: 'A' and 'B'",
        "s-1": "no recipe in its messages (models.missing is unscorable)",
    }
