"""Opens the store of a URL with obstore: credentials, endpoint and region come from the environment alone."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from streamad.errors import ObjectError
from streamad.objects.failures import one_line_errors

SCHEMES: Final = ("s3", "gs", "az", "abfs", "abfss")
"""The schemes of stores that have buckets and list them."""
_PREFIXES: Final = {"s3": "AWS", "gs": "GOOGLE"}
_CLIENT = ("allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes")
"""Options that obstore's client takes from the environment, such as AWS_ALLOW_HTTP, only if it is given none."""
_ENDPOINTS: Final = {
    "AWS": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "GOOGLE": ("GOOGLE_BASE_URL",),
    "AZURE": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_CONNECT_S = 5
_SILENCE_S = 30
_RETRIES = 4
_RETRY_S = 30


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, and its obstore ``store``, whose repr may hold a signed URL, or panic.

    ``root`` is its URL without secrets, for messages; keys are what follows it and a slash.
    """

    root: str
    store: Any = field(repr=False)

    def url(self, key: str) -> str:
        """Return the URL of ``key``, as a user writes it."""
        return f"{self.root}/{key}" if key else self.root


def split_root(url: str) -> tuple[str, str]:
    """Return the URL of the bucket and the key below it: s3://bucket and a/b.csv of s3://bucket/a/b.csv.

    Raises ObjectError if no bucket is named.
    """
    scheme, _, rest = url.partition(":")
    bucket, _, key = rest.removeprefix("//").partition("/")
    if not bucket:
        raise ObjectError("other", f"{url}: names no bucket; write {scheme}://BUCKET/FOLDER")
    return f"{scheme}://{bucket}", key


def open_bucket(
    root: str, *, query: str = "", headers: Mapping[str, str] | None = None, retries: int = _RETRIES
) -> Bucket:
    """Return the bucket of ``root`` (``split_root``), or of a folder of an HTTP server, which is not asked yet.

    ``query`` is a signed URL's, and may be secret, as ``headers`` may. A request that fails is tried ``retries`` times
    more within 30 s. Raises ObjectError if obstore is missing, or cannot use what the environment says.
    """
    if importlib.util.find_spec("obstore") is None:
        raise ObjectError("other", f"{root}: reading it needs obstore: pip install 'streamad-monitor[objects]'")
    from obstore.store import HTTPStore, from_url  # noqa: PLC0415 - an extra, and 10 ms

    client: dict[str, Any] = {
        **client_of_environment(root),
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=_SILENCE_S),
        "timeout": timedelta(days=1),  # of a whole object; silence ends it much earlier
    }
    if headers:
        client["default_headers"] = dict(headers)
    retry: Any = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=_RETRY_S),
        "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    options: Any = {"client_options": client, "retry_config": retry}
    with one_line_errors(root):
        if root.partition(":")[0] not in ("http", "https"):
            return Bucket(root, from_url(root, **options))
        return Bucket(root, HTTPStore.from_url(f"{root}?{query}" if query else root, **options))


def client_of_environment(root: str) -> dict[str, str]:
    """Return the options of the client that variables such as AWS_ALLOW_HTTP set; an endpoint http:// allows HTTP."""
    scheme = root.partition(":")[0]
    if scheme in ("http", "https"):
        return {"allow_http": "true"} if scheme == "http" else {}
    prefix = _PREFIXES.get(scheme, "AZURE")
    found = {option: os.environ.get(f"{prefix}_{option.upper()}") for option in _CLIENT}
    if any(os.environ.get(name, "").lower().startswith("http://") for name in _ENDPOINTS[prefix]):
        found["allow_http"] = found["allow_http"] or "true"
    return {option: value for option, value in found.items() if value}
