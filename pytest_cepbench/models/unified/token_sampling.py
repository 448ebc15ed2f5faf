"""Choosing image tokens: each drawing by a random generator of its own, whatever batch it is in.

transformers draws the tokens of a batch from the global generator, so that a drawing would depend on
who else is in its batch. Adding Gumbel noise to the scores and taking the largest sum draws from the
same distribution (the Gumbel-max trick), and the noise of each drawing can be its own. Two checkpoints
then meet the same noise at the same step, so their drawings differ no more than the checkpoints do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class TokenSampler:
    """Picks the next image token of each drawing of a batch.

    settings: do_sample, and where that is true temperature, top_p and top_k (0 is no limit).
    seeds: one for each drawing. broken: which drawings met scores that are no numbers.
    """

    def __init__(self, settings: Mapping[str, Any], seeds: Sequence[int]) -> None:
        import torch

        self.broken = torch.zeros(len(seeds), dtype=torch.bool)
        self._generators = None
        self._warpers: list[Callable[..., torch.Tensor]] = []
        if settings["do_sample"]:
            self._generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
            self._warpers = _warpers(settings)

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        """The token of each drawing; scores: (drawings, tokens) logits."""
        import torch

        scores = scores.float()
        self.broken |= scores.isnan().any(dim=1).cpu()
        for warper in self._warpers:
            scores = warper(None, scores)
        if self._generators is not None:
            # The noise is drawn on the CPU, so that it is the same on every device.
            noise = [
                torch.empty(scores.shape[1]).exponential_(generator=generator)
                for generator in self._generators
            ]
            scores = scores - torch.stack(noise).log().to(scores.device)
        return scores.argmax(dim=1)


def _warpers(settings: Mapping[str, Any]) -> list[Callable[..., torch.Tensor]]:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Callable[..., torch.Tensor]] = []
    if settings["temperature"] != 1.0:
        warpers.append(TemperatureLogitsWarper(float(settings["temperature"])))
    if settings["top_k"]:
        warpers.append(TopKLogitsWarper(int(settings["top_k"])))
    if settings["top_p"] < 1.0:
        warpers.append(TopPLogitsWarper(float(settings["top_p"])))
    return warpers


def only(chosen: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Scores, of the shape and kind of `like`, that leave a sampler nothing but the chosen tokens."""
    import torch

    scores = torch.full_like(like, -torch.inf)
    return scores.scatter_(1, chosen[:, None], 0.0)
