"""The requests that a cluster offers, by its own list (ApiVersions, KIP-35), and those that streamad needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.api import Request
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from streamad.ports import TopicFinding
from streamad_connectors.kafka.topics.checks import CLUSTER, OTHER_BROKER

Offered = Mapping[int, tuple[int, int]]  # a request's key -> the lowest and highest version that the broker takes


class _Need(NamedTuple):
    requests: Mapping[type[Request[Any]], int]  # -> the lowest version that can do it
    text: str
    is_error: bool = True


_TRANSACTIONS = _Need(
    {
        FindCoordinatorRequest: 1,  # KIP-98, as all of these
        ProduceRequest: 3,
        InitProducerIdRequest: 0,
        AddPartitionsToTxnRequest: 0,
        AddOffsetsToTxnRequest: 0,
        TxnOffsetCommitRequest: 0,
        EndTxnRequest: 0,
    },
    f"transactions are not supported: {OTHER_BROKER}",
)
_SETTINGS = _Need(
    {DescribeConfigsRequest: 0},
    "the broker does not show its settings: make sure that progress and claims topics have cleanup.policy=compact, and "
    "that the input is kept for twice sequences.max_duration",
    is_error=False,
)
_NEEDS = (
    _TRANSACTIONS,
    _Need({FetchRequest: 4, OffsetRequest: 2}, f"reading committed records is not supported: {OTHER_BROKER}"),
    _Need(
        {JoinGroupRequest: 5, SyncGroupRequest: 3},
        "static membership is not supported (KIP-345): a restarted worker moves partitions, with --instance and "
        "--workers, too",
        is_error=False,
    ),
    _SETTINGS,
    _Need(
        {CreateTopicsRequest: 0},
        "`streamad topics create` is not supported: make the topics with the broker's own tools",
        is_error=False,
    ),
)


def lacking(offered: Offered) -> list[TopicFinding]:
    """Return what the cluster lacks, with the requests that are missing or too old."""
    findings = []
    for need in _NEEDS:
        missing = [_name(kind, least) for kind, least in need.requests.items() if not _is_offered(offered, kind, least)]
        if missing:
            text = f"{need.text} (missing: {', '.join(missing)})"
            findings.append(TopicFinding("error" if need.is_error else "warning", CLUSTER, text))
    return findings


def has_transactions(offered: Offered) -> bool:
    """Return whether the cluster takes every request of a transaction."""
    return _offers(offered, _TRANSACTIONS)


def shows_settings(offered: Offered) -> bool:
    """Return whether the cluster describes settings of topics and brokers."""
    return _offers(offered, _SETTINGS)


def _offers(offered: Offered, need: _Need) -> bool:
    return all(_is_offered(offered, kind, least) for kind, least in need.requests.items())


def _is_offered(offered: Offered, kind: type[Request[Any]], least: int) -> bool:
    lowest, highest = offered.get(kind.API_KEY, (0, -1))
    ours = kind._CLASSES  # noqa: SLF001 - aiokafka does not publish the versions that it speaks
    return any(max(lowest, least) <= version.API_VERSION <= highest for version in ours)


def _name(kind: type[Request[Any]], least: int) -> str:
    name = "ListOffsets" if kind is OffsetRequest else kind.__name__.removesuffix("Request")
    return f"{name} v{least}"
