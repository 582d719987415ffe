"""Tokens for Amazon MSK with IAM: a request signed with the AWS credentials of this process (extra ``msk``)."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

EXTRA_MISSING = "aws_msk_iam needs the extra msk: pip install 'streamad-monitor[msk]'"
_RENEW = "the AWS credentials have expired: renew them (aws sso login, or the role's own source)"
_NONE = "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or give this machine a role"
# RuntimeError is botocore's when what it has refreshed has expired, too.
_EXPIRED = (
    "RuntimeError",
    "SSOTokenLoadError",
    "UnauthorizedSSOTokenError",
    "TokenRetrievalError",
    "LoginRefreshRequired",
)


class SigningError(Exception):
    """Raised when no token can be signed; its one line holds nothing that a library said, for that may be a secret."""


def has_signer() -> bool:
    """Return whether the extra is installed."""
    return find_spec("aws_msk_iam_sasl_signer") is not None


def signed_token(region: str) -> str:
    """Return a token for a cluster in ``region``, valid for 15 minutes; blocks. Raises SigningError."""
    # At level DEBUG botocore logs signatures, session tokens and answers that hold credentials.
    for name in ("botocore", "boto3"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return _signed(region)
    except ImportError:
        raise SigningError(EXTRA_MISSING) from None
    except SigningError:
        raise
    except Exception as error:  # noqa: BLE001 - profiles run other people's programs and plug-ins
        raise SigningError(_text(error)) from None


def _signed(region: str) -> str:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra, and slow to import
    from botocore.credentials import CredentialProvider  # noqa: PLC0415
    from botocore.session import Session  # noqa: PLC0415

    # A new session each time: files and variables may have changed. The signer's own way fails without credentials.
    credentials = Session().get_credentials()
    if credentials is None:
        raise SigningError(_NONE)

    class Found(CredentialProvider):  # type: ignore[misc]  # botocore has no types
        def load(self) -> Any:
            return credentials

    token, _ = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Found())
    return str(token)


def _text(error: Any) -> str:
    kind = type(error).__name__
    code = str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))
    if kind in _EXPIRED or code.startswith("ExpiredToken"):
        return _RENEW
    if kind in ("NoCredentialsError", "PartialCredentialsError"):
        return _NONE
    return f"the AWS credentials cannot be loaded ({code or kind}): check AWS_PROFILE and the files in ~/.aws"
