"""The metrics of a worker: what they say of a real run, and a server that answers also if the loop hangs."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from streamad.errors import OutputError
from streamad.messages import ModelRef
from streamad.runtime import metrics as serving
from streamad.runtime.metrics import (
    DEAD_LETTER_KINDS,
    EVENT_KINDS,
    MetricsServer,
    Observed,
    ServedModel,
    WorkerCollector,
)
from streamad.settings.outputs import MetricsSettings, split_address
from streamad.telemetry import http_server
from streamad.telemetry.metrics import LearningCounters, ServedCounters
from streamad.testing import ListSource, ManualClock
from streamad.types import PartitionAssigned, RecordBatch
from tests.support.runtime import early
from tests.support.runtime.early import RATE
from tests.support.runtime.pipeline import START_US, Run, line, records_of, run_pipeline, settings_of, until
from tests.support.waiting import LIMIT_S

MESSAGES = [
    line("a", "a-0", [1] * 8, end=True),
    line("a", "a-1", [10] * 8, 10.0, end=True),
    line("b", "b-0", [1], 20.0),
    b"{",
]
Sample = tuple[str, tuple[tuple[str, str], ...]]


async def scraped(
    *,
    shares_topic: bool = True,
    partition: str = "t[0]",
    more: Callable[[Run], None] | None = None,
    warns: bool = False,
) -> str:
    """Return the metrics of a run over ``MESSAGES`` before it ends."""
    odd = [line("c", "c-0", list(range(8)), 10.0, end=True)] if warns else []  # the first look sees it
    records = tuple(records_of([*MESSAGES, *odd]))
    batch = RecordBatch(partition, records, len(records), end_offset=9, caught_up=True)
    source = ListSource([PartitionAssigned(partition), batch], endless=True)
    clock = ManualClock(START_US + 60_000_000)
    found = []
    served = ServedModel(ModelRef("test", "0001"), 0.02, 200, START_US, START_US, 86_400.0, RATE if warns else None)

    async def beside(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.counters.records == len(records))
        clock.advance(2)
        await until(lambda: run.pipeline.counters.verdicts.total() == 2 + len(odd))
        if more is not None:
            more(run)
        observed = Observed(
            pipeline=run.pipeline,
            models=lambda: [served],
            events={"drift": 2},
            now_us=clock.now_us,
            scoring=run.pipeline.status.latency,
            explaining=None,
            shares_topic=shares_topic,
        )
        registry = CollectorRegistry()
        registry.register(WorkerCollector(observed))
        found.append((generate_latest(registry) + b"\0" + generate_openmetrics(registry)).decode())
        await source.close()

    settings = settings_of(alerts={"early": {"false_alarm_rate": RATE}} if warns else {})
    await run_pipeline(source, settings, clock=clock, model=early.model(), while_running=beside)
    return found[0]


def samples(text: str) -> dict[Sample, float]:
    families = text_string_to_metric_families(text.partition("\0")[0])
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for of in families for one in of.samples}


async def test_a_scrape_says_what_the_run_has_counted() -> None:
    text = await scraped()
    found = samples(text)

    def value(name: str, **labels: str) -> float:
        return found[f"streamad_{name}", tuple(sorted(labels.items()))]

    assert value("records_read_total") == 4
    assert value("samples_total") == 17
    assert value("dead_letters_total", kind="malformed") == 1
    assert value("sequences_total", reason="marker") == 2
    assert value("verdicts_total", model="test", decision="normal") == 1
    assert value("verdicts_total", model="test", decision="anomalous") == 1
    assert value("alerts_total", model="test") == 1
    assert value("commits_total", outcome="committed") >= 1
    assert value("commits_total", outcome="failed") == 0
    assert value("source_lag_records", partition="t[0]") == 5
    assert value("low_watermark_age_seconds", partition="t[0]") > 0
    assert value("open_sequences") == 1
    assert value("buffered_bytes") > 0
    assert value("verdict_latency_seconds_count") == 2
    assert value("verdict_latency_seconds_bucket", le="+Inf") == 2
    assert value("model_info", model="test", version="0001") == 1
    assert value("model_trained_timestamp_seconds", model="test") == START_US / 1e6
    assert value("false_alarm_rate_configured_ratio", model="test") == 0.02
    assert value("calibration_sequences", model="test") == 200
    assert value("events_total", kind="drift") == 2
    assert re.search(r'streamad_alerts_total\{model="test"\} 1.0 # \{alert_id="[0-9a-f]{32}"\}', text)


async def test_warnings_are_counted_once_they_are_committed_with_their_ages() -> None:
    text = await scraped(warns=True)
    found = samples(text)
    assert found["streamad_warnings_total", (("model", "test"),)] == 1
    assert found["streamad_warning_rate_configured_ratio", (("model", "test"),)] == RATE
    assert found["streamad_warning_age_ratio_sum", ()] == 0.25
    counts = [found["streamad_warning_age_ratio_bucket", (("le", le),)] for le in ("0.2", "0.3", "+Inf")]
    assert counts == [0, 1, 1]
    assert re.search(r'streamad_warnings_total\{model="test"\} 1.0 # \{warning_id="[0-9a-f]{32}"\}', text)


async def test_a_plant_without_warnings_has_no_figures_of_them() -> None:
    assert "warning" not in await scraped()


async def test_a_scrape_takes_nothing_from_the_status_line() -> None:
    runs = []
    await scraped(more=runs.append)
    (run,) = runs
    assert run.pipeline.status.latencies.take_ms()[0] is not None


async def test_hostile_names_become_no_labels() -> None:
    text = await scraped(shares_topic=False, partition='x"}\n evil{a="<script>')
    assert "evil" not in text
    assert ("streamad_low_watermark_age_seconds", (("partition", "files"),)) in samples(text)
    for name in ("a-0", "b-0", 'stream="'):
        assert name not in text


async def test_learning_is_counted_by_model_share_and_outcome() -> None:
    def learn(run: Run) -> None:
        of = LearningCounters(accepted=5, reserved=2, drifts=1, trainings=3, promotions=1, not_promoted=1, failed=1)
        run.pipeline.counters.learning["test"] = ServedCounters("0002", learned=of)
        run.pipeline.counters.learning["other"] = ServedCounters("0001")  # nothing is known of what it has learned

    found = samples(await scraped(more=learn))
    assert found["streamad_inliers_total", (("model", "test"), ("share", "accepted"))] == 5
    assert found["streamad_inliers_total", (("model", "test"), ("share", "reserve"))] == 2
    assert found["streamad_drifts_total", (("model", "test"),)] == 1
    for outcome in ("promoted", "not_promoted", "failed"):
        assert found["streamad_trainings_total", (("model", "test"), ("outcome", outcome))] == 1
    assert {dict(labels)["model"] for name, labels in found if name == "streamad_inliers_total"} == {"test"}


DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


@pytest.mark.parametrize(
    "path",
    [
        *(DEPLOY / "prometheus").glob("*.rules.yml"),
        *(DEPLOY / "grafana").glob("*.json"),
        DEPLOY / "helm/streamad/templates/autoscaling.yaml",
    ],
    ids=lambda path: path.name,
)
async def test_rules_dashboards_and_scaling_use_names_that_a_worker_has(path: Path) -> None:
    def learn(run: Run) -> None:
        run.pipeline.counters.learning["test"] = ServedCounters(learned=LearningCounters())

    known = {name for name, _ in samples(await scraped(more=learn, warns=True))} | {
        "streamad_explain_duration_seconds_bucket",  # without an explainer there are none
        "streamad_model_info",
    }
    text = await asyncio.to_thread(path.read_text)
    used = set(re.findall(r"\b(?:streamad|process)_[a-z_]+", text))
    assert used
    assert used <= known | {"process_start_time_seconds"}
    for label, kinds in (("kind", EVENT_KINDS), ("outcome", ("committed", "failed"))):
        assert set(re.findall(rf'streamad_\w+{{[^}}]*\b{label}=\\?"(\w+)', text)) <= set(kinds)


def test_the_kinds_of_dead_letters_are_those_of_the_docs() -> None:
    text = (DEPLOY.parent / "docs" / "guide" / "messages.md").read_text()
    listed = text[text.index("- `malformed`: ") :].partition("\n\n")[0]
    named = re.findall(r"^- `(\w+)`: ", listed, re.MULTILINE)
    assert set(named) | {"time_jump", "bad_value"} == set(DEAD_LETTER_KINDS)


# --- the server ---


class OneMetric(Collector):
    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem

    def collect(self) -> Iterator[Any]:
        if self.problem is not None:
            raise self.problem
        yield from ()


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def asked_until_answered(port: int) -> tuple[int, str]:
    """Return the answer of /livez, asked for again for a minute if the connection is closed."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(port, "/livez")
    return 0, ""


