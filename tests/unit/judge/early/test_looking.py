"""A round over open sequences whose looks are not due costs others no turn of theirs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from streamad.judge.early.looking import Looking
from streamad.messages import ModelRef
from tests.support.runtime.pipeline import settings_of

N_OPEN = 3_000


class Served:
    """Batchers of one model whose first look is far away."""

    is_idle = True
    model = SimpleNamespace(ref=ModelRef("default", "0001"), early=SimpleNamespace(due_at=(1_000,)))

    async def batcher_for(self, routes: tuple[str, ...]) -> Any:
        return SimpleNamespace(model=self.model)


def running() -> Any:
    whole = {"partial": False, "late": None, "is_torn": False, "routes": (), "looks": None}
    return SimpleNamespace(**whole, n=20, start_us=0, begun_us=None, last_us=19_000_000)


async def test_others_get_their_turn_among_thousands_of_open_sequences() -> None:
    plant = settings_of(alerts={"early": {"false_alarm_rate": 0.01}})
    missing = cast("Any", None)
    looking = Looking(plant, cast("Any", Served()), missing, load=missing, explainer=None, emit=missing)
    streams = {f"reactor-{i}": SimpleNamespace(open={"B-1": running()}) for i in range(N_OPEN)}
    round_ = asyncio.create_task(looking.visit(cast("Any", SimpleNamespace(streams=streams)), missing, lambda _: False))
    n_turns = 0
    while not round_.done():
        await asyncio.sleep(0)
        n_turns += 1
    await round_
    assert n_turns > 10
