"""Likelihood of fixed phrases after prompts, by a loaded language model that reads images.

A prompt is read once, and its keys and values serve all phrases. Where a model's cache or padding
does not allow that, `score_whole` reads prompt and phrase together.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_cepbench.models.protocols import FloatArray

if TYPE_CHECKING:
    import torch


class PhraseScorer:
    """Scores phrases that could follow a prompt.

    tokens: of each phrase, at least one.
    """

    def __init__(self, model: Any, tokenizer: Any, phrases: Sequence[str]) -> None:
        self._model = model
        self.tokens: list[list[int]] = [
            tokenizer(phrase, add_special_tokens=False)["input_ids"] for phrase in phrases
        ]
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    @property
    def longest(self) -> int:
        """Tokens of the longest phrase."""
        return max(map(len, self.tokens))

    def score(self, inputs: Mapping[str, Any]) -> FloatArray:
        """(prompts, phrases) mean log-probability of a phrase's tokens, each prompt read once.

        inputs: what the processor made of the prompts, padded on the left.
        """
        import torch

        count = len(self.tokens)
        _forget_positions(self._model)
        prompt = self._forward(inputs, use_cache=True, keep=1)
        first = prompt.logits[:, -1].float().log_softmax(-1)
        prompts, device = len(first), first.device
        tokens = torch.zeros((count, self.longest), dtype=torch.long, device=device)
        present = torch.zeros_like(tokens)
        for row, phrase in enumerate(self.tokens):
            tokens[row, : len(phrase)] = torch.tensor(phrase, device=device)
            present[row, : len(phrase)] = 1
        logarithms = first[:, tokens[:, 0]][:, :, None]
        if self.longest > 1:
            cache = prompt.past_key_values
            cache.batch_repeat_interleave(count)
            mask = inputs["attention_mask"].repeat_interleave(count, dim=0)
            following = {
                "input_ids": tokens[:, :-1].repeat(prompts, 1),
                "attention_mask": torch.cat([mask, present[:, :-1].repeat(prompts, 1)], dim=1),
                "past_key_values": cache,
            }
            following |= self._positions(following)
            logits = self._forward(following, use_cache=True).logits
            wanted = tokens[:, 1:].repeat(prompts, 1)
            rest = _pick(logits, wanted).view(prompts, count, -1)
            logarithms = torch.cat([logarithms, rest], dim=2)
        means: FloatArray = ((logarithms * present).sum(2) / present.sum(1)).double().cpu().numpy()
        return means

    def score_whole(self, inputs: Mapping[str, Any]) -> FloatArray:
        """As `score`, prompt and phrase read together, once for each phrase."""
        import torch

        means = []
        for phrase in self.tokens:
            _forget_positions(self._model)
            whole = _append(inputs, phrase)
            size = len(phrase) + 1
            logits = self._forward(whole, use_cache=False, keep=size).logits[:, -size:-1]
            means.append(_pick(logits, whole["input_ids"][:, -size + 1 :]).mean(1))
        scores: FloatArray = torch.stack(means, dim=1).double().cpu().numpy()
        return scores

    def _positions(self, following: Mapping[str, Any]) -> dict[str, Any]:
        """Positions of the phrases' tokens, where the model does not count them itself.

        Qwen2-VL and its kin give an image fewer positions than tokens, in three dimensions.
        """
        offsets = [module.rope_deltas for module in _with_offsets(self._model)]
        if not offsets:
            return {}
        tokens, mask = following["input_ids"], following["attention_mask"]
        counted = mask.cumsum(1)[:, -tokens.shape[1] :] - 1
        offset = offsets[0].repeat_interleave(len(tokens) // len(offsets[0]), dim=0)
        return {"position_ids": (counted + offset).expand(3, -1, -1)}

    def _forward(self, inputs: Mapping[str, Any], *, use_cache: bool, keep: int = 0) -> Any:
        """keep: the last positions whose logits are wanted; 0 for all.

        Of a long prompt with a large vocabulary all logits are gigabytes.
        """
        options = {"logits_to_keep": keep} if keep and self._keeps_logits else {}
        return self._model(**inputs, use_cache=use_cache, **options)


def _pick(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """(n, length) log-probabilities of tokens (n, length) by logits (n, length, vocabulary)."""
    return logits.float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0]


def _append(inputs: Mapping[str, Any], phrase: Sequence[int]) -> dict[str, Any]:
    """The inputs with a phrase after each prompt: it is text, and it is looked at."""
    import torch

    shape = inputs["input_ids"].shape
    added = {"input_ids": torch.tensor(phrase), "attention_mask": torch.ones(len(phrase))}
    whole = dict(inputs)
    for name, tensor in inputs.items():
        if torch.is_tensor(tensor) and tensor.shape == shape:
            more = added.get(name, torch.zeros(len(phrase))).to(tensor)
            whole[name] = torch.cat([tensor, more.expand(shape[0], -1)], dim=1)
    return whole


def _with_offsets(model: Any) -> list[Any]:
    """The modules that keep an offset of positions from the last prompt that had images."""
    return [m for m in model.modules() if getattr(m, "rope_deltas", None) is not None]


def _forget_positions(model: Any) -> None:
    for module in _with_offsets(model):
        module.rope_deltas = None
