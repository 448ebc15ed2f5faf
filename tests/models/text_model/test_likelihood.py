"""Distributions over whole numbers: those of the plain model, however digits are tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.models.text_model.likelihood import cache_argument, number_scorer
from tests.tiny.common import SPECIAL

pytestmark = pytest.mark.models

LEADS = ("Correctness: ", "Richness: ")

WORDS = ["Correctness:", "Richness:", "say", "it", *map(str, range(10))]


def tokenizer_of(kind: str) -> Any:
    """Digits that are tokens each, numbers that are tokens, or a space that is a token too."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, *WORDS, *(["10"] if kind == "numbers" else []), " "]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    parts: list[Any] = [] if kind == "spaces" else [pre_tokenizers.WhitespaceSplit()]
    if kind == "spaces":
        parts.append(pre_tokenizers.Split(Regex(" "), "isolated"))
    if kind != "numbers":
        parts.append(pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", padding_side="left"
    )


def model_of(tokenizer: Any) -> Any:
    """A tiny Llama with weights that make a difference."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    return model


def plain_distribution(model: Any, tokenizer: Any, prompt: str, lead: str) -> list[float]:
    """Probabilities of 0 to 10, by one forward pass for each token that could follow."""
    import torch

    def follows(text: str, next_token: int) -> float:
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        ids = ids + tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            return float(model(torch.tensor([ids])).logits[0, -1].softmax(-1)[next_token])

    vocabulary = tokenizer.get_vocab()
    start = lead if " " in tokenizer.tokenize(lead) else lead.strip()
    chances = [follows(start, vocabulary[str(number)]) for number in range(10)]
    if "10" in vocabulary:
        chances.append(follows(start, vocabulary["10"]))
    else:
        zero_behind = follows(f"{lead}1", vocabulary["0"])
        chances.append(chances[1] * zero_behind)
        chances[1] *= 1 - zero_behind
    return [chance / sum(chances) for chance in chances]


@pytest.mark.parametrize("kind", ["digits", "numbers", "spaces"])
def test_each_number_has_the_probability_of_the_plain_model(kind: str) -> None:
    """A 1 with a 0 behind it is a 10 and no 1; both ways of reading and both prompts agree."""
    import torch

    tokenizer = tokenizer_of(kind)
    model = model_of(tokenizer)
    scorer = number_scorer(model, tokenizer, LEADS, 11)
    prompts = ["say it", "say it it say it"]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)

    with torch.inference_mode():
        read = scorer.score(inputs)
        whole = [
            scorer.score_whole({k: v for k, v in single.items() if k != "token_type_ids"})
            for single in (tokenizer([prompt], return_tensors="pt") for prompt in prompts)
        ]

    plain = [[plain_distribution(model, tokenizer, p, lead) for lead in LEADS] for p in prompts]
    assert read.shape == (2, 2, 11)
    assert read == pytest.approx(np.array(plain), abs=1e-5)
    assert np.concatenate(whole) == pytest.approx(np.array(plain), abs=1e-5)
    assert read[:, :, 10].min() > 0.001
    assert abs(read[0] - read[1]).max() > 0.001


def test_a_model_may_call_its_cache_as_older_releases_do() -> None:
    """Code that comes with a checkpoint still says `past_key_values`, and scores alike."""
    import torch

    class Older(torch.nn.Module):  # type: ignore[misc] # torch has no types here
        """The same model behind the old name."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, past_key_values: Any = None, **inputs: Any) -> Any:
            output = self.model(**{cache_argument(self.model): past_key_values}, **inputs)
            cache = getattr(output, cache_argument(self.model))
            return SimpleNamespace(logits=output.logits, past_key_values=cache)

    tokenizer = tokenizer_of("digits")
    model = model_of(tokenizer)
    inputs = tokenizer(["say it"], return_tensors="pt")
    inputs.pop("token_type_ids", None)

    with torch.inference_mode():
        scores = number_scorer(model, tokenizer, LEADS, 11).score(inputs)
        scores_of_older = number_scorer(Older(model), tokenizer, LEADS, 11).score(inputs)

    assert cache_argument(Older(model)) == "past_key_values"
    assert scores_of_older == pytest.approx(scores, abs=1e-6)


def test_numbers_that_are_the_same_tokens_are_refused() -> None:
    """A vocabulary without digits would find every score equally likely."""
    limited, digits = tokenizer_of("numbers"), tokenizer_of("digits")
    with pytest.raises(ValueError, match="same tokens for several of the numbers 0 to 99"):
        number_scorer(model_of(limited), limited, LEADS, 100)
    assert number_scorer(model_of(digits), digits, LEADS, 100).longest == 3
