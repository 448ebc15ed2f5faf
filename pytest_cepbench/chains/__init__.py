"""Growing chains: steps in batches, each looked up in the store before a model is asked."""

from pytest_cepbench.chains.engine import Chain, Crew
from pytest_cepbench.chains.plan import ChainPlan
from pytest_cepbench.chains.runner import RoleRunner, Tally
from pytest_cepbench.chains.traces import Trace, play

__all__ = ["Chain", "ChainPlan", "Crew", "RoleRunner", "Tally", "Trace", "play"]
