"""A loaded image-text-to-text model as describers and writers use it: inputs to texts.

Inputs go in batches, padded on the left. Texts are greedy unless the spec says do_sample=true; then
each is a call of its own under its own seed, because transformers draws from the global generator,
and the tokens of a batch would depend on its neighbours.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, TypeVar

from pytest_cepbench.artifacts.reasoning import marks_reasoning, opened_by
from pytest_cepbench.errors import CheckpointError, ModelError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.describers.transformers_loader import LoadedDescriber
from pytest_cepbench.models.device_maps import input_device
from pytest_cepbench.models.protocols import CUT, Reply
from pytest_cepbench.models.torch_runtime import quiet, seeded
from pytest_cepbench.models.versions import generate_options

T = TypeVar("T")

_MODES = ("greedy_search", "sample", "beam_search", "beam_sample")
"""The ways of writing that are a part of every release of transformers."""

_TAIL = 16  # tokens of a prompt that its last marker lies in


class TextModel:
    """Writes texts with a loaded model.

    sampled: whether tokens are drawn from the seeds.
    marks: whether texts keep the markers of reasoning that are special tokens, and begin with one
        that the prompt ends with: without them it could not be told from the answer.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        loaded: LoadedDescriber,
        *,
        sampled: bool,
        marks: bool = True,
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
        self._checkpoint = checkpoint
        self.loaded = loaded
        self._sampled = sampled
        self.chats = loaded.chat_template is not None
        self._marks = marks
        self._dropped = _dropped_tokens(loaded.tokenizer) if marks else set()

    def write_texts(
        self, inputs: Sequence[T], seeds: Sequence[int], prepare: Callable[[Sequence[T]], Any]
    ) -> list[str | Reply]:
        """One text per input, special tokens and outer spaces taken off.

        One that ends at the limit of its length is in a reply that says so.

        prepare: makes what the model reads of some inputs. Raises ModelError when the tokenizer is
        not the one of the weights, and whatever the libraries raise.
        """
        if not self._sampled:
            return self._generate(inputs, prepare)
        texts: list[str | Reply] = []
        for model_input, seed in zip(inputs, seeds, strict=True):
            with seeded([input_device(self.loaded.model)], seed):
                texts += self._generate([model_input], prepare)
        return texts

    def template_inputs(self, images: Sequence[Any], texts: Sequence[str]) -> Any:
        """What a model without a chat template reads of images and the text of each."""
        return self.loaded.processor(
            images=[[image] for image in images],
            text=list(texts),
            return_tensors="pt",
            padding=True,
        )

    def _generate(
        self, inputs: Sequence[T], prepare: Callable[[Sequence[T]], Any]
    ) -> list[str | Reply]:
        import torch

        loaded = self.loaded
        with quiet(), torch.inference_mode():
            read = prepare(inputs).to(input_device(loaded.model), loaded.model.dtype)
            self._check_vocabulary(read)
            config = self._generation_config(read)
            # Strings that end a text are looked for in what the tokenizer makes of its tokens.
            reader = {"tokenizer": loaded.tokenizer} if config.stop_strings else {}
            options = reader | generate_options(loaded.model)
            output = loaded.model.generate(**read, generation_config=config, **options)
        rows = self._new_tokens(read, output)
        before = self._opened(read)
        texts = [before + text.strip() for text in self._decode(rows)]
        stops = config.eos_token_id
        ends = {config.pad_token_id, *(stops if isinstance(stops, list) else [stops])}
        strings = config.stop_strings or ()
        strings = [strings] if isinstance(strings, str) else strings
        return [
            text
            if not len(row) or int(row[-1]) in ends or any(string in text for string in strings)
            else Reply(text, provenance=CUT)
            for text, row in zip(texts, rows, strict=True)
        ]

    def _decode(self, rows: Sequence[Any]) -> list[str]:
        tokenizer = self.loaded.tokenizer
        if not self._dropped:
            texts: list[str] = tokenizer.batch_decode(rows, skip_special_tokens=True)
            return texts
        kept = ([t for t in map(int, row) if t not in self._dropped] for row in rows)
        return [tokenizer.decode(tokens) for tokens in kept]

    def _opened(self, inputs: Any) -> str:
        """The marker that every prompt ends with, by the chat template."""
        if not (self._marks and self.chats and "input_ids" in inputs):
            return ""
        return opened_by(self.loaded.tokenizer.decode(inputs["input_ids"][0][-_TAIL:]))

    def _check_vocabulary(self, inputs: Any) -> None:
        # Out of range, the lookup dies with an IndexError on a CPU and takes the process's whole
        # CUDA context with it on an accelerator.
        loaded = self.loaded
        if "input_ids" not in inputs or loaded.embeddings is None:
            return
        ids = inputs["input_ids"]
        # Several models keep their image token outside the vocabulary and never look it up.
        if loaded.image_token is not None:
            ids = ids[ids != loaded.image_token]
        highest = int(ids.max())
        if highest >= loaded.embeddings:
            raise ModelError(
                f"{self._checkpoint.path}: the tokenizer gives token {highest}, and the "
                f"weights know {loaded.embeddings} tokens: the tokenizer is not the one of these "
                "weights"
            )

    def _generation_config(self, inputs: Any) -> Any:
        """The settings in force, shortened where learned positions end.

        Only without a chat template: there the text is the same for every image, so a limit that
        depends on its length does not make a text depend on its batch.
        """
        loaded = self.loaded
        config = copy.deepcopy(loaded.generation_config)
        if not self.chats and loaded.positions is not None:
            used = inputs["input_ids"].shape[1] if "input_ids" in inputs else 1
            config.max_new_tokens = max(1, min(config.max_new_tokens, loaded.positions - used))
        return config

    def _new_tokens(self, inputs: Any, output: Any) -> list[Any]:
        """The tokens after the prompt; some models repeat it in front, others do not."""
        if "input_ids" not in inputs or self.loaded.keeps_prompt:
            return list(output)
        length = inputs["input_ids"].shape[1]
        return [
            row[length:] if row[:length].equal(prompt) else row
            for row, prompt in zip(output, inputs["input_ids"], strict=True)
        ]


def _dropped_tokens(tokenizer: Any) -> set[int]:
    """The special tokens but for markers of reasoning; none where no marker is a special token."""
    added = tokenizer.added_tokens_decoder.items()
    special = {number: str(token) for number, token in added if token.special}
    special |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    dropped = {number for number, token in special.items() if not marks_reasoning(token)}
    return dropped if len(dropped) < len(special) else set()


def cache_argument(model: Any) -> str:
    """What a model's forward pass calls the keys and values that it is given and returns.

    transformers before 5.24, and code that comes with a checkpoint, say `past_key_values`.
    """
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


def chat_inputs(
    loaded: LoadedDescriber, conversations: Sequence[Sequence[Mapping[str, Any]]]
) -> Any:
    """What the model reads of conversations, by its chat template, padded on the left."""
    return loaded.processor.apply_chat_template(
        list(conversations),
        chat_template=loaded.chat_template,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True},
    )


def chat_turn(role: str, parts: Sequence[Any]) -> dict[str, Any]:
    """A message of texts and images, as chat templates of transformers read it."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]
    return {"role": role, "content": content}
