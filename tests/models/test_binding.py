"""Specs taken apart and bound: the right role or a refusal, no library before it is needed.

Then checks of what models return: an artifact, a failure, or a model that is of no such role.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.errors import ModelError, RoleError, SpecError
from pytest_cepbench.evaluation.settings import OPTIONS
from pytest_cepbench.models.binding import detect, weights_bytes
from pytest_cepbench.models.protocols import (
    ROLE_NAMES,
    AnswerScorer,
    JsonDescriber,
    JsonWriter,
    RoleName,
    SoundEncoder,
)
from pytest_cepbench.models.roles import METHODS, ROLES, check_detections, check_text, check_vectors
from pytest_cepbench.models.spec import SCHEMES, Positive, Scheme, parse_params, parse_spec
from tests.models.binding import bind_text
from tests.models.files import LLAVA, VIT, write_checkpoint, write_pipeline, write_tensors

UNKNOWN = {"architectures": ["StrangeModel"], "model_type": "strange"}
TEXT_ONLY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 9}

OVERRIDE = "--describer, or --model with --cep-role=describer"
WRITES, EMBEDS = "can be the describer or writer, not the", "can be the encoder, not the"


@pytest.mark.parametrize(
    ("config", "role", "words"),
    [
        (LLAVA, "generator", f"{WRITES} generator.*--describer"),
        (LLAVA, "encoder", f"{WRITES} encoder.*--describer"),
        (LLAVA, "interleaver", f"{WRITES} interleaver.*--describer"),
        # Judges and VQA models are those that describe, and not all that see.
        (VIT, "judge", f"{EMBEDS} judge.*--encoder"),
        (VIT, "vqa", f"{EMBEDS} vqa.*--encoder"),
        # Detection can be wrong.
        (UNKNOWN, "describer", f"no rule.*{OVERRIDE}"),
        (TEXT_ONLY, "describer", f"reads no images.*{OVERRIDE}"),
    ],
)
def test_a_wrong_role_is_refused_with_the_right_one(
    tmp_path: Path, config: dict[str, object], role: RoleName, words: str
) -> None:
    """The message must say what the model is, what it can be, which option to give it to, and how
    to insist where nothing was found.
    """
    folder = write_checkpoint(tmp_path / "m", config)
    with pytest.raises(RoleError, match=words):
        bind_text(str(folder), role)


def test_an_override_binds_what_detection_does_not_know(tmp_path: Path) -> None:
    """With force, the adapter of the role the user named must be tried; it still knows what it
    cannot load.
    """
    pytest.importorskip("transformers", reason="binding checks that the libraries are installed")
    folder = write_checkpoint(tmp_path / "m", UNKNOWN)
    assert bind_text(str(folder), "describer", force=True).what == "StrangeModel"
    pipeline = write_pipeline(tmp_path / "p")
    roles: tuple[RoleName, ...] = ("describer", "detector", "encoder", "interleaver")
    for role in roles:
        with pytest.raises(RoleError, match=f"cannot be the {role}. Give a"):
            bind_text(str(pipeline), role, force=True)


FUNCTIONS = {"detect": 1, "bind": 3, "check_installed": 1, "weights_bytes": 2, "weights_present": 1}
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


def test_binding_settles_device_precision_and_batches(tmp_path: Path) -> None:
    """What "auto" comes to is decided once, from the device and the checkpoint. Small models on the
    CPU take larger batches, unless the user says how many; what is large, or on an accelerator,
    keeps its size.
    """
    pytest.importorskip("transformers", reason="binding checks that the libraries are installed")
    folder = write_checkpoint(tmp_path / "m", {**LLAVA, "dtype": "bfloat16"})
    for query, dtype, batch_size in (
        ("device=cuda:1", "bfloat16", 8),
        ("device=cpu", "float32", 32),
        ("device=cpu&batch_size=4", "float32", 4),
        ("device=cpu&batch_size=1", "float32", 1),
        ("device=cuda", "bfloat16", 8),
    ):
        role = bind_text(f"{folder}?{query}", "describer")
        assert (role.params["dtype"], role.resources.batch_size) == (dtype, batch_size), query
        assert role.device == query.partition("&")[0].removeprefix("device=")
    folder = write_checkpoint(tmp_path / "vit", {**VIT, "dtype": "bfloat16"})
    encoder = bind_text(f"{folder}?device=cuda:1", "encoder")
    assert (encoder.device, encoder.params["dtype"]) == ("cuda:1", "bfloat16")


def test_numbers_count_in_the_precision_they_are_loaded_in(tmp_path: Path) -> None:
    """A checkpoint in half precision takes twice its files on the CPU; codes stay as they are."""
    folder = write_checkpoint(tmp_path / "m", {**LLAVA, "dtype": "bfloat16"}, None)
    shapes = {"w": (5, 10), "b": (10,), "q": (7,)}
    write_tensors(folder / "model.safetensors", shapes, w="BF16", q="I8")
    for query, device, expected in (
        ("", "cpu", 4 * 60 + 7),
        ("", "cuda", 2 * 60 + 7),
        ("?dtype=float32", "cuda", 4 * 60 + 7),
        ("?device=cpu", None, 4 * 60 + 7),
    ):
        assert weights_bytes(parse_spec(f"{folder}{query}"), device) == expected


# -- what users type -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Knobs:
    """One parameter of each kind."""

    steps: int = 4
    scale: float = 1.5
    name: str = "x"
    fast: bool = False
    limit: Positive | None = 7


@pytest.mark.parametrize(
    ("text", "scheme", "target", "params"),
    [
        ("checkpoints/step-8", "", "checkpoints/step-8", {}),
        (
            "org/model?revision=v2&dtype=bfloat16",
            "",
            "org/model",
            {"revision": "v2", "dtype": "bfloat16"},
        ),
        ("shapes:?miss=0.1", "shapes", "", {"miss": "0.1"}),
        ("unicom:w/L.pt?allow_pickle=true", "unicom", "w/L.pt", {"allow_pickle": "true"}),
        ("cleanfid:", "cleanfid", "", {}),
        ("python:pkg.mod:make?x=1", "python", "pkg.mod:make", {"x": "1"}),
        (r"C:\models\step-8", "", r"C:\models\step-8", {}),
        ("m?system_prompt=be%20brief&name=", "", "m", {"system_prompt": "be brief", "name": ""}),
    ],
)
def test_a_spec_is_scheme_target_and_parameters(
    text: str, scheme: str, target: str, params: dict[str, str]
) -> None:
    """Each form that the documentation shows must come apart as it says."""
    spec = parse_spec(text)
    assert (spec.text, spec.scheme, spec.target) == (text, scheme, target)
    assert dict(spec.params) == params


def test_an_existing_folder_is_taken_whole(tmp_path: Path) -> None:
    """A folder whose name holds a question mark or a colon must still be found."""
    folder = tmp_path / "shapes:odd?name=1"
    folder.mkdir()
    spec = parse_spec(str(folder))
    assert (spec.scheme, spec.target, spec.params) == ("", str(folder), {})
    # The system refuses names of more than some hundred letters, also to be asked about.
    assert parse_spec(f"openai:m?system_prompt={'be brief. ' * 99}").target == "m"


@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=8), max_size=3)
)
def test_any_parameter_value_survives(params: dict[str, str]) -> None:
    """Whatever is percent-encoded into a spec must come out as it went in."""
    safe = {key: value.encode("utf-8", "ignore").decode() for key, value in params.items()}
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in safe.items())
    assert dict(parse_spec(f"org/model?{query}").params) == safe


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("m?steps", "name=value"),
        ("m?steps=1&steps=2", "each of them once"),
        ("shape:?miss=0.1", r"'shape:\.\.\.': unknown scheme 'shape'.*shapes"),
    ],
)
def test_malformed_specs_are_refused(text: str, match: str) -> None:
    """A spec that can be read in two ways must not be guessed at."""
    with pytest.raises(SpecError, match=match):
        parse_spec(text)


def test_parameters_are_converted_by_their_annotation() -> None:
    """Strings must become the kinds that the adapter declared; whole numbers may be of any size."""
    spec = parse_spec("m?steps=9&scale=2&fast=Yes&limit=none&name=a%20b")
    assert parse_params(spec, Knobs, "a test") == Knobs(9, 2.0, "a b", fast=True, limit=None)
    large = parse_spec(f"m?limit={10**400}")
    assert parse_params(large, Knobs, "a test").limit == 10**400


@pytest.mark.parametrize(
    "query",
    [
        "revision={}", "a=1&name=v-{}-1", "system_prompt={}", "key_env=PLAIN&revision=plainly {}",
        "{}=1", "same=1&same={}", "{}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("encode", [str, quote])
def test_a_key_of_the_environment_is_no_parameter(
    query: str, encode: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any scheme, as it is, within a value, and encoded; the message does not repeat it."""
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")  # as servers without keys are given: a word
    assert parse_spec("openai:m?revision=EMPTY-8000").params["revision"] == "EMPTY-8000"
    key = "9f8e/7d6c+5b4a"
    monkeypatch.setenv("PLAIN" if "PLAIN" in query else "MODEL_TOKEN", key)
    bodies = ("openai:m", "serve:folder", "python:a:b", "shapes:", "folder")
    for begun in (f"{body}?{first}" for body in bodies for first in ("", "x=1&")):
        text = begun + query.format(encode(key))
        with pytest.raises(SpecError) as raised:
            parse_spec(text)
        message = str(raised.value)
        assert "MODEL_TOKEN" in message or "PLAIN" in message
        assert key not in message
        assert quote(key) not in message


