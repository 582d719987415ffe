"""JSON from untrusted writers: one error, whatever is wrong with it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")
_NO_UTF_8 = "JSON is malformed: text that is no UTF-8"


def decode_json(content: bytes, kind: type[T]) -> T:
    """Return ``content`` as ``kind``, a type for msgspec. Raises msgspec.DecodeError, whatever the bytes are.

    msgspec also raises RecursionError (deep nesting), and before 0.23 UnicodeDecodeError (text that is no UTF-8).
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(_NO_UTF_8) from error
    except msgspec.DecodeError as error:
        if "UTF-8" in str(error):
            raise msgspec.DecodeError(_NO_UTF_8) from error
        raise
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is malformed: nested too deeply") from error
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from error
