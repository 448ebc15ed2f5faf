"""VQA models over the API: a chat request for each question, its answer read softly or in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.reasoning import after_reasoning, only_reasoning
from pytest_cepbench.models.api.client import ApiRequest
from pytest_cepbench.models.api.endpoint import VqaParams
from pytest_cepbench.models.api.messages import ChatModel, likelihood_settings
from pytest_cepbench.models.api.responses import ApiResponse, read_content, read_likelihoods
from pytest_cepbench.models.protocols import Piece, Reply, Usage, VqaQuestion

_AROUND = " \t\r\n*_.,:;!()[]\"'`\u2581\u0120"
"""Characters around a word in a token or reply; the last two are tokenizers' marks of a space."""


class ApiVqa(ChatModel[VqaParams]):
    """A VQA model behind a server."""

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[Reply]:
        """One reply for each piece: a probability for each question, or the first failure.

        Raises ModelError where the server answers no request at all.
        """
        replies = self.client.send_all(
            [
                self._request(piece, question)
                for piece, own in zip(pieces, questions, strict=True)
                for question in own
            ]
        )
        ends = accumulate(len(own) for own in questions)
        return [
            _together(replies[end - len(own) : end])
            for own, end in zip(questions, ends, strict=True)
        ]

    def _request(self, piece: Piece, question: VqaQuestion) -> ApiRequest:
        params = self.params
        read = partial(read_answer, question=question, likelihoods=params.logprobs)
        settings = likelihood_settings(params, 0)
        pieces = [piece, question.text]
        return self.request(pieces, params.system_prompt, settings, read)


def read_answer(document: Any, question: VqaQuestion, *, likelihoods: bool) -> ApiResponse:
    """The probability of the answer that a question looks for, from a chat completion.

    likelihoods: whether it is the summed probability of the tokens that begin this answer, as the
    first of the reply that is a word; else 1 where the first words of the reply are the answer's,
    and 0 where not. Reasoning is no part of the reply. Tokens that the server does not list count
    0. Raises NoAnswerError as `read_completion`, NoLogprobsError where there are no probabilities.
    """
    response = read_content(document)
    if not isinstance(response.value, str):
        return response
    reply = after_reasoning(response.value)
    if not reply:
        failure = Failure("empty-text", "no answer at all")
        return replace(response, value=failure if reply == "" else only_reasoning(response.value))
    wanted = [_words(answer) for answer in question.answers]
    if not likelihoods:
        words = _words(reply)
        said = any(words[: len(answer)] == answer for answer in wanted)
        return replace(response, value=float(said))
    tokens = read_likelihoods(document)
    # Servers that give reasoning apart list its tokens too.
    ends = accumulate(len(token.token) for token in tokens)
    start = "".join(token.token for token in tokens).rfind(reply)
    begun = [
        t for t, end in zip(tokens, ends, strict=True) if end > start and t.token.strip(_AROUND)
    ]
    if not begun:
        return replace(response, value=Failure("empty-text", "no token of the answer is a word"))
    texts = {answer[0] for answer in wanted if answer}
    masses = [
        math.exp(logarithm)
        for text, logarithm in begun[0].logarithms.items()
        if text.strip(_AROUND).lower() in texts
    ]
    return replace(response, value=min(1.0, sum(masses)))


def _words(text: str) -> list[str]:
    return [word for part in text.lower().split() if (word := part.strip(_AROUND))]


def _together(replies: Sequence[Reply]) -> Reply:
    """The replies about one piece as one: their probabilities, or the first failure."""
    usage = sum((reply.usage for reply in replies), Usage())
    provenance = {name: value for reply in replies for name, value in reply.provenance.items()}
    remarks = tuple(dict.fromkeys(remark for reply in replies for remark in reply.remarks))
    failed = [reply for reply in replies if isinstance(reply.value, Failure)]
    if failed:
        # One that may pass is asked again with the others by the next run.
        chosen = next((reply for reply in failed if reply.passing), failed[0])
        return Reply(chosen.value, usage, provenance, chosen.passing, remarks)
    return Reply([reply.value for reply in replies], usage, provenance, remarks=remarks)
