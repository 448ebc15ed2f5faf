"""What is done to every sample of a suite: the shape of its chain, its prompts and its seeds."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

PLACEHOLDER = "{description}"

_SEEDS = 2**32  # NumPy and many servers take no larger seed


@dataclass(frozen=True)
class ChainPlan:
    """The telephone game of a suite.

    start: "image" grows I0 T1 I2 T3 ..., "text" grows T0 I1 T2 I3 ...
    iterations: T, one describe and one generate each; the chain has 2T generations.
    describe: the describer's prompt. generate: the generator's, holding `{description}`.
    seed: the run's seed, from which every step's seed is derived.
    """

    start: Literal["image", "text"]
    iterations: int
    describe: str
    generate: str
    seed: int = 0

    @property
    def generations(self) -> int:
        """How many transformations a whole chain has."""
        return 2 * self.iterations

    def describes(self, generation: int) -> bool:
        """Whether this generation (counted from 1) is a description rather than a drawing."""
        return (generation % 2 == 1) == (self.start == "image")


def derive_seed(run_seed: int, sample_id: str, generation: int) -> int:
    """Seed of one step, in [0, 2**32): the same wherever and with whomever the sample is run."""
    name = f"{run_seed}\0{sample_id}\0{generation}".encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(name).digest()[:8], "big") % _SEEDS
