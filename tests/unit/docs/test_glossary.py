"""The glossary is in order, each word once, and has every decision of a verdict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from streamad.messages import Decision

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "guide" / "glossary.md").read_text("utf-8")
WORDS = re.findall(r"^- \*\*([a-z][\w -]*)\*\*: .+$", PAGE, re.MULTILINE)


def test_every_word_is_there_once_in_alphabetical_order() -> None:
    assert len(WORDS) > 30
    assert sorted(set(WORDS)) == WORDS


def test_it_explains_the_decisions_and_is_linked() -> None:
    verdict = next(line for line in PAGE.splitlines() if line.startswith("- **verdict**"))
    assert all(decision in verdict for decision in get_args(Decision))
    assert "docs/guide/glossary.md" in (ROOT / "README.md").read_text("utf-8")
