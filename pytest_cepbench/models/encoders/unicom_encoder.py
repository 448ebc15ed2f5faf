"""Encoder of Unicom's released weights: `unicom:PATH/TO/FP16-ViT-L-14-336px.pt?allow_pickle=true`.

MMGenBench scores with Unicom ViT-L/14@336px (its section 3.1; `evalimg/run.py`): 768 features, the
output of the last batch normalisation, not normalised to unit length before SIM or FID. Images are
resized with the shorter side to 336 pixels (bicubic), cropped to the middle 336 x 336 and
normalised with CLIP's mean and deviation. The file that MMGenBench's code downloads has a SHA-256
that begins 3916ab5a; that file was never loaded here, so read `unicom_model` for what was
established, and how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint_files import check_safetensors
from pytest_cepbench.models.encoders.unicom_model import (
    UnicomSizes,
    check_tensors,
    compute_features,
    infer_sizes,
    prepare,
)
from pytest_cepbench.models.encoders.vectors import reads_no_texts, to_vectors
from pytest_cepbench.models.encoders.weights_file import (
    bind_file,
    file_provider,
    find_file,
    plan_file,
)
from pytest_cepbench.models.load_plan import LoadPlan, check_placement
from pytest_cepbench.models.model_spec import ModelSpec, parse_params
from pytest_cepbench.models.protocols import BindContext, BoundRole, FloatArray
from pytest_cepbench.models.safe_loading import loading
from pytest_cepbench.models.torch_runtime import quiet, require, to_torch_dtype
from pytest_cepbench.models.weight_checks import own_memory

if TYPE_CHECKING:
    import torch

ADAPTER = "unicom-encoder/1"

WHAT = "Unicom vision transformer"

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
_PICKLED = (".pt", ".pth", ".bin")


@dataclass(frozen=True)
class UnicomParams:
    """Parameters of a Unicom encoder's spec.

    device: auto, cpu, cuda, cuda:N or mps. batch_size: most inputs in one call.
    dtype: auto, float32, float16 or bfloat16, the precision of the linear maps in the blocks; all
        else is float32.
    allow_pickle: read a pickled file, by torch.load(weights_only=True).
    heads: attention heads; None is one per 64 of the width, as in the released models.
    Raises ValueError for a value outside these.
    """

    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 32
    allow_pickle: bool = False
    heads: int | None = None

    def __post_init__(self) -> None:
        check_placement(self)
        if self.heads is not None and self.heads < 1:
            msg = f"heads must be at least 1, got {self.heads}"
            raise ValueError(msg)


def bind_unicom(spec: ModelSpec, context: BindContext) -> BoundRole:
    """Resolve `unicom:PATH` as an encoder, without importing torch.

    With dtype=auto it runs as the released code does: in float32 on a CPU, and on an accelerator
    with the linear maps of the blocks in float16. Raises SpecError for unknown or wrong parameters,
    CheckpointError for a file that is absent, cut off, or a pickle without allow_pickle=true.
    """
    require("torch", "torchvision", "safetensors")
    params = parse_params(spec, UnicomParams, f"the encoder {WHAT}")
    file = find_file(Path(spec.target), WHAT)
    _check_format(file, allow_pickle=params.allow_pickle)
    plan = plan_file(spec, file, WHAT, params, context, {"dtype": "float16"})
    decisive: dict[str, Any] = {"dtype": plan.dtype}
    if params.heads is not None:
        decisive["heads"] = params.heads
    return bind_file(plan, adapter=ADAPTER, load=lambda: _load(plan), params=decisive, code={})


def _check_format(file: Path, *, allow_pickle: bool) -> None:
    if file.suffix == ".safetensors":
        check_safetensors(file)
    elif file.suffix not in _PICKLED:
        kinds = ", ".join((".safetensors", *_PICKLED))
        msg = f"{file}: the weights of a {WHAT} are a file of one of these kinds: {kinds}"
        raise CheckpointError(msg)
    elif not allow_pickle:
        msg = (
            f"{file}: the weights are pickled, and unpickling can run code. Save them as "
            "safetensors, or add allow_pickle=true to the model's spec if you trust where they "
            "come from; they are then read with torch.load(weights_only=True)"
        )
        raise CheckpointError(msg)


def _load(plan: LoadPlan[UnicomParams]) -> UnicomEncoder:
    file = plan.checkpoint.path
    with loading(plan):
        tensors = _read(file)
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        try:
            sizes = infer_sizes(shapes, plan.params.heads)
            check_tensors(shapes, sizes)
        except ValueError as error:
            msg = f"{file}: not the weights of a {WHAT}: {error}"
            raise CheckpointError(msg) from error
        _refuse_non_finite(file, tensors)
        weights = prepare(tensors, plan.device, to_torch_dtype(plan.dtype))
    return UnicomEncoder(plan, weights, sizes)


def _read(file: Path) -> Mapping[str, torch.Tensor]:
    import torch
    from safetensors.torch import load_file

    if file.suffix == ".safetensors":
        return {name: own_memory(tensor) for name, tensor in load_file(file).items()}
    loaded = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(loaded, dict) or not all(torch.is_tensor(t) for t in loaded.values()):
        msg = (
            f"{file}: expected a state dict, tensors by their names, found "
            f"{type(loaded).__name__}. Save the model's state_dict() alone"
        )
        raise CheckpointError(msg)
    return loaded


def _refuse_non_finite(file: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            msg = (
                f"{file}: the tensor {name} holds values that are not finite, so no feature would "
                "mean anything. Fetch the file again"
            )
            raise CheckpointError(msg)


class UnicomEncoder:
    """A loaded Unicom model; satisfies the Encoder Protocol for images."""

    def __init__(
        self, plan: LoadPlan[UnicomParams], weights: Mapping[str, torch.Tensor], sizes: UnicomSizes
    ) -> None:
        self._plan = plan
        self._weights = weights
        self._sizes = sizes
        self._transform = _make_transform(sizes.side)

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, features) float32 features of RGB images (768 for ViT-L/14), not normalised."""
        import torch

        with quiet(), torch.inference_mode():
            pixels = torch.stack([self._transform(image) for image in images])
            features = compute_features(self._weights, self._sizes, pixels.to(self._plan.device))
            return to_vectors(self._plan.checkpoint, features)

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:  # noqa: ARG002 - the Protocol's
        """Raises RoleError: Unicom reads no texts."""
        raise reads_no_texts(self._plan.checkpoint)


def _make_transform(side: int) -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.Resize(side, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(side),
            transforms.ToTensor(),
            transforms.Normalize(_MEAN, _STD),
        ]
    )


PROVIDER = file_provider(
    WHAT,
    bind_unicom,
    find=lambda spec: Path(spec.target).expanduser(),
    features_name=lambda spec: (
        Path(spec.target).name.removesuffix(".pt").removesuffix(".safetensors")
    ),
)
