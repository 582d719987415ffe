"""The page under load: first paint, frames while scrolling, weight, many browsers, and how soon an alert is seen.

A small simulated plant is trained and judged; its messages, multiplied, are the outputs of a plant with 10,000 verdicts
on 200 streams (one sequence in 50 has an alert, with attribution and window). ``streamad web`` serves them in a process
of its own; Chromium (that on PATH, or CHROMIUM) opens each page with an empty cache. Frames are the times between
animation frames while the page is scrolled from top to bottom, and while it renews itself. Needs playwright (extra
``test``). Run:
``python benchmarks/web.py [--json]``; about two minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from streamad.messages import Alert, Attribution, Message, Verdict, Window

EACH_ALERT = 50
"""One sequence in so many has an alert."""
SIZES = ("--train", "60", "--normal", "30", "--faulty", "10")
LIMIT_S = 120.0
ROLES: dict[str, type[Message]] = {
    "verdicts": Verdict,
    "alerts": Alert,
    "attributions": Attribution,
    "windows": Window,
}
_SCROLL = """async ([selector, seconds]) => {
  const box = selector ? document.querySelector(selector) : document.scrollingElement;
  const way = box.scrollHeight - box.clientHeight;
  box.scrollTop = 0;
  const frame = () => new Promise(requestAnimationFrame);
  let last = await frame(), longest = 0;
  const begun = last;
  for (let share = 0; share < 1;) {
    const now = await frame();
    longest = Math.max(longest, now - last);
    last = now;
    share = Math.min(1, (now - begun) / 1000 / seconds);
    box.scrollTop = way * share;
  }
  return longest;
}"""
_WATCH = """() => {
  window.longestFrame = 0;
  let last = performance.now();
  const frame = (now) => {
    window.longestFrame = Math.max(window.longestFrame, now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


class Outputs:
    """The outputs of a plant in ``folder``: multiplied from those that a small plant wrote there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "out"
        found: dict[str, dict[str, Any]] = {role: {} for role in ROLES}
        for role, kind in ROLES.items():
            for line in (self._folder / f"{role}.jsonl").read_bytes().splitlines():
                message: Any = msgspec.json.decode(line, type=kind)
                found[role][message.verdict_id if role in ("verdicts", "windows") else message.alert_id] = message
        self._odd = [_together(found, name) for name in found["alerts"]]
        self._normal = [_together(found, name) for name in found["verdicts"] if name not in found["alerts"]]
        self.n_written = 0

    def multiply(self, n_sequences: int, n_streams: int, until: datetime) -> None:
        """Replace the messages by those about ``n_sequences`` of ``n_streams``; the last one ends at ``until``."""
        files = {role: (self._folder / f"{role}.jsonl").open("wb") for role in ROLES}
        with ExitStack() as stack:
            for file in files.values():
                stack.enter_context(file)
            apart = timedelta(hours=20) / n_streams
            for number in range(n_sequences):
                at = until - (n_sequences - 1 - number) * apart
                for role, message in self._copies(number, number % n_streams, at, number % EACH_ALERT == 7):
                    files[role].write(msgspec.json.encode(message) + b"\n")
                    self.n_written += 1

    def _copies(self, number: int, stream: int, at: datetime, is_odd: bool) -> list[tuple[str, Message]]:
        chosen = self._odd if is_odd else self._normal
        named = {"stream": f"line-{stream:03d}", "sequence": f"B-{number:05d}", "created_at": at}
        found = []
        for role, message in chosen[number % len(chosen)]:
            changed: dict[str, Any] = {
                **named,
                ("verdict_id" if hasattr(message, "verdict_id") else "alert_id"): _id(number),
            }
            if not isinstance(message, Attribution):
                changed |= {"start_time": at - (message.end_time - message.start_time), "end_time": at}
            found.append((role, msgspec.structs.replace(message, **changed)))
        return found

    def append_alert(self, number: int, stream: int) -> str:
        """Append an alert and all about it, as a commit does; return its id."""
        for role, message in self._copies(number, stream, datetime.now(UTC), is_odd=True):
            with (self._folder / f"{role}.jsonl").open("ab") as file:
                file.write(msgspec.json.encode(message) + b"\n")
        return _id(number)


def _together(found: dict[str, dict[str, Any]], name: str) -> list[tuple[str, Any]]:
    return [(role, messages[name]) for role, messages in found.items() if name in messages]


def _id(number: int) -> str:
    return f"{number:032x}"


def judged_plant(folder: Path) -> None:
    """Simulate, train and run a small plant in ``folder``."""
    for words in (("simulate", "--out", ".", *SIZES), ("train",), ("run", "--quiet")):
        subprocess.run([sys.executable, "-m", "streamad", *words], cwd=folder, check=True, stdout=sys.stderr)


class Server:
    """``streamad web`` in a process of its own over the plant in ``folder``."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], link: str) -> None:
        self.link, self._folder, self._process = link, folder, process
        self.host = urlsplit(link).netloc
        self.origin = f"http://{self.host}"
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            opener.open(link, timeout=LIMIT_S)
            raise RuntimeError("the page gives no cookie for its link")
        except urllib.error.HTTPError as answer:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]

    @property
    def rss_mb(self) -> float:
        """Return the memory of the process."""
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return int(text.partition("VmRSS:")[2].split()[0]) / 1e3

    def read_rows(self) -> dict[str, int]:
        """Return how many verdicts, alerts, attributions and windows its view has."""
        counted = ("decision", "rate", "attribution", "window")
        query = f"SELECT {', '.join(f'count({column})' for column in counted)} FROM sequences"
        with suppress(sqlite3.OperationalError):  # the tables are being made
            view = sqlite3.connect(f"file:{self._folder / 'view.sqlite3'}?mode=ro", uri=True)
            try:
                return dict(zip(ROLES, view.execute(query).fetchone(), strict=True))
            finally:
                view.close()
        return dict.fromkeys(ROLES, 0)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page."""
        request = urllib.request.Request(self.origin + path, headers={"cookie": self.cookie})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Serve the page during the block."""
    command = [sys.executable, "-m", "streamad", "web", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(folder, process, process.stdout.readline().removeprefix("open ").strip())
        finally:
            process.terminate()


def ingest(server: Server, n_written: int) -> dict[str, float]:
    """Wait until the view has all messages; return how long it took from the printed link on."""
    begun = time.perf_counter()
    while (n := sum(server.read_rows().values())) < n_written:
        if time.perf_counter() - begun > LIMIT_S:
            raise TimeoutError(f"{n} of {n_written} messages after {LIMIT_S:g} s")
        time.sleep(0.02)
    took_s = time.perf_counter() - begun
    return {"messages": n_written, "seconds": took_s, "rows_per_s": n_written / took_s}


# --- in the browser ---


@contextmanager
def visit(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    """Open a browser with an empty cache, let in by the link."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(LIMIT_S * 1e3)
    name, _, value = server.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": server.origin}])
    try:
        yield context
    finally:
        context.close()


def open_page(context: BrowserContext, url: str) -> tuple[Page, int]:
    """Open a page; return it and the bytes that came over the wire for it."""
    page = context.new_page()
    sizes: list[float] = []
    session = context.new_cdp_session(page)
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.send("Network.enable")
    page.goto(url, wait_until="load")
    page.wait_for_selector("main")
    page.wait_for_timeout(300)  # icons come after the load
    return page, round(sum(sizes))


def first_paint_ms(page: Page) -> float:
    """Return when the browser first painted content, from the begin of the navigation."""
    deadline = time.monotonic() + LIMIT_S
    while (found := page.evaluate(_PAINT)) is None and time.monotonic() < deadline:
        page.wait_for_timeout(20)
    return float(found)


def measure_pages(browser: Browser, server: Server, paths: dict[str, str], rounds: int) -> dict[str, Any]:
    """Return first paint and weight of each page."""
    figures: dict[str, Any] = {}
    for name, path in paths.items():
        paints, weight = [], 0
        for _ in range(rounds):
            with visit(browser, server) as context:
                page, weight = open_page(context, server.origin + path)
                paints.append(first_paint_ms(page))
        figures[name] = {
            "first_paint_ms": statistics.median(paints),
            "first_paint_max_ms": max(paints),
            "weight_kb": weight / 1e3,
        }
    return figures


def measure_frames(browser: Browser, server: Server, paths: dict[str, str], seconds: float) -> dict[str, float]:
    """Return the longest frame in milliseconds while each page, or a part that scrolls by itself, is scrolled."""
    parts = (("now", ""), ("now", ".lanes-box"), ("stream", ""))
    figures = {}
    with visit(browser, server) as context:
        for name, part in parts:
            page, _ = open_page(context, server.origin + paths[name])
            page.wait_for_timeout(1_000)  # a just opened page is still painting
            figures[f"{name} scrolled{part and f' ({part})'}"] = float(page.evaluate(_SCROLL, [part, seconds]))
            page.close()
    return figures


def measure_alerts(browser: Browser, server: Server, outputs: Outputs, n: int, first: int) -> tuple[list[float], float]:
    """Return how many seconds after its commit each of ``n`` alerts stands on the page Now, and the longest frame."""
    found = []
    with visit(browser, server) as context:
        page, _ = open_page(context, server.origin)
        page.wait_for_timeout(1_000)
        page.evaluate(_WATCH)
        for number in range(n):
            name = outputs.append_alert(first + number, number)
            begun = time.perf_counter()
            page.wait_for_selector(f'a[href="/s/{name}"]', state="attached")
            found.append(time.perf_counter() - begun)
            page.wait_for_timeout(200 + 37 * number % 400)  # at another moment of what is polled
        longest = float(page.evaluate("window.longestFrame"))
    return found, longest


# --- many browsers ---


def listen(server: Server) -> tuple[socket.socket, bytes]:
    """Open the stream of changes as a browser does; return the connection and the head of the answer."""
    connection = socket.create_connection((urlsplit(server.origin).hostname, urlsplit(server.origin).port), LIMIT_S)
    head = (
        f"GET /changes HTTP/1.1\r\nHost: {server.host}\r\nCookie: {server.cookie}\r\nAccept: text/event-stream\r\n\r\n"
    )
    connection.sendall(head.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(4096) or b"\r\n\r\n"
    return connection, answer


def measure_listeners(server: Server, outputs: Outputs, n: int, number: int) -> dict[str, Any]:
    """Let ``n`` browsers listen; return memory, the answer to one more, and how a change reaches all of them."""
    before_mb = server.rss_mb
    with ExitStack() as stack:
        for _ in range(n):
            connection, answer = listen(server)
            stack.enter_context(connection)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"a browser was refused: {answer!r}")
        with_mb = server.rss_mb
        status, text = server.get("/changes")
        outputs.append_alert(number, 0)
        begun = time.perf_counter()
        with ThreadPoolExecutor(n) as threads:  # each fetches the page again, as the page's script does
            answers = list(threads.map(lambda _: _fetched(server, begun), range(n)))
        return {
            "listeners": n,
            "rss_before_mb": before_mb,
            "rss_mb": with_mb,
            "rss_after_renewal_mb": server.rss_mb,
            "one_more": {"status": status, "text": text},
            "renewed": sum(status == 200 for status, _ in answers),
            "renewal_median_s": statistics.median(seconds for _, seconds in answers),
            "renewal_last_s": max(seconds for _, seconds in answers),
        }


def _fetched(server: Server, begun: float) -> tuple[int, float]:
    status, _ = server.get("/")
    return status, time.perf_counter() - begun


# --- all of it ---


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    sequences: int
    streams: int
    listeners: int
    alerts: int
    rounds: int
    scroll_s: float


def paths_of(sizes: Sizes) -> dict[str, str]:
    """Return the address of each page; sequences are alerts."""
    alerts = [_id(number) for number in range(sizes.sequences) if number % EACH_ALERT == 7][-3:]
    return {
        "now": "/",
        "sequence": f"/s/{alerts[-1]}",
        "alerts": "/alerts",
        "highest": "/alerts?order=height",
        "streams": "/streams",
        "stream": "/stream?name=line-000",
        "compare": f"/compare?{'&'.join(f'id={each}' for each in alerts)}",
        "calibration": "/calibration",
        "models": "/models",
    }


def measure(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    judged_plant(folder)
    outputs = Outputs(folder)
    outputs.multiply(sizes.sequences, sizes.streams, datetime.now(UTC) - timedelta(minutes=1))
    paths = paths_of(sizes)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with served(folder) as server, sync_playwright() as playwright:
        read = ingest(server, outputs.n_written)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            pages = measure_pages(browser, server, paths, sizes.rounds)
            frames = measure_frames(browser, server, paths, sizes.scroll_s)
            seen_s, frames["now, renewed"] = measure_alerts(browser, server, outputs, sizes.alerts, sizes.sequences)
        finally:
            browser.close()
        time.sleep(1)  # the server notices that the browser is gone
        many = measure_listeners(server, outputs, sizes.listeners, sizes.sequences + sizes.alerts)
    return {
        "sequences": sizes.sequences,
        "streams": sizes.streams,
        "cores": os.cpu_count(),
        "ingest": read,
        "pages": pages,
        "longest_frame_ms": frames,
        "alert_seen_s": {"median": statistics.median(seen_s), "max": max(seen_s), "n": len(seen_s)},
        "browsers": many,
    }


def table_of(figures: dict[str, Any]) -> Sequence[str]:
    """Return the lines that a person reads."""
    lines = [f"{figures['sequences']} verdicts, {figures['streams']} streams, {figures['cores']} cores"]
    lines.append(f"{'page':<14}{'first paint':>13}{'slowest':>10}{'weight':>11}")
    for name, row in figures["pages"].items():
        paints = f"{row['first_paint_ms']:>10.0f} ms{row['first_paint_max_ms']:>7.0f} ms"
        lines.append(f"{name:<14}{paints}{row['weight_kb']:>8.1f} kB")
    for name, longest in figures["longest_frame_ms"].items():
        lines.append(f"longest frame, {name}: {longest:.0f} ms")
    seen, many, read = figures["alert_seen_s"], figures["browsers"], figures["ingest"]
    lines.append(f"{seen['n']} alerts on the page after {seen['median']:.2f} s (median), {seen['max']:.2f} s at most")
    lines.append(f"read {read['messages']} messages at {read['rows_per_s']:.0f} a second")
    lines.append(
        f"{many['listeners']} browsers: {many['rss_before_mb']:.0f} MB before, {many['rss_mb']:.0f} MB with them, "
        f"one more gets {many['one_more']['status']} {many['one_more']['text']!r}"
    )
    lines.append(
        f"{many['renewed']} of {many['listeners']} fetch the page again at once: median "
        f"{many['renewal_median_s']:.2f} s, last {many['renewal_last_s']:.2f} s, {many['rss_after_renewal_mb']:.0f} MB"
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--sequences", type=int, default=10_000, help="verdicts (default: 10000)")
    parser.add_argument("--streams", type=int, default=200, help="streams (default: 200)")
    parser.add_argument("--listeners", type=int, default=100, help="browsers: web.max_browsers (default: 100)")
    parser.add_argument("--alerts", type=int, default=20, help="alerts that are waited for (default: 20)")
    parser.add_argument("--rounds", type=int, default=5, help="times that each page is opened (default: 5)")
    parser.add_argument("--scroll-s", type=float, default=4, help="seconds from top to bottom (default: 4)")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), Sizes(**options))
    print("\n".join(table_of(figures)))
    if as_json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
