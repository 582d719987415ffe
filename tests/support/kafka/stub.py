"""A broker on loopback that holds no topic, and lacks or refuses what a test wants: the wire protocol, no more."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from aiokafka.protocol import admin, coordination, group, metadata, transaction
from aiokafka.protocol.api import RequestHeader_v1, RequestStruct, Response
from aiokafka.protocol.types import String

_API_VERSIONS = 18
_NODE, _PRODUCER = 1, 7
_UNKNOWN_TOPIC, _UNKNOWN_MEMBER = 3, 25
_OFFERED: dict[int, tuple[int, int]] = {
    0: (0, 7),  # Produce
    1: (0, 11),  # Fetch
    2: (0, 5),  # ListOffsets
    3: (4, 5),  # Metadata
    10: (1, 1),  # FindCoordinator
    11: (0, 5),  # JoinGroup
    12: (0, 0),  # Heartbeat
    14: (0, 3),  # SyncGroup
    17: (1, 1),  # SaslHandshake
    18: (0, 0),  # ApiVersions
    19: (0, 3),  # CreateTopics
    22: (0, 0),  # InitProducerId
    24: (0, 0),  # AddPartitionsToTxn
    25: (0, 0),  # AddOffsetsToTxn
    26: (0, 0),  # EndTxn
    28: (0, 0),  # TxnOffsetCommit
    32: (0, 0),  # DescribeConfigs
    36: (0, 0),  # SaslAuthenticate
}
_REQUESTS: dict[tuple[int, int], type[RequestStruct]] = {
    (kind.API_KEY, kind.API_VERSION): kind
    for kind in (
        admin.ApiVersionRequest_v0,
        admin.DescribeConfigsRequest_v0,
        coordination.FindCoordinatorRequest_v1,
        group.HeartbeatRequest_v0,
        metadata.MetadataRequest_v5,
        admin.SaslHandShakeRequest_v1,
        admin.SaslAuthenticateRequest_v0,
        transaction.InitProducerIdRequest_v0,
        transaction.AddOffsetsToTxnRequest_v0,
        transaction.EndTxnRequest_v0,
    )
}


class StubBroker:
    """Takes requests of ``versions`` and keeps them in ``requests``.

    ``codes`` are error codes by a request's key; None there: it hangs up. Those in ``silent`` get no answer; ``fields``
    replace those of an answer.
    """

    def __init__(self) -> None:
        self.versions = dict(_OFFERED)
        self.codes: dict[int, int | None] = {}
        self.silent: set[int] = set()
        self.fields: dict[int, dict[str, Any]] = {}
        self.requests: list[RequestStruct] = []
        self.port = 0

    def lacks(self, versions: Mapping[int, int | None]) -> None:
        """Take requests of these keys up to this version only, None: not at all."""
        for key, highest in versions.items():
            if highest is None:
                del self.versions[key]
            else:
                self.versions[key] = (0, highest)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answered = self._answered(BytesIO(await reader.readexactly(size)))
                if answered is None:
                    return
                writer.write(answered)

    def _answered(self, content: BytesIO) -> bytes | None:
        header = RequestHeader_v1.SCHEMA.decode(content)
        key, version, correlation_id = header[:3]
        if key == _API_VERSIONS:
            version = 0  # as brokers answer to a version that they do not know (KIP-511)
        kind = _REQUESTS[key, version]
        request = kind.decode(content)
        self.requests.append(request)
        code = self.codes.get(key, 0)
        if code is None:
            return None
        if key in self.silent:
            return b""
        body = _response(kind.RESPONSE_TYPE, self._fields(key, request, code))
        return struct.pack(">ii", 4 + len(body), correlation_id) + body

    def _fields(self, key: int, request: Any, code: int) -> dict[str, Any]:
        """Return what differs from 0."""
        here = {"host": "127.0.0.1", "port": self.port}
        fields: dict[int, Callable[[], dict[str, Any]]] = {
            3: lambda: {
                "brokers": [(_NODE, *here.values(), None)],
                "controller_id": _NODE,
                "topics": [(_UNKNOWN_TOPIC, topic, False, []) for topic in request.topics or ()],
            },
            10: lambda: {"coordinator_id": _NODE, **here},
            12: lambda: {"error_code": code or _UNKNOWN_MEMBER},
            17: lambda: {"enabled_mechanisms": [request.mechanism]},
            18: lambda: {"api_versions": [(offered, *span) for offered, span in self.versions.items()]},
            22: lambda: {"producer_id": _PRODUCER},
            32: lambda: {"resources": [(0, None, kind, name, []) for kind, name, _ in request.resources]},
            36: lambda: {"sasl_auth_bytes": b""},
        }
        return {"error_code": code, **fields.get(key, dict)(), **self.fields.get(key, {})}


def _response(kind: type[Response], fields: dict[str, Any]) -> bytes:
    schema = kind.SCHEMA
    defaults = {
        name: None if isinstance(of, String) else 0 for name, of in zip(schema.names, schema.fields, strict=True)
    }
    return kind(**{**defaults, **{name: fields[name] for name in schema.names if name in fields}}).encode()


@asynccontextmanager
async def stub_broker() -> AsyncIterator[StubBroker]:
    """Run one on a free port of this machine."""
    broker = StubBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        await server.wait_closed()