# -- what models return ----------------------------------------------------------------------------


# Protocols of abilities that not every model of a role has, and the method of each.
ABILITIES = (AnswerScorer, JsonDescriber, JsonWriter, SoundEncoder)


@given(st.text(st.characters(codec=None)))
def test_a_text_passes_unless_it_is_blank(text: str) -> None:
    """Nothing is trimmed or mended: what a model said goes on, unless it said nothing."""
    checked = check_text(text)
    assert checked == text if text.strip() else isinstance(checked, Failure)


def test_what_is_no_text_is_told_apart() -> None:
    """Empty, blank, failed already; anything else is a wrong plug-in, not a failed sample."""
    assert check_text("") == Failure("empty-text", "no text at all")
    assert check_text(" \n\t\u3000") == Failure("empty-text", "nothing but white space")
    failed = Failure("blank-image", "flagged")
    assert check_text(failed) == check_image(failed) == failed
    assert check_detections(failed, ["cat"]) == failed
    assert check_detections(Detections(), ["cat"]) == Detections()
    for value in (None, b"bytes", ["a text"]):
        with pytest.raises(ModelError, match=rf"this one returned {type(value).__name__}"):
            check_text(value)


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(width=32)))
def test_each_vector_is_judged_by_itself(array: Any) -> None:
    """A row with NaN or of zeros is a failure; the others of the batch are not."""
    assert check_vectors(np.array([[1e300, 1.0], [1e-300, 0.0]]), 2) == [
        Failure("nan-vector", "features are NaN or infinite"),
        Failure("nan-vector", "features are all zero"),
    ]
    for row, checked in zip(array, check_vectors(array, 3), strict=True):
        if np.isfinite(row).all() and row.any():
            np.testing.assert_array_equal(checked, row)
        else:
            assert isinstance(checked, Failure)
            assert checked.kind == "nan-vector"


