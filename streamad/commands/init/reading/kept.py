"""Decodes a sample's records once, although several rules look at their samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoded, Decoder
from streamad.ingest.schemas.known import Schemas
from streamad.settings.boundaries import WhileSettings
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.types import Record, SampleBlock

_MOST_KEPT_BYTES = 64_000_000
_OF_ONE_BLOCK = 500  # objects and arrays, without their contents


class KeptBlocks(Decoder):
    """A decoder that keeps its blocks and errors by record, up to 64 MB, until ``forget``.

    The caller keeps the records alive meanwhile, and changes no block.
    """

    def __init__(
        self,
        settings: DecodeSettings,
        channels: Sequence[ChannelSettings],
        state: WhileSettings | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        super().__init__(settings, channels, None, state, schemas)
        self._kept: dict[tuple[int, int | None], Decoded | DecodeError] = {}
        self._n_bytes = 0

    def decode(self, record: Record, written_us: int | None) -> Decoded:
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

    def _decoded(self, key: tuple[int, int | None], record: Record, written_us: int | None) -> Decoded | DecodeError:
        found: Decoded | DecodeError
        try:
            found = super().decode(record, written_us)
        except DecodeError as error:
            found = error
        if self._n_bytes < _MOST_KEPT_BYTES:
            self._kept[key] = found
            blocks = () if isinstance(found, DecodeError) else found.blocks
            values = sum(block.values.nbytes + 8 * len(block) for block in blocks)
            self._n_bytes += _OF_ONE_BLOCK * max(1, len(blocks)) + values
        return found


def blocks_of(records: Iterable[Record], decoder: Decoder) -> Iterator[SampleBlock]:
    """Yield the samples of each record that has some; those that cannot be read are left out: ``check`` counts them."""
    for record in records:
        try:
            blocks = decoder.decode(record, None).blocks
        except DecodeError:
            continue
        yield from blocks
