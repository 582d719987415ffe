"""The body of every webhook fits the schema that ``streamad schema notice`` prints."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from streamad.messages import SCHEMA_VERSION, Alert
from streamad.notify import receiver as receiver_module
from streamad.notify.bodies import Body, notice_schema
from streamad.notify.service import Notifier
from tests.support.notify.hook import Hook, listening
from tests.support.notify.plant import message, notified_plant, receiver, write
from tests.support.runtime.cli import streamad

CHECKER = jsonschema.FormatChecker()


def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(notice_schema(), format_checker=CHECKER)


async def bodies_of(folder: Path, **settings: Any) -> list[dict[str, Any]]:
    """Return the bodies of a test, and of the notices of seven alerts, the first without its attribution, and a
    warning.
    """
    with listening(Hook()) as hook:
        notifier = Notifier(notified_plant(folder, receiver(hook, **settings), link="https://page.example"))
        await notifier.test()
        notifier = Notifier(notified_plant(folder, receiver(hook, **settings)))
        write(folder, "attribution", range(1, 7))
        write(folder, "alert", range(7))
        running = asyncio.create_task(notifier.run())
        counted = lambda hook: sum(each["data"].get("count", 1) for each in hook.notices)  # noqa: E731
        try:
            await asyncio.to_thread(hook.wait, lambda hook: counted(hook) == 8)
            write(folder, "warning", [100])  # two files have no order
            n_wanted = 8 + ("on" in settings)
            await asyncio.to_thread(hook.wait, lambda hook: counted(hook) == n_wanted)
        finally:
            notifier.stop()
            await running
        return hook.notices


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, ["streamad.test", *["streamad.alert"] * 7]),
        ({"digest": "1s"}, ["streamad.test", "streamad.alert", "streamad.digest"]),
        ({"on": ["alerts", "warnings"]}, ["streamad.test", *["streamad.alert"] * 7, "streamad.warning"]),
    ],
    ids=["each", "digest", "with a warning"],
)
async def test_real_bodies_fit_the_schema(
    settings: dict[str, Any], kinds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "ATTRIBUTION_WAIT_S", 0.3)
    bodies = await bodies_of(tmp_path, **settings)
    assert [body["type"] for body in bodies] == kinds
    assert any(body["data"].get("attribution", {}) is None for body in bodies)
    for body in bodies:
        validator().validate(body)
        assert json.loads(msgspec.json.encode(msgspec.convert(body, Body, strict=False))) == body
        lacking = [{key: value for key, value in body["data"].items() if key != left} for left in body["data"]]
        for wrong in ({**body, "type": "streamad.other"}, *({**body, "data": data} for data in lacking)):
            assert not validator().is_valid(wrong)


def test_the_schema_is_valid_describes_each_field_and_has_the_messages_versions() -> None:
    schema = notice_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:streamad:notice:{SCHEMA_VERSION}"
    for name, definition in schema["$defs"].items():
        assert definition["description"], name
        assert all(field["description"] for field in definition["properties"].values()), name
    alert = message("alert", 1)
    assert isinstance(alert, Alert)
    about = {"plant": "hall", "receiver": "first", "headline": "", "attribution": None, "link": None}
    for version, is_valid in ((SCHEMA_VERSION, True), (SCHEMA_VERSION + 1, False)):
        body = {
            "type": "streamad.alert",
            "timestamp": "2026-03-01T09:45:30Z",
            "data": {**about, "alert": json.loads(msgspec.json.encode(alert)) | {"schema_version": version}},
        }
        assert validator().is_valid(body) == is_valid


def test_the_command_prints_it() -> None:
    assert json.loads(streamad("schema", "notice").out) == notice_schema()
