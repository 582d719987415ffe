"""Turns what obstore raises into an ObjectError of one line, which holds no credential and no answer's body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from streamad.errors import ObjectError, ObjectFailure

_CODE = re.compile(r"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>|\"reason\":\s*\"([A-Za-z0-9]{1,64})\"")
_STATUS = re.compile(r"status code: ([0-9]{3})")
_CAUSE = re.compile(r"\bmessage: \"([^\"]{1,120})\"|\b(dns error|operation timed out|BadCertificate|UnknownIssuer)")
_QUERY = re.compile(r"\?\S*")
_METADATA = ("169.254.169.254", "169.254.170.2", "metadata.google", "Account must be specified")
_BODY_ENDS: Final = (
    "Content-Range",
    "end of file before message length reached",
    "IncompleteMessage",
    "IncompleteBody",
)

_CREDENTIALS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SKIP_SIGNATURE=true for a public bucket)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS (GOOGLE_SKIP_SIGNATURE=true for a public bucket)",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (AZURE_SKIP_SIGNATURE=true for a public container)",
    "http": "source.options.query or source.options.authorization",
}
_FAMILIES: Final = {"abfs": "az", "abfss": "az", "https": "http"}
_EXPIRED = frozenset({"ExpiredToken", "RequestExpired", "TokenRefreshRequired", "AuthenticationExpired"})
_ABSENT = frozenset({"NoSuchBucket", "ContainerNotFound"})
_MOVED = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect"})


@contextmanager
def one_line_errors(url: str) -> Iterator[None]:
    """Turn each error of obstore about ``url``, which holds no secret, into an ObjectError."""
    try:
        yield
    except BaseException as error:
        if not _is_foreign(error):
            raise
        raise failure_of(error, url) from None  # its text may hold a signed URL, or what a store echoes


def _is_foreign(error: BaseException) -> bool:
    """Return whether ``error`` is obstore's: it raises its own, some of Python's, and its panics are no Exception."""
    of = type(error).__module__.partition(".")[0]
    if of in ("obstore", "pyo3_runtime"):
        return True
    return isinstance(error, FileNotFoundError | PermissionError | ValueError | NotImplementedError | TypeError)


def failure_of(error: BaseException, url: str) -> ObjectError:
    """Return the ObjectError of what obstore raised about ``url``."""
    text = str(error)
    code = next((found for match in _CODE.finditer(text) for found in match.groups() if found), "")
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    kind, why = _reason(type(error).__name__, text, code, status, url)
    return ObjectError(kind, f"{url}: {why}")


def _reason(name: str, text: str, code: str, status: int, url: str) -> tuple[ObjectFailure, str]:
    """Return the kind of a failure, and what is wrong and what to do: those of the first rule that holds."""
    scheme = url.partition(":")[0]
    wanted = _CREDENTIALS[_FAMILIES.get(scheme, scheme)]
    shown = f" ({code or status})" if code or status else ""
    told = text.partition("\n\nDebug source")[0]
    named = re.search(r"Path \"([^\"]{1,1100})\"", text)
    cause = next((found for match in _CAUSE.finditer(text) for found in match.groups() if found), "")
    reached = f"the store cannot be reached{f' ({cause})' if cause else ''}"
    first = _QUERY.sub("", " ".join(told.split()))[:200]
    rules: tuple[tuple[bool, ObjectFailure, str], ...] = (
        (
            code == "RequestTimeTooSkewed",
            "refused",
            f"the store refuses the signature: the machine's clock is wrong{shown}; set the clock",
        ),
        (any(place in told for place in _METADATA), "refused", f"there are no credentials; set {wanted}"),
        (code in _EXPIRED, "refused", f"the credentials have expired{shown}; renew them"),
        (code in _ABSENT, "absent", f"there is no such bucket{shown}; check its name and the endpoint"),
        (
            code in _MOVED or status in (301, 307) or "redirect without LOCATION" in told,
            "refused",
            f"the bucket lies in another region or at another endpoint{shown}; set AWS_REGION",
        ),
        (
            name in ("PermissionDeniedError", "UnauthenticatedError", "PermissionError") or status in (401, 403),
            "refused",
            f"the store refuses access{shown}; check its rights, and {wanted}",
        ),
        (
            name in ("NotFoundError", "FileNotFoundError"),
            "missing",
            f"there is no such object{shown}; check the name",
        ),
        (name == "PreconditionError", "changed", f"it was replaced meanwhile{shown}; try again"),
        (name == "AlreadyExistsError", "exists", f"it exists already{shown}"),
        (
            name == "InvalidPathError" or "Could not parse path" in told,
            "other",
            f"no object may have the name {named[1] if named else ''!r} here; rename it, or name a folder without it",
        ),
        (any(end in text for end in _BODY_ENDS), "away", "the answer ended early; try again"),
        ("HTTP error" in told, "away", f"{reached}; check the endpoint and the network"),
        (bool(shown), "away", f"the store fails{shown}; try again"),
    )
    other = f"cannot be used ({first or name}); check the URL and the environment's variables"
    return next(((kind, why) for holds, kind, why in rules if holds), ("other", other))
