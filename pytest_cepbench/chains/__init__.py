"""Growing chains: steps in batches, each looked up in the store before a model is asked."""

from pytest_cepbench.chains.calling import Tally, total
from pytest_cepbench.chains.chain import (
    Chain,
    DamagedChainsError,
    Link,
    load_link,
    naming_damage,
)
from pytest_cepbench.chains.engine import Crew, start_chains
from pytest_cepbench.chains.game import Game, grow_together
from pytest_cepbench.chains.outlook import Outlook, look_ahead
from pytest_cepbench.chains.plan import ChainPlan, Modality
from pytest_cepbench.chains.reading import Trace, boxes, store_vectors, trace, vectors
from pytest_cepbench.chains.runner import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.chains.wording import Wording

__all__ = [
    "Chain",
    "ChainPlan",
    "Crew",
    "DamagedChainsError",
    "Game",
    "Link",
    "Modality",
    "Outlook",
    "RoleRunner",
    "Step",
    "Tally",
    "Trace",
    "Wording",
    "boxes",
    "grow_together",
    "load_link",
    "look_ahead",
    "naming_damage",
    "start_chains",
    "store_vectors",
    "total",
    "trace",
    "vectors",
]
