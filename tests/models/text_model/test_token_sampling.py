"""Choosing image tokens: the distribution of sampling, by generators of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.models.text_model.drawing import TokenSampler

pytestmark = pytest.mark.models

DRAWINGS = 4000


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.5, 0, 1.0), (1.0, 2, 1.0), (1.0, 0, 0.6)]
)
def test_tokens_come_as_often_as_their_probability(
    temperature: float, top_k: int, top_p: float
) -> None:
    """Over many seeds, the shares are those of a softmax of the scores that are left."""
    import torch

    scores = torch.tensor([0.0, 1.0, 2.0, 0.5, -3.0])
    weights = np.exp(scores.numpy() / temperature)
    left = np.argsort(-weights)
    kept = top_k or int(
        np.searchsorted(np.cumsum(np.sort(weights / weights.sum())[::-1]), top_p) + 1
    )
    weights[left[kept:]] = 0.0
    settings = {"do_sample": True, "temperature": temperature, "top_k": top_k, "top_p": top_p}

    choice = TokenSampler(settings, range(DRAWINGS))
    chosen = choice(scores.expand(DRAWINGS, -1)).numpy()

    shares = np.bincount(chosen, minlength=5) / DRAWINGS
    expected = weights / weights.sum()
    spread = np.sqrt(expected * (1 - expected) / DRAWINGS)
    assert (np.abs(shares - expected) <= 4 * spread).all()


def test_steps_of_a_drawing_differ_and_repeat() -> None:
    """The same seed meets the same noise step by step, and not the same at every step."""
    import torch

    settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    scores = torch.zeros(1, 1000)

    first, again = (
        [int(choice(scores)) for _ in range(8)]
        for choice in (TokenSampler(settings, [5]), TokenSampler(settings, [5]))
    )

    assert first == again
    assert len(set(first)) > 4
