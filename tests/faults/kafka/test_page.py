"""``streamad run --web --workers`` on a broker: one page shows all workers by their status, and all end together."""

from __future__ import annotations

import asyncio
import http.cookiejar
import json
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

from aiokafka.admin import NewTopic

from tests.support.kafka.broker import Broker, create_topics, read_committed, unique_name
from tests.support.kafka.faults import LIMIT_S, KafkaPlants
from tests.support.kafka.plant import traffic
from tests.support.web.run import is_alive, needs_proc

pytestmark = needs_proc


def reader(link: str) -> Callable[[], str]:
    """Open the printed link as a browser does; return what fetches the page Now."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(link, timeout=LIMIT_S).read()

    def now() -> str:
        text: str = opener.open(link.partition("?")[0], timeout=LIMIT_S).read().decode()
        return text

    return now


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_one_page_shows_all_workers_and_all_end_together(kafka: Broker, plants: KafkaPlants) -> None:
    topic = unique_name("status")
    compact = {"cleanup.policy": "compact"}
    await create_topics(kafka.bootstrap, {topic: NewTopic(topic, 2, 1, topic_configs=compact)})
    plant = await plants.make(
        kafka.bootstrap,
        sinks={"status": f"kafka:///{topic}"},
        display={"status_interval": "1s", "open": True},
        web={"port": 0},
    )
    flow = plant.flow(traffic(41, partitions=4, streams=40, sequences=50), per_s=200)
    run = plant.start("supervisor", "--workers", "2", "--web", static=False, fork=False)
    await run.until(lambda: "open http://" in run.said())
    link = re.search(r"open (http://\S+)", run.said())
    assert link is not None
    now = await asyncio.to_thread(reader, link[1])
    text, running = "", []
    async with asyncio.timeout(LIMIT_S):
        while len(running) < 2 or "open sequence" not in text or not re.search(r'href="/s/[0-9a-f]{32}"', text):
            text = await asyncio.to_thread(now)
            running = re.findall(r'data-head="worker">([^<]+)</td><td[^>]*><[^>]*>● running', text)
            await asyncio.sleep(0.1)
    assert len(set(running)) == 2
    assert "silent" not in text
    children = children_of(run.process.pid)
    assert len(children) == 3  # two workers and the page
    await flow.cut()
    run.send(signal.SIGTERM)
    assert await run.wait(LIMIT_S) == 0, run.said()[-3000:]
    assert not any(map(is_alive, children))
    last = {}
    for record in await read_committed(kafka.bootstrap, topic):
        message = json.loads(record.value or b"null")
        if message["type"] == "status":
            last[message["instance"]] = message["stopped"]
    assert last == dict.fromkeys(running, True)
