"""How likely a loaded language model that reads images holds texts and numbers after prompts.

A prompt is read once, and its keys and values serve all continuations. Where a model's cache or
padding does not allow that, the plain way reads prompt and continuation together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_cepbench.models.protocols import FloatArray

if TYPE_CHECKING:
    import torch


class TokenRead(NamedTuple):
    """A token whose probability is wanted.

    row: the continuation that it could go on with.
    place: how many tokens of that stand before it.
    """

    row: int
    place: int
    token: int


class Scorer:
    """Makes numbers of how likely tokens are within continuations of prompts.

    rows: tokens of each continuation; one may be empty.
    reads: the tokens that are wanted.
    convert: makes (prompts, ...) numbers of (prompts, reads) log-probabilities.
    tolerances: how far two ways to the same number may differ, in single and in half precision.
    """

    def __init__(
        self,
        model: Any,
        rows: Sequence[Sequence[int]],
        reads: Sequence[TokenRead],
        convert: Callable[[FloatArray], FloatArray],
        tolerances: tuple[float, float],
    ) -> None:
        self.tolerances = tolerances
        self._model = model
        self._rows = rows
        self._reads = reads
        self._convert = convert
        self._cache_argument = cache_argument(model)
        self._keeps_logits = "logits_to_keep" in signature(model.forward).parameters

    @property
    def longest(self) -> int:
        """Tokens that a prompt needs room for behind it."""
        return max(read.place + 1 for read in self._reads)

    def score(self, inputs: Mapping[str, Any]) -> FloatArray:
        """(prompts, ...) numbers, each prompt read once.

        inputs: what the processor made of the prompts, padded on the left.
        """
        import torch

        _forget_positions(self._model)
        prompt = self._forward(inputs, use_cache=True, keep=1)
        first = prompt.logits[:, -1].float().log_softmax(-1)
        cache = getattr(prompt, self._cache_argument)
        prompts, count, length = len(first), len(self._rows), max(map(len, self._rows))
        if length == 0:
            return self._numbers(lambda read: first[:, read.token])
        mask = inputs["attention_mask"]
        tokens = torch.zeros((count, length), dtype=torch.long, device=mask.device)
        present = torch.zeros_like(tokens)
        for number, row in enumerate(self._rows):
            tokens[number, : len(row)] = torch.tensor(row, dtype=torch.long)
            present[number, : len(row)] = 1
        cache.batch_repeat_interleave(count)
        mask = mask.repeat_interleave(count, dim=0)
        following = {
            "input_ids": tokens.repeat(prompts, 1),
            "attention_mask": torch.cat([mask, present.repeat(prompts, 1)], dim=1),
            self._cache_argument: cache,
        }
        following |= self._positions(following)
        # (prompts, rows, longest row, vocabulary), of what follows each token.
        logits = self._forward(following, use_cache=True).logits
        behind = logits.float().log_softmax(-1).unflatten(0, (prompts, count))
        return self._numbers(
            lambda read: (
                behind[:, read.row, read.place - 1, read.token]
                if read.place
                else first[:, read.token]
            )
        )

    def score_whole(self, inputs: Mapping[str, Any]) -> FloatArray:
        """As `score`, prompt and continuation read together, once for each continuation."""
        by_row = []
        for row in self._rows:
            _forget_positions(self._model)
            kept = len(row) + 1
            whole = _append(inputs, row) if row else inputs
            logits = self._forward(whole, use_cache=False, keep=kept).logits
            by_row.append(logits[:, -kept:].float().log_softmax(-1))
        return self._numbers(lambda read: by_row[read.row][:, read.place, read.token])

    def _numbers(self, logarithm: Callable[[TokenRead], torch.Tensor]) -> FloatArray:
        import torch

        columns = [logarithm(read) for read in self._reads]
        return self._convert(torch.stack(columns, dim=1).double().cpu().numpy())

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


def cache_argument(model: Any) -> str:
    """What a model's forward pass calls the keys and values that it is given and returns.

    transformers before 5.24, and code that comes with a checkpoint, say `past_key_values`.
    """
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


def phrase_scorer(model: Any, phrases: Sequence[Sequence[int]]) -> Scorer:
    """Scores phrases by the mean log-probability of their tokens, (prompts, phrases).

    phrases: the tokens of each, at least one.
    """
    reads = [
        TokenRead(row, place, token)
        for row, phrase in enumerate(phrases)
        for place, token in enumerate(phrase)
    ]
    rows = np.array([read.row for read in reads])

    def means(logarithms: FloatArray) -> FloatArray:
        columns = [logarithms[:, rows == row].mean(axis=1) for row in range(len(phrases))]
        stacked: FloatArray = np.stack(columns, axis=1)
        return stacked

    return Scorer(model, [phrase[:-1] for phrase in phrases], reads, means, (1e-3, 0.2))


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


# -- first tokens of answers -----------------------------------------------------------------------


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


def token_scorer(model: Any, tokens: Sequence[int]) -> Scorer:
    """Probabilities of single tokens as the first behind a prompt, (prompts, tokens)."""
    reads = [TokenRead(0, 0, token) for token in tokens]
    return Scorer(model, [[]], reads, np.exp, (1e-4, 0.05))
