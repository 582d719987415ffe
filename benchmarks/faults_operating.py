"""Metrics and notices under kills: every worker is scraped, and ``streamad notify`` runs beside and is killed as well.

The local receiver verifies each signature, answers now and then 500 or 200 without the promised content, and notes when
it took which alert. A notice may come again only after a kill of ``streamad notify``.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.kafka.workers import ForkServer, Worker
from tests.support.notify.hook import SECRET, Conduct, Hook, listening
from tests.support.notify.plant import receiver
from tests.support.ports import free_port

SCRAPE_S = 0.2
SCRAPE_LIMIT_S = 1.0
AT_START_SHARE = 0.2
MOST_LIFE_S = 20.0
STOP_S = 15.0
LATE_S = 0.1
"""A notice that was on its way at a kill is taken at most so much later, and the next life takes longer to begin."""
EVERY_500, EVERY_EARLY = 31, 47
WRONG = ("alerts_without_notice", "notices_of_no_alert", "notices_repeated_without_a_kill", "scrapes_broken")


class TimedHook(Hook):
    """A receiver that notes when it took each alert (seconds of the monotonic clock)."""

    def __init__(self) -> None:
        super().__init__(conduct_of)
        self.taken: list[tuple[float, str]] = []

    def took(self, name: str, headers: dict[str, str], body: bytes) -> Conduct:
        """Note a try; return what happens to it."""
        with self._changed:
            n = len(self.notices)
            conduct = super().took(name, headers, body)
            self.taken += [(time.monotonic(), each["data"]["alert"]["alert_id"]) for each in self.notices[n:]]
        return conduct


def conduct_of(number: int, _: str) -> Conduct:
    """Return what happens to try ``number``."""
    if number % EVERY_500 == 0:
        return 500
    return "early" if number % EVERY_EARLY == 0 else 204


class Scraper:
    """Asks the workers' metrics and health in turn, in a thread, during ``with``."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.counted: Counter[str] = Counter()

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(SCRAPE_S):
            for address in list(self._addresses.values()):
                for path in ("metrics", "livez"):
                    url = f"http://{address}/{path}"
                    outcome, text = asked(url)
                    self.counted[outcome] += 1
                    if outcome == "broken":
                        print(f"{url} answered {text[-500:]!r}", file=sys.stderr)


def _refused(error: urllib.error.HTTPError) -> tuple[str, str]:
    try:
        text = error.read().decode(errors="replace")
    except (OSError, HTTPException):
        return "unanswered", ""
    return ("unanswered" if "the worker is stopping" in text else "broken"), f"{error}: {text}"


def asked(url: str) -> tuple[str, str]:
    """Return what came of a scrape (answered; unanswered: it starts, stops, is frozen or killed; broken) and its text.

    An answer without its length is one whose head was cut by a kill.
    """
    try:
        with urllib.request.urlopen(url, timeout=SCRAPE_LIMIT_S) as answer:
            if answer.headers["Content-Length"] is None:
                return "unanswered", ""
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        return _refused(error)
    except (OSError, HTTPException):
        return "unanswered", ""
    if url.endswith("livez"):
        return ("answered" if text == "alive\n" else "broken"), text
    try:
        names = {family.name for family in text_string_to_metric_families(text)}
    except ValueError:
        return "broken", text
    return ("answered" if "streamad_verdicts" in names else "broken"), text


