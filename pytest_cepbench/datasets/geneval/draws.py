"""Random choices that stay the same over versions of NumPy, bit for bit those of the published suite.

The suite was drawn with `numpy.random.default_rng`. NumPy promises the bits of PCG64 for good, but
not what its `Generator` makes of them; so that is done here, as NumPy did it for the suite and still
does in 2.4.
"""

from __future__ import annotations

import numpy as np

_WORD = 2**32


class RandomStream:
    """A stream of choices. It holds the generator and the unused half of its last 64 bits."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)
        self._half: int | None = None

    def one(self, limit: int) -> int:
        """One of 0..limit-1, all equally likely, as `Generator.choice(limit)`.

        Lemire's method: the high word of a product, drawn again where the low word would favor
        some numbers. A choice among one takes no bits. limit: 1..2**32-1.
        """
        if limit == 1:
            return 0
        while True:
            product = self._next_word() * limit
            if product % _WORD >= (_WORD - limit) % limit:
                return product // _WORD

    def some(self, number: int, limit: int) -> list[int]:
        """Different ones of 0..limit-1 in random order, as `choice(limit, number, replace=False)`.

        Floyd's method, then a shuffle from the end. number: 1..limit; limit: up to 10,000 (beyond,
        NumPy goes another way).
        """
        chosen: list[int] = []
        for last in range(limit - number, limit):
            candidate = self.one(last + 1)
            chosen.append(last if candidate in chosen else candidate)
        for high in range(number - 1, 0, -1):
            low = self.one(high + 1)
            chosen[high], chosen[low] = chosen[low], chosen[high]
        return chosen

    def _next_word(self) -> int:
        if self._half is not None:
            word, self._half = self._half, None
            return word
        self._half, word = divmod(int(self._bits.random_raw()), _WORD)
        return word
