"""The first run of docs/guide/notices.md works as it is written."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
import yaml

from tests.support.notify.hook import SECRET
from tests.support.ports import free_port
from tests.support.runtime.cli import CliPlant, started, streamad, until_line
from tests.support.runtime.judged_plant import judged_plant

PAGE = (Path(__file__).resolve().parents[2] / "docs/guide/notices.md").read_text("utf-8")


def block(language: str) -> str:
    """Return the page's first code block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_run_works_as_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = CliPlant(judged_plant(tmp_path), capsys, monkeypatch)
    alerts = [(line["alert_id"], line["stream"], line["sequence"]) for line in plant.lines("alerts")]
    assert len(alerts) >= 4
    port = str(free_port())  # that of the page may be in use
    content = yaml.safe_load(plant.config.read_text()) | yaml.safe_load(block("yaml").replace("8090", port))
    plant.config.write_text(yaml.safe_dump(content))
    (tmp_path / "receiver.py").write_text(block("python").replace("8090", port))
    (tmp_path / "notify.secret").write_text(f"{SECRET}\n")
    assert len(base64.b64decode(SECRET)) >= 24
    console = block("console")
    for line in ("openssl rand -base64 32 > notify.secret", "streamad notify --test", "streamad notify &"):
        assert f"$ {line}" in console
    with started(cwd=tmp_path, program=("receiver.py",)) as receiver:
        assert receiver.stdout is not None
        tested = streamad("notify", "--test", cwd=tmp_path)
        for _ in range(100):
            if tested.code == 0:
                break
            tested = streamad("notify", "--test", cwd=tmp_path)  # the receiver is still starting
        assert tested.out.strip().replace(port, "8090") in console
        assert receiver.stdout.readline().endswith("a test, no alert\n")
        with started("notify", cwd=tmp_path) as notify:
            until_line(notify, "notices of alerts go to first")
            for name, stream, sequence in alerts:
                said = receiver.stdout.readline()
                assert said.startswith(f"{name} streamad plant: {stream} {sequence}: "), said
                assert " pressure " in said, "with its reasons"
