"""A decoder that decodes a record once, for commands that look at a sample several times."""

from __future__ import annotations

from collections.abc import Sequence

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.plant_yaml import ChannelSettings, DecodeSettings
from streamad.types import Record, SampleBlock

_MOST_BYTES = 64_000_000
_OF_ONE_BLOCK = 500  # objects and arrays, without their contents


class KeptBlocks(Decoder):
    """A decoder that keeps its blocks and errors by record, up to 64 MB, until ``forget``.

    The caller keeps the records alive meanwhile, and changes no block.
    """

    def __init__(self, settings: DecodeSettings, channels: Sequence[ChannelSettings], route: str | None = None) -> None:
        super().__init__(settings, channels, route)
        self._kept: dict[tuple[int, int | None], SampleBlock | DecodeError | None] = {}
        self._n_bytes = 0

    def decode(self, record: Record, written_us: int | None) -> SampleBlock | None:
        """Return what ``Decoder.decode`` does. Raises DecodeError."""
        key = id(record), written_us
        found = self._kept[key] if key in self._kept else self._decoded(key, record, written_us)
        if isinstance(found, DecodeError):
            raise found
        return found

    def forget(self) -> None:
        """Forget all blocks: their records may go."""
        self._kept.clear()
        self._n_bytes = 0

    def _decoded(
        self, key: tuple[int, int | None], record: Record, written_us: int | None
    ) -> SampleBlock | DecodeError | None:
        found: SampleBlock | DecodeError | None
        try:
            found = super().decode(record, written_us)
        except DecodeError as error:
            found = error
        if self._n_bytes < _MOST_BYTES:
            self._kept[key] = found
            values = 0 if found is None or isinstance(found, DecodeError) else found.values.nbytes + 8 * len(found)
            self._n_bytes += _OF_ONE_BLOCK + values
        return found
