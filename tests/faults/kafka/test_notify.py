"""``streamad notify`` over topics, killed at any moment: each alert at least once, again only after a kill."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import yaml

from tests.support.kafka.broker import Broker, new_topic, produce
from tests.support.notify.hook import SECRET, Hook, listening
from tests.support.notify.plant import id_of, receiver
from tests.support.notify.topics import record
from tests.support.runtime.cli import started

ALERTS = 120
KILLS = 3


def test_no_alert_is_lost_and_each_is_repeated_at_most_once_for_each_kill(kafka: Broker, tmp_path: Path) -> None:
    rng = random.Random(3)

    async def topics() -> tuple[str, str]:
        return await new_topic(kafka, 3), await new_topic(kafka, 3)

    alerts, attributions = asyncio.run(topics())

    async def write(first: int, last: int) -> None:
        await produce(kafka.bootstrap, alerts, [record("alerts", "alert", i) for i in range(first, last)])
        await produce(
            kafka.bootstrap, attributions, [record("attributions", "attribution", i) for i in range(first, last)]
        )

    def url_of(topic: str) -> str:
        return f"kafka://{kafka.bootstrap}/{topic}"

    with listening(Hook()) as one, listening(Hook(lambda n, _: 500 if n % 41 == 0 else 204)) as other:
        hooks = (one, other)
        (tmp_path / "notify.secret").write_text(SECRET)
        content = {
            "name": f"plant-{alerts}",
            "channels": [{"name": "temp_c", "unit": "K"}],
            "source": {"url": "live/*.jsonl"},
            "sinks": {"alerts": url_of(alerts), "attributions": url_of(attributions)},
            "notify": {"receivers": [receiver(hook, f"at-{n}") for n, hook in enumerate(hooks)]},
        }
        (tmp_path / "plant.yaml").write_text(yaml.safe_dump(content))
        step = ALERTS // (KILLS + 1)
        for n in range(KILLS):
            asyncio.run(write(n * step, (n + 1) * step))
            with started("notify", cwd=tmp_path):
                for hook in hooks:
                    hook.wait(lambda hook, n=n: len(hook.notices) > n * step + 2)  # type: ignore[misc]
                time.sleep(rng.uniform(0, 1.5))  # the block's end kills it
        lasts = [len(hook.alert_ids) for hook in hooks]
        asyncio.run(write(KILLS * step, ALERTS))
        with started("notify", cwd=tmp_path):
            for hook in hooks:
                hook.wait(lambda hook: len({*hook.alert_ids}) == ALERTS)
    for hook, last in zip(hooks, lasts, strict=True):
        assert {*hook.alert_ids} == {id_of(i) for i in range(ALERTS)}
        assert max(Counter(hook.alert_ids).values()) <= KILLS + 1
        # The first one may be of the process that was killed: the hook reads what is on its way after the kill.
        assert max(Counter(hook.alert_ids[last + 1 :]).values()) == 1, "repeated without a kill"
        for stream in range(3):
            first_seen = list(dict.fromkeys(name for name in hook.alert_ids if int(name, 16) % 3 == stream))
            assert first_seen == sorted(first_seen), "in order within a stream"
        assert all(notice["data"]["attribution"] is not None for notice in hook.notices)
