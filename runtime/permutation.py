"""A permutation of any number of things, one index at a time: nothing is stored."""

from __future__ import annotations

import hashlib
import math

_ROUNDS = 8
_WORD = 2**64 - 1


class Permutation:
    """``permutation[index]`` for index in [0, count): each number below ``count`` comes once.

    A Feistel network over the pairs (left, right) with left < a, right < b and a x b >= count: in
    turn one half is moved by a hash of the other, modulo its size, which can be undone whatever
    the hash is. A result of ``count`` or more is put in again, until one is below: that is a
    walk along a cycle of the network's permutation, and it ends, for it began below. With
    a = ceil(sqrt(count)) at most a results are too large, so a second turn is rare. Source: Black
    and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002, section 5.

    It depends on ``count`` and ``key`` alone: the parts' text is hashed with SHA-256.
    """

    def __init__(self, count: int, *key: object) -> None:
        if count < 1:
            raise ValueError(f"a permutation of {count} things: there has to be 1 at least")
        self.count = count
        self._left = math.isqrt(count - 1) + 1
        self._right = -(-count // self._left)
        self._keys = [number(*key, turn) for turn in range(_ROUNDS)]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(f"index {index} of a permutation of {self.count}")
        while True:
            left, right = divmod(index, self._right)
            for even, odd in zip(self._keys[::2], self._keys[1::2], strict=True):
                left = (left + _mixed(right ^ even)) % self._left
                right = (right + _mixed(left ^ odd)) % self._right
            index = left * self._right + right
            if index < self.count:
                return index


def number(*parts: object) -> int:
    """63 bits that depend on all parts and on nothing else (Python's own hash is salted)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _mixed(x: int) -> int:
    """A bijection of 64 bits in which each bit of ``x`` moves half of the result's.

    The finaliser of SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
    Generators", 2014, figure 17 (with the constants of Stafford's variant 13).
    """
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)
