"""VQA models: any transformers image-text-to-text checkpoint with a chat template, by likelihood.

The model is not asked to write. The probability of an answer is that of the tokens which begin it,
as the first of the model's reply to picture and question: Soft-TIFA's soft score. A text is asked
about as a picture is, in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.protocols import Piece, Reply, VqaQuestion
from pytest_cepbench.models.text_model.conversations import ConversationModel, check_chat, has_image
from pytest_cepbench.models.text_model.judge_prompts import shrink_image
from pytest_cepbench.models.text_model.likelihood import first_tokens, token_scorer
from pytest_cepbench.models.text_model.loading import Conversation
from pytest_cepbench.models.text_model.parameters import ConversationParams

_YES, _NO = ("Yes", "yes"), ("No", "no")

_PROBE_IMAGE = Image.new("RGB", (64, 48), (200, 40, 40))

_PROBES: tuple[tuple[tuple[Piece, str], ...], ...] = (
    ((_PROBE_IMAGE, "Is it red?"), (_PROBE_IMAGE, "Is there a circle on the left of it?")),
    (("a red circle", "Is it red?"), ("a circle", "Is there a circle on the left of it?")),
)
"""Questions of unequal length, so that one is padded, first about pictures and then about texts."""


class TransformersVqa(ConversationModel[ConversationParams]):
    """A loaded VQA model."""

    def __init__(self, plan: LoadPlan[ConversationParams]) -> None:
        """Raises what loading does, CheckpointError for a tokenizer that does not tell yes from no,
        ModelError for a model that fails when it is shown a picture and a question.
        """
        super().__init__(plan)
        loaded = self.loaded
        yes, no = (first_tokens(loaded.tokenizer, words) for words in (_YES, _NO))
        if not yes or not no or yes & no:
            raise CheckpointError(
                f"{plan.checkpoint.path}: its tokenizer does not tell yes from no by the first "
                "token, so no likelihood does. Give a model whose vocabulary has both words"
            )
        scorer = token_scorer(loaded.model, sorted(yes | no))
        probes = [[self._conversation(*asked) for asked in batch] for batch in _PROBES]
        self._batched, self._reads_texts = self.compare_ways(probes, scorer)

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> list[Reply]:
        """The probability of each answer; a failure for a piece that the model cannot read.

        Raises CheckpointError for an answer that no token begins.
        """
        asked = [
            (piece, question)
            for piece, own in zip(pieces, questions, strict=True)
            for question in own
        ]
        most = self._plan.params.batch_size
        results: list[float | Failure] = []
        for low in range(0, len(asked), most):
            results += self._probabilities(asked[low : low + most])
        how = "asked one question at a time"
        remarks = () if self._batched else self.one_by_one(how)
        replies = []
        for own in questions:
            answers, results = results[: len(own)], results[len(own) :]
            failed = next((each for each in answers if isinstance(each, Failure)), None)
            replies.append(Reply(failed or answers, remarks=remarks))
        return replies

    def _probabilities(self, asked: Sequence[tuple[Piece, VqaQuestion]]) -> list[float | Failure]:
        wanted = []
        for _, question in asked:
            tokens = first_tokens(self.loaded.tokenizer, question.answers)
            if not tokens:
                raise CheckpointError(
                    f"{self._plan.checkpoint.path}: its tokenizer has no token that begins the "
                    f"answer {question.answers[0]!r:.80}, so it has no likelihood. Give a model "
                    "whose vocabulary has it"
                )
            wanted.append(tokens)
        known = sorted(set().union(*wanted))
        columns = {token: column for column, token in enumerate(known)}
        conversations = [self._conversation(piece, question.text) for piece, question in asked]
        readable = [self._reads_texts or has_image(own) for own in conversations]
        likelihoods = iter(
            self.likelihoods(
                list(compress(conversations, readable)),
                token_scorer(self.loaded.model, known),
                batched=self._batched,
                what="question",
            )
        )
        unread = Failure("refused", f"{self._plan.checkpoint.what} reads no text without an image")
        results: list[float | Failure] = []
        for tokens, is_read in zip(wanted, readable, strict=True):
            own = next(likelihoods) if is_read else unread
            if isinstance(own, Failure):
                results.append(own)
            else:
                total = sum(float(own[columns[token]]) for token in tokens)
                results.append(min(1.0, total))  # probabilities of different tokens, rounded
        return results

    def _conversation(self, piece: Piece, question: str) -> Conversation:
        params = self._plan.params
        shown = piece if isinstance(piece, str) else shrink_image(piece, params.max_pixels)
        return self.turns([shown, question], params.system_prompt or "")


ADAPTER = adapter(
    "transformers-vqa/1",
    ("torch", "transformers"),
    ConversationParams,
    TransformersVqa,
    check=check_chat,
)