@pytest.mark.parametrize(
    "value",
    [np.ones((2, 4)), np.ones((4, 4)), np.ones(3), np.ones((3, 0)), np.ones((3, 1, 4)), None,
     np.full((3, 2), "x"), np.ones((3, 4), np.complex64), [[True], [True], [False]]],
)  # fmt: skip
def test_an_encoder_returns_one_row_per_input(value: object) -> None:
    """Too few rows, too many dimensions, no numbers: a wrong plug-in, and it is told what came."""
    with pytest.raises(
        ModelError, match=r"returns \(3, dimension\) numbers for 3 inputs, this one"
    ):
        check_vectors(value, 3)


CAT = Detection("cat", 0.5, (0.0, 0.0, 4.0, 4.0))


def test_detections_pass_with_built_in_numbers_in_the_order_of_confidence() -> None:
    """Detectors give numpy's floats in any order; the store's text and the rules want neither."""
    box: Any = np.array([0, 1, 2, 3.5], np.float32)
    dog = Detection(
        "dog",
        np.float32(0.75),  # type: ignore[arg-type] # as users do
        box,
        Mask(1, 2, (1, 1)),
        "red",
    )
    checked = check_detections(Detections((CAT, dog)), ["cat", "dog"])
    assert checked == Detections(
        (Detection("dog", 0.75, (0.0, 1.0, 2.0, 3.5), Mask(1, 2, (1, 1)), "red"), CAT)
    )
    assert isinstance(checked, Detections)
    (first, _) = checked.found
    assert {type(first.score), *map(type, first.box)} == {float}


