"""Loading a checkpoint through a library, on one device or divided among several, errors in words.

Models of transformers are spread over devices by accelerate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.errors import (
    CepError,
    CheckpointError,
    DeviceMemoryError,
    MissingDependencyError,
    error_line,
    few_of,
)
from pytest_cepbench.models.checkpoints.binding import LoadPlan
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.checkpoint_files import refuse_ungathered
from pytest_cepbench.models.checkpoints.format_detection import architecture_of
from pytest_cepbench.models.checkpoints.loaded_checks import stored_names
from pytest_cepbench.models.checkpoints.peft_adapters import apply_adapters
from pytest_cepbench.models.checkpoints.saved_states import read_state
from pytest_cepbench.models.devices import free_memory
from pytest_cepbench.models.torch_runtime import (
    check_device,
    dtype_option,
    is_out_of_memory,
    quiet,
    to_torch_dtype,
)

if TYPE_CHECKING:
    import torch

_HOST_SHARE = 0.9  # of free host memory: loading takes some beside the weights


@contextmanager
def loading(plan: LoadPlan[Any]) -> Iterator[None]:
    """Load what a plan says, quietly, with its threads and on a device that is known to be there.

    Reaches the libraries imported before it is entered, as `quiet` does. Raises ModelError for a
    device that torch cannot use, and what `explained` raises.
    """
    import torch

    check_device(plan.device)
    if plan.context.threads is not None:
        torch.set_num_threads(plan.context.threads)
    with explained(plan.checkpoint), quiet():
        yield


@contextmanager
def explained(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what a library raises while it loads the checkpoint into an error in words.

    Raises MissingDependencyError for a package that it needs, DeviceMemoryError where it does
    not fit in memory, CheckpointError for the rest.
    """
    try:
        yield
    except CepError:
        raise
    except ImportError as error:
        line = error_line(error)
        raise MissingDependencyError(
            f"{checkpoint.path}: {checkpoint.what} needs a package that is missing: {line}"
        ) from error
    except Exception as error:
        # A damaged or foreign checkpoint makes these libraries raise anything, KeyError included.
        line = error_line(error)
        if is_out_of_memory(error):
            raise DeviceMemoryError(
                f"{checkpoint.path}: {checkpoint.what} does not fit in memory ({line}). "
                "Give dtype=bfloat16 or --cep-residency=swap, divide it among devices with "
                "device_map=auto (--cep-devices-per-worker), or use a larger device"
            ) from error
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"{checkpoint.path}: {checkpoint.what} is made by Python files of its own "
                "(auto_map): add trust_remote_code=true to the model's spec if you trust where "
                "they come from"
            ) from error
        raise CheckpointError(
            f"{checkpoint.path}: {checkpoint.what} could not be loaded: {line}. Was it "
            "written completely, and by a version that the installed libraries can read?"
        ) from error


def from_pretrained(model_class: Any, plan: LoadPlan[Any]) -> tuple[Any, dict[str, set[str]]]:
    """The model of a transformers checkpoint on the plan's device, with its adapters, and the names
    of its `missing_keys` and `unexpected_keys`.

    plan: with `TransformersParams`. Raises CheckpointError naming the tensors whose shapes are not
    those of the configuration; what else the library raises is left to `explained`.
    """
    checkpoint, params = plan.checkpoint, plan.params
    options: dict[str, Any] = {
        **dtype_option("transformers", to_torch_dtype(plan.dtype)),
        **checkpoint.options.code,
        "use_safetensors": None if checkpoint.options.allow_pickle else True,
        "output_loading_info": True,
    }
    if checkpoint.options.variant is not None:
        options["variant"] = checkpoint.options.variant
    if params.attn_implementation is not None:
        options["attn_implementation"] = params.attn_implementation
    if checkpoint.quantization is not None:
        # Packed weights are put in their place at once. Their scales are attributes of several
        # libraries' own, which `take_weights` does not know, so the file is read and not mapped.
        options |= {"device_map": {"": plan.device}, "disable_mmap": True}
    if params.device_map is not None:
        limits = None  # which leaves it to transformers: what is free
        if plan.device == "cpu" and (memory := free_memory()) is not None:
            limits = {"cpu": int(_HOST_SHARE * memory)}  # accelerators are not asked for
        options |= {"device_map": params.device_map, "max_memory": limits}
    with checkpoint.unwrapped() as whole:
        model, info = _read_model(model_class, whole, options)
    # It would work many times slower than anyone expects, and what lies on disk would stay in the
    # checkpoint's own files, where a trainer may write.
    outside = {str(place) for place in places(model)} & {"cpu", "disk"} - {plan.device}
    if params.device_map is not None and outside:
        where = "on disk" if "disk" in outside else "in host memory"
        raise DeviceMemoryError(
            f"{checkpoint.path}: {checkpoint.what} has no room on the devices that this process "
            f"sees: parts of it would lie {where}. Give it more devices (--cep-devices-per-worker) "
            "or a smaller dtype"
        )
    if "device_map" not in options:
        model = model.to(plan.device)
    answer_by_names(model)
    model = model.eval()
    return apply_adapters(checkpoint, model) if checkpoint.adapters else model, info


