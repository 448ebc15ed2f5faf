"""The roles over the API: requests made of inputs, and results read out of the replies."""

from __future__ import annotations

import io
import math
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import after_reasoning, only_reasoning, without_reasoning
from pytest_cepbench.artifacts.outcome import (
    PROBABILITIES,
    WINNERS,
    CriteriaScores,
    VerdictProbabilities,
    Winner,
)
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.api.client import ApiClient, ApiRequest
from pytest_cepbench.models.api.parameters import (
    TOP_LOGPROBS,
    ChatParams,
    ImageParams,
    InterleaverParams,
    JudgeParams,
    LikelihoodParams,
    VqaParams,
)
from pytest_cepbench.models.api.responses import (
    ApiResponse,
    TokenLikelihoods,
    read_chat,
    read_content,
    read_image,
    read_likelihoods,
    read_steps,
)
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    Battle,
    Piece,
    Question,
    Reply,
    StepLimit,
    Usage,
    VqaQuestion,
)
from pytest_cepbench.models.text_model.interleaver import INTERLEAVE, step_count_text
from pytest_cepbench.models.text_model.judge_prompts import (
    JSON_CLOSING,
    JUDGE_PROMPTS,
    REPAIR,
    SCORE_SCHEMA,
    SCORE_TOKENS,
    JudgePrompt,
    score_system,
    shrink_image,
)
from pytest_cepbench.models.text_model.judge_replies import problem_of, read_named, read_scores

P = TypeVar("P", bound=ChatParams)

_JSON_TOKENS = 2048
"""Room that a reply in JSON has at least: a limit that suits a description cuts objects."""

_LONGEST_QUOTE = 4000
"""Characters of an unreadable reply that go back to the judge."""

_LONGEST_PROBLEM = 300

_AROUND_LETTER = " \t\r\n*_.:()[]\"'`\u2581\u0120"
_AROUND_WORD = _AROUND_LETTER + ",;!"
"""Characters around a letter or word in a token; the last two of the first are tokenizers' marks of
a space."""


@dataclass(frozen=True)
class ChatModel(Generic[P]):
    """A model behind a server that is asked by chat completions.

    Its methods return one reply for each input: a result, or the failure that the reply amounts to.
    They raise ModelError where the server answers no request at all.

    client: of the server.
    model: its name there.
    params: of the spec.
    """

    client: ApiClient
    model: str
    params: P

    def request(
        self,
        pieces: Sequence[Piece],
        system: str | None,
        settings: Mapping[str, Any],
        read: Callable[[Any], ApiResponse],
        *,
        turns: Sequence[Mapping[str, Any]] = (),
    ) -> ApiRequest:
        """One message of the user, behind a system prompt where there is one.

        pieces: texts and images of the message.
        settings: sent as far as the server accepts them, but for the probabilities of tokens,
            without which an answer is of no use.
        read: as of `ApiRequest`.
        turns: of the conversation, after the message.
        """

        def body() -> dict[str, Any]:
            before = [{"role": "system", "content": system}] if system else []
            message = {"role": "user", "content": [_part(piece, self.params) for piece in pieces]}
            return {"model": self.model, "messages": [*before, message, *turns]}

        return ApiRequest("chat", body, read, settings, required=("logprobs", "top_logprobs"))

    def settings(self, seed: int) -> dict[str, Any]:
        """The settings that a request states."""
        params = self.params
        return _without_none(
            temperature=params.temperature,
            top_p=params.top_p,
            max_tokens=params.max_tokens,
            seed=seed if params.seeds else None,
        )

    def json_settings(
        self, schema: Mapping[str, Any], seed: int, name: str = "reply", tokens: int = _JSON_TOKENS
    ) -> dict[str, Any]:
        """The settings of a request for an object of a JSON schema: structured output.

        A server that does not know it is asked without.
        name: of the form, for the server. tokens: room that the reply has at least.
        """
        form = {"name": name, "strict": _is_closed(schema), "schema": schema}
        settings = self.settings(seed)
        settings["response_format"] = {"type": "json_schema", "json_schema": form}
        if self.params.max_tokens is not None:
            settings["max_tokens"] = max(self.params.max_tokens, tokens)
        return settings

    @property
    def reader(self) -> Callable[[Any], ApiResponse]:
        """Reads a text, with the reasoning beside it where the spec leaves it to be taken out."""
        return read_chat if self.params.reasoning == "strip" else read_content


def _likelihood_settings(model: ChatModel[Any], params: LikelihoodParams, seed: int) -> Any:
    """Those and, where the spec asks for them, the probabilities of tokens."""
    asked = {"logprobs": True, "top_logprobs": params.top_logprobs or TOP_LOGPROBS}
    return {**model.settings(seed), **(asked if params.logprobs else {})}


