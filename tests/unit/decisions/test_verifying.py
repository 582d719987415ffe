"""Tests of verifying: what was done to a log is found, and what was not done is not."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from streamad.decisions.chain import Decided, Head, head_of, linked
from streamad.decisions.verifying import KeptHead, Verifying
from streamad.errors import UsageError

START = datetime(2026, 3, 1, tzinfo=UTC)
WRITERS = ("reactor/page", "reactor/learner", "reactor/worker")
Lines = list[bytes]


def chain(writer: str, n: int, head: Head | None = None, *, why: str = "looked at") -> Lines:
    lines, head = [], head or Head()
    for i in range(n):
        decided = Decided("mark", f"{i:032x}", "kim", "claimed", why, {"judgement": "false_alarm"})
        entry = linked(decided, writer, head, START + timedelta(seconds=i))
        head = head_of(entry)
        lines.append(msgspec.json.encode(entry))
    return lines


def log(n: int = 12) -> Lines:
    """Three chains, one line of each after the other."""
    return [line for lines in zip(*(chain(writer, n // 3) for writer in WRITERS), strict=True) for line in lines]


def verified(lines: Lines) -> Verifying:
    verifying = Verifying()
    for number, line in enumerate(lines, 1):
        verifying.take(line, f"line {number}")
    return verifying


def heads(lines: Lines) -> list[KeptHead]:
    return [each.kept for each in verified(lines).chains.values()]


def test_whole_chains_are_whole_and_their_heads_are_kept() -> None:
    found = verified(log())
    assert found.is_whole
    assert [(each.writer, each.entries, each.head.number) for each in found.chains.values()] == [
        (writer, 4, 4) for writer in WRITERS
    ]
    longer = verified(log(24))
    for kept in heads(log()):
        assert longer.lost(KeptHead.parsed(str(kept))) is None


def test_no_byte_of_a_thousand_entries_can_be_changed() -> None:
    """Each byte in turn, one bit of it: of the lines that it changes none is an entry, and that makes a log not whole.

    ``Verifying.take`` decides so by the line alone, whatever lies around it, so no change needs the 999 other lines; a
    sample is verified as a whole log all the same. A changed line end makes one line of two, and a byte that becomes
    one makes two of one. About 330,000 bytes, 2 s.
    """
    lines = chain(WRITERS[0], 1_000)
    rng = random.Random(7)
    n_bytes = 0
    verifying = Verifying()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else b""
        content = bytearray(line + b"\n")
        for at in range(len(content)):
            before = content[at]
            content[at] = before ^ (1 << rng.randrange(8))
            whole = bytes(content) + (following if at == len(line) else b"")
            n_before = verifying.n_damaged
            pieces = (whole if at == len(line) else whole[:-1]).split(b"\n")
            for piece in pieces:
                verifying.take(piece, "")
            assert verifying.n_damaged == n_before + len(pieces), (number, at)
            content[at] = before
            n_bytes += 1
    assert n_bytes == sum(len(line) + 1 for line in lines) > 300_000
    assert not verifying.chains
    for _ in range(20):
        changed = bytearray(b"\n".join(lines))
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        assert not verified(bytes(changed).split(b"\n")).is_whole


def removed(lines: Lines) -> Lines:
    return lines[:4] + lines[5:]


def first_removed(lines: Lines) -> Lines:
    return lines[3:]


def swapped(lines: Lines) -> Lines:
    return [*lines[:3], lines[6], *lines[4:6], lines[3], *lines[7:]]


def moved_to_another_writer(lines: Lines) -> Lines:
    line = lines[4].replace(WRITERS[1].encode(), WRITERS[0].encode())
    return [*lines[:4], line, *lines[5:]]


def of_a_second_process(lines: Lines) -> Lines:
    head = heads(lines[:4])[0]
    return [*lines, *chain(WRITERS[0], 3, Head(1, verified(lines).chains[head.writer].hashes[1]), why="another")]


def begun_twice(lines: Lines) -> Lines:
    return lines + chain(WRITERS[2], 2, why="another")


def put_in_before_the_head(lines: Lines) -> Lines:
    return lines + chain(WRITERS[1], 1, Head(4, "0" * 64))


@pytest.mark.parametrize(
    ("tampered", "where", "what"),
    [
        (removed, "line 7", "entry 3: 1 missing"),
        (first_removed, "line 1", "entry 2: 1 missing at the beginning"),
        (swapped, "line 4", "entry 3: 1 missing"),
        (of_a_second_process, "line 13", "entry 2 again, and another one"),
        (begun_twice, "line 13", "entry 1 again, and another one"),
        (put_in_before_the_head, "line 13", f"entry 5 after {'0' * 64}"),
    ],
)
def test_the_first_break_of_a_chain_is_named(tampered: Callable[[Lines], Lines], where: str, what: str) -> None:
    found = verified(tampered(log()))
    breaks = [each.broken for each in found.chains.values() if each.broken is not None]
    assert not found.is_whole
    assert breaks[0].place == where
    assert breaks[0].found.startswith(what)
    assert breaks[0].expected.startswith("entry ")


def test_an_entry_of_another_writer_is_none_of_the_chain() -> None:
    found = verified(moved_to_another_writer(log()))
    assert found.damaged is not None
    assert found.damaged.place == "line 5"
    assert "it was changed" in found.damaged.found
    assert found.chains[WRITERS[1]].broken is not None


def test_an_entry_that_comes_again_is_no_break() -> None:
    lines = log()
    found = verified([*lines[:6], *lines[3:6], *lines[6:], lines[0]])
    assert found.is_whole
    assert [each.repeats for each in found.chains.values()] == [2, 1, 1]
    assert [each.entries for each in found.chains.values()] == [4, 4, 4]


def test_a_tail_that_is_cut_off_is_found_by_a_kept_head_alone() -> None:
    lines = log()
    kept = heads(lines)
    cut = verified(lines[:-3])
    assert cut.is_whole
    assert cut.lost(kept[0]) == f"{kept[0]}: the chain ends at entry 3: 1 are cut off"
    assert verified(lines[::3]).lost(kept[1]) == f"{kept[1]}: the log has no entry of this writer"


def test_a_chain_that_is_made_anew_is_found_by_a_kept_head_alone() -> None:
    """What no chain can tell by itself: docs/guide/audit.md."""
    kept = heads(chain(WRITERS[0], 4))[0]
    anew = verified(chain(WRITERS[0], 5, why="made up"))
    assert anew.is_whole
    assert (why := anew.lost(kept)) is not None
    assert why.endswith("it was rewritten")


@pytest.mark.parametrize("text", ["", "page", "page:1", "page:-1:ab", "page:x:ab"])
def test_a_head_that_is_none_is_a_wrong_option(text: str) -> None:
    with pytest.raises(UsageError, match="WRITER:NUMBER:HASH"):
        KeptHead.parsed(text)


def test_a_writer_may_have_colons_in_its_name() -> None:
    assert KeptHead.parsed("a:b/command:12:AB") == KeptHead("a:b/command", 12, "ab")


def sealed(content: bytes) -> bytes:
    """Return ``content``, an object without its end, as whoever may write the log can make an entry of it."""
    return content + b',"hash":"' + hashlib.sha256(content).hexdigest().encode() + b'"}'


def forged(further: bytes = b"", number: bytes = b"1", writer: bytes = b"reactor/page") -> bytes:
    return sealed(
        b'{"type":"decision","kind":"mark","subject":"s","who":"kim","identity":"claimed",'
        b'"created_at":"2026-01-01T00:00:00Z","writer":"%s","number":%s,"previous":""%s' % (writer, number, further)
    )


@pytest.mark.parametrize(
    "line",
    [
        forged(b',"new":' + b"[" * 100_000 + b"]" * 100_000),
        forged(b',"new":"\xff"'),
        forged(b',"new":"\xed\xa0\x80"'),
        forged(writer=b"reactor/\xff"),
        forged(b',"new":' + b"9" * 5_000),
        forged(number=b"9" * 5_000),
        forged(number=b"18446744073709551615"),
        forged(number=b"0"),
        forged(number=b"-1"),
        forged(b',"who":"lee"'),
        forged(b',"hash":"0"'),
        forged(b',"new":{"a":1,"a":2}'),
        forged(b",\n"),
        forged(b' ,\n"new":1'),
    ],
    ids=lambda line: str(line[150:200]),
)
def test_what_readers_cannot_read_or_read_differently_is_no_entry(line: bytes) -> None:
    found = verified([line])
    assert (found.chains, found.n_damaged) == ({}, 1)


def test_an_entry_with_fields_of_a_later_release_is_one() -> None:
    assert verified([forged(b',"new":{"a":[1,"\\n"]}')]).is_whole
