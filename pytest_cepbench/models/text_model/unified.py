"""Unified models: describer, writer, generator and interleaver in one checkpoint, loaded once.

Describing and writing are the code of these roles, and answers are made in turns of writing and
drawing. Drawing goes by families, since transformers has no one way for it: Janus and Emu3.

Image tokens are chosen with a random generator for each drawing, whatever batch it is in.
transformers draws the tokens of a batch from the global generator, so that a drawing would depend
on its neighbours. Adding Gumbel noise to the scores and taking the largest sum draws from the same
distribution (the Gumbel-max trick), and the noise of each drawing can be its own. Two checkpoints
then meet the same noise at the same step, so their drawings differ no more than the checkpoints do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.binding import BindContext, BoundRole
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.loaded_checks import embedded_tokens
from pytest_cepbench.models.checkpoints.loading import explained
from pytest_cepbench.models.protocols import (
    AnswerStep,
    ImageLike,
    Question,
    Reply,
    RoleName,
    StepLimit,
)
from pytest_cepbench.models.spec import ModelSpec, parse_params, split_params
from pytest_cepbench.models.text_model.interleaver import PROMPTS, interleave
from pytest_cepbench.models.text_model.likelihood import cache_argument
from pytest_cepbench.models.text_model.loading import (
    LoadedTextModel,
    conversation,
    generation_config,
)
from pytest_cepbench.models.text_model.parameters import (
    OF_EMU3,
    GenerationParams,
    UnifiedParams,
    day_settings,
    drawing_settings,
    generation_settings,
    has_chat_template,
    stored_settings,
)
from pytest_cepbench.models.text_model.text_generation import (
    ANSWER_TOKENS,
    DESCRIBER,
    WRITER,
    TextModel,
)
from pytest_cepbench.models.torch_runtime import backend_option, need, quiet

if TYPE_CHECKING:
    import torch


def _generate(model: Any, config: Any, choose: Callable[..., Any], **inputs: Any) -> torch.Tensor:
    """The tokens that a model writes of which `choose` says what may follow.

    The configuration is the model's own meanwhile: transformers fills what a call does not set from
    there, and a penalty of repetitions that is there for texts would work on image tokens too.
    """
    from transformers import LogitsProcessorList

    before = model.generation_config
    model.generation_config = config
    try:
        tokens: torch.Tensor = model.generate(
            **inputs, generation_config=config, logits_processor=LogitsProcessorList([choose])
        )
    finally:
        model.generation_config = before
    return tokens


class TokenSampler:
    """Picks the next image token of each drawing of a batch.

    settings: do_sample, and where that is true temperature, top_p and top_k (0 is no limit).
    seeds: one for each drawing. broken: which drawings met scores that are no numbers.
    """

    def __init__(self, settings: Mapping[str, Any], seeds: Sequence[int]) -> None:
        import torch
        from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        self.broken = torch.zeros(len(seeds), dtype=torch.bool)
        self._generators: list[torch.Generator] = []
        self._warpers: list[Callable[..., torch.Tensor]] = []
        if settings["do_sample"]:
            self._generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
            # Scores are brought to a temperature, and what top-k and top-p leave out goes.
            if settings["temperature"] != 1.0:
                self._warpers.append(TemperatureLogitsWarper(float(settings["temperature"])))
            if settings["top_k"]:
                self._warpers.append(TopKLogitsWarper(int(settings["top_k"])))
            if settings["top_p"] < 1.0:
                self._warpers.append(TopPLogitsWarper(float(settings["top_p"])))

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        """The token of each drawing; scores: (drawings, tokens) logits."""
        import torch

        scores = scores.float()
        self.broken |= scores.isnan().any(dim=1).cpu()
        for warper in self._warpers:
            scores = warper(None, scores)
        if self._generators:
            # On the CPU, so that the noise is the same on every device.
            noise = [
                torch.empty(scores.shape[1]).exponential_(generator=g) for g in self._generators
            ]
            scores = scores - torch.stack(noise).log().to(scores.device)
        return scores.argmax(dim=1)


def _only(chosen: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Scores like `like`, in shape and kind, that leave a sampler only the chosen tokens."""
    import torch

    scores = torch.full_like(like, -torch.inf)
    return scores.scatter_(1, chosen[:, None], 0.0)