@pytest.mark.parametrize("place", [np.nan, np.inf, 9.0])
def test_a_box_that_is_none_fails_its_image(place: float) -> None:
    """A buffer that is used again turns a good box bad after it was made: NaN, or inside out."""
    buffer: Any = np.array([0.0, 0.0, 4.0, 4.0])
    bad = Detections((Detection("cat", 0.5, buffer),))
    buffer[1] = place
    checked = check_detections(bad, ["cat"])
    other = check_detections(Detections((CAT,)), ["cat"])
    assert isinstance(checked, Failure)
    assert checked.kind == "bad-boxes"
    assert "left, top, right, bottom" in checked.detail
    assert other == Detections((CAT,))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "Detections for each image, this one returned NoneType"),
        ([CAT], "this one returned list"),
        # Wrong types are ignored below: users give them.
        (Detections((("cat", 0.5),)), "this one answered ..cat', 0.5"),  # type: ignore[arg-type]
        (Detections((Detection("a cat", 0.5, CAT.box),)),
         "word for word, this one answered Detection.query='a cat'"),
        (Detections((Detection("cat", 0.5, CAT.box, [[1]]),)),  # type: ignore[arg-type]
         "returned list and NoneType"),
        (Detections((Detection("cat", 0.5, CAT.box, None, 3),)),  # type: ignore[arg-type]
         "returned NoneType and int"),
    ],
    ids=range(6),
)  # fmt: skip
def test_a_detector_returns_detections(value: object, message: str) -> None:
    """Anything else is a wrong plug-in, not a failed sample, and it is told what came."""
    with pytest.raises(ModelError, match=message):
        check_detections(value, ["cat", "dog"])


@pytest.mark.parametrize("role", ROLES)
def test_the_table_asks_as_the_protocol_says(role: RoleName) -> None:
    """An argument that stands elsewhere, or is left out, would fail every batch of the role."""
    own = ROLES[role]
    for method in own.methods:
        protocol = next(p for p in (own.protocol, *ABILITIES) if hasattr(p, method.name))
        expected = list(signature(getattr(protocol, method.name)).parameters)[1:]
        assert [*method.inputs, *method.shared, *["seeds"] * method.seeds] == expected
        assert str(method) == f"{method.name}({', '.join(expected)})"
        assert method.optional == (protocol is not own.protocol)
    assert set(ROLES) == set(ROLE_NAMES)
    assert len(METHODS) == sum(len(own.methods) for own in ROLES.values())


def test_a_describer_without_json_is_asked_once_for_each_prompt() -> None:
    """Its texts come back in the order of the inputs."""
    calls: list[Any] = []

    class Plain:
        """Reads the prompt and the image, which is a text here."""

        def describe(self, images: Any, prompt: str, seeds: Any) -> list[str]:
            """A text for each."""
            calls.append((list(images), prompt, list(seeds)))
            return [f"{image} {prompt}" for image in images]

    method = METHODS["describe_json"]
    arguments = method.arguments([("a", "1"), ("b", "2"), ("c", "1")], ({},), [7, 8, 9])
    assert method.of(Plain())(*arguments) == ["a 1", "b 2", "c 1"]
    assert calls == [(["a", "c"], "1", [7, 9]), (["b"], "2", [8])]
