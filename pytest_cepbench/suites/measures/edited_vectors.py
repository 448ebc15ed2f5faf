"""Pairs of answers compared by an encoder: the edited answer with that to the edited start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_text
from pytest_cepbench.chains import Chain, ChainGroup, ChainPlan, RoleRunner, Step
from pytest_cepbench.datasets.edits import PIXEL_EDITS, UNSEEN_EDITS, swap_sides
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.metrics.constancy import SAME_VECTORS, spread_of_directions
from pytest_cepbench.metrics.similarity import chance_similarities, cosine_to_start
from pytest_cepbench.store import Store, Vector
from pytest_cepbench.suites.chain_data import ChainData
from pytest_cepbench.suites.measures.edited_pairs import EditedPair, PairScores, load_answer
from pytest_cepbench.suites.measures.sanity_checks import one_vector

VECTOR_EDITS = tuple(PIXEL_EDITS)
"""Edits that can be made in any answer: in a text by rule, in an image by its pixels."""

Encoded = Vector | Failure | None
"""What an encoder made of an answer; None where there is no answer."""


@dataclass(frozen=True)
class VectorComparison:
    """Compares answers by the cosine of an encoder's vectors; see `Comparison`.

    at: the generation of the answers.
    encoder: the role that encodes them.
    """

    at: int
    encoder: str
    span: float = 2.0

    @property
    def reader(self) -> str | None:
        """The encoder."""
        return self.encoder

    @property
    def identity(self) -> str:
        """The formula, and the role that compares."""
        return f"cosine/1 by {self.encoder}"

    def read(self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData) -> None:
        """The vectors of the answers, mirrored where they are of a start that was not edited."""
        for mirrored in (False, True):
            self._vectors(plan, samples, chain_data, mirrored=mirrored)

    def score(
        self, plan: ChainPlan, edit: str, pairs: Sequence[EditedPair], chain_data: ChainData
    ) -> PairScores:
        """The cosine of each pair; 0 where a vector is missing.

        Raises MeasurementError where the encoder gives one vector for answers that differ.
        """
        mirrored = edit not in UNSEEN_EDITS
        starts = [pair.before.sample for pair in pairs]
        expected = self._vectors(plan, starts, chain_data, mirrored=mirrored)
        edited = [pair.after.sample for pair in pairs]
        given = self._vectors(plan, edited, chain_data, mirrored=False)
        failures = {
            name: vector
            for vectors in (expected, given)
            for name, vector in vectors.items()
            if isinstance(vector, Failure)
        }
        width = next((len(v) for v in given.values() if isinstance(v, np.ndarray)), 1)
        first = np.zeros((len(pairs), width), dtype=np.float32)
        second = np.zeros((len(pairs), 1, width), dtype=np.float32)
        whole = []
        for row, pair in enumerate(pairs):
            before, after = expected[pair.before.sample.id], given[pair.name]
            if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
                first[row], second[row, 0] = before, after
                whole.append(row)
        self._refuse_one_vector(plan, [pairs[row] for row in whole], second[whole, 0], chain_data)
        cosines = np.zeros(len(pairs))
        if whole:
            cosines[whole] = cosine_to_start(first[whole], second[whole])[:, 0]
        units = [pair.after.sample.unit for pair in pairs]
        homes = [pair.after.sample.categories[0] for pair in pairs]
        chance = chance_similarities(first, second, units, homes)
        names = [pair.name for pair in pairs]
        return PairScores(
            values=dict(zip(names, cosines.tolist(), strict=True)),
            floor=None if chance is None else float(chance.mean()),
            failures=failures,
            note=_note(edit, self._unnamed(pairs) if mirrored else 0, len(pairs)),
        )

    def _unnamed(self, pairs: Sequence[EditedPair]) -> int:
        """How many texts stay as they are when their sides are exchanged."""
        texts = [p.before.links[self.at].text for p in pairs if p.before.has(self.at)]
        return sum(text is not None and swap_sides(text) == text for text in texts)

    def _refuse_one_vector(
        self,
        plan: ChainPlan,
        pairs: Sequence[EditedPair],
        vectors: np.ndarray,
        chain_data: ChainData,
    ) -> None:
        by_digest = {
            pair.after.links[self.at].digest: vector
            for pair, vector in zip(pairs, vectors, strict=True)
        }
        if len(by_digest) < 2:
            return
        if spread_of_directions(np.stack(list(by_digest.values()))) <= SAME_VECTORS:
            spec = chain_data.runner(self.encoder).bound.spec
            raise MeasurementError(one_vector(spec, len(by_digest), plan.modality(self.at)))

    def _vectors(
        self, plan: ChainPlan, samples: Sequence[Sample], chain_data: ChainData, *, mirrored: bool
    ) -> dict[str, Encoded]:
        """The vector of each sample's answer, by sample id, or of the mirrored answer."""

        def read(group: ChainGroup) -> dict[str, Encoded]:
            runner = chain_data.runner(self.encoder)
            return group.read(
                lambda chains: self._encode(chains, runner, chain_data.store, mirrored=mirrored)
            )

        key = ("vectors of edited answers", self.at, self.encoder, mirrored)
        return chain_data.per_sample(key, plan.start, samples, read)

    def _encode(
        self, chains: Sequence[Chain], runner: RoleRunner, store: Store, *, mirrored: bool
    ) -> dict[str, Encoded]:
        # The mirrored answer to an edited start is compared with nothing.
        able = [c for c in chains if c.has(self.at) and not (mirrored and c.sample.edit)]
        encoded: dict[str, Encoded] = {chain.sample.id: None for chain in chains}
        if not able:
            return encoded
        kind = able[0].links[self.at].kind
        steps = [_step(load_answer(c, self.at, store), runner, mirrored=mirrored) for c in able]
        for chain, result in zip(able, runner.ask(f"encode_{kind}s", steps), strict=True):
            assert isinstance(result, np.ndarray | Failure)
            encoded[chain.sample.id] = result
        return encoded


def _step(answer: str | Image.Image, runner: RoleRunner, *, mirrored: bool) -> Step:
    """The step that encodes an answer, or the mirrored answer."""
    load: Callable[[], object]
    if isinstance(answer, str):
        text = swap_sides(answer) if mirrored else answer
        kind, digest, load = "text", digest_text(text), lambda: text
    else:
        image = ImageArtifact.from_pil(answer)
        if mirrored:
            image = ImageArtifact(PIXEL_EDITS["mirror"](image.pixels))
        kind, digest, load = "image", image.digest, image.to_pil
    return Step(runner.key("", 0, kind, digest), 0, load)


def _note(edit: str, unnamed: int, pairs: int) -> str:
    if not unnamed:
        return ""
    return f"{edit}: {unnamed} of {pairs} answers name no side, and are expected to stay the same"
