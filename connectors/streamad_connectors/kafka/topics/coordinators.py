"""Checks the rights of a plant's groups and transactional ids, and that its cluster can hold a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import errors

from streamad.ports import TopicFinding
from streamad_connectors.kafka.client.admin import Admin
from streamad_connectors.kafka.client.errors import explain
from streamad_connectors.kafka.client.options import Client, transactional_id_of
from streamad_connectors.kafka.topics import checks

_PARTITION = "check"  # in place of a number: no worker has this transactional id
_FIRST = "FindCoordinator"


async def check_groups(admin: Admin, client: Client, groups: Mapping[str, str]) -> list[TopicFinding]:
    """Return for each of ``groups`` (by the name in findings) whether it may be joined."""
    findings = []
    for name, group in groups.items():
        doing = f"read group {group}"
        try:
            code = await admin.group_refusal(group)
        except (errors.KafkaError, OSError) as error:
            findings.append(TopicFinding("error", name, explain(error, client, doing)))
        else:
            findings.append(_allowed(name, code, client, doing))
    return findings


async def check_transactions(
    admin: Admin, client: Client, group: str, timeout_ms: int, *, open_one: bool
) -> list[TopicFinding]:
    """Return whether the workers' transactional ids may be used and, with ``open_one``, whether a transaction works."""
    findings = []
    for topic in client.place.topics:
        name = transactional_id_of(topic, 0, group)
        doing = f"write transactional id {name}"
        try:
            findings.append(_allowed(checks.TRANSACTIONS, await admin.transaction_refusal(name), client, doing))
        except (errors.KafkaError, OSError) as error:
            findings.append(_failed(error, topic, client, doing))
    if open_one and all(finding.level == "ok" for finding in findings):
        findings.append(await _transaction(admin, client, group, timeout_ms))
    return findings


async def _transaction(admin: Admin, client: Client, group: str, timeout_ms: int) -> TopicFinding:
    topic = client.place.topic
    name = transactional_id_of(topic, _PARTITION, group)
    try:
        step, code = await admin.empty_transaction(name, group, timeout_ms)
    except errors.TransactionalIdAuthorizationFailed as error:
        return checks.transaction(_FIRST, error.errno, topic, client)
    except (errors.KafkaError, OSError) as error:
        return _failed(error, topic, client, f"write transactional id {name}")
    return checks.transaction(step, code, topic, client)


def _failed(error: BaseException, topic: str, client: Client, doing: str) -> TopicFinding:
    """Return why there was no answer about a transaction from a broker that has answered before."""
    if isinstance(error, (errors.KafkaConnectionError, errors.NodeNotReadyError)):
        text = f"the broker ends the connection when a transaction begins: {checks.OTHER_BROKER}"
        return TopicFinding("error", checks.TRANSACTIONS, text)
    if isinstance(error, (errors.UnsupportedVersionError, errors.InvalidRequestError, errors.UnknownError)):
        return checks.transaction(_FIRST, error.errno, topic, client)
    return TopicFinding("error", checks.TRANSACTIONS, explain(error, client, doing))


def _allowed(name: str, code: int, client: Client, doing: str) -> TopicFinding:
    if code:
        return TopicFinding("error", name, explain(errors.for_code(code)(), client, doing))
    return TopicFinding("ok", name, f"allowed to {doing}")
