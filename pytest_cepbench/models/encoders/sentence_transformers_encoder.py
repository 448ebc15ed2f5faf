"""Encoder of sentence-transformers folders (modules.json): texts only, MPNet above all.

SDP compares texts with all-mpnet-base-v2, by the library's `encode` (its section 2 and released
code). The modules Transformer, Pooling and Normalize are read, by the library itself; whether
vectors come out normalised is the checkpoint's own matter. A text model without modules.json is
refused: nothing in it says how its tokens become one vector. To use one as mean-pooled, as the
library would, load it with the library and save it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.checkpoints import file_options, read_json
from pytest_cepbench.models.checkpoints.format_detection import modules_fault
from pytest_cepbench.models.checkpoints.wrapped_names import unwrapped
from pytest_cepbench.models.encoders.vectors import EncoderParams, LoadedEncoder
from pytest_cepbench.models.load_plan import Adapter, LoadPlan
from pytest_cepbench.models.safe_loading import loading, no_random_weights, take_weights
from pytest_cepbench.models.tokenizer_checks import check_vocabulary
from pytest_cepbench.models.torch_runtime import to_torch_dtype
from pytest_cepbench.models.versions import dtype_option, sentence_lengths


def _check_modules(plan: LoadPlan[EncoderParams]) -> None:
    """Raise RoleError for a module that is not read, CheckpointError where the first module names a
    tokenizer of another folder.
    """
    checkpoint = plan.checkpoint
    if fault := modules_fault(checkpoint.config):
        raise RoleError(f"{checkpoint.path}: {checkpoint.what} {fault}")
    folder = checkpoint.path / checkpoint.config["modules"][0]["path"]
    for file in sorted(folder.glob("sentence_*_config.json")):
        if elsewhere := read_json(file).get("tokenizer_name_or_path"):
            raise CheckpointError(
                f"{file}: tokenizer_name_or_path is {elsewhere!r}, so no fingerprint can vouch for "
                "the tokenizer. Save the tokenizer in the checkpoint and remove the entry"
            )


def _load(plan: LoadPlan[EncoderParams]) -> LoadedEncoder:
    import sentence_transformers

    options: dict[str, Any] = dtype_option("transformers", to_torch_dtype(plan.dtype))
    if not plan.params.allow_pickle:
        options["use_safetensors"] = True
    with (
        loading(plan),
        no_random_weights(plan.checkpoint),
        unwrapped(plan.checkpoint, file_options(plan.spec)) as whole,
    ):
        model = sentence_transformers.SentenceTransformer(
            str(whole.path),
            device=plan.device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs=options,
        ).eval()
    first = plan.checkpoint.config["modules"][0]["path"]
    check_vocabulary(plan.checkpoint.path / first, type(model.tokenizer).__name__)
    take_weights(plan.checkpoint, {"": model})
    return LoadedEncoder(
        plan.checkpoint,
        model,
        # Normalised where the checkpoint says so.
        embed_texts=lambda texts: model.encode(
            list(texts), batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        ),
        count_tokens=partial(_count_tokens, model),
    )


def _count_tokens(model: Any, texts: Sequence[str]) -> tuple[list[int], int]:
    """Tokens of each text, the model's own prompt included; the most that it reads."""
    prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
    lengths = sentence_lengths(model, list(texts), prompt or "") if texts else []
    return lengths, int(model.max_seq_length)


ADAPTER = Adapter(
    "sentence-transformers-encoder/1",
    ("torch", "sentence_transformers"),
    EncoderParams,
    _load,
    check=_check_modules,
)
