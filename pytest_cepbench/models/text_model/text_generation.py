"""Texts that checkpoints write of images and sounds: describers, and writers of answers.

Inputs go in batches, padded on the left. Texts are greedy unless the spec says do_sample=true; then
each is a call of its own under its own seed, because transformers draws from the global generator,
and the tokens of a batch would depend on its neighbours.

A writer's question is one message of the user, its texts and images in reading order, after the
system prompt. Without a chat template a model reads one image with one text, which
`prompt_template` says. Questions with as many images are answered in one call: several processors
refuse a batch in which some have none, and others pad what is missing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from pytest_cepbench.artifacts import Failure, Sound
from pytest_cepbench.artifacts.answer import marks_reasoning, opened_by
from pytest_cepbench.errors import CheckpointError, ModelError, RoleError, SpecError, named_error
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.protocols import CUT, Question, Reply
from pytest_cepbench.models.text_model.loading import (
    LoadedTextModel,
    any_of,
    check_system_prompt,
    conversation,
    load_text_model,
)
from pytest_cepbench.models.text_model.parameters import (
    GenerationParams,
    check_prompting,
    decisive_settings,
    generation_settings,
    has_chat_template,
)
from pytest_cepbench.models.torch_runtime import (
    by_kind,
    generate_options,
    is_out_of_memory,
    quiet,
    seeded,
)

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

DESCRIPTION_TOKENS = 512
"""Room for a full and precise description; the longest that the papers' prompts ask for is a
paragraph. Applies where neither the spec nor the checkpoint says how long."""

ANSWER_TOKENS = 2048
"""Room for an answer of ten steps. The gold answers of OpenING have 140 words on average, and a
single step of them up to 1,082. Applies where neither the spec nor the checkpoint says how long."""

_MODES = ("greedy_search", "sample", "beam_search", "beam_sample")
"""The ways of writing that are a part of every release of transformers."""

_TAIL = 16  # tokens of a prompt that its last marker lies in


class TextModel:
    """A loaded model that describes images and answers questions.

    by_size: whether images of several sizes in one call would change each other's texts.
    special: matches every special token as it is spelled, and no other text.
    """

    by_size = False

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedTextModel, params: GenerationParams
    ) -> None:
        """Raises CheckpointError for a generation_config.json that asks for another way to write
        than transformers has in it.
        """
        mode = str(loaded.generation_config.get_generation_mode().value)
        if mode not in _MODES:
            raise CheckpointError(
                f"{checkpoint.path / 'generation_config.json'} asks for {mode.replace('_', ' ')}, "
                "which newer releases of transformers load as code from the hub. Remove the "
                "setting (penalty_alpha, dola_layers, num_beam_groups, constraints or "
                "force_words_ids)"
            )
        self.loaded = loaded
        self.params = params
        self._checkpoint = checkpoint
        self._chats = loaded.chat_template is not None
        # Markers of reasoning stay in a text, also those that are special tokens or the end of the
        # prompt: without them it could not be told from the answer.
        self._marks = params.reasoning != "keep"
        self._dropped: set[int] = set()  # none where no marker is a special token
        if self._marks:
            tokenizer = loaded.tokenizer
            added = tokenizer.added_tokens_decoder.items()
            special = {number: str(token) for number, token in added if token.special}
            special |= zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
            kept = {number for number, token in special.items() if marks_reasoning(token)}
            self._dropped = special.keys() - kept if kept else set()
        tokens = set(loaded.tokenizer.all_special_tokens)
        for name in ("image_token", "video_token", "audio_token"):
            token = getattr(loaded.processor, name, None)
            tokens |= {token} if isinstance(token, str) else set()
        self.special = any_of(filter(None, tokens))
        self._of_speech = {}
        if params.do_sample and "temperature" in signature(loaded.model.generate).parameters:
            # Whisper's own takes none from the configuration.
            self._of_speech["temperature"] = loaded.generation_config.temperature
        self._system_checked = bool(params.system_prompt) or not self._chats

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.loaded.model.to(device)

    def describe(
        self, images: Sequence[Any], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure | Reply]:
        """Describe each image, or each sound; special tokens and outer spaces are taken off.

        A sound that is longer than the model reads is a failure.

        Raises ModelError when the checkpoint's parts do not fit together or it needs a text that it
        was not given.
        """
        if images and isinstance(images[0], Sound):
            sounds, system = self.loaded.sounds, self.params.system_prompt or ""
            if sounds is None:
                what = f"{self._checkpoint.path}: {self._checkpoint.what}"
                raise ModelError(f"{what} reads no sounds")
            hear = partial(self.loaded.sound_inputs, prompt=prompt, system=system)
            heard = [sounds.wave(sound) for sound in images]
            return sounds.ask(
                heard, lambda waves, rows: self._write_texts(waves, [seeds[i] for i in rows], hear)
            )
        prepare = partial(self._image_inputs, prompt=prompt)
        try:
            return by_kind(
                [image.size if self.by_size else None for image in images],
                lambda rows: self._write_texts(
                    [images[i] for i in rows], [seeds[i] for i in rows], prepare
                ),
            )
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            # What libraries raise when an image comes without the text that its model needs.
            if self._chats or self.params.prompt_template or is_out_of_memory(error):
                raise
            raise ModelError(
                f"{self._checkpoint.path}: {self._checkpoint.what} has no chat template, so it was "
                f"given the image alone, and failed: {named_error(error)}. If it needs a text, add "
                "prompt_template to its spec, with {prompt} where the suite's prompt goes and the "
                "model's own image token where it wants one"
            ) from error

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> list[str | Failure | Reply]:
        """Answer each question; see `Writer`. Special tokens and outer spaces are taken off.

        Without a chat template, a question that does not have exactly one image is a failure.
        Special tokens that a question spells out are left out of it: a model would look for the
        image behind each.
        """
        asked = [
            [self.special.sub(" ", p) if isinstance(p, str) else p for p in question]
            for question in questions
        ]
        prompt = self.special.sub(" ", prompt)
        system = "\n\n".join(filter(None, [self.params.system_prompt, prompt]))
        if system and not self._system_checked:
            self._system_checked = True
            check_system_prompt(self._checkpoint, self.loaded)
        # Equal for questions that go in one call; None for what the model cannot be asked.
        kinds: list[Hashable] = []
        for question in asked:
            sizes = [piece.size for piece in question if isinstance(piece, Image.Image)]
            kind = tuple(sizes) if self.by_size else len(sizes)
            kinds.append(kind if self._chats or len(sizes) == 1 else None)

        def write_alike(rows: Sequence[int]) -> Sequence[str | Failure | Reply]:
            some = [asked[i] for i in rows]
            if kinds[rows[0]] is not None:
                prepare = partial(self._question_inputs, system=system)
                return self._write_texts(some, [seeds[i] for i in rows], prepare)
            return [
                Failure(
                    "exception",
                    f"{self._checkpoint.what} has no chat template and reads exactly one image "
                    "with its text; the question has "
                    f"{sum(not isinstance(piece, str) for piece in question)}",
                )
                for question in some
            ]

        return by_kind(kinds, write_alike)

    def _image_inputs(self, images: Sequence[Image.Image], prompt: str) -> Any:
        loaded = self.loaded
        if self._chats or (
            self.params.prompt_template is not None and loaded.processor is not None
        ):
            asked: list[Question] = [[image, prompt] if prompt else [image] for image in images]
            return self._question_inputs(asked, self.params.system_prompt or "")
        # A captioner would write on after the prompt.
        process = loaded.processor or loaded.image_processor
        return process(images=list(images), return_tensors="pt")

    def _question_inputs(self, questions: Sequence[Question], system: str) -> Any:
        if self._chats:
            return self.loaded.chat_inputs([conversation(q, system) for q in questions])
        template = self.params.prompt_template or "{prompt}"
        texts = [[piece for piece in q if isinstance(piece, str)] for q in questions]
        return self.loaded.processor(
            images=[[piece for piece in q if not isinstance(piece, str)] for q in questions],
            text=[
                template.replace("{prompt}", "\n".join(filter(None, [system, *own])))
                for own in texts
            ],
            return_tensors="pt",
            padding=True,
        )

    def _write_texts(
        self, inputs: Sequence[T], seeds: Sequence[int], prepare: Callable[[Sequence[T]], Any]
    ) -> list[str | Failure | Reply]:
        """One text per input, in a reply where it ends at the limit of its length, or its prompt is
        beyond what the model was made for; one whose tokens have no scores is a failure.

        prepare: makes what the model reads of some inputs. Raises whatever the libraries raise.
        """
        if not self.params.do_sample:
            return self._generate(inputs, prepare)
        texts: list[str | Failure | Reply] = []
        for single, seed in zip(inputs, seeds, strict=True):
            with seeded([self.loaded.device], seed):
                texts += self._generate([single], prepare)
        return texts

    def _generate(
        self, inputs: Sequence[T], prepare: Callable[[Sequence[T]], Any]
    ) -> list[str | Failure | Reply]:
        import torch
        from transformers import LogitsProcessorList

        loaded, tokenizer = self.loaded, self.loaded.tokenizer
        config = copy.deepcopy(loaded.generation_config)
        stops = () if config.eos_token_id is None else config.eos_token_id
        stops = stops if isinstance(stops, Collection) else [stops]
        enders = torch.tensor(stops, dtype=torch.long, device=loaded.device)
        broken = torch.zeros(len(inputs), dtype=torch.bool, device=loaded.device)
        over: torch.Tensor | None = None

        def note(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            nonlocal over
            nan = scores.isnan().any(dim=1)
            if over is None or len(over) != len(nan):
                over = torch.zeros_like(nan)  # an end in the prompt is none of the text's
            else:
                over |= torch.isin(tokens[:, -1], enders.to(tokens.device)).to(over.device)
            nan &= ~over  # beside a longer text, one that has ended is filled up
            # The beams of a text stand together; Whisper leaves out texts that have ended.
            by_text = len(nan) % len(inputs) == 0
            nan = nan.view(len(inputs), -1).any(dim=1) if by_text else nan.any()
            broken.logical_or_(nan.to(broken.device))
            return scores

        with quiet(), torch.inference_mode():
            read = prepare(inputs).to(loaded.device, loaded.model.dtype)
            prompts = read.get("input_ids")
            if not self._chats and loaded.positions is not None:
                # Shortened where learned positions end. Only without a chat template: there the
                # text is the same for every image, so a limit that depends on its length does not
                # make a text depend on its batch.
                used = 1 if prompts is None else prompts.shape[1]
                config.max_new_tokens = max(1, min(config.max_new_tokens, loaded.positions - used))
            # Strings that end a text are looked for in what the tokenizer makes of its tokens.
            reader = {"tokenizer": tokenizer} if config.stop_strings else {}
            options = reader | generate_options(loaded.model) | self._of_speech
            options["logits_processor"] = LogitsProcessorList([note])
            rows = list(loaded.model.generate(**read, generation_config=config, **options))
        before = ""
        if prompts is not None:
            # BLIP's caption goes on from the prompt; of others some repeat it in front.
            if loaded.model.config.model_type != "blip":
                length = prompts.shape[1]
                pairs = zip(rows, prompts, strict=True)
                rows = [row[length:] if row[:length].equal(own) else row for row, own in pairs]
            if self._marks and self._chats:  # by the chat template, every prompt ends alike
                before = opened_by(tokenizer.decode(prompts[0][-_TAIL:]))
        if self._dropped:
            kept = ([t for t in map(int, row) if t not in self._dropped] for row in rows)
            texts = [tokenizer.decode(tokens) for tokens in kept]
        else:
            texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
        texts = [before + text.strip() for text in texts]
        # Where a model ends every text at the limit, the token before tells whether it had ended.
        forced = config.forced_eos_token_id is not None
        longest = config.max_new_tokens + (forced and loaded.model.config.is_encoder_decoder)
        strings = config.stop_strings or ()
        strings = [strings] if isinstance(strings, str) else strings
        # The likeliest of tokens without a score is the first of the vocabulary, over and over.
        failure = Failure(
            "exception",
            f"the scores of its tokens are not numbers in {loaded.model.dtype}: give a dtype that "
            "holds the model's values, such as bfloat16",
        )
        # Rotary positions go on, with which the model was never trained.
        beyond = (
            f"{self._checkpoint.path}: a prompt has more tokens than the {loaded.positions} that "
            "the model was made for: its texts of such may mean nothing. Smaller or fewer images "
            "need fewer"
        )
        long = self._chats and prompts.shape[1] > (loaded.positions or math.inf)
        remarks = (beyond,) if long else ()
        results: list[str | Failure | Reply] = []
        for text, row, has_nan in zip(texts, rows, broken.tolist(), strict=True):
            ended = (
                len(row) < longest  # Whisper takes the end of a text off
                or int(row[-2:][0] if forced else row[-1]) in (config.pad_token_id, *stops)
                or any(string in text for string in strings)
            )
            value = failure if has_nan else text
            provenance = {} if ended or has_nan else CUT
            bare = not provenance and not remarks
            results.append(value if bare else Reply(value, provenance=provenance, remarks=remarks))
        return results


def _load(plan: LoadPlan[GenerationParams], longest: int) -> TextModel:
    settings = generation_settings(plan.checkpoint, plan.params, longest)
    return TextModel(plan.checkpoint, load_text_model(plan, settings), plan.params)


def _check_writer(plan: LoadPlan[GenerationParams]) -> None:
    """Raise RoleError where the checkpoint has no way to be given a question, SpecError for a
    template that it has no use for, or that has no place for the question.
    """
    template = plan.params.prompt_template
    if template is not None and "{prompt}" not in template:
        raise SpecError(
            f"model spec {plan.spec.text!r}: prompt_template of a writer must say with {{prompt}} "
            "where the question goes"
        )
    check_prompting(plan)
    if has_chat_template(plan.checkpoint):
        return
    if plan.checkpoint.config.get("model_type") == "vision-encoder-decoder":
        raise RoleError(
            f"{plan.spec.text!r} is a {plan.checkpoint.what}: it reads images alone, so it cannot "
            "be the writer. Give a model with a chat template"
        )
    if template is None:
        raise SpecError(
            f"model spec {plan.spec.text!r}: {plan.checkpoint.what} has no chat template, so "
            "nothing says how it is asked a question. Add prompt_template, with {prompt} where "
            "the question goes and the model's own image token where it wants one"
        )


DESCRIBER = adapter(
    "transformers-describer/1",
    GenerationParams,
    partial(_load, longest=DESCRIPTION_TOKENS),
    check=check_prompting,
    decisive=partial(decisive_settings, longest=DESCRIPTION_TOKENS),
)

WRITER = adapter(
    "transformers-writer/1",
    GenerationParams,
    partial(_load, longest=ANSWER_TOKENS),
    check=_check_writer,
    decisive=partial(decisive_settings, longest=ANSWER_TOKENS),
)