def answer_by_names(model: Any) -> None:
    """Have every part of a model return what it makes by names, where its config.json says tuples.

    A model that was exported once is saved so, and its own parts do not find what they look for.
    """
    for part in model.modules():
        if getattr(getattr(part, "config", None), "return_dict", None) is False:
            part.config.return_dict = True


def _read_model(
    model_class: Any, checkpoint: Checkpoint, options: dict[str, Any]
) -> tuple[Any, dict[str, set[str]]]:
    """What transformers reads of a checkpoint's folder, or of its state apart from that."""
    place: Path | None = checkpoint.path
    weights = checkpoint.weights_part
    if weights is not None:
        # They are handed over, and the class too, since the auto classes read folders only.
        from transformers import AutoConfig, GenerationConfig

        if checkpoint.config.get("auto_map"):
            raise CheckpointError(
                f"{checkpoint.place}: weights apart from their model are not read for a model with "
                "code of its own: write it with save_pretrained in the training"
            )
        config = AutoConfig.from_pretrained(checkpoint.path)
        place = None
        options |= {"config": config, "state_dict": read_state(weights)}
        del options["use_safetensors"]
        options.pop("trust_remote_code", None)
        classes = getattr(model_class, "_model_mapping", {type(config): model_class})[type(config)]
        named = architecture_of(checkpoint.config)
        choices = classes if isinstance(classes, tuple | list) else [classes]
        model_class = next((c for c in choices if c.__name__ == named), choices[0])
    try:
        model, info = model_class.from_pretrained(place, **options)
    except RuntimeError as error:
        # Before transformers 5 it speaks of a size mismatch, and returns names alone.
        if not any(words in str(error) for words in ("ignore_mismatched_sizes", "size mismatch")):
            raise
        # Which ones these are is only logged, as a table; loaded once more, they are returned.
        options["ignore_mismatched_sizes"] = True
        _, info = model_class.from_pretrained(place, **options)
        keys = [(key, (), ()) if isinstance(key, str) else key for key in info["mismatched_keys"]]
        refuse_ungathered(checkpoint.path, [name for name, stored, _ in keys if 0 in stored])
        wrong = [
            f"{name} is {tuple(stored)}, expected {tuple(built)}" if built else name
            for name, stored, built in keys
        ]
        raise CheckpointError(
            f"{checkpoint.path}: weights and config.json are not of one model: {few_of(wrong)}. "
            "Save both again"
        ) from error
    if place is None:
        # Nor were the generation settings of the folder read.
        if (checkpoint.path / "generation_config.json").is_file() and model.can_generate():
            model.generation_config = GenerationConfig.from_pretrained(checkpoint.path)
    else:
        # What the shards hold that several processes of transformers saved, and the model does not,
        # it leaves out without a word.
        stored = set(stored_names(model, place.glob("shard-*-model-*.safetensors")))
        info["unexpected_keys"] = {*info["unexpected_keys"], *(stored - model.state_dict().keys())}
    return model, info


def places(model: Any) -> list[Any]:
    """Where the parts of a transformers model lie: devices as torch names or numbers them, "cpu"
    and "disk".
    """
    divided = getattr(model, "hf_device_map", None)
    return list(divided.values()) if divided else [model.device]


def input_device(model: Any) -> torch.device:
    """Where the inputs of a transformers model go: of a divided one, the first of its devices."""
    import torch

    devices = [torch.device(p) for p in places(model) if str(p) not in ("cpu", "disk")]
    return min(devices, key=lambda device: device.index or 0, default=torch.device("cpu"))