def _without_none(**optional: Any) -> dict[str, Any]:
    return {name: value for name, value in optional.items() if value is not None}


def _encodable(text: str) -> str:
    """The text without lone surrogates, which some tokenizers emit: they are no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _part(piece: Piece, params: ChatParams) -> dict[str, Any]:
    """A text or an image in a message; images lossless, of at most `max_pixels`."""
    if isinstance(piece, str):
        return {"type": "text", "text": _encodable(piece)}
    image = shrink_image(piece, params.max_pixels).convert("RGB")
    stream = io.BytesIO()
    if params.image_format == "webp":
        image.save(stream, "WEBP", lossless=True, method=0, quality=0)
    else:
        # A quarter less time than the default strategy of this level, and smaller for photographs.
        image.save(stream, "PNG", compress_level=1, compress_type=zlib.Z_RLE)
    encoded = b64encode(stream.getvalue()).decode("ascii")
    image_url = {"url": f"data:image/{params.image_format};base64,{encoded}"}
    if params.detail is not None:
        image_url["detail"] = params.detail
    return {"type": "image_url", "image_url": image_url}


def _is_closed(schema: Any) -> bool:
    """Whether no object of a schema may have further keys, as strict structured output needs it."""
    if not isinstance(schema, Mapping):
        return True
    open_object = schema.get("type") == "object" and schema.get("additionalProperties") is not False
    return not open_object and all(_is_closed(value) for value in schema.values())


class ApiDescriber(ChatModel[ChatParams]):
    """A describer behind a server."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One text for each image."""
        return self.client.send_all(
            [
                self._request(image, prompt, self.settings(seed))
                for image, seed in zip(images, seeds, strict=True)
            ]
        )

    def describe_json(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> list[Reply]:
        """As `describe`; the server is asked to hold its model to the schema."""
        return self.client.send_all(
            [
                self._request(image, prompt, self.json_settings(schema, seed))
                for image, prompt, seed in zip(images, prompts, seeds, strict=True)
            ]
        )

    def _request(self, image: Image.Image, prompt: str, settings: Mapping[str, Any]) -> ApiRequest:
        pieces: list[Piece] = [image, prompt] if prompt else [image]
        return self.request(pieces, self.params.system_prompt, settings, self.reader)


class ApiWriter(ChatModel[ChatParams]):
    """A writer behind a server."""

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One text for each question."""
        return self._write(questions, prompt, map(self.settings, seeds))

    def write_json(
        self,
        questions: Sequence[Question],
        prompt: str,
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> list[Reply]:
        """As `write`; the server is asked to hold its model to the schema."""
        return self._write(questions, prompt, map(partial(self.json_settings, schema), seeds))

    def _write(
        self, questions: Sequence[Question], prompt: str, settings: Iterable[Mapping[str, Any]]
    ) -> list[Reply]:
        system = _encodable("\n\n".join(filter(None, [self.params.system_prompt, prompt])))
        return self.client.send_all(
            [
                self.request(question, system, own, self.reader)
                for question, own in zip(questions, settings, strict=True)
            ]
        )


@dataclass(frozen=True)
class ApiGenerator:
    """A generator behind a server; fields and errors as of `ChatModel`."""

    client: ApiClient
    model: str
    params: ImageParams

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Reply]:
        """One image for each text, (height, width, 3) uint8."""
        return self.client.send_all(
            [self._request(text, seed) for text, seed in zip(texts, seeds, strict=True)]
        )

    def _request(self, text: str, seed: int) -> ApiRequest:
        body = {"model": self.model, "prompt": _encodable(text)}
        params = self.params
        optional = _without_none(
            size=params.wanted_size,
            quality=params.quality,
            num_inference_steps=params.num_inference_steps,
            guidance_scale=params.guidance_scale,
            negative_prompt=params.negative_prompt,
            response_format=params.response_format,
            seed=None if params.send_seed == "false" else seed,
        )
        return ApiRequest("images", lambda: body, self._read, optional)

    def _read(self, document: Any) -> ApiResponse:
        response, wanted = read_image(document), self.params.wanted_size
        if wanted in (None, "auto") or isinstance(response.value, Failure):
            return response
        height, width, _ = response.value.shape
        size = f"{width}x{height}"
        deviation = "" if size == wanted else f"size {size} instead of {wanted}"
        return replace(response, deviation=deviation)


class ApiInterleaver(ChatModel[InterleaverParams]):
    """An interleaver behind a server."""

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> list[Reply]:
        """The steps of an answer to each question.

        All steps are returned: what a limit cuts off is for the caller to count.
        """
        return self.client.send_all(
            [
                self._request(question, limit, seed)
                for question, limit, seed in zip(questions, limits, seeds, strict=True)
            ]
        )

    def _request(self, question: Question, limit: StepLimit, seed: int) -> ApiRequest:
        params, settings = self.params, self.settings(seed)
        if params.modalities is not None:
            settings["modalities"] = params.modalities.split(",")
        told = [step_count_text(limit.told)] if limit.told is not None else []
        system = INTERLEAVE if params.system_prompt is None else params.system_prompt
        read = partial(read_steps, beside=params.reasoning == "strip")
        return self.request([*question, *told], system, settings, read)


class ApiVqa(ChatModel[VqaParams]):
    """A VQA model behind a server."""

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[Reply]:
        """For each piece a probability for each of its questions, or the first failure."""
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
        read = partial(read_vqa_answer, question=question, likelihoods=params.logprobs)
        settings = _likelihood_settings(self, params, 0)
        return self.request([piece, question.text], params.system_prompt, settings, read)


def read_vqa_answer(document: Any, question: VqaQuestion, *, likelihoods: bool) -> ApiResponse:
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
        t
        for t, end in zip(tokens, ends, strict=True)
        if end > start and t.token.strip(_AROUND_WORD)
    ]
    if not begun:
        return replace(response, value=Failure("empty-text", "no token of the answer is a word"))
    texts = {answer[0] for answer in wanted if answer}
    masses = [
        math.exp(logarithm)
        for text, logarithm in begun[0].logarithms.items()
        if text.strip(_AROUND_WORD).lower() in texts
    ]
    return replace(response, value=min(1.0, sum(masses)))


def _words(text: str) -> list[str]:
    return [word for part in text.lower().split() if (word := part.strip(_AROUND_WORD))]


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


class ApiJudge(ChatModel[JudgeParams]):
    """A judge behind a server."""

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Reply]:
        """The winner of each battle."""
        return self.client.send_all(
            [self._request(battle, seed) for battle, seed in zip(battles, seeds, strict=True)]
        )

    def _request(self, battle: Battle, seed: int) -> ApiRequest:
        params = self.params
        prompt = JUDGE_PROMPTS[params.prompt]
        system = prompt.system if params.system_prompt is None else params.system_prompt
        read = partial(read_verdict, prompt=prompt, likelihoods=params.logprobs)
        settings = _likelihood_settings(self, params, seed)
        return self.request(prompt.show(battle), system, settings, read)

    def score_answers(
        self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]
    ) -> list[Reply]:
        """The `CriteriaScores` of each answer.

        A reply that cannot be read, or lacks scores, is asked about once more.
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
        self, answered: AnsweredQuestion, seed: int, turns: Sequence[Mapping[str, Any]] = ()
    ) -> ApiRequest:
        """turns: of the conversation, after the question for scores."""
        prompt = JUDGE_PROMPTS[self.params.prompt]
        return self.request(
            prompt.show_answer(answered, JSON_CLOSING),
            score_system(numbered=prompt.numbered),
            self.json_settings(SCORE_SCHEMA, seed, "criteria_scores", SCORE_TOKENS),
            read_content,
            turns=turns,
        )


