"""Answers in one sequence: Emu3, whose one vocabulary holds words and image tokens.

The model writes and draws as it was trained to, token by token; a grammar keeps its images whole
and its answer within the limits. Nothing guides the images (guidance compares with a prompt of its
own for each image, and here the prompt is the answer so far). Each answer draws its random numbers
from a generator of its own, so it depends on its question, limit and seed alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import cut_into_steps
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.generation import (
    TextParams,
    has_chat_template,
    sampling_settings,
    stored_settings,
)
from pytest_cepbench.models.describers.text_model import TextModel, chat_turn
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber, load_describer
from pytest_cepbench.models.device_maps import input_device
from pytest_cepbench.models.grouping import by_kind
from pytest_cepbench.models.interleavers.answer_grammar import (
    Allowed,
    AnswerAutomaton,
    ImageLayout,
    longest_answer,
)
from pytest_cepbench.models.interleavers.prompts import PROMPTS, told_text
from pytest_cepbench.models.load_plan import Adapter, LoadPlan, check_at_least
from pytest_cepbench.models.protocols import AnswerStep, Question, StepLimit
from pytest_cepbench.models.torch_runtime import quiet
from pytest_cepbench.models.unified.drawing import UnifiedParams, drawing_settings
from pytest_cepbench.models.unified.emu3_decoder import Emu3Grid, make_grid
from pytest_cepbench.models.unified.image_decoder import (
    add_gumbel,
    configured,
    make_warpers,
    only,
    to_image,
)
from pytest_cepbench.models.writers.transformers_writer import special_tokens

if TYPE_CHECKING:
    import torch

_DRAWING = (
    "image_do_sample", "image_temperature", "image_top_p", "image_top_k", "image_ratio",
    "image_area",
)  # fmt: skip

_NOT_GUIDED = ("guidance_scale", "negative_prompt", "prompt_template")
"""Settings of drawing one image from one prompt."""


@dataclass(frozen=True)
class InterleaverParams(TextParams):
    """Parameters of an interleaver's spec that answers in one sequence, with those of `TextParams`,
    which are about its words.

    batch_size: most questions in one call.
    two_stage: true writes and draws in turns instead; see `two_stage_interleaver`.
    system_prompt: goes before the question.
    max_text_tokens: most tokens of a text before the next image or the end.
    image_do_sample: draw image tokens from the sample's seed; false takes the likeliest (greedy).
    image_temperature, image_top_p, image_top_k: of that drawing; top_k=0 means no limit.
    image_ratio, image_area: "width:height" and pixels of an image.
    None leaves the setting to the checkpoint's generation_config.json, else to the authors' own
    code. Raises ValueError as `TextParams` and `UnifiedParams`.
    """

    batch_size: int = 4
    two_stage: bool = False
    system_prompt: str | None = None
    max_text_tokens: int = 512
    image_do_sample: bool = True
    image_temperature: float | None = None
    image_top_p: float | None = None
    image_top_k: int | None = None
    image_ratio: str | None = None
    image_area: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "max_text_tokens")
        assert self.drawing  # raises for wrong values

    @property
    def drawing(self) -> UnifiedParams:
        """The parameters of its images."""
        return UnifiedParams(**{name: getattr(self, name) for name in _DRAWING})

    @property
    def seeded(self) -> bool:
        """Whether words or image tokens are sampled."""
        return self.do_sample or self.image_do_sample


def _image_settings(plan: LoadPlan[InterleaverParams]) -> dict[str, Any]:
    settings = drawing_settings(plan.params.drawing, stored_settings(plan.checkpoint), "emu3")
    return {name: value for name, value in settings.items() if name not in _NOT_GUIDED}


def _text_settings(plan: LoadPlan[InterleaverParams]) -> dict[str, Any]:
    return sampling_settings(plan.params, stored_settings(plan.checkpoint))


def _decisive(plan: LoadPlan[InterleaverParams]) -> dict[str, Any]:
    return {
        "dtype": plan.dtype,
        "attn_implementation": plan.params.attn_implementation,
        "backend": plan.params.backend,
        "system_prompt": plan.params.system_prompt,
        "prompts": PROMPTS,
        "max_text_tokens": plan.params.max_text_tokens,
        "text": _text_settings(plan),
        "image": _image_settings(plan),
        **({"reasoning": "keep"} if plan.params.reasoning == "keep" else {}),
    }


def _check(plan: LoadPlan[InterleaverParams]) -> None:
    checkpoint = plan.checkpoint
    if checkpoint.config.get("model_type") != "emu3":
        msg = (
            f"{plan.spec.text!r} is a {checkpoint.what}, which does not hold words and image "
            "tokens in one vocabulary: it cannot be the interleaver. Give an Emu3 or a Janus, a "
            "writer and a generator, or wrap its own code as python:package.module:factory"
        )
        raise RoleError(msg)
    check_chat_template(checkpoint)


def check_chat_template(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError where there is no chat template, by which a question is asked."""
    if not has_chat_template(checkpoint):
        msg = (
            f"{checkpoint.path}: an interleaver is asked by its chat template, and there is none. "
            "Save the processor that the model was trained with (processor.save_pretrained)"
        )
        raise CheckpointError(msg)


