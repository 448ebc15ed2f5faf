"""What is done to every sample of a suite: the shape of its chain, its prompts and its seeds."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from pytest_cepbench.chains.caption_cleanup import AS_THEY_ARE, CaptionRules

PLACEHOLDER = "{description}"

_SEEDS = 2**32  # NumPy and many servers take no larger seed

Modality = Literal["image", "text"]


@dataclass(frozen=True)
class ChainPlan:
    """The telephone game of a suite.

    start: "image" grows I0 T1 I2 T3 ..., "text" grows T0 I1 T2 I3 ...
    generations: how many transformations a whole chain has; one iteration is two of them.
    describe: the describer's prompt. generate: the generator's, holding `{description}`.
    seed: the run's seed, from which every step's seed is derived.
    wording: what is done to a description before it is drawn.
    """

    start: Modality
    generations: int
    describe: str
    generate: str
    seed: int = 0
    wording: CaptionRules = AS_THEY_ARE

    @property
    def iterations(self) -> int:
        """T: how often a chain came back to the modality of its start."""
        return self.generations // 2

    def describes(self, generation: int) -> bool:
        """Whether this generation (counted from 1) is a description rather than a drawing."""
        return (generation % 2 == 1) == (self.start == "image")

    def drawing_prompt(self, description: str) -> str:
        """What the generator is asked for a description."""
        return self.generate.replace(PLACEHOLDER, self.wording.apply(description))

    def modality(self, generation: int) -> Modality:
        """Of the artifact at a generation, 0 being the start."""
        if generation == 0:
            return self.start
        return "text" if self.describes(generation) else "image"


def derive_seed(run_seed: int, sample_id: str, generation: int) -> int:
    """Seed of one step, in [0, 2**32): the same wherever and with whomever the sample is run."""
    name = f"{run_seed}\0{sample_id}\0{generation}".encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(name).digest()[:8], "big") % _SEEDS
