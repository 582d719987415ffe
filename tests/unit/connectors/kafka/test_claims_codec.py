"""Claims as records of a topic: what is written is read, equal claims have equal keys, and foreign bytes are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.partition_progress import Claim
from streamad_connectors.kafka.writing.claims_topic import decoded, encoded

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.none() | st.integers(-(2**62), 2**62)


@given(st.builds(Claim, texts, texts, numbers, numbers, numbers, st.booleans(), st.just(False)))
def test_what_is_written_is_read(claim: Claim) -> None:
    key, value = encoded(claim)
    assert decoded(key, value) == claim
    ended = Claim(claim.stream, claim.partition, ended=True)
    assert encoded(ended) == (key, None)
    assert decoded(key, None) == ended


@given(texts, texts, texts, texts)
def test_other_streams_and_partitions_have_other_keys(a: str, b: str, c: str, d: str) -> None:
    assert (encoded(Claim(a, b))[0] == encoded(Claim(c, d))[0]) == ((a, b) == (c, d))


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_no_bytes_whatever_raise(key: bytes | None, value: bytes | None) -> None:
    assert decoded(key, value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b'["claim","p-0"]', None),
        (b'["claim","p-0","a","b"]', None),
        (b'["mark","p-0","a"]', None),
        (b'["claim","p-0","a"]', b""),
        (b'["claim","p-0","a"]', b"{}"),
        (b'["claim","p-0","a"]', b'{"schema_version":2}'),
        (b'["claim","p-0","a"]', b'{"schema_version":1,"since":"first"}'),
        (b'["claim","p-0","' + b"a" * 100_000 + b'"]', None),
    ],
)
def test_records_that_streamad_did_not_write_are_no_claims(key: bytes | None, value: bytes | None) -> None:
    assert decoded(key, value) is None