@contextlib.asynccontextmanager
async def server(collector: Collector | None = None, *, is_ready: bool = True) -> Any:
    made = MetricsServer("127.0.0.1:0", collector or OneMetric(), lambda: is_ready)
    try:
        yield made
    finally:
        await made.close()


async def test_each_path_has_its_answer() -> None:
    async with server() as made:
        for path, status, said in (
            ("/metrics", 200, ""),
            ("/livez", 200, "alive\n"),
            ("/readyz", 200, "ready\n"),
            ("/", 404, "there are /metrics, /livez and /readyz\n"),
        ):
            assert await asyncio.to_thread(get, made.port, path) == (status, said)
        assert (await asyncio.to_thread(get, made.port, "/metrics", "POST"))[0] == 405
        accepts = {"Accept": "application/openmetrics-text; version=1.0.0"}
        assert await asyncio.to_thread(lambda: get(made.port, "/metrics", **accepts)) == (200, "# EOF\n")


async def test_before_it_is_ready_it_says_so() -> None:
    async with server(is_ready=False) as made:
        assert (await asyncio.to_thread(get, made.port, "/readyz"))[0] == 503
        assert (await asyncio.to_thread(get, made.port, "/livez"))[0] == 200


async def test_a_loop_that_hangs_is_not_alive_and_a_scrape_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TURN_LIMIT_S", 0.5)
    monkeypatch.setattr(serving, "_COLLECT_S", 0.2)
    async with server() as made:
        answers: list[Any] = []

        def ask() -> None:
            while not answers or answers[-1][0] == 200:
                answers.append(get(made.port, "/livez"))
            answers.append(get(made.port, "/metrics"))

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(LIMIT_S)  # the loop hangs: it waits for the answers
        assert answers[-2][0] == 503
        assert "the event loop has not turned" in answers[-2][1]
        assert answers[-1] == (503, "the metrics could not be collected: not within 0.2 s\n")


