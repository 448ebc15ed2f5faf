"""Parameters of the specs of text models, and the settings that are in force with them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models import RoleName
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.format_detection import read_json
from pytest_cepbench.models.checkpoints.parameters import TransformersParams
from pytest_cepbench.models.sounds.feature_extractor import check_extractor
from pytest_cepbench.models.spec import (
    AboveZero,
    Bounds,
    Finite,
    Natural,
    NotNegative,
    Positive,
    Share,
    given_params,
)
from pytest_cepbench.models.text_model.judge_prompts import DEFAULT_PROMPT, JUDGE_PROMPTS

# Where tokens are sampled and no setting is given: transformers' values, stated so that they enter
# keys.
_SAMPLING: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 50}

_TEMPLATES = (
    "chat_template.jinja", "chat_template.json", "processor_config.json", "tokenizer_config.json",
)  # fmt: skip
"""Files in which transformers looks for a chat template."""

_GENERATION = (
    "max_new_tokens", "min_new_tokens", "num_beams", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size",
)  # fmt: skip


def _refuse_sampling(params: object, names: Iterable[str], remedy: str) -> None:
    """Raise ValueError for a parameter of sampling that is given though nothing is sampled."""
    for name in names:
        if getattr(params, name) is not None:
            raise ValueError(f"{name} acts on sampling only: {remedy}")


@dataclass(frozen=True)
class TextModelParams(TransformersParams):
    """Parameters of every transformers checkpoint that reads images and texts, with those of
    `TransformersParams`.

    allow_unused: leave out tensors that the architecture does not know, instead of refusing them.
    system_prompt: of a writer or describer goes before the prompt, for a checkpoint with a chat
        template; of a judge in the place of its prompt's own, of a VQA model before each question.
    """

    allow_unused: bool = False
    system_prompt: str | None = None


@dataclass(frozen=True)
class GenerationParams(TextModelParams):
    """Parameters of a text by transformers' own `generate`, with those of `TextModelParams`.

    do_sample: draw tokens from the seed instead of taking the likeliest (greedy, the default).
    temperature, top_p, top_k: of sampling, as in transformers; None leaves the checkpoint's own
        setting. temperature=0 is greedy; top_k=0 means no limit.
    reasoning: strip (reasoning is no part of the answer) or keep.
    prompt_template: for a checkpoint without a chat template: the text that goes with the image,
        `{prompt}` standing for what the model is asked.
    max_new_tokens: None means the checkpoint's own limit, else the role's default. Where a
        checkpoint without a chat template has learned positions, no text is longer than these.
    The other parameters are transformers'; None leaves the checkpoint's own setting.
    Raises ValueError for sampling parameters without do_sample, and others that contradict.
    """

    do_sample: bool = False
    temperature: NotNegative | None = None
    top_p: Share | None = None
    top_k: Natural | None = None
    reasoning: Annotated[str, Bounds(choices=("strip", "keep"))] = "strip"
    prompt_template: str | None = None
    max_new_tokens: Positive | None = None
    min_new_tokens: Natural | None = None
    num_beams: Positive | None = None
    repetition_penalty: AboveZero | None = None
    length_penalty: Finite | None = None
    no_repeat_ngram_size: Natural | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.do_sample and self.temperature == 0:
            raise ValueError(
                "temperature=0 is greedy: leave out do_sample=true, or give a temperature above 0"
            )
        if not self.do_sample:
            names = [name for name in _SAMPLING if name != "temperature" or self.temperature]
            _refuse_sampling(self, names, "add do_sample=true, or leave it out")
        if (self.min_new_tokens or 0) > (self.max_new_tokens or math.inf):
            least, most = self.min_new_tokens, self.max_new_tokens
            raise ValueError(f"min_new_tokens={least} is above max_new_tokens={most}")

    @property
    def seeded(self) -> bool:
        """Greedy writing does not depend on the seed."""
        return self.do_sample


def _first(*choices: Any) -> Any:
    """The first that is given; None where none is."""
    return next((choice for choice in choices if choice is not None), None)


def generation_settings(
    checkpoint: Checkpoint, params: GenerationParams, longest: int
) -> dict[str, Any]:
    """The generation settings in force: the spec's, else those of the checkpoint's own
    generation_config.json, sampling settings only where tokens are sampled.

    longest: new tokens where neither says how many.

    A checkpoint's own do_sample does not count: writing is greedy unless the spec says otherwise.
    Its max_length counts for a captioner, whose text begins with one start token; where there is a
    chat template, max_length is the size of the context.
    """
    stored, chat = stored_settings(checkpoint), has_chat_template(checkpoint)
    settings: dict[str, Any] = {"do_sample": params.do_sample}
    if params.do_sample:
        for name, default in _SAMPLING.items():
            settings[name] = _first(getattr(params, name), stored.get(name), default)
    for name in _GENERATION:
        value = _first(getattr(params, name), stored.get(name))
        if value is not None:
            settings[name] = value
    length = stored.get("max_length")
    settings.setdefault("max_new_tokens", longest if chat or not length else max(1, length - 1))
    return settings


def decisive_settings(plan: LoadPlan[GenerationParams], longest: int) -> dict[str, Any]:
    """What decides a text besides the checkpoint, for keys; longest: as above."""
    params = plan.params
    return {
        "dtype": plan.dtype,
        "attn_implementation": params.attn_implementation,
        "backend": params.backend,
        "system_prompt": params.system_prompt,
        "prompt_template": params.prompt_template,
        **({"reasoning": "keep"} if params.reasoning == "keep" else {}),
        **generation_settings(plan.checkpoint, params, longest),
        **day_settings(plan.checkpoint, plan.role, params.system_prompt),
    }


def check_prompting(plan: LoadPlan[GenerationParams]) -> None:
    """Raise SpecError for a prompt that the checkpoint has no use for, RoleError for a model that
    reads sounds among tokens of a text and lacks the template of that, CheckpointError without a
    feature extractor of sounds.
    """
    spec, params, checkpoint = plan.spec, plan.params, plan.checkpoint
    chat = has_chat_template(checkpoint)
    if "image" not in checkpoint.reads:
        check_extractor(plan)
        if not chat and any(name.startswith("audio_token") for name in checkpoint.config):
            raise RoleError(
                f"{spec.text!r} is a {checkpoint.what}, which reads a sound in a conversation, "
                "and the checkpoint has no chat template. Save its processor into the folder too "
                "(processor.save_pretrained)"
            )
    if params.system_prompt is not None and not chat:
        raise spec.error(
            "system_prompt needs a chat template, and the checkpoint has none. Say with "
            "prompt_template which text goes with the image"
        )
    if params.prompt_template is not None and chat:
        raise spec.error(
            "prompt_template is for checkpoints without a chat template, and this one has its own. "
            "Leave it out"
        )


def has_chat_template(checkpoint: Checkpoint) -> bool:
    """True for a checkpoint with a chat template, in any of the files that transformers reads."""
    if checkpoint.config.get("model_type") == "vision-encoder-decoder":
        return False  # its decoder is a plain language model that never sees the prompt
    files = [checkpoint.preparation_file(name) for name in _TEMPLATES]
    templates, configs = files[:2], files[2:]
    if any(path.is_file() for path in templates):
        return True
    return any(path.is_file() and bool(read_json(path).get("chat_template")) for path in configs)


DAY = date(2024, 7, 26)
"""What a chat template writes that asks for today: texts of every day are of one prompt.

