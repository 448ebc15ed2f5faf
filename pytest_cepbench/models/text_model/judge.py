"""Judges: any transformers image-text-to-text checkpoint, by the likelihood of its verdicts.

The model is not asked to write. The verdict is the one of the four phrases that it finds likeliest
after question and answers, by the mean log-probability of the phrase's tokens: it never fails to
name one, and depends on no seed.
"""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.protocols import Battle, Reply
from pytest_cepbench.models.text_model.conversations import ConversationModel, check_chat
from pytest_cepbench.models.text_model.judge_prompts import (
    JUDGE_PROMPTS,
    JudgePrompt,
)
from pytest_cepbench.models.text_model.likelihood import phrase_scorer
from pytest_cepbench.models.text_model.loading import (
    Conversation,
    LoadedTextModel,
    conversation,
)
from pytest_cepbench.models.text_model.parameters import LocalJudgeParams

_IMAGE = Image.new("RGB", (64, 48), (200, 40, 40))

_PROBES = (
    (
        Battle(["draw"], [_IMAGE], ["here it is", _IMAGE]),
        Battle(["draw a circle , and say why"], [_IMAGE, "done"], ["no"]),
    ),
    (Battle(["say"], ["a"], ["b"]), Battle(["say more about it"], ["a longer answer"], ["b"])),
)
"""Battles of unequal length, so that one is padded, first with images and then without."""


class TransformersJudge(ConversationModel[LocalJudgeParams]):
    """A loaded judge, with the tokens of its verdicts and scores."""

    def __init__(self, plan: LoadPlan[LocalJudgeParams]) -> None:
        """Raises what loading does, CheckpointError for a tokenizer that cannot tell the verdicts
        apart and for a chat template that takes images out of their order, ModelError for a model
        that fails when it is shown a battle.
        """
        super().__init__(plan)
        loaded = self.loaded
        self._prompt: JudgePrompt = JUDGE_PROMPTS[plan.params.prompt]
        phrases = [self._prompt.phrases[winner] for winner in WINNERS]
        tokens: list[list[int]] = [
            loaded.tokenizer(phrase, add_special_tokens=False)["input_ids"] for phrase in phrases
        ]
        if len({tuple(phrase) for phrase in tokens}) < len(tokens) or not all(tokens):
            raise CheckpointError(
                f"{plan.checkpoint.path}: its tokenizer has the same tokens for several of the "
                f"verdicts ({'; '.join(phrases)}), so no likelihood tells them apart. Give a judge "
                "whose vocabulary has them"
            )
        if not self._prompt.numbered:
            _check_order(plan, loaded)
        self._scorer = phrase_scorer(loaded.model, tokens)
        probes = [[self._conversation(battle) for battle in battles] for battles in _PROBES]
        self._batched, _ = self.compare_ways(probes, self._scorer)

    def judge(
        self,
        battles: Sequence[Battle],
        seeds: Sequence[int],  # noqa: ARG002 - the Protocol's; likelihoods depend on no seed
    ) -> list[Reply]:
        """The likeliest verdict of each battle; a failure of one longer than the model reads."""
        likelihoods = self.likelihoods(
            [self._conversation(battle) for battle in battles],
            self._scorer,
            batched=self._batched,
            what="battle",
        )
        how = "shown one battle at a time, each of them four times"
        remarks = () if self._batched else self.one_by_one(how)
        return [
            Reply(own if isinstance(own, Failure) else WINNERS[int(own.argmax())], remarks=remarks)
            for own in likelihoods
        ]

    def _conversation(self, battle: Battle) -> Conversation:
        params = self._plan.params
        own = params.system_prompt
        system = self._prompt.system if own is None else own
        return self.turns(self._prompt.show(battle, params.max_pixels), system)


def _check_order(plan: LoadPlan[LocalJudgeParams], loaded: LoadedTextModel) -> None:
    """Raise CheckpointError where nothing would say to which answer an image belongs."""
    marker = getattr(loaded.processor, "image_token", None)
    if not marker:
        return
    text = loaded.chat_text(conversation(["before", _IMAGE, "between", _IMAGE, "after"]))
    places = [
        text.find("before"), text.find(marker), text.find("between"), text.rfind(marker),
        text.find("after"),
    ]  # fmt: skip
    if places != sorted(places):
        numbered = " or ".join(
            f"prompt={name}" for name, prompt in JUDGE_PROMPTS.items() if prompt.numbered
        )
        raise CheckpointError(
            f"{plan.checkpoint.path}: its chat template takes images out of their places between "
            f"texts, so nothing says to which answer one belongs. Add {numbered}, whose texts "
            "number the images"
        )


ADAPTER = adapter(
    "transformers-judge/1",
    ("torch", "transformers"),
    LocalJudgeParams,
    TransformersJudge,
    check=check_chat,
)
