"""Growing chains: steps in batches, each looked up in the store before a model is asked."""

from pytest_cepbench.chains.batching import CallCounts, total
from pytest_cepbench.chains.caption_cleanup import CaptionRules
from pytest_cepbench.chains.chain import Chain, Link, load_link, naming_damage
from pytest_cepbench.chains.chain_group import ChainGroup, grow_together
from pytest_cepbench.chains.chain_plan import ChainPlan, Modality
from pytest_cepbench.chains.features import Trace, boxes, store_vectors, trace, vectors
from pytest_cepbench.chains.growth import ChainModels, start_chains
from pytest_cepbench.chains.pending import PendingChain, look_ahead
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step

__all__ = [
    "CallCounts",
    "CaptionRules",
    "Chain",
    "ChainGroup",
    "ChainModels",
    "ChainPlan",
    "Link",
    "Modality",
    "PendingChain",
    "RoleRunner",
    "Step",
    "Trace",
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