def _load(plan: LoadPlan[InterleaverParams]) -> Emu3Interleaver:
    from transformers import AutoImageProcessor

    loaded = load_describer(plan, {"do_sample": False, "max_new_tokens": 1}, chat=True)
    images = _image_settings(plan)
    with quiet(), plan.checkpoint.preparation_folder() as folder:
        finish = AutoImageProcessor.from_pretrained(folder, backend="pil")
    grid = make_grid(plan.checkpoint, loaded, images)
    vocabulary = read_vocabulary(plan.checkpoint, loaded, grid)
    settings = {"word": _text_settings(plan), "code": images}
    return Emu3Interleaver(plan.checkpoint, loaded, plan.params, finish, vocabulary, settings)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of an answer.

    grid: of its images.
    layout: of an image in the sequence.
    words: ids of all tokens that are neither special nor image tokens, (n,) on the model's device.
    end: id that ends an answer.
    """

    grid: Emu3Grid
    layout: ImageLayout
    words: torch.Tensor
    end: int


def read_vocabulary(checkpoint: Checkpoint, loaded: LoadedDescriber, grid: Emu3Grid) -> Vocabulary:
    """The tokens of an answer, as the checkpoint's processor and configuration name them.

    Raises CheckpointError where the tokenizer lacks a token that frames an image or ends an answer.
    """
    import torch

    tokenizer, processor = loaded.tokenizer, loaded.processor
    frame = ("image_start_token", "fake_token_around_image", "eof_token", "image_end_token")
    known = tokenizer.get_vocab()
    start, before, *footer = (known.get(getattr(processor, name, None)) for name in frame)
    ends = loaded.model.generation_config.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    end = tokenizer.eos_token_id if end is None else end
    if None in (start, before, *footer, end):
        msg = (
            f"{checkpoint.path}: an answer needs tokens that frame an image and one that ends it, "
            "and the tokenizer lacks some of them. Save the processor that the model was trained "
            "with (processor.save_pretrained)"
        )
        raise CheckpointError(msg)
    size = tokenizer(f"{grid.height}*{grid.width}", add_special_tokens=False)["input_ids"]
    layout = ImageLayout(
        start, (*size, before), grid.height, grid.width, grid.end_of_row, tuple(footer)
    )
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    special |= {*tokenizer.all_special_ids, *grid.tokens.tolist(), grid.end_of_row, end}
    count = min(len(tokenizer), loaded.embeddings or len(tokenizer))
    words = torch.tensor([i for i in range(count) if i not in special], device=grid.tokens.device)
    return Vocabulary(grid, layout, words, end)


class Emu3Interleaver:
    """A loaded interleaver that answers in one sequence.

    settings: of choosing tokens, for words and for image codes: do_sample, and where that is true
        temperature, top_p and top_k (0 is no limit).
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        loaded: LoadedDescriber,
        params: InterleaverParams,
        finish: Any,
        vocabulary: Vocabulary,
        settings: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._text_model = TextModel(checkpoint, loaded, sampled=False)
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._params = params
        self._finish = finish
        self._vocabulary = vocabulary
        self._settings = settings
        self._special = special_tokens(loaded)
        self._pad = loaded.generation_config.pad_token_id

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self._model.to(device)

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> list[list[AnswerStep] | Failure]:
        """Answer each question; see `Interleaver`. The caller's random state is left as it was.

        A failure is "empty-text" for an answer without text and image, "nan-image" or "exception"
        where the model's scores are no numbers.
        """
        conversations = [
            self._conversation(question, limit)
            for question, limit in zip(questions, limits, strict=True)
        ]
        # Smaller images of a call are padded before they are read, and padding changes them.
        sizes = [
            tuple(piece.size for piece in question if isinstance(piece, Image.Image))
            for question in questions
        ]
        return by_kind(
            sizes,
            lambda indices: self._answer(
                [conversations[i] for i in indices],
                [limits[i] for i in indices],
                [seeds[i] for i in indices],
            ),
        )

    def _conversation(self, question: Question, limit: StepLimit) -> list[dict[str, Any]]:
        parts = [
            self._special.sub(" ", piece) if isinstance(piece, str) else piece for piece in question
        ]
        told = [told_text(limit.told)] if limit.told is not None else []
        system = self._params.system_prompt
        before = [chat_turn("system", [system])] if system else []
        return [*before, chat_turn("user", [*parts, *told])]

    def _answer(
        self,
        conversations: Sequence[list[dict[str, Any]]],
        limits: Sequence[StepLimit],
        seeds: Sequence[int],
    ) -> list[list[AnswerStep] | Failure]:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        layout, end = self._vocabulary.layout, self._vocabulary.end
        max_text = self._params.max_text_tokens
        automata = [AnswerAutomaton(layout, end, limit, max_text) for limit in limits]
        chooser = TokenChooser(automata, self._vocabulary, self._settings, seeds)
        config = GenerationConfig(
            do_sample=False,  # the chooser leaves one token
            max_new_tokens=longest_answer(layout, max(limit.most for limit in limits), max_text),
            eos_token_id=end,
            pad_token_id=self._pad,
        )
        with quiet(), torch.inference_mode(), configured(self._model, config):
            inputs = self._text_model.chat_inputs(conversations)
            output = self._model.generate(
                **inputs.to(input_device(self._model), self._model.dtype),
                generation_config=config,
                logits_processor=LogitsProcessorList([chooser]),
            )
            chooser.advance(output[:, -1])
            return [
                self._steps(automaton, broken)
                for automaton, broken in zip(automata, chooser.broken, strict=True)
            ]

    def _steps(self, automaton: AnswerAutomaton, broken: str) -> list[AnswerStep] | Failure:
        if broken:
            detail = f"the model's scores of the next {broken} are not numbers"
            return Failure("nan-image" if broken == "code" else "exception", detail)
        pieces: list[str | Image.Image] = []
        for piece in automaton.pieces:
            if piece.kind == "text":
                pieces.append(self._tokenizer.decode(piece.tokens, skip_special_tokens=True))
                continue
            drawn = self._draw(piece.tokens)
            if isinstance(drawn, Failure):
                return drawn
            pieces.append(drawn)
        steps = [AnswerStep(text, image) for text, image in cut_into_steps(pieces)]
        return steps or Failure("empty-text", "the answer ended without a text or an image")

    def _draw(self, tokens: list[int]) -> Image.Image | Failure:
        import torch

        # One by one: convolutions of a batch round otherwise than those of one.
        pixels = self._vocabulary.grid.decode(
            torch.tensor([tokens], device=input_device(self._model))
        )
        return to_image(self._finish, pixels[0])


