"""Values of options: names before specs, pairs, URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.option_values import is_url, named_specs, split_name, split_pair


def test_a_name_stands_before_the_first_equals_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only of lower-case letters, digits, - and _; a spec may hold equals signs itself, and a
    folder such as `lr=3` is a checkpoint and no name.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3").mkdir()
    for text, name, spec in (
        ("nightly=hf:org/model", "nightly", "hf:org/model"),
        ("v2_a-b=shapes:describer?x=1", "v2_a-b", "shapes:describer?x=1"),
        ("lr=4", "lr", "4"),
        *((whole, None, whole) for whole in ("openai:m?base_url=http://host", "Name=spec")),
        *((whole, None, whole) for whole in ("=spec", "name=", "spec", "lr=3")),
    ):
        assert split_name(text) == (name, spec)
    assert named_specs([]) == (None, {})
    # The last spec of a name counts, as with other options that are given twice.
    assert named_specs(["a", "x=b", "c", "x=d", "y=e"]) == ("c", {"x": "d", "y": "e"})


def test_half_a_pair_is_refused() -> None:
    """The message quotes the option and the text."""
    for text in ("photos", "=photos", "folder=", "="):
        with pytest.raises(ValueError, match=rf"--cep-data {text!r}: NAME=PATH is expected"):
            split_pair(text, "--cep-data")
    assert split_pair("folder=a=b", "--cep-data") == ("folder", "a=b")


def test_a_url_has_a_protocol() -> None:
    """Chained ones of fsspec as well; a colon alone makes none."""
    assert all(map(is_url, ["s3://bucket/lib", "HTTPS://host", "simplecache::s3://b", "file:///x"]))
    assert not any(map(is_url, ["lib", "/mnt/lib", "C:/lib", "a/b://c", "3://x", ""]))
