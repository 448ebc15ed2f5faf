"""What is known of one case when it has been judged: the record that every report reads.

It crosses from workers to the controller, so it is made of built-in types all the way down.
"""

from __future__ import annotations

import msgspec

from pytest_cepbench.gate import PRESENTATIONS, Presentation, Verdict


class LinkShown(msgspec.Struct, frozen=True):
    """One artifact of a chain: its text, or the digest of its image in the store.

    similarity: to the start, where it was measured.
    """

    text: str | None = None
    image: str | None = None
    similarity: float | None = None


class ChainShown(msgspec.Struct, frozen=True):
    """A chain worth looking at: one of the samples that lost most.

    score, baseline: the sample's, in the case's metric. failure: what stopped it, if anything did.
    remark: what else the metric says of it.
    """

    sample: str
    score: float
    baseline: float | None
    links: list[LinkShown]
    failure: str | None = None
    remark: str = ""


class Effort(msgspec.Struct, frozen=True):
    """What judging a case took: models loaded, inputs given to models, results from the store.

    seconds: whole, and inside the models.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0


class CaseResult(msgspec.Struct, frozen=True):
    """A judged case. Numbers are None where they could not be measured or compared.

    difference: to the baseline, turned so that positive is better. accepted: whether the
    measurement is to become the baseline. curve: the mean at each iteration or generation. notes:
    what else a reader should know of the number. damage: what the store found broken meanwhile.
    """

    nodeid: str
    suite: str
    part: str
    metric: str
    label: str
    verdict: str
    tolerance: float
    higher_is_better: bool = True
    value: float | None = None
    baseline: float | None = None
    difference: float | None = None
    n: int = 0
    accepted: bool = False
    failures: dict[str, int] = {}
    curve: list[float] = []
    notes: list[str] = []
    reasons: list[str] = []
    model: dict[str, str] = {}
    identity: dict[str, str] = {}
    chains: list[ChainShown] = []
    effort: Effort = Effort()
    damage: list[str] = []

    @property
    def presentation(self) -> Presentation:
        """How its verdict shows."""
        return PRESENTATIONS[Verdict(self.verdict)]

    @property
    def passes(self) -> bool:
        """Whether it lets the run pass."""
        return self.accepted or self.presentation.passes

    @property
    def word(self) -> str:
        """Its verdict in one word, as shown."""
        return "ACCEPTED" if self.accepted else self.verdict.upper()
