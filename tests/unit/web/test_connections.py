"""Connections that ask nothing: closed, so that they keep nobody out."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import uvicorn

from streamad.web import connections
from streamad.web.connections import Connection, Seldom
from tests.support.waiting import LIMIT_S

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OWNERS = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: c\r\n\r\n"
FORM = b"POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST, REQUEST + b"GET / HT", FORM, FORM + b"n"])
async def test_a_connection_that_asks_nothing_more_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    server = uvicorn.Server(uvicorn.Config(_fine, http=Connection, lifespan="off", log_config=None, port=0))
    server.config.load()
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server.config, server.server_state, {}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    writer.write(sent)
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()  # until it is closed
    assert (b"200 OK" in answer) is (REQUEST in sent)
    writer.close()
    listening.close()


@pytest.mark.parametrize("sent", [b"", REQUEST], ids=["silent", "answered"])
async def test_strangers_keep_out_nobody_however_many_connections_they_have(sent: bytes) -> None:
    config = uvicorn.Config(_with_person, http=Connection, lifespan="off", log_config=None, limit_concurrency=9)
    server = uvicorn.Server(config)
    server.config.load()
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server.config, server.server_state, {}), "127.0.0.1", 0
    )
    address = listening.sockets[0].getsockname()

    async def opened(sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        if sent:
            assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async with asyncio.timeout(LIMIT_S):
        reader, owner = await opened(OWNERS)
        strangers = [await opened(sent) for _ in range(30)]
        for _ in range(3):  # the owner's stays; and the owner comes again
            owner.write(OWNERS)
            assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
            strangers += [await opened(sent), await opened(OWNERS)]
        assert await strangers[0][0].read() == b""  # the oldest has gone
    assert len(server.server_state.connections) <= 9
    for _, writer in [*strangers, (reader, owner)]:
        writer.close()
    listening.close()


async def test_of_strangers_those_go_whose_address_has_the_most() -> None:
    config = uvicorn.Config(_fine, http=Connection, lifespan="off", log_config=None, limit_concurrency=7)
    server = uvicorn.Server(config)
    server.config.load()
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server.config, server.server_state, {}), "127.0.0.1", 0
    )
    address = listening.sockets[0].getsockname()

    async def opened(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*address, local_addr=(host, 0))
        writer.write(REQUEST)
        assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async with asyncio.timeout(LIMIT_S):
        reader, writer = await opened("127.0.0.1")  # the oldest of all: a person who logs in
        many = [await opened("127.0.0.2") for _ in range(20)]
        assert await many[0][0].read() == b""
        writer.write(REQUEST)
        assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
    for _, each in [*many, (reader, writer)]:
        each.close()
    listening.close()


async def test_an_answer_that_lasts_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.05)
    closed = []
    connection = Connection.__new__(Connection)
    loop, cycle = asyncio.get_running_loop(), type("Cycle", (), {"response_complete": False, "more_body": False})()
    connection.loop, connection.cycle = loop, cycle
    transport = {"is_closing": lambda _: False, "close": lambda _: closed.append(1)}
    connection.transport = type("Transport", (), transport)()
    connection.look(cycle)
    assert not closed
    cycle.response_complete = True
    connection.look(cycle)
    assert closed


def test_what_strangers_cause_is_logged_once_a_minute_and_errors_each_time() -> None:
    now_s = [0.0]
    seldom = Seldom(lambda: now_s[0])
    lines = [logging.LogRecord("a", level, "", 0, "said", (), None) for level in (logging.WARNING, logging.ERROR)]
    assert [seldom.filter(line) for line in lines * 2] == [True, True, False, True]
    now_s[0] = 60.0
    assert seldom.filter(lines[0])


async def _fine(scope: Any, receive: Any, send: Any) -> None:
    if scope["method"] == "POST":
        while (await receive()).get("more_body"):
            pass
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _with_person(scope: Any, receive: Any, send: Any) -> None:
    if any(name == b"cookie" for name, _ in scope["headers"]):
        scope["person"] = "owner"
    await _fine(scope, receive, send)
