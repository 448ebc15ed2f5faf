"""Which samples are grown together: shards at fixed places in the data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_cepbench.datasets.sample import Sample

SHARD = 64
"""Most samples that are grown together, and that one process takes at a time. Shards lie within a
category and at fixed places in it, so batches, and with them the last bits of results, do not
depend on how many processes there are."""

PACK = 32
"""Most samples of small categories that are grown together, where small models run on the CPU: calls
of those take nearly as long for few inputs as for many."""

Cell = tuple[int, int]
"""Where a shard lies: the number of its category, and its own therein."""


class ShardLayout:
    """The shards of a data set.

    packed: cell -> the samples of small categories that are grown together there.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._places = _places(samples)
        self.packed: dict[Cell, list[Sample]] = {}

    def pack(self, samples: Iterable[Sample]) -> None:
        """Grow neighbouring categories together as far as they are small, where small models run.

        samples: all that the run needs. Called before any chain is grown, with the same samples in
        every process of the run: batches depend on it.
        """
        homes: dict[int, list[Sample]] = {}
        for sample in sorted(samples, key=lambda sample: self._places[sample.id]):
            homes.setdefault(self._places[sample.id][0], []).append(sample)
        pack: list[Sample] = []
        for home, own in homes.items():
            if not pack or len(pack) + len(own) > PACK:
                pack = self.packed[home, 0] = []
                first = home
            if len(own) > PACK:
                del self.packed[first, 0]
                pack = []
                continue
            for sample in own:
                self._places[sample.id] = (first, len(pack))
                pack.append(sample)

    def shards(self, samples: Iterable[Sample]) -> dict[Cell, list[Sample]]:
        """The samples by their place, in an order that depends on the samples alone."""
        shards: dict[Cell, list[Sample]] = {}
        for sample in sorted(samples, key=lambda sample: self._places[sample.id]):
            home, number = self._places[sample.id]
            shards.setdefault((home, number // SHARD), []).append(sample)
        return shards


def _places(samples: Sequence[Sample]) -> dict[str, tuple[int, int]]:
    """The number of each sample's category, and its own number therein, by sample id."""
    homes: dict[str, int] = {}
    counts: dict[str, int] = {}
    places = {}
    for sample in samples:
        name = sample.categories[0]
        home = homes.setdefault(name, len(homes))
        number = counts.get(name, 0)
        places[sample.id] = (home, number)
        counts[name] = number + 1
    return places
