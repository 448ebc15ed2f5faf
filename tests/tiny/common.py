"""What builders of tiny checkpoints share: a vocabulary, a tokenizer, a chat template, pictures."""

from __future__ import annotations

import atexit
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Concatenate, ParamSpec

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.models.torch_runtime import need, quiet

# fmt: off
WORDS = [
    "describe", "the", "image", "what", "is", "shown", "?", "user", "assistant", "system", ":",
    "be", "brief", "a", "an", "and", "on", "of", "two", "small", "large", "red", "green", "blue",
    "yellow", "circle", "square", "left", "right", "top", "bottom",
]
# fmt: on

LAYERS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
"""Of most transformers here, as their configurations name it."""

SQUARE = {"height": 32, "width": 32}
"""Of the images that most models here take."""

CENTER = {"size": {"shortest_edge": 32}, "crop_size": SQUARE}
"""Of image processors that crop."""

VISION: dict[str, Any] = {**LAYERS, "image_size": 32, "patch_size": 8}
"""Of most of the towers that see."""

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")

# Content parts as the published templates walk them; IMAGE stands for a model's own image token.
CHAT_TEMPLATE = (
    "<bos> {% for message in messages %}{{ message['role'] }} : "
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE {% else %}{{ part['text'] }} {% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}assistant : {% endif %}"
)

JUDGE_WORDS = (
    *WORDS, "A", "B", "Tie", "(A", "(B", "Tie(A", "Tie(B", "better", "better)", "before", "between",
    "after", "Question:", "Answer", "A:", "B:", "Answer:", "Correctness:", "Image-Text",
    "Coherency:", "Multi-step", "Consistency:", "Content", "Quality:", "Human", "Preference",
    "Alignment:", "Completeness:", "Richness:", *map(str, range(11)),
)  # fmt: skip
"""The words of a judge: with those of verdicts, however they are written, and of scores."""

_BUILT = Path(mkdtemp(prefix="tiny-"))
atexit.register(shutil.rmtree, _BUILT, ignore_errors=True)


P = ParamSpec("P")


def built_once(
    *, seed: int = 0
) -> Callable[[Callable[Concatenate[Path, P], None]], Callable[Concatenate[Path, P], Path]]:
    """Have a builder write each folder once in a process, and give copies of it afterwards.

    The builder is called with a folder and with options, which are plain values; what is decorated
    returns the folder.
    seed: of torch's generators, where the builder has no option `seed`, or the caller gives none.
    """

    def decorate(
        build: Callable[Concatenate[Path, P], None],
    ) -> Callable[Concatenate[Path, P], Path]:
        made: dict[str, Path] = {}

        @wraps(build)
        def copied(folder: Path, /, *args: P.args, **options: P.kwargs) -> Path:
            import torch

            asked = repr((args, sorted(options.items())))
            if asked not in made:
                torch.manual_seed(options.get("seed", seed))
                place = _BUILT / build.__name__ / str(len(made))
                build(place, *args, **options)
                made[asked] = place
            # Not with the times of the first: these files are new.
            shutil.copytree(made[asked], folder, copy_function=shutil.copy, dirs_exist_ok=True)
            return folder

        return copied

    return decorate


class Built(dict[str, Path]):
    """The folder of a tiny checkpoint by the name of its builder: built when it is first asked for,
    with these options; not to be changed.
    """

    def __init__(self, builders: Mapping[str, Callable[..., Path]], **options: Any) -> None:
        super().__init__()
        self._builders, self._options = builders, options
        self._root = Path(mkdtemp(dir=_BUILT))

    def __missing__(self, name: str) -> Path:
        import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

        with quiet():
            self[name] = self._builders[name](self._root / name, **self._options)
        return self[name]


def skip_before(what: str, library: str, version: str) -> None:
    """Skip the test where a library is older than what it builds."""
    try:
        need(what, library, version)
    except MissingDependencyError as error:
        pytest.skip(str(error))


def pil(name: str) -> Any:
    """An image processor of NumPy and Pillow, which transformers 5.4 gave a name of its own."""
    import transformers

    return getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)


def tokenizer_of(
    name: str,
    vocabulary: dict[str, int],
    merges: Sequence[tuple[str, str]] | None = None,
    **options: Any,
) -> Any:
    """A CLIPTokenizer of pairs, or a tokenizer of whole words; before transformers 5 files make it.

    name: of its class.
    """
    import transformers

    kind, fast = getattr(transformers, name), getattr(transformers, f"{name}Fast")
    if kind is fast:
        own = {} if merges is None else {"merges": list(merges)}
        return kind(vocab=vocabulary, **own, **options)
    with TemporaryDirectory() as folder:
        words, pairs = Path(folder, "vocab"), Path(folder, "merges")
        if merges is None:
            words.write_text("\n".join(vocabulary))
            return fast(str(words), **options)
        words.write_text(json.dumps(vocabulary))
        pairs.write_text("\n".join(["#version: 0.2", *map(" ".join, merges)]))
        return fast(str(words), str(pairs), **options)


def token_ids(tokenizer: Any) -> dict[str, int]:
    """What a configuration says of its tokenizer."""
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}


def word_tokenizer(
    special: Sequence[str] = SPECIAL, words: Sequence[str] = WORDS, **named: str
) -> Any:
    """A word-level tokenizer: written by hand, since trained vocabularies differ from
    process to process.

    special: first tokens of the vocabulary, starting with those of SPECIAL. words: those after
    them. named: special tokens by the names that processors ask for (image_token="<image>").
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        extra_special_tokens=named,
        model_input_names=["input_ids", "attention_mask"],
    )


def edit_json(file: Path, **values: Any) -> None:
    """Change entries of a JSON file; None takes one out, and all that are null go with it."""
    stored = (json.loads(file.read_text("utf-8")) if file.exists() else {}) | values
    file.write_text(json.dumps({k: v for k, v in stored.items() if v is not None}), "utf-8")


def edit_tensors(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the tensors of a safetensors file, or of the one in a model's folder, in place; what
    else its header says stays.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    file = path / "model.safetensors" if path.is_dir() else path
    with safe_open(file, "pt") as stored:
        metadata = stored.metadata()
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata=metadata or {"format": "pt"})


def pictures(
    sizes: Sequence[tuple[int, int]] = ((64, 64), (48, 80), (96, 40)),
) -> list[Image.Image]:
    """One RGB picture per (width, height): a disc on a ground, both of other colors each time."""
    made = []
    for index, (width, height) in enumerate(sizes):
        image = Image.new("RGB", (width, height), (20 + 70 * index % 200, 30, 90))
        fill = ((255, 0, 0), (0, 255, 0), (255, 255, 0))[index % 3]
        ImageDraw.Draw(image).ellipse((4 + 6 * index, 6, 30 + 6 * index, 34), fill=fill)
        made.append(image)
    return made


def noise_images(seed: int, sizes: Sequence[tuple[int, int]]) -> list[Image.Image]:
    """RGB noise of these sizes (width, height)."""
    random = np.random.default_rng(seed)
    shapes = [(height, width, 3) for width, height in sizes]
    return [Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]
