"""Model specs are taken apart as typed, and wrong ones are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.spec import parse_params, parse_spec


@dataclass(frozen=True)
class Knobs:
    """One parameter of each kind."""

    steps: int = 4
    scale: float = 1.5
    name: str = "x"
    fast: bool = False
    limit: int | None = 7


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
    assert (spec.text, spec.scheme, spec.target, dict(spec.params)) == (
        text,
        scheme,
        target,
        params,
    )


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
    """Strings must become the kinds that the adapter declared."""
    spec = parse_spec("m?steps=9&scale=2&fast=Yes&limit=none&name=a%20b")
    assert parse_params(spec, Knobs, "a test") == Knobs(9, 2.0, "a b", fast=True, limit=None)


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
