"""Judges over the API: battles become chat requests, and verdicts are read from the answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.endpoint import TOP_LOGPROBS, JudgeParams
from pytest_cepbench.models.api.messages import (
    chat_settings,
    image_part,
    make_messages,
    text_part,
)
from pytest_cepbench.models.api.responses import (
    ApiResponse,
    TokenLikelihoods,
    read_chat,
    read_likelihoods,
)
from pytest_cepbench.models.judges.judge_prompt import JUDGE_PROMPTS, JudgePrompt
from pytest_cepbench.models.judges.verdict_probabilities import (
    PROBABILITIES,
    VerdictProbabilities,
)
from pytest_cepbench.models.protocols import Battle, Reply

_AROUND = " \t\r\n*_.:()[]\"'`\u2581\u0120"
"""Characters around a letter in a token; the last two are tokenizers' marks of a space."""


@dataclass(frozen=True)
class ApiJudge:
    """A judge behind a server.

    client: of the server.
    model: its name there.
    params: of the spec.
    """

    client: ApiClient
    model: str
    params: JudgeParams

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Reply]:
        """One reply for each battle: its winner, or the failure it amounts to.

        Raises ModelError where the server answers no request at all.
        """
        return self.client.send_all(
            [self._request(battle, seed) for battle, seed in zip(battles, seeds, strict=True)]
        )

    def _request(self, battle: Battle, seed: int) -> ApiRequest:
        params = self.params
        prompt = JUDGE_PROMPTS[params.prompt]

        def body() -> dict[str, Any]:
            pieces = prompt.show(battle, params.max_pixels)
            content = [
                text_part(piece) if isinstance(piece, str) else image_part(piece, params)
                for piece in pieces
            ]
            own = params.system_prompt
            system = prompt.system if own is None else own
            return {"model": self.model, "messages": make_messages(content, system)}

        settings = dict(chat_settings(params, seed))
        if params.logprobs:
            settings["logprobs"] = True
            settings["top_logprobs"] = params.top_logprobs or TOP_LOGPROBS
        read = partial(read_verdict, prompt=prompt, likelihoods=params.logprobs)
        return ApiRequest("chat", body, read, settings, required=("logprobs", "top_logprobs"))


def read_verdict(document: Any, prompt: JudgePrompt, *, likelihoods: bool) -> ApiResponse:
    """The verdict of a chat completion.

    likelihoods: whether it is the likeliest of the prompt's letters, with the probabilities of all
    under `PROBABILITIES`. Those of tokens that the server does not list are 0, and the others sum
    to 1 again. Raises NoAnswerError where there is no message, NoLogprobsError where a verdict has
    no probabilities.
    """
    response = read_chat(document)
    if not isinstance(response.value, str):
        return response
    winner = prompt.read(response.value)
    if not likelihoods or isinstance(winner, Failure):
        return replace(response, value=winner)
    probabilities = _probabilities(read_likelihoods(document), prompt, winner)
    if isinstance(probabilities, Failure):
        return replace(response, value=probabilities)
    provenance = {PROBABILITIES: probabilities.to_text()}
    return replace(response, value=probabilities.winner, provenance=provenance)


def _probabilities(
    tokens: Sequence[TokenLikelihoods], prompt: JudgePrompt, winner: Winner
) -> VerdictProbabilities | Failure:
    """Of the verdicts, by the token that is the answer's letter."""
    letter = prompt.phrases[winner]
    # The last one: what stands before it may be reasoning.
    answers = [token for token in tokens if _letter(token.token) == letter]
    if not answers:
        return Failure("no-verdict", f"no token of the answer is the letter {letter}")
    masses = dict.fromkeys(prompt.phrases.values(), 0.0)
    for text, logarithm in answers[-1].logarithms.items():
        if _letter(text) in masses:  # "A" and " A" are two tokens
            masses[_letter(text)] += math.exp(logarithm)
    total = sum(masses.values())
    if not total:
        return Failure("no-verdict", f"the letter {letter} has no probability")
    a, tie_a, tie_b, b = (masses[prompt.phrases[verdict]] / total for verdict in WINNERS)
    return VerdictProbabilities((a, tie_a, tie_b, b))


def _letter(token: str) -> str:
    return token.strip(_AROUND)