def _repair_turns(reply: Reply, problem: str) -> list[Mapping[str, Any]]:
    """A reply that could not be used, and the question for another."""
    question = REPAIR.format(problem=problem[:_LONGEST_PROBLEM])
    # Some servers refuse an empty text.
    quoted = _encodable(without_reasoning(reply.value)[:_LONGEST_QUOTE]) or "(nothing)"
    return [
        {"role": "assistant", "content": quoted},
        {"role": "user", "content": [{"type": "text", "text": _encodable(question)}]},
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
    winner = read_named(prompt, response.value)
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
    answers = [token for token in tokens if token.token.strip(_AROUND_LETTER) == letter]
    if not answers:
        return Failure("no-verdict", f"no token of the answer is the letter {letter}")
    masses = dict.fromkeys(prompt.phrases.values(), 0.0)
    for text, logarithm in answers[-1].logarithms.items():
        if (other := text.strip(_AROUND_LETTER)) in masses:  # "A" and " A" are two tokens
            masses[other] += math.exp(logarithm)
    total = sum(masses.values())
    if not total:
        return Failure("no-verdict", f"the letter {letter} has no probability")
    a, tie_a, tie_b, b = (masses[prompt.phrases[verdict]] / total for verdict in WINNERS)
    return VerdictProbabilities((a, tie_a, tie_b, b))
