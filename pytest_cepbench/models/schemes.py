"""The schemes of model specs: `SCHEMES` is the one table.

Parsing, binding, docs and tests read it. To add a provider, write a module that ends in
`PROVIDER = Provider(...)` and enter it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_cepbench.models import ROLE_NAMES, RoleName

HUMAN, PRESET, REPLAY = "human", "preset", "replay"


@dataclass(frozen=True)
class Scheme:
    """A scheme of model specs, as far as it is known without importing its provider.

    name: what a spec begins with, before the colon; empty for folders and hub ids.
    example: a spec, for `--help` and docs.
    summary: what such a spec names, for people.
    roles: that its models can play, all together.
    module: defines PROVIDER; empty where a suite replaces the spec before any model is bound.
    served: whether its models work on a server: they need no device, and their key is here.
    """

    name: str
    example: str
    summary: str
    roles: tuple[RoleName, ...]
    module: str = ""
    served: bool = False


_HERE = "pytest_cepbench.models"

SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "",
            "checkpoints/step-8000",
            "a checkpoint: a folder, or the id of one on the Hugging Face hub",
            ROLE_NAMES,
            f"{_HERE}.checkpoint_provider",
        ),
        Scheme(
            "shapes",
            "shapes:?miss=0.1",
            "the built-in rule-based models of the shapes world, exact or degraded by known "
            "amounts",
            tuple(role for role in ROLE_NAMES if role != "editor"),
            f"{_HERE}.rule_based",
        ),
        Scheme(
            "python",
            "python:package.module:factory",
            "a model of your own: an object that satisfies a role's Protocol",
            ROLE_NAMES,
            f"{_HERE}.python_model",
        ),
        Scheme(
            "openai",
            "openai:MODEL?base_url=URL&weights=FOLDER",
            "a model behind an OpenAI-compatible server",
            ("describer", "generator", "judge", "writer", "interleaver", "vqa"),
            f"{_HERE}.api.provider",
            served=True,
        ),
        Scheme(
            "serve",
            "serve:checkpoints/step-8000?engine=vllm",
            "a checkpoint behind a server that the run starts: vllm, sglang or transformers",
            ("describer", "judge", "writer", "vqa"),
            f"{_HERE}.serving.provider",
            served=True,
        ),
        Scheme(
            "unicom",
            "unicom:FP16-ViT-L-14-336px.pt?allow_pickle=true",
            "Unicom's released weights, one file without a configuration",
            ("encoder",),
            f"{_HERE}.encoders.unicom_encoder",
        ),
        Scheme(
            "cleanfid",
            "cleanfid:?weights=PATH",
            "clean-fid's Inception, one file without a configuration",
            ("encoder",),
            f"{_HERE}.encoders.inception_encoder",
        ),
        Scheme(
            HUMAN,
            "human:ratings/NAME",
            "people, whose votes or descriptions are in a ratings folder",
            ("judge", "describer"),
            f"{_HERE}.people",
        ),
        Scheme(PRESET, "preset:sd3-5", "settings of a suite for a generator", ("generator",)),
        Scheme(
            REPLAY,
            "replay:FOLDER",
            "chains that were made elsewhere, in the place of describer and generator",
            (),
        ),
    )
}
