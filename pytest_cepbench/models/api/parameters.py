"""The parameters of `openai:` specs: how a server is reached, and what it is asked for.

All that a request asks for enters keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pytest_cepbench.models.spec import (
    AboveZero,
    Bounds,
    Finite,
    Natural,
    NotNegative,
    Positive,
    given_params,
)
from pytest_cepbench.models.text_model.judge_prompts import DEFAULT_PROMPT, JUDGE_PROMPTS


@dataclass(frozen=True)
class RequestLimits:
    """How many requests a server gets and how long each is waited for; no answer depends on it.

    concurrency: most requests in flight.
    timeout: seconds that one request may take.
    retries: most repetitions of a request.
    patience: seconds that one answer may take in all, failed requests included.
    max_retry_wait: longest pause, in seconds, that the server did not ask for.
    """

    concurrency: Positive = 16
    timeout: AboveZero = 120.0
    retries: Natural = 8
    patience: NotNegative = 300.0
    max_retry_wait: NotNegative = 60.0


@dataclass(frozen=True)
class ServerParams(RequestLimits):
    """How a server is reached; none of these can change an answer, except by naming another model.

    base_url: where the API begins, mostly .../v1; None is OPENAI_BASE_URL, else the client's own.
    key_env: NAME of the environment variable that holds the key; None sends none.
    weights: folder of the checkpoint that is served. revision: name that the user changes with the
        weights. Exactly one of them is the model's identity.
    price_in, price_out: of a million tokens, in the user's currency.
    price_image: of one image.
    Raises ValueError for another kind of address, and for none or both of weights and revision.
    """

    base_url: str | None = None
    key_env: str | None = "OPENAI_API_KEY"
    weights: str | None = None
    revision: str | None = None
    price_in: NotNegative = 0.0
    price_out: NotNegative = 0.0
    price_image: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.base_url is not None and not re.match(r"https?://[^/]", self.base_url):
            raise ValueError(
                f"base_url must begin with http:// or https:// and a host, got {self.base_url!r}"
            )
        if (self.weights is None) == (self.revision is None):
            raise ValueError(
                "give weights=FOLDER (the checkpoint that is served) or revision=NAME (a name that "
                "you change with the weights; of a hosted model its date), one of them: a server "
                "can serve other weights under the same name, and answers of other weights must "
                "not be taken for its own"
            )


@dataclass(frozen=True)
class ChatParams:
    """Parameters of a request for a text; each can change the answer.

    temperature, top_p: as in the API; None sends nothing. 0 is greedy where the server honours it.
    max_tokens: longest answer; None leaves it to the server.
    system_prompt: goes first. Of a judge: in the place of its own. Of a writer: before that of the
        suite, in one message.
    max_pixels: larger images are made smaller, to at most so many pixels; None sends them whole.
    reasoning: strip (reasoning is no part of the answer) or keep; of judges and VQA models it never
        is.
    dtype: that the server was started with; it is not sent.
    """

    temperature: NotNegative | None = 0.0
    top_p: AboveZero | None = None
    max_tokens: Positive | None = 512
    system_prompt: str | None = None
    max_pixels: Positive | None = None
    reasoning: Annotated[str, Bounds(choices=("strip", "keep"))] = "strip"
    dtype: str | None = None

    @property
    def sampled(self) -> bool:
        """True where tokens are sampled, so that the seed matters; None leaves it to the server."""
        return self.temperature is None or self.temperature > 0

    @property
    def decisive(self) -> dict[str, Any]:
        """What enters the keys of results."""
        # How images and seeds are sent was once a choice, and is in all keys since.
        decisive = {**given_params(self, *vars(self)), "image_format": "png", "send_seed": "auto"}
        if self.reasoning == "strip":
            del decisive["reasoning"]  # as in keys from before there was the parameter
        return decisive


Stripped = Annotated[str, Bounds(choices=("strip",))]
"""Of roles whose verdict or answer never counts inside reasoning."""


@dataclass(frozen=True)
class JudgeParams(ChatParams):
    """Parameters of a judge's request.

    prompt: criteria, letters, opening-gpt or opening-intjudge: what it is shown, and how its
        verdicts are worded.
    """

    reasoning: Stripped = "strip"
    prompt: Annotated[str, Bounds(choices=tuple(JUDGE_PROMPTS))] = DEFAULT_PROMPT

    @property
    def decisive(self) -> dict[str, Any]:
        """With the version of the prompt."""
        return {**super().decisive, "prompt": JUDGE_PROMPTS[self.prompt].version}


@dataclass(frozen=True)
class VqaParams(ChatParams):
    """Parameters of a VQA model's request.

    max_tokens: longest answer: a word, and room for what some models write before it.
    logprobs: whether the server is asked for the probabilities of tokens; without them an answer is
        right or wrong.
    Raises ValueError for a temperature that is not 0.
    """

    max_tokens: Positive | None = 16
    reasoning: Stripped = "strip"
    logprobs: bool = True

    def __post_init__(self) -> None:
        if self.sampled:
            raise ValueError(
                "temperature of a VQA model must be 0, since its answers have no seed, got "
                f"{self.temperature}"
            )


@dataclass(frozen=True)
class WriterParams(ChatParams):
    """Parameters of a writer's request: those of `ChatParams`, with room for an answer of ten
    steps.
    """

    max_tokens: Positive | None = 2048


@dataclass(frozen=True)
class ImageParams:
    """Parameters of a generator's request; each can change the image.

    height, width: pixels; both or none.
    quality: as in the API.
    num_inference_steps, guidance_scale, negative_prompt: of vLLM-Omni, SGLang and others.
    dtype: that the server was started with; it is not sent.
    Raises ValueError for one of height and width alone.
    """

    height: Positive | None = None
    width: Positive | None = None
    quality: str | None = None
    num_inference_steps: Positive | None = None
    guidance_scale: Finite | None = None
    negative_prompt: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if (self.height is None) != (self.width is None):
            raise ValueError("height and width go together: give both")

    @property
    def sampled(self) -> bool:
        """Every image is drawn from a seed."""
        return True

    @property
    def decisive(self) -> dict[str, Any]:
        """What enters the keys of results; of the form and the seed as of `ChatParams`."""
        sent = {"response_format": "b64_json", "send_seed": "auto"}
        return {**given_params(self, *vars(self)), **sent}
