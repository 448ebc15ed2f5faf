"""How likely a loaded language model that reads images holds texts and numbers after prompts.

A prompt is read once, and its keys and values serve all continuations. Where a model's cache or
padding does not allow that, the plain way reads prompt and continuation together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cepbench.models.protocols import FloatArray

if TYPE_CHECKING:
    import torch


class Scorer:
    """How likely phrases are behind prompts: the mean log-probability of each phrase's tokens.

    phrases: the tokens of each, at least one.
    probabilities: whether probabilities are given, as of phrases of one token.
    longest: tokens that a prompt needs room for behind it.
    tolerances: how far two ways to the same number may differ, in single and in half precision.
    """

    def __init__(
        self, model: Any, phrases: Sequence[Sequence[int]], *, probabilities: bool = False
    ) -> None:
        self._model = model
        self._phrases = phrases
        self._probabilities = probabilities
        self.longest = max(map(len, phrases))
        self.tolerances = (1e-4, 0.05) if probabilities else (1e-3, 0.2)
        # What is read behind a prompt: phrases without their last token, equal ones once.
        self._rows = list(dict.fromkeys(tuple(phrase[:-1]) for phrase in phrases))
        self._cache_argument = cache_argument(model)
        self._keeps_logits = "logits_to_keep" in signature(model.forward).parameters

    def score(self, inputs: Mapping[str, Any]) -> FloatArray:
        """(prompts, phrases) numbers, each prompt read once.

        inputs: what the processor made of the prompts, padded on the left.
        """
        import torch

        _forget_positions(self._model)
        prompt = self._forward(inputs, use_cache=True, keep=1)
        first = prompt.logits[:, -1].float().log_softmax(-1)
        cache = getattr(prompt, self._cache_argument)
        prompts, count, length = len(first), len(self._rows), max(map(len, self._rows))
        if length == 0:
            return self._numbers(lambda _row, _place, token: first[:, token])
        mask = inputs["attention_mask"]
        tokens = torch.zeros((count, length), dtype=torch.long, device=mask.device)
        present = torch.zeros_like(tokens)
        for number, row in enumerate(self._rows):
            tokens[number, : len(row)] = torch.tensor(row, dtype=torch.long)
            present[number, : len(row)] = 1
        cache.batch_repeat_interleave(count)
        tokens = tokens.repeat(prompts, 1)
        mask = torch.cat([mask.repeat_interleave(count, dim=0), present.repeat(prompts, 1)], dim=1)
        following = {"input_ids": tokens, "attention_mask": mask, self._cache_argument: cache}
        # Qwen2-VL and its kin give an image fewer positions than tokens, in three dimensions, and
        # do not count those behind it themselves.
        if offsets := [module.rope_deltas for module in _with_offsets(self._model)]:
            counted = mask.cumsum(1)[:, -length:] - 1
            offset = offsets[0].repeat_interleave(len(tokens) // len(offsets[0]), dim=0)
            following["position_ids"] = (counted + offset).expand(3, -1, -1)
        # (prompts, rows, longest row, vocabulary), of what follows each token.
        logits = self._forward(following, use_cache=True).logits
        behind = logits.float().log_softmax(-1).unflatten(0, (prompts, count))
        return self._numbers(
            lambda row, place, token: behind[:, row, place - 1, token] if place else first[:, token]
        )

    def score_whole(self, inputs: Mapping[str, Any]) -> FloatArray:
        """As `score`, prompt and phrase read together, once for each of different beginnings."""
        import torch

        shape = inputs["input_ids"].shape
        by_row = []
        for row in self._rows:
            _forget_positions(self._model)
            whole, kept = dict(inputs), len(row) + 1
            # Of what the processor made for each token: a phrase is text, and it is looked at.
            added = {"input_ids": torch.tensor(row), "attention_mask": torch.ones(len(row))}
            for name, tensor in inputs.items():
                if row and torch.is_tensor(tensor) and tensor.shape == shape:
                    more = added.get(name, torch.zeros(len(row))).to(tensor)
                    whole[name] = torch.cat([tensor, more.expand(shape[0], -1)], dim=1)
            logits = self._forward(whole, use_cache=False, keep=kept).logits
            by_row.append(logits[:, -kept:].float().log_softmax(-1))
        return self._numbers(lambda row, place, token: by_row[row][:, place, token])

    def _numbers(self, logarithm: Callable[[int, int, int], torch.Tensor]) -> FloatArray:
        """logarithm: of a token, given its row and how many tokens stand before it there."""
        import torch

        columns = []
        for phrase in self._phrases:
            row = self._rows.index(tuple(phrase[:-1]))
            own = [logarithm(row, place, token) for place, token in enumerate(phrase)]
            columns.append(torch.stack(own).double().mean(dim=0))
        means: FloatArray = torch.stack(columns, dim=1).cpu().numpy()
        return np.exp(means) if self._probabilities else means

    def _forward(self, inputs: Mapping[str, Any], *, use_cache: bool, keep: int = 0) -> Any:
        """keep: the last positions whose logits are wanted; 0 for all.

        Of a long prompt with a large vocabulary all logits are gigabytes.
        """
        options = {"logits_to_keep": keep} if keep and self._keeps_logits else {}
        return self._model(**inputs, use_cache=use_cache, **options)


def cache_argument(model: Any) -> str:
    """What a model's forward pass calls the keys and values that it is given and returns.

    transformers before 5.24, and code that comes with a checkpoint, say `past_key_values`.
    """
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


def _with_offsets(model: Any) -> list[Any]:
    """The modules that keep an offset of positions from the last prompt that had images."""
    return [m for m in model.modules() if getattr(m, "rope_deltas", None) is not None]


def _forget_positions(model: Any) -> None:
    for module in _with_offsets(model):
        module.rope_deltas = None


def first_tokens(tokenizer: Any, answers: Iterable[str]) -> frozenset[int]:
    """The first token of each spelling of an answer, with a space before it and without.

    Left out are tokens that are nothing but space, with which every other answer could begin as
    well, and the one for unknown words. An answer of several tokens has the probability of its
    first: "ten" and "tennis" may share it.
    Source: the released code of GenEval 2, which counts a token twice where two spellings begin
    with it, and tokens of space.
    """
    tokens = set()
    for answer in answers:
        for text in (answer, f" {answer}"):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if ids and tokenizer.decode(ids[:1]).strip():
                tokens.add(int(ids[0]))
    return frozenset(tokens - {tokenizer.unk_token_id})
