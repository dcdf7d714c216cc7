"""What is kept of a stream that may be endless."""

from __future__ import annotations


class Kept:
    """The first `limit` bytes of a stream. The rest is read and thrown away, so that whoever prints it is not held up."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.truncated = False

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        room = self._limit - len(self._data)
        self._data += piece[:room]
        self.truncated = self.truncated or len(piece) > room

    @property
    def data(self) -> bytes:
        """What was kept."""
        return bytes(self._data)


class KeptAfter(Kept):
    """As Kept, of what follows a mark: the start-up files of an account may print before a command does."""

    NOISE_BYTES = 4096
    """How much of what stands before the mark is kept, for evidence."""

    def __init__(self, mark: bytes, limit: int) -> None:
        super().__init__(limit)
        self._mark = mark
        self._tail = b""
        self.begun = False
        """True once the mark was seen."""
        self.noise = Kept(self.NOISE_BYTES)

    def feed(self, piece: bytes) -> None:
        """Take the next piece; the mark may be cut between two."""
        if self.begun:
            super().feed(piece)
            return
        before, mark, after = (self._tail + piece).partition(self._mark)
        if mark:
            self.begun = True
            self.noise.feed(before)
            super().feed(after)
        else:
            cut = max(0, len(before) - len(self._mark) + 1)
            self.noise.feed(before[:cut])
            self._tail = before[cut:]

    def close(self) -> None:
        """No more comes: what could have been the beginning of a mark was none."""
        if not self.begun:
            self.noise.feed(self._tail)
            self._tail = b""
