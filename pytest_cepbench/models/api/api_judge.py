"""Judges over the API: which of two answers is better, in one phrase.

The criteria, their order and the four verdicts are those of OpenING (its GPT judge); the words are this
project's. An answer counts where it names exactly one verdict. OpenING's released code takes the first
A or B of any answer, and tosses a coin where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.api.api_describer import chat_settings, image_part, messages, text_part
from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.request_params import ChatParams
from pytest_cepbench.models.api.responses import ApiResponse, read_chat
from pytest_cepbench.models.protocols import Battle, Piece, Reply, Winner

PROMPT = "opening-criteria/1"
"""Names the texts below and the order of the pieces; raised when any of them changes."""

SYSTEM = """\
You compare two answers, A and B, to one question. Question and answers are made of texts and images.
Weigh them by these criteria, the first counting most: is the answer correct and does it do what was \
asked; do its images and texts belong together; do its steps agree with one another; are its texts and \
images well made; would people like it; is nothing missing; is it rich in content.
Reply with one of these four phrases and nothing else:
A is better
B is better
Tie (A is better)
Tie (B is better)
The last two mean that the answers are about equal, and which of them is ahead by a little."""

CLOSING = "Reply with one of the four phrases: which answer is better?"

_TIE = re.compile(r"\btie\b[\s:,-]*\(?\s*([AB])(?:\s+is)?(?:\s+better)?\s*\)?", re.IGNORECASE)
_BETTER = re.compile(r"\b([AB])\s+is\s+better\b")
_ALONE = re.compile(r"[\s*_`\"'.:()]*([ABab])[\s*_`\"'.()]*")


class ApiJudge:
    """Judges through a server. model: its name there."""

    def __init__(self, asker: ApiClient, model: str, params: ChatParams) -> None:
        self._asker, self._model, self._params = asker, model, params

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Reply]:
        """One reply for each battle: its winner, or the failure it amounts to.

        Raises ModelError where the server answers nothing at all.
        """
        return self._asker.ask(
            [self._call(battle, seed) for battle, seed in zip(battles, seeds, strict=True)]
        )

    def _call(self, battle: Battle, seed: int) -> ApiRequest:
        params = self._params

        def body() -> dict[str, Any]:
            content = [
                *self._parts("Question:", battle.question),
                *self._parts("Answer A:", battle.first),
                *self._parts("Answer B:", battle.second),
                text_part(CLOSING),
            ]
            system = SYSTEM if params.system_prompt is None else params.system_prompt
            return {"model": self._model, "messages": messages(content, system)}

        return ApiRequest("chat", body, _read, chat_settings(params, seed))

    def _parts(self, heading: str, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        shown = [
            text_part(one) if isinstance(one, str) else image_part(one, self._params)
            for one in pieces
        ]
        return [text_part(heading), *shown]


def read_winner(text: str) -> Winner | Failure:
    """The verdict that an answer names; a failure where it names none, or several."""
    alone = _ALONE.fullmatch(text)
    if alone:
        return "A" if alone[1] in "Aa" else "B"
    found: set[Winner] = {"Tie(A)" if one in "Aa" else "Tie(B)" for one in _TIE.findall(text)}
    found |= {"A" if one == "A" else "B" for one in _BETTER.findall(_TIE.sub(" ", text))}
    if len(found) == 1:
        return found.pop()
    return Failure("no-verdict", f"named {len(found)} of the four verdicts: {text!r}")


def _read(document: Any) -> ApiResponse:
    answer = read_chat(document)
    if isinstance(answer.value, str):
        return ApiResponse(read_winner(answer.value), answer.tokens, answer.reported, answer.cut)
    return answer