That of Llama's templates where there is no clock."""


def day_settings(
    checkpoint: Checkpoint, role: RoleName, system_prompt: str | None
) -> dict[str, str]:
    """`DAY`, for keys, of a checkpoint whose chat template tells it the day; else nothing.

    Many templates that ask for today tell it in a system prompt of their own alone, or where there
    is no image.
    """
    paths = map(checkpoint.preparation_file, _TEMPLATES if has_chat_template(checkpoint) else ())
    asking = [path for path in paths if path.is_file() and b"strftime_now" in path.read_bytes()]
    text = {"type": "text", "text": "say"}
    medium = {"type": "image" if "image" in checkpoint.reads else "audio"}
    told = bool(system_prompt) or role == "judge"
    conversations = [
        [*[{"role": "system", "content": [text]}] * system, {"role": "user", "content": content}]
        for system in ((True, False) if role == "writer" and not told else (told,))
        for content in ([medium, text], [text])
        if role != "describer" or medium in content
    ]
    for path in asking:
        template = (
            path.read_text("utf-8", "replace")
            if path.suffix == ".jinja"
            else read_json(path).get("chat_template")
        )
        # Of several, which have names, any may.
        if not isinstance(template, str) or any(_tells_day(template, own) for own in conversations):
            return {"today": str(DAY)}
    return {}


def _tells_day(template: str, conversation: list[dict[str, Any]]) -> bool:
    """Whether a chat template writes the day into a conversation; also where that is not known."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(why: str) -> None:
        raise CheckpointError(why)

    given = {"messages": conversation, "add_generation_prompt": True, "tools": None}
    texts = set()
    for day in (DAY, date(2031, 12, 3)):
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"strftime_now": day.strftime, "raise_exception": refuse}
        try:
            texts.add(environment.from_string(template).render(given, bos_token="", eos_token=""))
        except CheckpointError:
            return False  # nothing is asked so
        except Exception:  # noqa: BLE001 - of a program, which may raise anything
            return True
    return len(texts) > 1


def stored_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """The settings of a checkpoint's own generation_config.json; empty where it has none."""
    path = checkpoint.path / "generation_config.json"
    return read_json(path) if path.is_file() else {}