async def test_a_collector_that_fails_gives_no_half_answer() -> None:
    async with server(OneMetric(ValueError("a secret"))) as made:
        status, said = await asyncio.to_thread(get, made.port, "/metrics")
        assert (status, said) == (503, "the metrics could not be collected: ValueError\n")


async def test_a_port_that_is_taken_is_named() -> None:
    async with server() as made:
        with pytest.raises(OutputError, match=rf"metrics.listen: 127.0.0.1:{made.port} cannot be listened at"):
            MetricsServer(f"127.0.0.1:{made.port}", OneMetric(), lambda: True)


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "a..b:0", "ü" * 70 + ":0", "a\0b:0"])
async def test_an_address_of_another_machine_is_not_said_to_be_in_use(listen: str) -> None:
    with pytest.raises(OutputError, match=r"write an address of this machine, such as 127\.0\.0\.1"):
        MetricsServer(listen, OneMetric(), lambda: True)


async def test_clients_that_ask_nothing_keep_nobody_out_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.5)
    async with server() as made:
        idle = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(40)]

        assert await asyncio.to_thread(asked_until_answered, made.port) == (200, "alive\n")
        assert sum(each.name.startswith("Thread-") for each in threading.enumerate()) <= 20
        for each in idle:
            each.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HT", b"GET /metrics HTTP/1.1\r\n\r\n"], ids=["none", "half", "whole"]
)
async def test_connections_that_last_do_not_make_the_worker_look_dead(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reaches the port could have the worker restarted: its supervisor asks /livez."""
    monkeypatch.setattr(http_server, "HEAD_S", LIMIT_S)
    text = b"x" * 20_000_000  # more than the buffers of a connection hold

    async def large(*_: object) -> bytes:
        return text

    monkeypatch.setattr(MetricsServer, "_collected", large)
    async with server() as made:
        with contextlib.ExitStack() as lasting:
            for _ in range(40):
                one = lasting.enter_context(socket.create_connection(("127.0.0.1", made.port)))
                one.sendall(sent)
            for _ in range(20):
                assert await asyncio.to_thread(get, made.port, "/livez") == (200, "alive\n")


async def test_a_head_that_comes_byte_by_byte_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.3)
    async with server() as made:
        with socket.create_connection(("127.0.0.1", made.port), timeout=LIMIT_S) as dripping:
            ending = threading.Event()

            def drip() -> None:
                with contextlib.suppress(OSError):
                    while not ending.wait(0.05):
                        dripping.sendall(b"G")

            feeding = threading.Thread(target=drip)
            feeding.start()
            try:
                with contextlib.suppress(ConnectionError):  # it was ended while a byte was on the way
                    assert await asyncio.to_thread(dripping.recv, 1) == b""
            finally:
                ending.set()
                feeding.join()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\n" + b"".join(b"A%d: %s\r\n" % (n, b"x" * 30_000) for n in range(3)),
        b"GET /livez HTTP/1.1\r\n" + b"A: b\r\n" * 99 + b"A: " + b"x" * 65_500,
    ],
)
async def test_a_head_takes_no_memory_without_bound(head: bytes) -> None:
    """A hundred lines of 64 KiB each, sixteen times, took a worker 350 MB."""
    async with server() as made:

        def answer() -> bytes:
            with socket.create_connection(("127.0.0.1", made.port), timeout=LIMIT_S) as asking:
                asking.sendall(head)
                return asking.recv(20)

        assert await asyncio.to_thread(answer) == b"HTTP/1.0 431 Line to"
        assert await asyncio.to_thread(lambda: get(made.port, "/livez", A="x" * 60_000)) == (200, "alive\n")


@pytest.mark.parametrize(
    "accept",
    ["application/openmetrics-text; version=abc", "text/plain; version=1..0", "text/plain;version=" + "9" * 5_000,
     "application/openmetrics-text; version=-1.0.0; escaping=?", ",;=;,", "\xff"],
)  # fmt: skip
async def test_strange_accepts_get_an_answer(accept: str, capfd: pytest.CaptureFixture[str]) -> None:
    async with server() as made:
        status, _ = await asyncio.to_thread(lambda: get(made.port, "/metrics", Accept=accept))
    assert status == 200
    assert not capfd.readouterr().err


async def test_a_flood_of_scrapes_leaves_the_loop_to_the_plant() -> None:
    began: list[float] = []

    class Slow(Collector):
        def collect(self) -> Iterator[Any]:
            began.append(time.monotonic())
            time.sleep(0.05)
            yield from ()

    async with server(Slow()) as made:
        asked = [asyncio.to_thread(get, made.port, "/metrics") for _ in range(8)]
        assert {status for status, _ in await asyncio.gather(*asked)} <= {200, 503}
        await asyncio.to_thread(get, made.port, "/metrics")
    assert all(later - earlier >= 0.24 for earlier, later in itertools.pairwise(began))


@pytest.mark.parametrize("sent", [b"GET /" + b"x" * 10_000_000, b"GET / HTTP/1.1\r\n" + b"a: " + b"x" * 10_000_000,
                                  b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500_000, b"\x16\x03\x01\x00" * 1_000,
                                  b"GET /metrics HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n"])  # fmt: skip
async def test_requests_that_are_none_are_refused_and_the_next_is_answered(sent: bytes) -> None:
    async with server() as made:

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", made.port), timeout=LIMIT_S) as asking:
                with contextlib.suppress(OSError):  # it is refused before all is sent
                    asking.sendall(sent)
                    asking.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    return asking.recv(100)
            return b""

        answer = await asyncio.to_thread(ask)
        assert b"Traceback" not in answer
        assert await asyncio.to_thread(get, made.port, "/livez") == (200, "alive\n")


async def test_closing_amid_a_scrape_returns() -> None:
    made = MetricsServer("127.0.0.1:0", OneMetric(), lambda: True)
    port = made.port
    asking = asyncio.create_task(asyncio.to_thread(get, port, "/metrics"))
    async with asyncio.timeout(LIMIT_S):
        await asking
        with socket.create_connection(("127.0.0.1", port)):
            await made.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)


@pytest.mark.parametrize("amid", ["before it is collected", "while it is collected"])
def test_a_scrape_that_outlives_the_loop_is_told_of_the_stop(amid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, answers = threading.Event(), threading.Event(), list[tuple[int, str]]()

    async def endless(*_: object) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    def waited(accept: str) -> Any:
        begun.set()
        assert ended.wait(LIMIT_S)
        return choose_encoder(accept)

    if amid == "while it is collected":
        monkeypatch.setattr(MetricsServer, "_collected", endless)
    else:
        monkeypatch.setattr(serving, "choose_encoder", waited)

    async def serve() -> threading.Thread:
        made = MetricsServer("127.0.0.1:0", OneMetric(), lambda: True)
        asking = threading.Thread(target=lambda: answers.append(get(made.port, "/metrics")))
        asking.start()
        assert await asyncio.to_thread(begun.wait, LIMIT_S)
        await made.close()
        return asking

    asking = asyncio.run(serve())
    ended.set()
    asking.join(LIMIT_S)
    assert answers == [(503, "the metrics could not be collected: the worker is stopping\n")]


async def test_the_head_of_an_answer_is_sent_whole() -> None:
    def first_part(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as asking:
            asking.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            return asking.recv(65_536)

    async with server() as made:
        for _ in range(20):
            assert b"\r\n\r\n" in await asyncio.to_thread(first_part, made.port)


@pytest.mark.parametrize("listen", ["127.0.0.1", "9464", ":9464", "::1:9464", "[x]:1", "a:70000", "a:-1", "a:x", ""])
def test_addresses_that_are_none_are_refused(listen: str) -> None:
    with pytest.raises(ValueError, match=r"listen"):
        MetricsSettings(listen=listen)


@pytest.mark.parametrize(("listen", "found"), [("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:9464", ("::1", 9464))])
def test_addresses_are_split(listen: str, found: tuple[str, int]) -> None:
    assert split_address(listen) == found