class JanusDecoder:
    """Draws images of the size that the checkpoint was made for.

    settings: of `drawing_settings`. Raises CheckpointError where the parts that draw do not fit.
    chats: whether prompts go through the checkpoint's chat template, where it has one.
    by_size: whether images of several sizes in one call would change each other's descriptions.
    """

    chats = True
    by_size = False

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedTextModel, settings: Mapping[str, Any]
    ) -> None:
        from transformers import GenerationConfig

        self._loaded = loaded
        self._settings = settings
        config = loaded.model.config
        stored, tokenizer = loaded.model.generation_config, loaded.tokenizer
        start = getattr(loaded.processor, "image_start_token", None)
        known = tokenizer.get_vocab()
        bos = stored.bos_token_id if stored.bos_token_id is not None else tokenizer.bos_token_id
        if start not in known or bos is None:
            raise CheckpointError(
                f"{checkpoint.path}: drawing needs a token that starts a text and one that starts "
                f"an image, and the tokenizer has {bos!r} and {start!r} for them. Save the "
                "processor that the model was trained with (processor.save_pretrained)"
            )
        pad = stored.pad_token_id if stored.pad_token_id is not None else tokenizer.pad_token_id
        self._config = GenerationConfig(
            do_sample=False,  # `TokenSampler` leaves one token
            guidance_scale=1.0,  # `choose` guides: its own would come after the choice
            bos_token_id=bos,
            pad_token_id=pad,
            eos_token_id=stored.eos_token_id,
            generation_kwargs={"boi_token_id": known[start]},
        )
        codes = config.vq_config.num_embeddings
        scored = loaded.model.model.generation_head.vision_head.out_features
        side = config.vq_config.num_patches
        if codes != scored or side * side != config.vision_config.num_image_tokens:
            raise CheckpointError(
                f"{checkpoint.path}: the parts that draw do not fit: the head scores {scored} "
                f"image tokens and the codebook has {codes}; "
                f"{config.vision_config.num_image_tokens} are drawn and the decoder takes "
                f"{side * side}. Save config.json and weights again"
            )

    def draw(self, prompts: Sequence[str], sampler: TokenSampler) -> torch.Tensor:
        """(n, 3, h, w) or (n, h, w, 3) pixel values as the checkpoint's image processor scales
        them. Each depends on its own prompt and seed.
        """
        from transformers import DynamicCache

        loaded, model = self._loaded, self._loaded.model
        inputs = loaded.processor(
            text=list(prompts), generation_mode="image", padding=True, return_tensors="pt"
        ).to(loaded.device)
        scale = self._settings["guidance_scale"]

        def choose(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            guided, unguided = scores.float().chunk(2)
            guided = unguided + scale * (guided - unguided)
            return _only(sampler(guided), guided)

        # The static cache of its own grows from call to call, and rounding with it.
        cache = DynamicCache(config=model.config.get_text_config(decoder=True))
        codes = _generate(
            model,
            self._config,
            choose,
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            generation_mode="image",
            **{cache_argument(model): cache},
        )
        pixels: torch.Tensor = model.decode_image_tokens(codes)
        return pixels


_LAST = 3
"""Tokens after the last row (end of frame, image and text), which the decoder drops unread."""


class Emu3Decoder:
    """Draws images of the ratio and area in its settings, rounded to whole tokens.

    settings: of `drawing_settings`. Raises CheckpointError where the vocabulary has not every image
    token, SpecError for a size of no token.
    """

    chats = False
    by_size = True  # smaller images are padded before they are read, and padding changes them

    def __init__(
        self, checkpoint: Checkpoint, loaded: LoadedTextModel, settings: Mapping[str, Any]
    ) -> None:
        import torch
        from transformers import GenerationConfig

        self._loaded = loaded
        self._settings = settings
        mapping = loaded.model.vocabulary_mapping
        codes = loaded.model.config.vq_config.codebook_size
        rows = embedded_tokens(loaded.model) or 0
        tokens: Sequence[int] = mapping.image_tokens
        if len(tokens) != codes or mapping.eol_token_id is None or max(tokens) >= rows:
            raise CheckpointError(
                f"{checkpoint.path}: vocabulary_map of config.json names {len(tokens)} image "
                f"tokens and the codebook has {codes}; it must name each, and the token "
                f"<|extra_200|> that ends a row, among the {rows} that the weights know. Save "
                "config.json again"
            )
        self._tokens = torch.tensor(tokens)
        self._end_of_row = int(mapping.eol_token_id)
        ratio, area = settings["image_ratio"], settings["image_area"]
        self._height, self._width = loaded.processor.calculate_generate_size(
            ratio, area, loaded.processor.downsample_ratio
        )
        if min(self._height, self._width) < 1:
            raise SpecError(
                f"{checkpoint.path}: image_area={area} at {ratio} is less than one image token"
            )
        stored = loaded.model.generation_config
        self._config = GenerationConfig(
            do_sample=False,  # `TokenSampler` leaves one token
            guidance_scale=settings["guidance_scale"],
            max_new_tokens=self._height * (self._width + 1),
            bos_token_id=stored.bos_token_id,
            pad_token_id=loaded.generation_config.pad_token_id,
        )

    def draw(self, prompts: Sequence[str], sampler: TokenSampler) -> torch.Tensor:
        """As `JanusDecoder.draw`."""
        import torch

        model = self._loaded.model
        height, width, tokens = self._height, self._width, self._tokens.to(self._loaded.device)
        inputs = self._inputs(prompts)
        unwanted = self._inputs([self._settings["negative_prompt"]] * len(prompts))
        start = inputs["input_ids"].shape[1]

        def choose(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            column = (ids.shape[1] - start) % (width + 1)
            if column == width:
                ends = torch.full((len(ids),), self._end_of_row, device=scores.device)
                return _only(ends, scores)
            return _only(tokens[sampler(scores[:, tokens])], scores)

        output = _generate(
            model,
            self._config,
            choose,
            **inputs,
            negative_prompt_ids=unwanted["input_ids"],
            negative_prompt_attention_mask=unwanted["attention_mask"],
        )
        drawn = torch.nn.functional.pad(output[:, start:], (0, _LAST))
        pixels: torch.Tensor = model.decode_image_tokens(
            image_tokens=drawn, height=height, width=width
        )
        return pixels

    def _inputs(self, prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        inputs = self._loaded.processor(
            text=list(prompts),
            return_for_image_generation=True,
            ratio=self._settings["image_ratio"],
            image_area=self._settings["image_area"],
            padding=True,
            return_tensors="pt",
        )
        names = ("input_ids", "attention_mask")
        return {name: inputs[name].to(self._loaded.device) for name in names}


# -- binding and loading ---------------------------------------------------------------------------

ADAPTER = "transformers-unified/1"

_DECODERS: dict[str, type[JanusDecoder | Emu3Decoder]] = {
    "janus": JanusDecoder,
    "emu3": Emu3Decoder,
}
"""By model type."""


def bind_unified(
    role: RoleName, spec: ModelSpec, checkpoint: Checkpoint, context: BindContext
) -> BoundRole:
    """Bind a transformers checkpoint as describer, writer, generator or interleaver of one load,
    without importing torch.

    All roles of one spec name the same load in `shares`. Raises SpecError for unknown, wrong or
    contradictory parameters of any role, CheckpointError for an interleaver without a chat
    template, MissingDependencyError where a library is not installed.
    """
    family = str(checkpoint.config.get("model_type") or "")
    if family not in _DECODERS:
        raise RoleError(
            f"{spec.text!r} is a {checkpoint.what}, which describes, and only "
            f"{' and '.join(_DECODERS)} draw as well: give a diffusers pipeline as the generator, "
            "or wrap its own code as python:package.module:factory"
        )
    names = {field.name for field in dataclasses.fields(UnifiedParams)}
    names -= set() if family == "emu3" else set(OF_EMU3)
    of_texts = {field.name for field in dataclasses.fields(GenerationParams)} - names
    of_texts |= set(GenerationParams.SOURCES)
    texts, own = split_params(spec, f"the unified model {checkpoint.what}", of_texts, names)
    drawing = parse_params(own, UnifiedParams, checkpoint.what)
    settings = drawing_settings(drawing, stored_settings(checkpoint), family)
    plain = DESCRIBER("describer", texts, checkpoint, context)
    need("a unified model", "transformers", "5.0")

    bound = WRITER(role, texts, checkpoint, context) if role == "writer" else plain
    params, seeded, resources = bound.params, bound.seeded, bound.resources
    if role in ("generator", "interleaver"):
        size_left_open = plain.device != "cpu" and "image_batch_size" not in spec.params
        grows = role == "generator" and size_left_open
        resources = replace(resources, batch_size=drawing.image_batch_size, grows=grows)
        seeded = drawing.image_do_sample or (role == "interleaver" and seeded)
    if role == "generator":
        taken = {name: params[name] for name in ("dtype", "attn_implementation")}
        params = taken | day_settings(checkpoint, "writer", None) | settings
    elif role == "interleaver":
        if not has_chat_template(checkpoint):
            raise CheckpointError(
                f"{checkpoint.path}: an interleaver is asked by its chat template, and there is "
                "none. Save the processor that the model was trained with "
                "(processor.save_pretrained)"
            )
        day = day_settings(checkpoint, "writer", None)
        params = {**params, **day, "prompts": PROMPTS, "image": settings}
    return replace(
        bound,
        role=role,
        adapter=ADAPTER,
        load=lambda: UnifiedModel(plain, checkpoint, family, settings),
        params=params,
        seeded=seeded,
        resources=replace(resources, shares=f"{plain.fingerprint} {spec.text}"),
    )


class UnifiedModel:
    """A loaded unified model: describes and writes as its parts do, draws by its decoder."""

    def __init__(
        self, bound: BoundRole, checkpoint: Checkpoint, family: str, settings: Mapping[str, Any]
    ) -> None:
        """bound: as describer. settings: of `drawing_settings`."""
        from transformers import AutoImageProcessor

        describer = bound.load()
        assert isinstance(describer, TextModel)
        self._describer, self.loaded, self._settings = describer, describer.loaded, settings
        with explained(checkpoint), quiet(), checkpoint.preparation_folder() as folder:
            # Turns pixel values into pictures, the same way whatever images are read with:
            # torchvision rounds otherwise.
            self._finish = AutoImageProcessor.from_pretrained(folder, **backend_option("pil"))
            self._decoder = _DECODERS[family](checkpoint, self.loaded, settings)
        answers = generation_settings(checkpoint, describer.params, ANSWER_TOKENS)
        config = generation_config(self.loaded.model, self.loaded.tokenizer, answers)
        # A checkpoint's guidance is that of its drawings; a text would be guided away from no
        # prompt.
        config.guidance_scale = self.loaded.generation_config.guidance_scale = None
        loaded = replace(self.loaded, generation_config=config)
        writer = TextModel(checkpoint, loaded, describer.params)
        describer.by_size = writer.by_size = self._decoder.by_size
        self.move, self.describe, self.write = describer.move, describer.describe, writer.write

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> list[list[AnswerStep] | Failure | Reply]:
        """Answer each question in steps, each a text and then its image.

        The describer writes the text of a step, which is about as long as a description.
        """
        keeps = self._describer.params.reasoning == "keep"
        return interleave(self._describer, self, questions, limits, seeds, keeps_reasoning=keeps)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike | Failure]:
        """Draw each text: an image, or a "nan-image" failure where the model's scores are NaN.

        The caller's random state is left as it was.
        """
        import torch

        sampler = TokenSampler(self._settings, seeds)
        with quiet(), torch.inference_mode():
            pixels = self._decoder.draw([self._prompt(text) for text in texts], sampler)
            # transformers 5 has the colors first.
            pixels = (pixels if pixels.shape[1] == 3 else pixels.permute(0, 3, 1, 2)).float().cpu()
            pixels[sampler.broken] = float("nan")
        drawn: list[ImageLike | Failure] = []
        for values in pixels.numpy():  # each (3, h, w)
            if np.isfinite(values).all():
                made = self._finish.postprocess([values], return_tensors="PIL.Image.Image")
                drawn.append(made["pixel_values"][0])
                continue
            share = 1 - float(np.isfinite(values).mean())
            drawn.append(Failure("nan-image", f"{share:.0%} of the pixel values are not numbers"))
        return drawn

    def _prompt(self, text: str) -> str:
        # A model may spell its own image token, and would then be asked where the image is.
        text = self._describer.special.sub(" ", text)
        chats = self._decoder.chats and self.loaded.chat_template
        return self.loaded.chat_text(conversation([text])) if chats else text