# -- judges and VQA models -------------------------------------------------------------------------


@dataclass(frozen=True)
class ConversationParams(TextModelParams):
    """Parameters of the spec of a local judge or VQA model, with those of `TextModelParams`.

    max_pixels: larger images are made smaller, to at most so many pixels; None leaves them to the
        checkpoint's own processor.
    """

    max_pixels: Positive | None = None

    @property
    def decisive(self) -> dict[str, Any]:
        """With system prompt and pixels, where they are given."""
        return {**super().decisive, **given_params(self, "system_prompt", "max_pixels")}


def decisive_of_conversation(plan: LoadPlan[ConversationParams]) -> dict[str, Any]:
    """What decides a likelihood besides the checkpoint, for keys."""
    day = day_settings(plan.checkpoint, plan.role, plan.params.system_prompt)
    return {"dtype": plan.dtype, **plan.params.decisive, **day}


@dataclass(frozen=True)
class LocalJudgeParams(ConversationParams):
    """Parameters of a local judge's spec, with those of `ConversationParams`.

    prompt: criteria, letters, opening-gpt or opening-intjudge: what it is shown, and how its
        verdicts are worded.
    """

    prompt: Annotated[str, Bounds(choices=tuple(JUDGE_PROMPTS))] = DEFAULT_PROMPT

    @property
    def decisive(self) -> dict[str, Any]:
        """With the version of the prompt."""
        return {"prompt": JUDGE_PROMPTS[self.prompt].version, **super().decisive}


# -- drawing with unified models -------------------------------------------------------------------


_NEUTRAL: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}

OF_EMU3 = ("negative_prompt", "image_ratio", "image_area")
"""Parameters of a family that draws any size and has a prompt for what is not wanted."""

_PUBLISHED: dict[str, dict[str, Any]] = {
    "janus": {"guidance_scale": 5.0},
    "emu3": {
        "guidance_scale": 3.0,
        "top_k": 2048,
        "negative_prompt": "",
        "image_ratio": "1:1",
        "image_area": 720 * 720,
    },
}
"""How the authors' code draws, where neither the spec nor the checkpoint says how."""


@dataclass(frozen=True)
class UnifiedParams:
    """Parameters of drawing in a unified model's spec; those of texts are `GenerationParams`.

    image_batch_size: most texts in one call.
    guidance_scale: how far scores are pushed away from those of no prompt; 1 is no guidance.
    image_do_sample: draw image tokens from the step's seed; false takes the likeliest (greedy).
    image_temperature, image_top_p, image_top_k: of that drawing; top_k=0 means no limit.
    negative_prompt: for Emu3, the prompt whose scores are pushed away from.
    image_ratio, image_area: for Emu3, "width:height" and pixels of an image.
    None leaves the setting to the checkpoint's generation_config.json, else to the authors' own
    code. Raises ValueError for another ratio, and for sampling parameters without sampling.
    """

    image_batch_size: Positive = 4
    guidance_scale: Annotated[float, Bounds(1)] | None = None
    image_do_sample: bool = True
    image_temperature: AboveZero | None = None
    image_top_p: Share | None = None
    image_top_k: Natural | None = None
    negative_prompt: str | None = None
    image_ratio: str | None = None
    image_area: Positive | None = None

    def __post_init__(self) -> None:
        if self.image_ratio is not None and not re.fullmatch(
            r"[1-9]\d*:[1-9]\d*", self.image_ratio
        ):
            raise ValueError(
                f"image_ratio must be width:height such as 16:9, got {self.image_ratio!r}"
            )
        if not self.image_do_sample:
            names = [f"image_{name}" for name in _NEUTRAL]
            _refuse_sampling(self, names, "leave it or image_do_sample=false out")


def drawing_settings(
    params: UnifiedParams, stored: Mapping[str, Any], family: str
) -> dict[str, Any]:
    """The settings that decide an image: the spec's, else those of the checkpoint's own
    generation_config.json, else those of the authors' code; sampling settings where tokens are
    sampled.

    A checkpoint's own do_sample does not count: images are sampled unless the spec says otherwise.
    """
    published = _PUBLISHED[family]
    names = _NEUTRAL if params.image_do_sample else ()
    given = {name: getattr(params, f"image_{name}") for name in names}
    given["guidance_scale"] = params.guidance_scale
    return {
        "do_sample": params.image_do_sample,
        "prompt_template": None,  # in all keys since there was a parameter for it
        **{
            name: _first(value, stored.get(name), published.get(name), _NEUTRAL.get(name))
            for name, value in given.items()
        },
        **{
            name: _first(getattr(params, name), published[name])
            for name in OF_EMU3
            if name in published
        },
    }
