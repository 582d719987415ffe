"""The inlier store in a folder and in object stores: S3 (a server on loopback) and memory, through fsspec."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import boto3
import fsspec
import pytest

from streamad.errors import StoreError
from streamad.learn.store.records import Mark
from streamad.messages import SHARES
from tests.support.learning.inlier_cases import add, all_ids, ids, same, sequence_of, store_of


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - takes a second, for this module only

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of the test's own; address and secrets come from the environment, as in a plant."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    name = f"plant-{secrets.token_hex(4)}"
    fsspec.filesystem("s3", use_listings_cache=False).mkdir(name)
    yield name
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "memory":
        return f"memory://{secrets.token_hex(4)}/inliers"
    return f"s3://{request.getfixturevalue('bucket')}/some/inliers/" if kind == "s3" else "inliers"


@pytest.fixture(params=["s3", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    return url_of(request.param, request)


@pytest.fixture(params=["folder", "s3", "memory"])
def places(request: pytest.FixtureRequest) -> str:
    return url_of(request.param, request)


def test_stored_sequences_are_read_back_by_another_process_to_the_last_bit(places: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, url=places)
    nothing = dict.fromkeys(SHARES, 0)
    assert (store.counts(), all_ids(store)) == (nothing, [])
    for i in reversed(range(9)):
        assert store.offer(sequence_of(i), SHARES[i % 3])
    assert (store.pending(), store.counts()) == (9, nothing)
    store.flush()
    other = store_of(tmp_path, url=places)
    for one in (store, other):
        assert (one.pending(), one.counts()) == (0, dict.fromkeys(SHARES, 3))
    for first, share in enumerate(SHARES):
        assert all(same(one, sequence_of(i)) for one, i in zip(other.read(share), range(first, 9, 3), strict=True))
    assert all_ids(other) == [f"id-{i:06d}" for i in range(9)]
    assert not other.offer(sequence_of(4), "aside")
    assert other.problems == []
    assert [path.name for path in tmp_path.iterdir()] == ["inliers"] * (places == "inliers")


@pytest.mark.parametrize("url", ["memory://", "memory://top", "memory://top/", "memory:///top/"])
def test_a_url_is_extended_by_the_model(url: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, url=url, model=f"m{secrets.token_hex(4)}")
    add(store, [1])
    assert all_ids(store) == ["id-000001"]
    assert list(tmp_path.iterdir()) == []


def test_bounds_joining_and_memory_of_ids(url: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, url=url, max_accepted=20, policy="reservoir")
    add(store, range(120), every=5)
    again = store_of(tmp_path, url=url, max_accepted=20, policy="reservoir")
    assert again.counts()["accepted"] == 20
    assert ids(again.read("accepted")) == ids(store.read("accepted"))
    assert not any(again.offer(sequence_of(i), "accepted") for i in range(120))
    fs, root = fsspec.core.url_to_fs(f"{url.rstrip('/')}/default", use_listings_cache=False)
    assert len(fs.find(f"{root}/accepted")) <= 16
    assert len(fs.find(f"{root}/ids")) <= 16


def test_a_writer_sees_what_others_write_and_remove(url: str, tmp_path: Path) -> None:
    first, second = store_of(tmp_path, url=url), store_of(tmp_path, url=url)
    add(first, range(6))
    assert second.purge(ids=["id-000002"]) == 1
    second.mark(Mark(id="id-000004", judgement="confirmed", at_us=1))
    assert 2 not in [int(one.id[3:]) for one in first.read("accepted")]
    assert first.marks()["id-000004"].judgement == "confirmed"
    assert second.purge() == 5
    assert all_ids(first) == []


def test_listings_are_never_stale(bucket: str, s3_server: str, tmp_path: Path) -> None:
    """Another machine's writes, by another client: nothing of ours knows of them."""
    store = store_of(tmp_path, url=f"s3://{bucket}/inliers")
    add(store, [1])
    assert len(store.read("accepted")) == 1
    client = boto3.client("s3", endpoint_url=s3_server)
    (entry,) = client.list_objects_v2(Bucket=bucket, Prefix="inliers/default/accepted/")["Contents"]
    content = client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
    client.delete_object(Bucket=bucket, Key=entry["Key"])
    assert store.read("accepted") == []
    client.put_object(Bucket=bucket, Key=entry["Key"], Body=content)
    assert ids(store.read("accepted")) == ["id-000001"]
    client.put_object(Bucket=bucket, Key=entry["Key"], Body=content[:-9] + b"damaged!!")
    assert store.read("accepted") == []
    assert store.problems[0].startswith(f"s3://{bucket}/inliers/default/accepted/")
    client.close()


def test_a_missing_bucket_is_reported_at_once(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        store_of(tmp_path, url=f"s3://{bucket}-not/inliers")
    assert "The specified bucket does not exist" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_a_failed_write_stays_queued(bucket: str, s3_server: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, url=f"s3://{bucket}/inliers")
    client = boto3.client("s3", endpoint_url=s3_server)
    client.delete_bucket(Bucket=bucket)
    store.offer(sequence_of(1), "accepted")
    with pytest.raises(StoreError, match="does not exist; check that it exists, the credentials and rights"):
        store.flush()
    assert store.pending() == 1
    client.create_bucket(Bucket=bucket)
    client.close()
    store.flush()
    assert all_ids(store_of(tmp_path, url=f"s3://{bucket}/inliers")) == ["id-000001"]
