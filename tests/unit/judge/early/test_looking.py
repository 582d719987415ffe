"""A round over open sequences: which are looked at, and that others get their turn meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamad.judge.early.looking import Looking
from streamad.judge.early.pinned import NotNowError
from streamad.messages import ModelRef
from tests.support.runtime.pipeline import settings_of

N_OPEN = 3_000


class Served:
    """Batchers of one model whose first look is far away."""

    is_idle = True
    model = SimpleNamespace(ref=ModelRef("default", "0001"), early=SimpleNamespace(due_at=(1_000,)))

    async def batcher_for(self, routes: tuple[str, ...]) -> Any:
        return SimpleNamespace(model=self.model)


def running(**more: Any) -> Any:
    whole = {"partial": False, "late": None, "is_torn": False, "routes": (), "looks": None, "key": "B-1"}
    return SimpleNamespace(**{**whole, **more}, n=20, start_us=0, begun_us=None, last_us=19_000_000)


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


RECIPE = (0, "A")


@pytest.mark.parametrize(
    ("sections", "sequences", "expected"),
    [
        (
            {},
            {"whole": {}, "begun before": {"partial": True}, "late": {"late": object()}, "torn": {"is_torn": True},
             "split": {}},
            ["whole"],
        ),
        (
            {"models": {"field": "recipe"}},
            {"no recipe yet": {}, "one recipe": {"routes": (RECIPE,)}, "two recipes": {"routes": (RECIPE, (1, "B"))}},
            ["one recipe"],
        ),
    ],
    ids=["one model", "several models"],
)  # fmt: skip
async def test_only_whole_sequences_of_one_partition_and_of_a_known_model_are_looked_at(
    sections: dict[str, Any], sequences: dict[str, dict[str, Any]], expected: list[str]
) -> None:
    looked_at = list[str]()

    def so_far(name: str, _: object) -> None:
        looked_at.append(name)
        raise NotNowError(0)

    served, missing = Served(), cast("Any", None)
    served.model = SimpleNamespace(ref=served.model.ref, early=SimpleNamespace(due_at=(10,)))
    plant = settings_of(alerts={"early": {"false_alarm_rate": 0.01}}, **sections)
    looking = Looking(plant, cast("Any", served), missing, load=missing, explainer=None, emit=missing)
    streams = {
        name: SimpleNamespace(readings=None, open={"B-1": running(so_far=so_far, **more)})
        for name, more in sequences.items()
    }
    await looking.visit(cast("Any", SimpleNamespace(streams=streams)), missing, lambda name: name == "split")
    assert looked_at == expected
