"""Stores of URLs: each failure is one line that says what to do, and none holds a credential."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import obstore
import pytest

from streamad.errors import ObjectError
from streamad.objects.failures import one_line_errors
from streamad.objects.stores import Bucket, open_bucket, split_root
from tests.support.s3_stub import StubS3, etag


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubS3]:
    with StubS3({"a/x.csv": b"t\n1\n"}).serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def opened(url: str = "s3://plant") -> Bucket:
    return open_bucket(url, retries=1)


def failed(act: Callable[[], object], url: str = "s3://plant/a/x.csv") -> ObjectError:
    with pytest.raises(ObjectError) as caught, one_line_errors(url):
        act()
    text = str(caught.value)
    assert text.startswith(f"{url}: ")
    assert "\n" not in text
    assert "AKIDEXAMPLE" not in text
    assert "verysecret" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return caught.value


@pytest.mark.parametrize(
    ("url", "root", "key"),
    [
        ("s3://plant/a/b.csv", "s3://plant", "a/b.csv"),
        ("s3://plant", "s3://plant", ""),
        ("s3://plant/a/", "s3://plant", "a/"),
        ("abfs://c@account.dfs.core.windows.net/a", "abfs://c@account.dfs.core.windows.net", "a"),
    ],
)
def test_a_url_is_a_bucket_and_a_key(url: str, root: str, key: str) -> None:
    assert split_root(url) == (root, key)


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(ObjectError, match="names no bucket; write s3://BUCKET/FOLDER"):
        split_root("s3:///a")


def test_an_object_is_read_by_what_the_environment_says(stub: StubS3) -> None:
    found = obstore.get(opened().store, "a/x.csv", options={"if_match": etag(b"t\n1\n")})
    assert bytes(found.bytes()) == b"t\n1\n"


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (403, "AccessDenied", "refused", "refuses access (AccessDenied); check its rights, and AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "refused", "refuses access (SignatureDoesNotMatch)"),
        (403, "RequestTimeTooSkewed", "refused", "the machine's clock is wrong (RequestTimeTooSkewed); set the clock"),
        (400, "ExpiredToken", "refused", "the credentials have expired"),
        (400, "AuthorizationHeaderMalformed", "refused", "set AWS_REGION"),
        (301, "PermanentRedirect", "refused", "set AWS_REGION"),
        (404, "NoSuchBucket", "absent", "there is no such bucket"),
        (503, "SlowDown", "away", "the store fails (SlowDown); try again"),
    ],
)
def test_a_refusal_says_what_to_do(stub: StubS3, status: int, code: str, kind: str, says: str) -> None:
    stub.refusal = (status, code)
    for act in (lambda: obstore.get(opened().store, "a/x.csv"), lambda: list(obstore.list(opened().store, "a"))):
        error = failed(act)
        assert error.kind == kind
        assert says in str(error)


def test_an_object_that_is_missing_replaced_or_cut_off(stub: StubS3) -> None:
    store = opened().store
    assert failed(lambda: obstore.get(store, "a/none.csv")).kind == "missing"
    assert failed(lambda: obstore.get(store, "a/x.csv", options={"if_match": '"other"'})).kind == "changed"
    stub.cut_at = 1
    error = failed(lambda: obstore.get(store, "a/x.csv").bytes())
    assert (error.kind, str(error).partition(": ")[2]) == ("away", "the answer ended early; try again")


def test_a_key_that_no_path_may_be_is_named(stub: StubS3) -> None:
    stub.objects["a/../evil.csv"] = b""
    error = failed(lambda: list(obstore.list(opened().store, "a")))
    assert "no object may have the name 'a/../evil.csv' here; rename it" in str(error)


def test_a_store_that_is_away_is_asked_again_and_then_one_line(stub: StubS3) -> None:
    bucket = opened()
    stub.stop()
    error = failed(lambda: list(obstore.list(bucket.store)))
    assert error.kind == "away"
    assert "cannot be reached (Connection refused); check the endpoint" in str(error)


def test_a_signed_url_is_in_no_repr_and_no_error(stub: StubS3) -> None:
    bucket = open_bucket(f"{stub.url}/plant/a", query="X-Amz-Signature=verysecret&id=verysecret", retries=0)
    assert "verysecret" not in repr(bucket)
    assert bytes(obstore.get(bucket.store, "x.csv").bytes()) == b"t\n1\n"
    assert stub.queries[-1] == "X-Amz-Signature=verysecret&id=verysecret"
    stub.refusal = (418, "Teapot")
    failed(lambda: obstore.get(bucket.store, "x.csv"), bucket.url("x.csv"))
    stub.stop()
    failed(lambda: obstore.get(bucket.store, "x.csv"), bucket.url("x.csv"))


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        (
            "az://plant",
            {
                "AZURE_STORAGE_ACCOUNT_NAME": "account",
                "AZURE_ENDPOINT": "{url}",
                "AZURE_SKIP_SIGNATURE": "true",
            },
        ),
        ("gs://plant", {"GOOGLE_BASE_URL": "{url}", "GOOGLE_SKIP_SIGNATURE": "true"}),
    ],
)
def test_google_and_azure_are_found_by_their_variables(
    stub: StubS3, monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(url=stub.url))
    assert bytes(obstore.get(opened(url).store, "a/x.csv").bytes()) == b"t\n1\n"
    assert stub.requests[-1] == ("GET", "/plant/a/x.csv")


def test_missing_credentials_name_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ObjectError, match=r"az://plant: there are no credentials; set AZURE_STORAGE_ACCOUNT_NAME"):
        open_bucket("az://plant")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(ObjectError, match="gs://plant: cannot be used"):
        open_bucket("gs://plant")
