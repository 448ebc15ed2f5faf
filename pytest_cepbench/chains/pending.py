"""What chains still take: the steps that the store lacks, told without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains.chain import Chain, Link
from pytest_cepbench.chains.chain_plan import ChainPlan, derive_seed
from pytest_cepbench.chains.growth import ChainModels, peek
from pytest_cepbench.chains.replay import replay_chains
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.datasets.replay import Replay
from pytest_cepbench.datasets.sample import Sample


@dataclass(frozen=True)
class PendingChain:
    """A chain as far as it is there, and as it will go on where nothing fails.

    digests: of its artifacts, by generation; None for one that is not recorded. What is yet to be
    made has a name in place of a digest, the same for steps that are sure to make the same.
    there: steps whose results are in the store. ahead: player and key of the others.
    """

    chain: Chain
    digests: tuple[str | None, ...]
    there: tuple[tuple[RoleRunner, str], ...]
    ahead: tuple[tuple[RoleRunner, str], ...]


def look_ahead(
    plan: ChainPlan, samples: Sequence[Sample], crew: ChainModels, replay: Replay | None
) -> list[PendingChain]:
    """The outlook of every sample's chain. Raises as `peek` and `replay_chains`."""
    if replay is not None:
        chains = replay_chains(plan, samples, replay, crew.store)
        return [PendingChain(chain, _digests(chain), (), ()) for chain in chains]
    return [_outlook(plan, chain, crew) for chain in peek(plan, samples, crew)]


def _outlook(plan: ChainPlan, chain: Chain, crew: ChainModels) -> PendingChain:
    digests = list(_digests(chain))
    made = enumerate(chain.links[1:], start=1)
    there = [(crew.player(plan, at), link.key) for at, link in made if link.key is not None]
    ahead = []
    last = 0 if chain.failure is not None else plan.generations
    for generation in range(len(chain.links), last + 1):
        player = crew.player(plan, generation)
        key = _key(plan, chain, generation, player, digests[-1] or "")
        ahead.append((player, key))
        digests.append(f"made by {key}")
    return PendingChain(chain, tuple(digests), tuple(there), tuple(ahead))


def _digests(chain: Chain) -> tuple[str | None, ...]:
    return tuple(link.digest if link.recorded else None for link in chain.links)


def _key(plan: ChainPlan, chain: Chain, generation: int, player: RoleRunner, before: str) -> str:
    """Of the step that makes a generation; no step ever has it where what it starts from is not made."""
    prompt = plan.describe if plan.describes(generation) else plan.generate
    seed = derive_seed(plan.seed, chain.sample.id, generation)
    if generation == len(chain.links):
        before = _as_asked(plan, chain.links[-1])
    return player.key(prompt, seed, plan.modality(generation - 1), before)


def _as_asked(plan: ChainPlan, link: Link) -> str:
    return link.digest if link.text is None else digest_text(plan.wording.apply(link.text))
