"""JSON from untrusted writers: one error, whatever is wrong with it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_json(content: bytes, kind: type[T]) -> T:
    """Return ``content`` as ``kind``, a type for msgspec. Raises msgspec.DecodeError, whatever the bytes are.

    msgspec itself also raises UnicodeDecodeError (text that is no UTF-8) and RecursionError (deep nesting).
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        raise
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is malformed: text that is no UTF-8 ({error.reason})") from error
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is malformed: nested too deeply") from error
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from error
