"""Chain plans: the shape of a suite's chains, their prompts, caption rules and seeds."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

PLACEHOLDER = "{description}"

_SEEDS = 2**32  # NumPy and many servers take no larger seed

Modality = Literal["image", "text"]


_CLEANED = "cleaned as by MMGenBench's code"
"""Names the cleaning in baselines; another text makes them incomparable. It was "cleaned" when
curly and single quotes and other tokens were taken off as well."""


@dataclass(frozen=True)
class CaptionRules:
    """How a suite shortens and cleans a description before it is drawn.

    clean: take off what MMGenBench's released code takes off, in its order and each once: a final
        `</s>`; every `<|im_end|>` of a text that ends with one; straight double quotes at both
        ends; line ends at the end; spaces at both ends. Single and curly quotes stay, and tokens
        of other chat models, which their tokenizers leave out. A text that ends with a quotation
        (`a sign reading "STOP"`) loses its last quote there as well.
    max_words: keep this many words, as separated by spaces; None keeps all.
    Source: MMGenBench's released code does both (70 words); its paper mentions neither.
    """

    clean: bool = False
    max_words: int | None = None

    def apply(self, text: str) -> str:
        """The text as the generator gets it; empty where there was nothing but quotes."""
        if self.clean:
            text = _clean(text)
        if self.max_words is not None:
            text = " ".join(text.split(" ")[: self.max_words])
        return text

    def __str__(self) -> str:
        parts = [_CLEANED] if self.clean else []
        if self.max_words is not None:
            parts.append(f"at most {self.max_words} words")
        return ", ".join(parts) or "as they are"


AS_THEY_ARE = CaptionRules()


@dataclass(frozen=True)
class ChainPlan:
    """How the chains of a suite are grown.

    start: "image" grows I0 T1 I2 T3 ..., "text" grows T0 I1 T2 I3 ...
    generations: transformations of a whole chain; one iteration is two of them.
    describe: the describer's prompt.
    generate: the generator's prompt, holding `{description}`.
    seed: the run's seed, from which every step's seed is derived.
    caption_rules: rules for a description before it is drawn.
    """

    start: Modality
    generations: int
    describe: str
    generate: str
    seed: int = 0
    caption_rules: CaptionRules = AS_THEY_ARE

    @property
    def iterations(self) -> int:
        """T: how often a chain comes back to the modality of its start."""
        return self.generations // 2

    def describes(self, generation: int) -> bool:
        """Whether this generation (counted from 1) is a description rather than a drawing."""
        return (generation % 2 == 1) == (self.start == "image")

    def drawing_prompt(self, description: str) -> str:
        """The generator's prompt for a description."""
        return self.generate.replace(PLACEHOLDER, self.caption_rules.apply(description))

    def modality(self, generation: int) -> Modality:
        """Of the artifact at a generation, 0 being the start."""
        if generation == 0:
            return self.start
        return "text" if self.describes(generation) else "image"


def derive_seed(run_seed: int, sample_id: str, generation: int) -> int:
    """Seed of one step, in [0, 2**32): the same in any shard and on any worker."""
    name = f"{run_seed}\0{sample_id}\0{generation}".encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(name).digest()[:8], "big") % _SEEDS


def _clean(text: str) -> str:
    text = text.removesuffix("</s>")
    if text.endswith("<|im_end|>"):
        text = text.replace("<|im_end|>", "")
    return text.strip('"').rstrip("\n").strip(" ")
