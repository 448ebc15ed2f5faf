"""The roles over the API: requests made of inputs, and results read out of the replies."""

from __future__ import annotations

import io
import math
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import after_reasoning, only_reasoning
from pytest_cepbench.models.api.client import CHAT, IGNORED, IMAGES, ApiClient, ApiRequest
from pytest_cepbench.models.api.responses import read_chat, read_image, read_likelihoods
from pytest_cepbench.models.protocols import (
    CUT,
    AnsweredQuestion,
    Battle,
    Piece,
    Question,
    Reply,
    Usage,
    VqaQuestion,
)
from pytest_cepbench.models.spec import given_params
from pytest_cepbench.models.text_model.judge_prompts import (
    JUDGE_PROMPTS,
    SCORE_SCHEMA,
    SCORE_TOKENS,
    read_named,
    read_scores,
    shrink_image,
)

_JSON_TOKENS = 2048
"""Room that a reply in JSON has at least: a limit that suits a description cuts objects."""

_TOP_LOGPROBS = 20
"""Most tokens whose probabilities OpenAI's API gives; a word is often among them twice."""

_AROUND_WORD = " \t\r\n*_.:()[]\"'`\u2581\u0120,;!"
"""Characters around a word in a token, tokenizers' marks of a space (U+2581, U+0120) among them."""

_SPACES = {0x2581: " ", 0x120: " ", 0x10A: "\n"}
"""Marks of tokenizers, and what they stand for."""


@dataclass(frozen=True)
class ApiModel:
    """A model behind a server, in the role of its parameters.

    Its methods return one reply for each input: a result, or the failure that the reply amounts to.
    They raise ModelError where the server answers no request at all.

    client: of the server.
    params: of the role's requests.
    """

    client: ApiClient
    params: Any

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One text for each image."""
        return self.describe_json(images, [prompt] * len(images), None, seeds)

    def describe_json(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],
        schema: Mapping[str, Any] | None,
        seeds: Sequence[int],
    ) -> list[Reply]:
        """As `describe`; the server is asked to hold its model to the schema."""
        pairs = zip(images, prompts, strict=True)
        shown: list[Question] = [[i, prompt] if prompt else [i] for i, prompt in pairs]
        return self._texts(shown, self.params.system_prompt, schema, seeds)

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """One text for each question."""
        return self.write_json(questions, prompt, None, seeds)

    def write_json(
        self,
        questions: Sequence[Question],
        prompt: str,
        schema: Mapping[str, Any] | None,
        seeds: Sequence[int],
    ) -> list[Reply]:
        """As `write`; the server is asked to hold its model to the schema."""
        system = _encodable("\n\n".join(filter(None, [self.params.system_prompt, prompt])))
        return self._texts(questions, system, schema, seeds)

    def _texts(
        self,
        questions: Sequence[Question],
        system: str | None,
        schema: Mapping[str, Any] | None,
        seeds: Sequence[int],
    ) -> list[Reply]:
        # The reasoning beside a text is read where the spec leaves it to be taken out.
        read = partial(read_chat, beside=self.params.reasoning == "strip")
        form = None if schema is None else ("reply", schema, _JSON_TOKENS)
        pairs = zip(questions, seeds, strict=True)
        return self.client.send_all(
            [self._chat(question, system, seed, read, form) for question, seed in pairs]
        )

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Reply]:
        """One image for each text, (height, width, 3) uint8."""
        params = self.params
        wanted = None if params.height is None else f"{params.width}x{params.height}"

        def read(document: Any) -> Reply:
            response = read_image(document)
            if wanted is None or isinstance(response.value, Failure):
                return response
            height, width, _ = response.value.shape
            if (size := f"{width}x{height}") == wanted:
                return response
            deviation = {IGNORED: f"size {size} instead of {wanted}"}
            return replace(response, provenance={**response.provenance, **deviation})

        names = ("quality", "num_inference_steps", "guidance_scale", "negative_prompt")
        settings = {"response_format": "b64_json", **given_params(params, *names)}
        settings |= {} if wanted is None else {"size": wanted}
        return self.client.send_all(
            [
                ApiRequest(
                    IMAGES,
                    partial(dict, model=self.client.endpoint.model, prompt=_encodable(text)),
                    read,
                    {**settings, "seed": seed},
                )
                for text, seed in zip(texts, seeds, strict=True)
            ]
        )

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[Reply]:
        """For each piece a probability for each of its questions, or the first failure."""
        read = partial(read_vqa_answer, likelihoods=self.params.logprobs)
        system = self.params.system_prompt
        requests = [
            self._chat([piece, each.text], system, 0, partial(read, question=each))
            for piece, own in zip(pieces, questions, strict=True)
            for each in own
        ]
        replies = iter(self.client.send_all(requests))
        return [_together(list(islice(replies, len(own)))) for own in questions]

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Reply]:
        """The winner of each battle."""
        prompt, own = JUDGE_PROMPTS[self.params.prompt], self.params.system_prompt
        system = prompt.system if own is None else own

        def read(document: Any) -> Reply:
            reply = read_chat(document, beside=False)
            if not isinstance(reply.value, str):
                return reply
            cut = reply.provenance.items() >= CUT.items()
            return replace(reply, value=read_named(prompt, reply.value, cut=cut))

        pairs = zip(battles, seeds, strict=True)
        return self.client.send_all(
            [self._chat(prompt.show(battle), system, seed, read) for battle, seed in pairs]
        )

    def score_answers(
        self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]
    ) -> list[Reply]:
        """The `CriteriaScores` of each answer; a failure of a reply that cannot be read."""
        prompt = JUDGE_PROMPTS[self.params.prompt]
        form = ("criteria_scores", SCORE_SCHEMA, SCORE_TOKENS)
        read = partial(read_chat, beside=False)
        replies = self.client.send_all(
            [
                self._chat(prompt.show_answer(answered), prompt.score_system, seed, read, form)
                for answered, seed in zip(answers, seeds, strict=True)
            ]
        )
        # Read when keys are out of the texts, of which the scores keep some.
        return [
            replace(own, value=read_scores(own.value)) if isinstance(own.value, str) else own
            for own in replies
        ]

    def _chat(
        self,
        pieces: Sequence[Piece],
        system: str | None,
        seed: int,
        read: Callable[[Any], Reply],
        form: tuple[str, Mapping[str, Any], int] | None = None,
    ) -> ApiRequest:
        """One message of the user, behind a system prompt where there is one.

        All settings are sent as far as the server accepts them, but for the probabilities of
        tokens, without which an answer is of no use.

        pieces: texts and images of the message.
        read: as of `ApiRequest`.
        form: of structured output: its name, the JSON schema of the object that is wanted, and the
            tokens that a reply has at least.
        """
        params = self.params
        settings = given_params(params, "temperature", "top_p", "max_tokens")
        settings |= {"seed": seed} if params.sampled else {}
        if form is not None:
            name, schema, tokens = form
            described = {"name": name, "strict": _is_closed(schema), "schema": schema}
            settings["response_format"] = {"type": "json_schema", "json_schema": described}
            if params.max_tokens is not None:
                settings["max_tokens"] = max(params.max_tokens, tokens)
        elif getattr(params, "logprobs", False):
            settings |= {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}

        def body() -> dict[str, Any]:
            before = [{"role": "system", "content": system}] if system else []
            content = [_part(piece, params.max_pixels) for piece in pieces]
            return {
                "model": self.client.endpoint.model,
                "messages": [*before, {"role": "user", "content": content}],
            }

        return ApiRequest(CHAT, body, read, settings)


def _encodable(text: str) -> str:
    """The text without lone surrogates, which some tokenizers emit: they are no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _part(piece: Piece, max_pixels: int | None) -> dict[str, Any]:
    """A text or an image in a message; images lossless, of at most `max_pixels`."""
    if isinstance(piece, str):
        return {"type": "text", "text": _encodable(piece)}
    stream = io.BytesIO()
    # A quarter less time than the default strategy of this level, and smaller for photographs.
    image = shrink_image(piece, max_pixels).convert("RGB")
    image.save(stream, "PNG", compress_level=1, compress_type=zlib.Z_RLE)
    encoded = b64encode(stream.getvalue()).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}


