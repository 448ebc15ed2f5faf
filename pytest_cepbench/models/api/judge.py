"""Judges over the API: battles become chat requests, and verdicts are read from the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.endpoint import JudgeParams
from pytest_cepbench.models.api.messages import (
    chat_settings,
    image_part,
    make_messages,
    text_part,
)
from pytest_cepbench.models.api.responses import ApiResponse, read_chat
from pytest_cepbench.models.judges.judge_prompt import JUDGE_PROMPTS
from pytest_cepbench.models.judges.verdict_text import read_winner
from pytest_cepbench.models.protocols import Battle, Reply


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

        return ApiRequest("chat", body, _read_verdict, chat_settings(params, seed))


def _read_verdict(document: Any) -> ApiResponse:
    response = read_chat(document)
    if isinstance(response.value, str):
        return replace(response, value=read_winner(response.value))
    return response
