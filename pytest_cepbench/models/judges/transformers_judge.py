"""Judges: any transformers image-text-to-text checkpoint, by the likelihood of its verdicts.

The model is not asked to write. The verdict is the one of the four phrases that it finds likeliest
after question and answers, by the mean log-probability of the phrase's tokens: it never fails to
name one, depends on no seed, and comes with a probability for each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import CheckpointError, ModelError, SpecError
from pytest_cepbench.models.describers.generation import has_chat_template
from pytest_cepbench.models.describers.text_model import chat_turn
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber, load_describer
from pytest_cepbench.models.judges.judge_prompt import (
    DEFAULT_PROMPT,
    JUDGE_PROMPTS,
    JudgePrompt,
    check_prompt,
)
from pytest_cepbench.models.judges.phrase_likelihood import PhraseScorer
from pytest_cepbench.models.judges.verdict_probabilities import (
    PROBABILITIES,
    VerdictProbabilities,
)
from pytest_cepbench.models.load_plan import Adapter, ImageTextParams, LoadPlan, check_at_least
from pytest_cepbench.models.protocols import Battle, FloatArray, Reply
from pytest_cepbench.models.torch_runtime import is_out_of_memory, quiet

_TOLERANCE = {"float32": 1e-3}
"""How far two ways to the same log-probability may differ."""

_HALF_PRECISION_TOLERANCE = 0.2


_IMAGE = Image.new("RGB", (64, 48), (200, 40, 40))

_PROBES = (
    (
        Battle(["draw"], [_IMAGE], ["here it is", _IMAGE]),
        Battle(["draw a circle , and say why"], [_IMAGE, "done"], ["no"]),
    ),
    (Battle(["say"], ["a"], ["b"]), Battle(["say more about it"], ["a longer answer"], ["b"])),
)
"""Battles of unequal length, so that one is padded, first with images and then without."""


@dataclass(frozen=True)
class LocalJudgeParams(ImageTextParams):
    """Parameters of a local judge's spec, with those of `ImageTextParams`.

    prompt: one of `JUDGE_PROMPTS`: what it is shown, and how its verdicts are worded.
    system_prompt: in the place of the prompt's own.
    max_pixels: larger images are made smaller, to at most so many pixels; None leaves them to the
        checkpoint's own processor.
    Raises ValueError for values out of range.
    """

    prompt: str = DEFAULT_PROMPT
    system_prompt: str | None = None
    max_pixels: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_prompt(self.prompt)
        check_at_least(self, 1, "max_pixels")


def _decisive(plan: LoadPlan[LocalJudgeParams]) -> dict[str, Any]:
    params = plan.params
    optional = {"system_prompt": params.system_prompt, "max_pixels": params.max_pixels}
    return {
        "dtype": plan.dtype,
        "prompt": JUDGE_PROMPTS[params.prompt].version,
        **params.decisive,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _check_chat(plan: LoadPlan[LocalJudgeParams]) -> None:
    """Raise SpecError for a checkpoint that can be shown no conversation."""
    if not has_chat_template(plan.checkpoint):
        msg = (
            f"{plan.spec.text!r} cannot be the judge: {plan.checkpoint.what} has no chat template, "
            "so question and answers have no place. Give a chat model that reads several images"
        )
        raise SpecError(msg)


def _load(plan: LoadPlan[LocalJudgeParams]) -> TransformersJudge:
    return TransformersJudge(plan, load_describer(plan, {"do_sample": False}, chat=True))


class TransformersJudge:
    """A loaded judge: holds the model, its processor and the tokens of the four phrases."""

    def __init__(self, plan: LoadPlan[LocalJudgeParams], loaded: LoadedDescriber) -> None:
        """Raises CheckpointError for a tokenizer that cannot tell the verdicts apart and for a
        chat template that takes images out of their order, ModelError for a model that fails when
        it is shown a battle.
        """
        self._plan = plan
        self._loaded = loaded
        self._prompt: JudgePrompt = JUDGE_PROMPTS[plan.params.prompt]
        phrases = [self._prompt.phrases[winner] for winner in WINNERS]
        self._scorer = PhraseScorer(loaded.model, loaded.tokenizer, phrases)
        self._controls = _control_tokens(loaded)
        self._check_phrases(phrases)
        self._check_order()
        self._batched = self._reads_prompts_once()

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._loaded.model.to(device)

    def judge(
        self,
        battles: Sequence[Battle],
        seeds: Sequence[int],  # noqa: ARG002 - the Protocol's; likelihoods depend on no seed
    ) -> list[Reply]:
        """The likeliest verdict of each battle; a failure where it is longer than the model reads.

        The provenance of a reply has the four probabilities under `PROBABILITIES`.
        """
        conversations = [self._conversation(battle) for battle in battles]
        results: dict[int, VerdictProbabilities | Failure] = {}
        # Several processors take a batch in which each conversation has images, or none.
        for illustrated in (True, False):
            rows = [i for i, parts in enumerate(conversations) if _has_image(parts) == illustrated]
            chosen = [conversations[i] for i in rows]
            results |= zip(rows, self._verdicts(chosen), strict=True)
        return [self._reply(results[i]) for i in range(len(battles))]

    def _reply(self, result: VerdictProbabilities | Failure) -> Reply:
        if isinstance(result, Failure):
            return Reply(result)
        remarks = () if self._batched else (self._one_by_one(),)
        provenance = {PROBABILITIES: result.to_text()}
        return Reply(result.winner, provenance=provenance, remarks=remarks)

    def _verdicts(
        self, conversations: Sequence[list[dict[str, Any]]]
    ) -> list[VerdictProbabilities | Failure]:
        if not conversations:
            return []
        if not self._batched and len(conversations) > 1:
            return [self._verdicts([conversation])[0] for conversation in conversations]
        import torch

        with quiet(), torch.inference_mode():
            inputs = self._inputs(conversations)
            failures = self._too_long(inputs)
            fitting = [c for i, c in enumerate(conversations) if i not in failures]
            if failures and fitting:
                inputs = self._inputs(fitting)
            scores = iter(self._scores(inputs) if fitting else ())
        return [
            failures.get(i) or VerdictProbabilities.from_likelihoods(next(scores).tolist())
            for i in range(len(conversations))
        ]

    def _scores(self, inputs: Any) -> FloatArray:
        scorer = self._scorer
        scores = scorer.score(inputs) if self._batched else scorer.score_whole(inputs)
        if not np.isfinite(scores).all():
            msg = (
                f"{self._plan.checkpoint.path}: the likelihood of a verdict is not a number in "
                f"{self._plan.dtype}. Give a dtype that holds the model's values, such as bfloat16"
            )
            raise ModelError(msg)
        return scores

    def _conversation(self, battle: Battle) -> list[dict[str, Any]]:
        params = self._plan.params
        own = params.system_prompt
        system = self._prompt.system if own is None else own
        pieces = [
            self._without_controls(piece) if isinstance(piece, str) else piece
            for piece in self._prompt.show(battle, params.max_pixels)
        ]
        turns = [chat_turn("user", pieces)]
        return [chat_turn("system", [system]), *turns] if system else turns

    def _without_controls(self, text: str) -> str:
        """The text with control tokens broken up: an answer must not end the judge's turn with its
        words, or claim an image.

        transformers can do it too (`sanitize_control_tokens`), but not for every processor.
        """
        return self._controls.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def _inputs(self, conversations: Sequence[list[dict[str, Any]]]) -> Any:
        loaded = self._loaded
        inputs = loaded.processor.apply_chat_template(
            list(conversations),
            chat_template=loaded.chat_template,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
        )
        return inputs.to(loaded.model.device, loaded.model.dtype)

    def _too_long(self, inputs: Any) -> dict[int, Failure]:
        """Failures by row: cut, a battle would be another one."""
        positions = self._loaded.positions
        if positions is None:
            return {}
        most = positions - self._scorer.longest
        lengths = inputs["attention_mask"].sum(1).tolist()
        return {
            row: Failure(
                "exception",
                f"the battle has {length} tokens, and the model reads {most}: make its images "
                "smaller (max_pixels)",
            )
            for row, length in enumerate(lengths)
            if length > most
        }

    def _check_phrases(self, phrases: Sequence[str]) -> None:
        tokens = self._scorer.tokens
        if len({tuple(phrase) for phrase in tokens}) < len(tokens) or not all(tokens):
            msg = (
                f"{self._plan.checkpoint.path}: its tokenizer has the same tokens for several of "
                f"the verdicts ({'; '.join(phrases)}), so no likelihood tells them apart. Give a "
                "judge whose vocabulary has them"
            )
            raise CheckpointError(msg)

    def _check_order(self) -> None:
        """Raise CheckpointError where nothing would say to which answer an image belongs."""
        loaded = self._loaded
        marker = getattr(loaded.processor, "image_token", None)
        if not marker or self._prompt.numbered:
            return
        image = Image.new("RGB", (8, 8))
        text: str = loaded.processor.apply_chat_template(
            [chat_turn("user", ["before", image, "between", image, "after"])],
            chat_template=loaded.chat_template,
            add_generation_prompt=True,
        )
        places = [
            text.find("before"),
            text.find(marker),
            text.find("between"),
            text.rfind(marker),
            text.find("after"),
        ]
        if places != sorted(places):
            numbered = " or ".join(
                f"prompt={name}" for name, prompt in JUDGE_PROMPTS.items() if prompt.numbered
            )
            msg = (
                f"{self._plan.checkpoint.path}: its chat template takes images out of their places "
                f"between texts, so nothing says to which answer one belongs. Add {numbered}, "
                "whose texts number the images"
            )
            raise CheckpointError(msg)

    def _reads_prompts_once(self) -> bool:
        """Whether a padded batch whose prompts are read once gives what each battle alone gives.

        Raises ModelError for a model that cannot be shown a battle.
        """
        import torch

        with quiet(), torch.inference_mode():
            for battles in _PROBES:
                conversations = [self._conversation(battle) for battle in battles]
                try:
                    inputs = [self._inputs([conversation]) for conversation in conversations]
                    alone = np.concatenate([self._scorer.score_whole(single) for single in inputs])
                # Libraries raise what they like where a model takes no such input.
                except Exception as error:
                    if is_out_of_memory(error):
                        raise
                    if _has_image(conversations[0]):
                        raise ModelError(self._no_judge(error)) from error
                    continue  # it reads no conversation without an image
                if not self._agrees(conversations, alone):
                    return False
        return True

    def _agrees(self, conversations: Sequence[list[dict[str, Any]]], alone: FloatArray) -> bool:
        try:
            together = self._scorer.score(self._inputs(conversations))
        except Exception as error:  # as above, where a cache cannot be shared
            if is_out_of_memory(error):
                raise
            return False
        tolerance = _TOLERANCE.get(self._plan.dtype, _HALF_PRECISION_TOLERANCE)
        return bool(np.abs(together - alone).max() <= tolerance)

    def _no_judge(self, error: Exception) -> str:
        return (
            f"{self._plan.checkpoint.path}: {self._plan.checkpoint.what} cannot be the judge: "
            f"shown a question and two answers it failed: {type(error).__name__}: {error}. Give a "
            "chat model that reads several images"
        )

    def _one_by_one(self) -> str:
        return (
            f"{self._plan.checkpoint.what} gives other likelihoods in a batch than alone: it is "
            "shown one battle at a time, each of them four times"
        )


def _control_tokens(loaded: LoadedDescriber) -> re.Pattern[str]:
    added = loaded.tokenizer.added_tokens_decoder.values()
    tokens = {token.content for token in added if token.special or token.content.startswith("<")}
    tokens |= {getattr(loaded.processor, "image_token", None)}
    longest_first = sorted(filter(None, tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _has_image(conversation: Sequence[dict[str, Any]]) -> bool:
    return any(part["type"] == "image" for turn in conversation for part in turn["content"])


ADAPTER = Adapter(
    "transformers-judge/1",
    ("torch", "transformers"),
    LocalJudgeParams,
    _load,
    check=_check_chat,
    decisive=_decisive,
)
