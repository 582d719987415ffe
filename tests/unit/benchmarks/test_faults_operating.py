"""What the kill benchmark says of notices: a repeat is wrong unless ``streamad notify`` was killed in between."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.faults_operating import WRONG, asked, notice_figures


def test_missing_foreign_and_repeated_notices_are_counted() -> None:
    taken = [(1.0, "a"), (1.5, "b"), (1.6, "b"), (3.0, "a"), (3.1, "x"), (3.2, "a")]
    figures = notice_figures({"a", "b", "c"}, taken, [2.0])
    assert figures == {
        "alerts_without_notice": 1,
        "notices_of_no_alert": 1,
        "notices": 6,
        "notices_repeated": 3,
        "notices_repeated_without_a_kill": 2,
    }
    assert set(figures) >= {name for name in WRONG if not name.startswith("scrapes")}


def test_a_notice_that_was_on_its_way_at_a_kill_belongs_to_the_killed_life() -> None:
    assert notice_figures({"a"}, [(2.05, "a"), (4.0, "a")], [2.0])["notices_repeated_without_a_kill"] == 0


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nalive\n", "answered"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nalive", "unanswered"),
        (b"HTTP/1.0 200 OK\r\nDate: today", "unanswered"),
        (b"", "unanswered"),
        (b"HTTP/1.0 503 No\r\nContent-Length: 24\r\n\r\nthe worker is stopping\r\n", "unanswered"),
        (b"HTTP/1.0 503 No\r\nContent-Length: 24\r\n\r\nthe worker", "unanswered"),
        (b"HTTP/1.0 503 No\r\nContent-Length: 1\r\n\r\nx", "broken"),
        (b"HTTP/1.0 500 No\r\n\r\n", "broken"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ndead", "broken"),
    ],
)
def test_a_scrape_is_broken_unless_a_stop_or_a_kill_cut_it(sent: bytes, outcome: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            asking, _ = listening.accept()
            with asking:
                asking.recv(65_536)
                asking.sendall(sent)

        answering = threading.Thread(target=answer)
        answering.start()
        assert asked(f"http://127.0.0.1:{listening.getsockname()[1]}/livez")[0] == outcome
        answering.join()
