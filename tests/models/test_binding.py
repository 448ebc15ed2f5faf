"""Binding: the right role or a clear refusal, and no model library before a model is needed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.evaluation.settings import OPTIONS
from pytest_cepbench.models.binding import detect, weights_bytes
from pytest_cepbench.models.protocols import ROLE_NAMES, RoleName
from pytest_cepbench.models.spec import SCHEMES, Scheme, parse_spec
from tests.models.binding import bind_text
from tests.models.files import LLAVA, VIT, write_checkpoint, write_pipeline, write_tensors

UNKNOWN = {"architectures": ["StrangeModel"], "model_type": "strange"}
TEXT_ONLY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 9}


def test_the_built_in_world_plays_every_role_of_a_chain() -> None:
    """`--model=shapes:` is allowed in each role but the judge's."""
    assert detect(parse_spec("shapes:?miss=0.1")).roles == SCHEMES["shapes"].roles


@pytest.mark.parametrize("role", ["generator", "encoder"])
def test_a_wrong_role_is_refused_with_the_right_one(tmp_path: Path, role: RoleName) -> None:
    """The message must say what the model is, what it can be, and which option to give it to."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    words = f"can be the describer or writer, not the {role}.*--describer"
    with pytest.raises(RoleError, match=words):
        bind_text(str(folder), role)


@pytest.mark.parametrize(
    ("config", "reason"), [(UNKNOWN, "no rule"), (TEXT_ONLY, "reads no images")]
)
def test_a_model_without_role_says_how_to_override(
    tmp_path: Path, config: dict[str, object], reason: str
) -> None:
    """Detection can be wrong: the message must say what was found and how to insist."""
    folder = write_checkpoint(tmp_path / "m", config)
    words = rf"{reason}.*--describer, or --model with --cep-role=describer"
    with pytest.raises(RoleError, match=words):
        bind_text(str(folder), "describer")


def test_an_override_binds_what_detection_does_not_know(tmp_path: Path) -> None:
    """With force, the adapter of the role the user named must be tried."""
    pytest.importorskip("transformers", reason="binding checks that the libraries are installed")
    folder = write_checkpoint(tmp_path / "m", UNKNOWN)
    assert bind_text(str(folder), "describer", force=True).what == "StrangeModel"


@pytest.mark.parametrize("role", ["describer", "detector", "encoder"])
def test_a_pipeline_forced_into_a_role_is_refused(tmp_path: Path, role: RoleName) -> None:
    """Force reaches the adapter, which still knows what it cannot load."""
    pytest.importorskip("transformers", reason="binding checks that the libraries are installed")
    folder = write_pipeline(tmp_path / "p")
    with pytest.raises(RoleError, match=f"cannot be the {role}. Give a"):
        bind_text(str(folder), role, force=True)


FUNCTIONS = {
    "detect": 1,
    "bind": 3,
    "check_installed": 1,
    "weights_bytes": 2,
    "weights_present": 1,
}
"""What a module that provides models may have -> the number of its parameters."""


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda scheme: scheme.name or "checkpoint")
def test_every_scheme_has_a_provider_or_says_that_a_suite_replaces_it(scheme: Scheme) -> None:
    """A scheme that parses and has no provider must not fall through to another one."""
    if scheme.module:
        functions = {
            name: getattr(importlib.import_module(scheme.module), name, None) for name in FUNCTIONS
        }
        assert functions["detect"]
        assert functions["bind"]
        for name, function in functions.items():
            assert function is None or len(signature(function).parameters) == FUNCTIONS[name]
    else:
        with pytest.raises(SpecError, match=f"{scheme.name}: names .*by itself"):
            detect(parse_spec(f"{scheme.name}:x"))


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (text, role)
        for scheme, text in {
            "": "no/such",
            "shapes": "shapes:",
            "openai": "openai:m?revision=1",
            "unicom": "unicom:nowhere.pt",
            "cleanfid": "cleanfid:",
        }.items()
        for role in ROLE_NAMES
        if role not in SCHEMES[scheme].roles
    ],
)
def test_a_provider_refuses_the_roles_that_the_table_does_not_list(
    text: str, role: RoleName
) -> None:
    """The table is what users read: a role that it leaves out must be refused as a role."""
    with pytest.raises(RoleError, match=role):
        bind_text(text, role)


def test_help_names_every_scheme() -> None:
    """`pytest --help` says how a spec can begin, without importing the table at every start."""
    help_text = next(option.help for option in OPTIONS if option.name == "model")
    schemes = {word.rstrip(",").removesuffix(":") for word in help_text.split() if ":" in word[1:]}
    assert schemes - {"test"} == set(SCHEMES) - {""}


def test_the_table_of_schemes_imports_no_provider() -> None:
    """Options and help read the table, and cost a user of plain pytest next to nothing."""
    code = """
import sys
from pytest_cepbench.models.spec import SCHEMES
assert SCHEMES
print([name for name in ("numpy", "PIL", "msgspec", "torch") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"


def test_a_plan_settles_device_and_precision(tmp_path: Path) -> None:
    """What "auto" comes to is decided once, at binding, from the device and the checkpoint."""
    pytest.importorskip("transformers", reason="binding checks that the libraries are installed")
    folder = write_checkpoint(tmp_path / "m", {**VIT, "dtype": "bfloat16"})
    role = bind_text(f"{folder}?device=cuda:1", "encoder")
    assert (role.device, role.params["dtype"]) == ("cuda:1", "bfloat16")


@pytest.mark.parametrize(
    ("query", "batch_size"),
    [
        ("?device=cpu", 32),
        ("?device=cpu&batch_size=4", 4),
        ("?device=cpu&batch_size=1", 1),
        ("?device=cuda", 8),
    ],
)
def test_small_models_on_the_cpu_take_larger_batches(
    tmp_path: Path, query: str, batch_size: int
) -> None:
    """Unless the user says how many; what is large, or on an accelerator, keeps its size."""
    pytest.importorskip("transformers", reason="binding checks that the libraries are installed")
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    assert bind_text(f"{folder}{query}", "describer").resources.batch_size == batch_size


@pytest.mark.parametrize(
    ("query", "device", "expected"),
    [
        ("", "cpu", 4 * 60 + 7),
        ("", "cuda", 2 * 60 + 7),
        ("?dtype=float32", "cuda", 4 * 60 + 7),
        ("?device=cpu", None, 4 * 60 + 7),
    ],
)
def test_numbers_count_in_the_precision_they_are_loaded_in(
    tmp_path: Path, query: str, device: str | None, expected: int
) -> None:
    """A checkpoint in half precision takes twice its files on the CPU; codes stay as they are."""
    folder = write_checkpoint(tmp_path / "m", {**LLAVA, "dtype": "bfloat16"}, None)
    shapes = {"w": (5, 10), "b": (10,), "q": (7,)}
    write_tensors(folder / "model.safetensors", shapes, w="BF16", q="I8")
    assert weights_bytes(parse_spec(f"{folder}{query}"), device) == expected