class TokenChooser:
    """Leaves each answer of a batch the one token that comes next.

    automata: one for each answer, kept in step with the tokens.
    broken: what each answer was about to choose when it met scores that are no numbers, "word" or
        "code"; empty where it met none. Such an answer ends.
    """

    def __init__(
        self,
        automata: Sequence[AnswerAutomaton],
        vocabulary: Vocabulary,
        settings: Mapping[str, Mapping[str, Any]],
        seeds: Sequence[int],
    ) -> None:
        import torch

        self._automata = automata
        self._vocabulary = vocabulary
        self._samples = {kind: bool(values["do_sample"]) for kind, values in settings.items()}
        self._warpers = {
            kind: make_warpers(values) if values["do_sample"] else []
            for kind, values in settings.items()
        }
        self._generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        self._choices: dict[Allowed, torch.Tensor] = {}
        self._started = False
        self.broken = [""] * len(automata)

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(answers, tokens) scores of which each row has the next token alone left."""
        import torch

        if self._started:
            self.advance(ids[:, -1])
        self._started = True
        chosen = [
            self._choose(index, scores[index].float()) for index in range(len(self._automata))
        ]
        return only(torch.tensor(chosen, device=scores.device), scores)

    def advance(self, tokens: torch.Tensor) -> None:
        """Take the token that came in each answer, (answers,)."""
        for index, token in enumerate(tokens.tolist()):
            if not self.broken[index]:
                self._automata[index].advance(token)

    def _choose(self, index: int, scores: torch.Tensor) -> int:
        allowed = self._automata[index].allowed
        if self.broken[index] or (allowed.kind == "token" and len(allowed.tokens) == 1):
            return self._vocabulary.end if self.broken[index] else allowed.tokens[0]
        kind = "code" if allowed.kind == "code" else "word"
        choices = self._ids(allowed, scores.device)
        left = scores[choices][None]
        if left.isnan().any():
            self.broken[index] = kind
            return self._vocabulary.end
        for warper in self._warpers[kind]:
            left = warper(None, left)
        if self._samples[kind]:
            left = add_gumbel(left, [self._generators[index]])
        return int(choices[left.argmax()])

    def _ids(self, allowed: Allowed, device: Any) -> torch.Tensor:
        import torch

        if allowed not in self._choices:
            extra = torch.tensor(allowed.tokens, dtype=torch.long)
            parts = {"code": self._vocabulary.grid.tokens, "word": self._vocabulary.words}
            named = [parts[allowed.kind].cpu()] if allowed.kind in parts else []
            self._choices[allowed] = torch.cat([*named, extra]).to(device)
        return self._choices[allowed]


ADAPTER = Adapter(
    "transformers-interleaver/1",
    ("torch", "transformers"),
    InterleaverParams,
    _load,
    check=_check,
    decisive=_decisive,
)
