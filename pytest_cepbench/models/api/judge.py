"""Judges over the API: battles and single answers become chat requests; verdicts and scores are
read from the replies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.criteria import CriteriaScores
from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.artifacts.reasoning import without_reasoning
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.api.client import ApiRequest
from pytest_cepbench.models.api.endpoint import JudgeParams
from pytest_cepbench.models.api.messages import (
    ChatModel,
    chat_settings,
    encodable,
    likelihood_settings,
    text_part,
)
from pytest_cepbench.models.api.responses import (
    ApiResponse,
    TokenLikelihoods,
    read_content,
    read_likelihoods,
)
from pytest_cepbench.models.judges.judge_prompt import JUDGE_PROMPTS, JudgePrompt
from pytest_cepbench.models.judges.score_prompt import (
    JSON_CLOSING,
    REPAIR,
    SCORE_SCHEMA,
    SCORE_TOKENS,
    score_system,
)
from pytest_cepbench.models.judges.score_text import problem_of, read_scores
from pytest_cepbench.models.judges.verdict_probabilities import (
    PROBABILITIES,
    VerdictProbabilities,
)
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle, Reply

_LONGEST_QUOTE = 4000
"""Characters of an unreadable reply that go back to the judge."""

_LONGEST_PROBLEM = 300

_AROUND = " \t\r\n*_.:()[]\"'`\u2581\u0120"
"""Characters around a letter in a token; the last two are tokenizers' marks of a space."""


class ApiJudge(ChatModel[JudgeParams]):
    """A judge behind a server."""

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
        system = prompt.system if params.system_prompt is None else params.system_prompt
        read = partial(read_verdict, prompt=prompt, likelihoods=params.logprobs)
        settings = likelihood_settings(params, seed)
        return self.request(prompt.show(battle), system, settings, read)

    def score_answers(
        self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]
    ) -> list[Reply]:
        """One reply for each answer: its `CriteriaScores`, or the failure it amounts to.

        A reply that cannot be read, or lacks scores, is asked about once more. Raises ModelError
        where the server answers no request at all.
        """
        asked = list(zip(answers, seeds, strict=True))
        texts = self.client.send_all([self._score_request(*pair) for pair in asked])
        replies = [_with_scores(reply) for reply in texts]
        problems = {
            number: problem_of(replies[number].value)
            for number, reply in enumerate(texts)
            if isinstance(reply.value, str)
        }
        broken = [number for number, problem in problems.items() if problem]
        repairs = self._repair(
            [
                self._score_request(*asked[number], _repair_turns(texts[number], problems[number]))
                for number in broken
            ]
        )
        for number, repair in zip(broken, repairs, strict=True):
            replies[number] = _repaired(replies[number], repair)
        return replies

    def _repair(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        try:
            return self.client.send_all(requests)
        except ModelError as error:
            # The first replies were paid for; a server that is gone fails the next batch as well.
            failure = Failure("unanswered", str(error))
            return [Reply(failure, passing=True) for _ in requests]

    def _score_request(
        self,
        answered: AnsweredQuestion,
        seed: int,
        turns: Sequence[Mapping[str, Any]] = (),
    ) -> ApiRequest:
        """turns: of the conversation, after the question for scores."""
        params = self.params
        prompt = JUDGE_PROMPTS[params.prompt]
        settings = dict(chat_settings(params, seed)) | {"response_format": _RESPONSE_FORMAT}
        if params.max_tokens is not None:
            settings["max_tokens"] = max(params.max_tokens, SCORE_TOKENS)
        return self.request(
            prompt.show_answer(answered, JSON_CLOSING),
            score_system(numbered=prompt.numbered),
            settings,
            read_content,
            turns=turns,
        )


_RESPONSE_FORMAT: Mapping[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "criteria_scores", "strict": True, "schema": SCORE_SCHEMA},
}
"""Structured output. A server that does not know it is asked without, and the text says it all."""


def _repair_turns(reply: Reply, problem: str) -> list[Mapping[str, Any]]:
    """A reply that could not be used, and the question for another."""
    question = REPAIR.format(problem=problem[:_LONGEST_PROBLEM])
    quoted = (
        encodable(without_reasoning(reply.value)[:_LONGEST_QUOTE]) or "(nothing)"
    )  # some servers refuse no text
    return [
        {"role": "assistant", "content": quoted},
        {"role": "user", "content": [text_part(question)]},
    ]


def _with_scores(reply: Reply) -> Reply:
    """A reply with the scores in its text; a failure as it is."""
    if isinstance(reply.value, str):
        return replace(reply, value=read_scores(reply.value))
    return reply


def _repaired(first: Reply, second: Reply) -> Reply:
    """Both replies as one: what the first gave counts, and the second fills what it lacks.

    Without an answer to the second it is a failure that may pass: another run asks for both.
    """
    value, more = first.value, _with_scores(second).value
    unanswered = isinstance(more, Failure) and more.kind == "unanswered"
    if unanswered or (isinstance(value, Failure) and isinstance(more, CriteriaScores)):
        value = more
    elif isinstance(more, CriteriaScores):
        value = value.filled_from(more)
    return Reply(
        value,
        first.usage + second.usage,
        {**first.provenance, **second.provenance, "repair": "asked once more for scores"},
        passing=unanswered,
        remarks=tuple(dict.fromkeys((*first.remarks, *second.remarks))),
    )


def read_verdict(document: Any, prompt: JudgePrompt, *, likelihoods: bool) -> ApiResponse:
    """The verdict of a chat completion.

    likelihoods: whether it is the likeliest of the prompt's letters, with the probabilities of all
    under `PROBABILITIES`. Those of tokens that the server does not list are 0, and the others sum
    to 1 again. Raises NoAnswerError where there is no message, NoLogprobsError where a verdict has
    no probabilities.
    """
    response = read_content(document)
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