@dataclass(slots=True)
class Operated:
    """``streamad notify`` beside the workers of the plant in ``folder``; use it in a ``with`` block."""

    folder: Path
    forks: ForkServer
    rng: random.Random
    hook: TimedHook = field(default_factory=TimedHook)
    lives: list[Worker] = field(default_factory=list)
    killed_s: list[float] = field(default_factory=list)
    _addresses: dict[str, str] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _scraper: Scraper = field(init=False)
    _killing: asyncio.Task[None] | None = None

    def __enter__(self) -> Operated:
        self._stack.enter_context(listening(self.hook))
        self._scraper = self._stack.enter_context(Scraper(self._addresses))
        return self

    def __exit__(self, *_: object) -> None:
        if self._killing is not None:
            self._killing.cancel()
        for life in self.lives:
            life.end()
        self._stack.close()

    def listen(self, worker: str) -> str:
        """Return where a worker serves its metrics."""
        return self._addresses.setdefault(worker, f"127.0.0.1:{free_port()}")

    def notify(self) -> dict[str, Any]:
        """Return the section ``notify`` of the config."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "notify.secret").write_text(SECRET)
        return {"receivers": [receiver(self.hook)]}

    def begin(self) -> None:
        """Start ``streamad notify``, and kill it at random moments from now on."""
        self._start()
        self._killing = asyncio.create_task(self._kill())

    async def finish(self, alerts: Iterable[str], n_kills: int, limit_s: float) -> None:
        """Go on until the receiver has taken all ``alerts``, with at most ``n_kills``; then stop. Raises SystemExit.

        Raises TimeoutError after ``limit_s`` seconds.
        """
        assert self._killing is not None
        wanted, deadline_s = set(alerts), time.monotonic() + limit_s
        while not wanted <= set(self.hook.alert_ids) and not self._killing.done() and len(self.killed_s) < n_kills:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self._killing.cancel()
        await asyncio.wait([self._killing])
        if not self._killing.cancelled():
            self._killing.result()
        life = self.lives[-1]
        await life.until(
            lambda: wanted <= set(self.hook.alert_ids) or not life.is_running, deadline_s - time.monotonic()
        )
        life.send(signal.SIGTERM)
        if code := await life.wait(STOP_S):
            raise SystemExit(f"streamad notify ended with {code}: {life.said()[-3000:]}")

    def figures(self, alerts: Iterable[str]) -> dict[str, int]:
        """Return the figures of the notices, if ``alerts`` were written, and of the scrapes."""
        return {
            **notice_figures(set(alerts), self.hook.taken, self.killed_s),
            "kills_of_notify": len(self.killed_s),
            **{f"scrapes_{name}": self._scraper.counted[name] for name in ("answered", "unanswered", "broken")},
        }

    def _start(self) -> None:
        log = self.folder / f"notify-{len(self.lives)}.log"
        command = ["--verbose", "notify", "--config", "plant.yaml"]
        self.lives.append(self.forks.start("notify", command, self.folder, log))

    async def _kill(self) -> None:
        while True:
            life, began_s = self.lives[-1], time.monotonic()
            if self.rng.random() < AT_START_SHARE:
                await asyncio.sleep(self.rng.uniform(0.0, 2.0))
            else:
                n_wanted = len(self.hook.tries) + self.rng.randrange(1, 20)
                while len(self.hook.tries) < n_wanted and time.monotonic() - began_s < MOST_LIFE_S:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.sleep(self.rng.random() * 1.5)
            life.kill()
            self.killed_s.append(time.monotonic())
            self._start()


def notice_figures(alerts: set[str], taken: Sequence[tuple[float, str]], killed_s: Sequence[float]) -> dict[str, int]:
    """Return how many ``alerts`` had no notice, and how often one came again, in all and without a kill in between.

    ``taken``: when the receiver took which alert; ``killed_s``: when ``streamad notify`` was killed.
    """
    ends_s = [at_s + LATE_S for at_s in killed_s]
    lives: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for at_s, name in taken:
        lives[sum(end_s < at_s for end_s in ends_s)][name] += 1
    found = Counter(name for _, name in taken)
    return {
        "alerts_without_notice": len(alerts - found.keys()),
        "notices_of_no_alert": len(found.keys() - alerts),
        "notices": len(taken),
        "notices_repeated": sum(n - 1 for n in found.values()),
        "notices_repeated_without_a_kill": sum(n - 1 for life in lives.values() for n in life.values()),
    }
