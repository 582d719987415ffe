"""Messages with a JSON Schema: plain JSON.

The schema is not enforced: ``decode.fields`` says what a message must hold, as it does for JSON without a schema.
"""

from __future__ import annotations

from typing import Any

from streamad.ingest.forms.wire import read_plain
from streamad.ingest.schemas.framing import Framed


class JsonReader:
    """Reads JSON; a MessageReader."""

    def read(self, value: bytes, framed: Framed) -> Any:
        """Return the message. Raises DecodeError (malformed)."""
        return read_plain(value[framed.at :], "json")
