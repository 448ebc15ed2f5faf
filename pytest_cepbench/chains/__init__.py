"""Chains: artifacts of samples, each generation made by a model from the one before.

A `ChainPlan` says how a suite's chains are grown. `ChainModels` holds the `RoleRunner` of each
role: a runner looks for results in the store and calls its model, in batches, for what is missing.
A `ChainGroup` grows the chains of a shard of samples and repairs them where stored images were
lost; `look_ahead` says which steps are pending. `trace`, `vectors`, `boxes` give their features.

plan, growth: chain, growth, features.
calls: steps, role_runner, batching.
on a cluster: ray.
"""

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.chains.batching import CallCounts, total
from pytest_cepbench.chains.chain import Chain, ChainPlan, Link, load_link
from pytest_cepbench.chains.features import Trace
from pytest_cepbench.chains.growth import ChainModels
from pytest_cepbench.chains.role_runner import RoleRunner
from pytest_cepbench.chains.steps import Step

__all__ = [
    "CallCounts",
    "Chain",
    "ChainModels",
    "ChainPlan",
    "Link",
    "Modality",
    "RoleRunner",
    "Step",
    "Trace",
    "load_link",
    "total",
]
