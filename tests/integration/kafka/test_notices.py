"""``streamad notify`` over topics: warnings of running sequences become notices for those who want them, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from streamad.messages import Role
from tests.support.kafka.broker import Broker, new_topic, produce
from tests.support.notify.hook import SECRET, Hook, listening
from tests.support.notify.plant import id_of, receiver
from tests.support.notify.topics import record
from tests.support.runtime.cli import started


def wait_for(hook: Hook, n: int) -> None:
    """Return once ``n`` alerts and warnings came."""
    hook.wait(lambda hook: len(hook.alert_ids) >= n)


@pytest.mark.parametrize("has_own_topic", [True, False])
def test_a_warning_in_a_topic_becomes_a_notice_with_its_reasons_once(
    kafka: Broker, tmp_path: Path, has_own_topic: bool
) -> None:
    async def topics() -> dict[Role, str]:
        made: dict[Role, str] = {role: await new_topic(kafka, 2) for role in ("alerts", "attributions")}
        return {**made, "warnings": await new_topic(kafka, 2)} if has_own_topic else made

    of = asyncio.run(topics())

    async def tell(warning: int, alert: int) -> None:
        """Write both with their reasons, those of the warning first, as a monitor does."""
        await produce(kafka.bootstrap, of["attributions"], [record("attributions", "reasons", warning)])
        await produce(kafka.bootstrap, of.get("warnings", of["alerts"]), [record("warnings", "warning", warning)])
        await produce(kafka.bootstrap, of["alerts"], [record("alerts", "alert", alert)])
        await produce(kafka.bootstrap, of["attributions"], [record("attributions", "attribution", alert)])

    with listening(Hook()) as hook, listening(Hook()) as of_alerts:
        (tmp_path / "notify.secret").write_text(SECRET)
        content = {
            "name": f"plant-{of['alerts']}",
            "channels": [{"name": "temp_c", "unit": "K"}],
            "source": {"url": "live/*.jsonl"},
            "sinks": {role: f"kafka://{kafka.bootstrap}/{topic}" for role, topic in of.items()},
            "notify": {"receivers": [receiver(hook, on=["alerts", "warnings"]), receiver(of_alerts, "of-alerts")]},
        }
        (tmp_path / "plant.yaml").write_text(yaml.safe_dump(content))
        told: list[int] = []
        for warning, alert in ((101, 2), (103, 5)):  # the second time after a restart
            told += [warning, alert]
            asyncio.run(tell(warning, alert))
            with started("notify", cwd=tmp_path) as process:
                wait_for(hook, len(told))
                wait_for(of_alerts, len(told) // 2)
                process.terminate()
                assert process.wait() == 0
            assert sorted(hook.alert_ids) == sorted(map(id_of, told))
            assert sorted(of_alerts.alert_ids) == sorted(map(id_of, told[1::2]))
    notices = [notice for notice in hook.notices if notice["type"] == "streamad.warning"]
    assert [notice["data"]["warning"]["warning_id"] for notice in notices] == [id_of(101), id_of(103)]
    for notice in notices:
        assert notice["data"]["attribution"]["alert_id"] == notice["data"]["warning"]["warning_id"]
        assert "leaves the normal course at 54\u00a0% of the usual length" in notice["data"]["headline"]
        assert "temp_c 2 K above the band" in notice["data"]["headline"]
