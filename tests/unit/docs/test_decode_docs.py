"""The examples of docs/guide/messages.md are read as the page says, and its table names every kind of error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import yaml

from streamad.ingest.decode import Decoder
from streamad.ingest.decode_values import DecodeErrorKind
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.types import Record
from tests.support.ingest.decoded import block_in

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "messages.md").read_text(encoding="utf-8")
T_US = 1_772_352_930_250_000


def examples() -> list[tuple[Decoder, str]]:
    """Return every JSON example with the decoder of the config that stands before it."""
    found, config = [], {}
    for language, text in re.findall(r"```(yaml|json|influx)\n(.*?)```", PAGE, flags=re.DOTALL):
        if language == "yaml":
            config = yaml.safe_load(text)
            continue
        channels = [ChannelSettings(**channel) for channel in config["channels"]]
        route = config.get("models", {}).get("field")
        found.append((Decoder(DecodeSettings(**config.get("decode", {})), channels, route), text))
    return found


@pytest.mark.parametrize(("decoder", "text"), examples())
def test_examples_are_read(decoder: Decoder, text: str) -> None:
    block = block_in(decoder, Record(0, text.encode(), key=b"reactor-1", timestamp_us=T_US + 7_200_000_000), T_US)
    assert block is not None
    assert block.stream == ("L1" if re.search(r'"line"|line=', text) else "reactor-1")
    assert block.sequence == ("1042" if "1042," in text else "B-1042")
    assert block.bad is None
    values = set(block.values[~np.isnan(block.values)].tolist())
    assert block.end == ('"end"' in text)
    assert block.route == ("PX-12" if "recipe" in text else None)
    if "09:40" in text:
        assert not values
        return
    assert block.times_us[0] == T_US
    assert any(abs(value - 3.1) < 1e-6 for value in values)


def test_there_are_examples() -> None:
    assert len(examples()) == PAGE.count("```json\n") + PAGE.count("```influx\n") > 11


def test_the_table_names_every_kind() -> None:
    table = PAGE[PAGE.index("\n## Dead letters\n") :]
    assert re.findall(r"^- `(\w+)`: ", table, flags=re.MULTILINE) == list(get_args(DecodeErrorKind))