def _is_closed(schema: Any) -> bool:
    """Whether no object of a schema may have further keys, as strict structured output needs it."""
    if not isinstance(schema, Mapping):
        return True
    open_object = schema.get("type") == "object" and schema.get("additionalProperties") is not False
    return not open_object and all(_is_closed(value) for value in schema.values())


def read_vqa_answer(document: Any, question: VqaQuestion, *, likelihoods: bool) -> Reply:
    """The probability of the answer that a question looks for, from a chat completion.

    likelihoods: whether it is the summed probability of the tokens that begin this answer, as the
    first of the reply that is a word; else 1 where the first words of the reply are the answer's,
    and 0 where not. Which tokens begin a word that has several is known of the reply alone.
    Reasoning is no part of the reply. Tokens that the server does not list count 0. Raises ApiError
    as `read_chat`, and where there are no probabilities.
    """
    response = read_chat(document, beside=False)
    if not isinstance(response.value, str):
        return response
    reply = after_reasoning(response.value)
    if not reply:
        failure = Failure("empty-text", "no answer at all")
        return replace(response, value=failure if reply == "" else only_reasoning(response.value))
    wanted, words = [_words(answer) for answer in question.answers], _words(reply)
    said = any(
        # A sign has no word, and no words are the beginning of every reply.
        words[: len(own)] == own if own else answer.strip() == reply.strip() != ""
        for answer, own in zip(question.answers, wanted, strict=True)
    )
    if not likelihoods:
        return replace(response, value=float(said))
    tokens = read_likelihoods(document)
    # Servers that give reasoning apart list its tokens too.
    start, end = "".join(token for token, _ in tokens).translate(_SPACES).rfind(reply), 0
    texts = {answer[0] for answer in wanted if answer}
    for token, logarithms in tokens:
        end += len(token)
        word = token.strip(_AROUND_WORD)
        if end > start and word:
            if start < 0 and not reply.strip(_AROUND_WORD).lower().startswith(word.lower()):
                # The tokens are not those of the reply: the first may be one of reasoning.
                failure = Failure("bad-answer", f"the token {word!r:.40} does not begin the reply")
                return replace(response, value=failure)
            mass = sum(
                math.exp(logarithm)
                for text, logarithm in logarithms.items()
                if text.strip(_AROUND_WORD).lower() in texts or (said and text == token)
            )
            return replace(response, value=min(1.0, mass))
    return replace(response, value=Failure("empty-text", "no token of the answer is a word"))


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
