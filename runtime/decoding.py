"""What a model keeps of the tokens that it has read, while it writes one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from .standalone import STANDALONE

_CURRENT: ContextVar[Decoding | None] = ContextVar("decoding", default=None)


class Decoding:
    """The keys and values of the places read so far, of every attention of a model.

    Within ``reading`` the model's forward gets the tokens that come next and nothing before them:
    ``Positions`` count on from ``length``, and what keeps something finds its own by the order of
    the calls, which is the same in every forward of a model that has no branches on its values.
    A page needs nothing for this. What looks at earlier places in its own way (an author's call of
    ``F.scaled_dot_product_attention``) is not told of it and would be wrong: whoever decodes
    compares with a forward over all tokens (``generation``).
    """

    def __init__(self) -> None:
        self.length = 0  # places read
        self._kept: list[tuple[_Rows, ...]] = []
        self._call = 0

    @property
    def calls(self) -> int:
        """How many calls of a forward keep something."""
        return len(self._kept)

    @contextmanager
    def reading(self, count: int) -> Iterator[None]:
        """For one forward, over the next ``count`` places.

        Raises RuntimeError where another number of calls kept something than in the first forward.
        """
        token = _CURRENT.set(self)
        self._call = 0
        try:
            yield
        finally:
            _CURRENT.reset(token)
        if self._call != self.calls:
            raise RuntimeError(
                f"a forward over {count} places kept what {self._call} calls gave it, and the "
                f"first one {self.calls}: a model has to make the same calls each time"
            )
        self.length += count

    def keep(self, *new: Tensor) -> tuple[Tensor, ...]:
        """``new`` [b, s, ..] of this forward's places; returns them behind all those before."""
        if self._call == len(self._kept):
            if self.length:
                raise RuntimeError("a call keeps what no call of the first forward has kept")
            self._kept.append(tuple(_Rows() for _ in new))
        rows = self._kept[self._call]
        self._call += 1
        return tuple(kept.extended(part) for kept, part in zip(rows, new, strict=True))


def current_decoding() -> Decoding | None:
    """The one whose ``reading`` is entered, if any."""
    return _CURRENT.get()


class _Rows:
    """A tensor that grows along dimension 1, with room for more: no token copies all of them."""

    def __init__(self) -> None:
        self._room: Tensor | None = None
        self._size = 0

    def extended(self, new: Tensor) -> Tensor:
        """All rows [b, S, ..], the new ones [b, s, ..] last."""
        size = self._size + new.shape[1]
        if self._room is None or size > self._room.shape[1]:
            room = new.new_empty(new.shape[0], max(2 * self._size, size), *new.shape[2:])
            if self._room is not None:
                room[:, : self._size] = self._room[:, : self._size]
            self._room = room
        self._room[:, self._size : size] = new
        self._size = size
        return self._room[:, :size]


def next_places(length: int, device: torch.device | str) -> Tensor:
    """The places [length] of the tokens that come next: from 0 where nothing is decoded."""
    if STANDALONE:  # such a page is called with whole texts
        return torch.arange(length, device=device)
    decoding = current_decoding()
    if decoding is None:
        return torch.arange(length, device=device)
    return torch.arange(decoding.length, decoding.length + length, device=device)
