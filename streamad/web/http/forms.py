"""Forms that browsers post: their fields, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

_MOST_FORM = 16_000
_MOST_FIELDS = 1_000


async def fields_of(request: Request) -> Mapping[str, str]:
    """Return the fields of an urlencoded form. Raises HTTPException."""
    headers = request.headers
    size = headers.get("content-length", "")
    if not size.isdecimal():
        raise HTTPException(413, "The form is too large, or its length is missing.")
    if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "The form must be urlencoded, as the page sends it.")
    body = b""
    try:
        async for part in request.stream():  # the header may say less than comes
            body += part
            if len(body) > _MOST_FORM:
                raise HTTPException(413, "The form is too large.")
    except ClientDisconnect as error:  # else a traceback is logged for each
        raise HTTPException(400, "The form did not come whole.") from error
    try:
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise HTTPException(413, "The form has too many fields.") from error
    return dict(fields)
