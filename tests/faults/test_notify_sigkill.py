"""``streamad notify`` killed at any moment: each alert and warning reaches each receiver at least
once, again only after a kill.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.notify.hook import Hook, listening
from tests.support.notify.plant import id_of, notified_plant, receiver, write
from tests.support.runtime.cli import started
from tests.support.waiting import LIMIT_S

KILLS = 5
TOGETHER = 5
"""A digest shows so many alerts; the others are counted alone."""


def _write_slowly(folder: Path, rng: random.Random, alerts: int, chunks: Sequence[int], stop: threading.Event) -> None:
    """Write alerts and warnings as a monitor does: some at a time, each attribution a moment later."""
    n = 0
    while n < alerts and not stop.is_set():
        more = min(rng.choice(chunks), alerts - n)
        write(folder, "alert", [i for i in range(n, n + more) if i % 3])
        write(folder, "warning", [i for i in range(n, n + more) if not i % 3])
        stop.wait(rng.uniform(0, 0.05))
        write(folder, "attribution", range(n, n + more))
        n += more
        stop.wait(rng.uniform(0.1, 0.4))


@pytest.mark.parametrize(
    ("settings", "alerts", "chunks"),
    [({}, 400, (1, 2, 5, 40)), ({"digest": "700ms"}, 50, (1,)), ({"quiet": "900ms"}, 50, (1,))],
    ids=["each", "digest", "quiet"],
)
def test_no_alert_is_lost_and_each_is_repeated_at_most_once_for_each_kill(
    settings: dict[str, Any], alerts: int, chunks: Sequence[int], tmp_path: Path
) -> None:
    rng, stop = random.Random(str(settings)), threading.Event()
    with listening(Hook(lambda n, _: 500 if n % 67 == 0 else 204)) as one, listening(Hook()) as other:
        hooks = (one, other)
        notified_plant(
            tmp_path,
            *(receiver(hook, f"at-{n}", on=["alerts", "warnings"], **settings) for n, hook in enumerate(hooks)),
        )
        writing = threading.Thread(target=_write_slowly, args=(tmp_path, rng, alerts, chunks, stop))
        writing.start()
        try:
            for _ in range(KILLS):
                with started("notify", cwd=tmp_path):
                    time.sleep(rng.uniform(1.2, 4.0))  # the block's end kills it
            writing.join(LIMIT_S)
            lasts = [len(hook.alert_ids) for hook in hooks]
            with started("notify", cwd=tmp_path):
                for hook in hooks:
                    hook.wait(lambda hook: _n_missing(hook, alerts) <= _n_counted_alone(hook))
        finally:
            stop.set()
            writing.join(LIMIT_S)
    for hook, last in zip(hooks, lasts, strict=True):
        assert max(Counter(hook.alert_ids).values()) <= KILLS + 1
        # The first one may be of the process that was killed: the hook reads what is on its way after the kill.
        assert max(Counter(hook.alert_ids[last + 1 :]).values(), default=1) == 1, "repeated without a kill"


def _n_missing(hook: Hook, alerts: int) -> int:
    """Return how many alerts no notice has shown."""
    return len({id_of(i) for i in range(alerts)} - {*hook.alert_ids})


def _n_counted_alone(hook: Hook) -> int:
    """Return how many alerts are in digests that do not show them."""
    return sum(max(0, notice["data"].get("count", 1) - TOGETHER) for notice in hook.notices)
