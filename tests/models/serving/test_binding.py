"""Binding `serve:` specs: what they stand for, and mistakes found before a server is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_cepbench.errors import (
    CheckpointError,
    MissingDependencyError,
    RoleError,
    SpecError,
)
from pytest_cepbench.models.binding import check_installed, detect
from pytest_cepbench.models.serving.engines import ENGINES, find_program
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import bind_text
from tests.models.files import VIT, safetensors_bytes, write_checkpoint
from tests.models.serving.conftest import Bind
from tests.models.serving.stand_ins import StandIn


def test_the_role_is_that_of_the_checkpoint(
    stand_in: StandIn, bind_served: Bind, tmp_path: Path
) -> None:
    """`--model` detects it as for a folder; roles that no chat plays are left out, and are refused
    with the way to insist. `--describer` is bound all the same.
    """
    detected = detect(parse_spec(stand_in.spec()))
    what = "LlavaForConditionalGeneration on vLLM"
    assert (detected.what, detected.roles) == (what, ("describer", "writer"))

    folder = write_checkpoint(tmp_path / "vit", VIT)
    encoder = stand_in.spec().replace(str(stand_in.checkpoint), str(folder))
    detected = detect(parse_spec(encoder))
    assert detected.roles == ()
    assert "only describe, write, judge or answer" in detected.because
    with pytest.raises(RoleError, match=r"can be the describer\. .* --describer, or --model"):
        bind_served(encoder)
    assert bind_served(encoder, force=True).what == "ViTModel on vLLM"


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("start_timeout=5&devices=1&concurrency=2&timeout=9&retries=1", True),
        ("tensor_parallel_size=2&gpu_memory_utilization=0.5&max_num_seqs=3", True),
        ("dtype=bfloat16", False),
        ("quantization=fp8", False),
        ("engine_args=--generation-config vllm", False),
        ("temperature=0.5", False),
    ],
)
def test_what_can_change_an_answer_is_in_its_key_and_nothing_else(
    stand_in: StandIn, query: str, same: bool
) -> None:
    """Where and how fast a server works is no reason to ask it again; its precision is."""
    plain = bind_text(stand_in.spec(), "describer").identity

    assert (bind_text(stand_in.spec(query), "describer").identity == plain) is same


def test_a_served_checkpoint_is_known_by_its_own_fingerprint(stand_in: StandIn) -> None:
    """Wherever it is served, and by whatever. Mistral's consolidated weights, which this package
    never loads but vLLM may, are a part of it, and remote code where it is run; that of another
    repository is refused, as for a folder.
    """
    here = bind_text(str(stand_in.checkpoint), "describer")
    served = bind_text(stand_in.spec(), "describer")
    assert served.fingerprint == here.fingerprint
    assert served.adapter != here.adapter
    assert (served.device, served.remarks) == ("server", ())
    assert not stand_in.starts

    query = "trust_remote_code=true"
    seen = {bind_text(stand_in.spec(query), "describer").fingerprint}
    for name, content in (
        ("consolidated.safetensors", safetensors_bytes()),
        ("modeling.py", b"x = 1"),
        ("modeling.py", b"x = 2"),
    ):
        (stand_in.checkpoint / name).write_bytes(content)
        fingerprint = bind_text(stand_in.spec(query), "describer").fingerprint
        assert fingerprint not in seen
        seen.add(fingerprint)
    assert bind_text(stand_in.spec(), "describer").fingerprint != served.fingerprint
    (stand_in.checkpoint / "chat_template.jinja").write_text("{{ strftime_now('%Y') }}")
    (told,) = bind_text(stand_in.spec(), "describer").remarks
    assert "asks for today" in told

    config = json.loads((stand_in.checkpoint / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "other/repository--modeling.Model"}
    (stand_in.checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="its code lies in"):
        bind_text(stand_in.spec(query), "describer")


def test_a_wrong_interpreter_or_role_is_refused(stand_in: StandIn) -> None:
    """Before anything is started; so is a key, since specs are printed and stored."""
    with pytest.raises(SpecError, match=r"no such program\. Give the interpreter"):
        bind_text(f"serve:{stand_in.checkpoint}?python=/no/python", "describer")
    with pytest.raises(RoleError, match="describer or judge or writer or vqa, not the generator"):
        bind_text(stand_in.spec(), "generator")
    for query in ("api_key=sk-secret-0123456789", "engine_args=--x sk-secret-0123456789"):
        with pytest.raises(SpecError, match="Keys come from the environment") as raised:
            bind_text(stand_in.spec(query), "describer")
        assert "secret" not in str(raised.value)


def test_an_engine_that_is_not_here_is_one_line_with_the_command(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It belongs into an environment of its own, which is named by its interpreter. A script of the
    same environment goes first.
    """
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for engine in ENGINES:
        spec = f"serve:{stand_in.checkpoint}?engine={engine}"
        for ask in (
            lambda text: bind_text(text, "judge"),
            lambda t: check_installed(parse_spec(t)),
        ):
            with pytest.raises(MissingDependencyError, match=r"pip install .*python=~/") as raised:
                ask(spec)
            assert "\n" not in str(raised.value)

    beside, elsewhere = tmp_path / "own" / "vllm", tmp_path / "other" / "vllm"
    for script in (beside, elsewhere):
        script.parent.mkdir()
        script.write_text(f"#!{sys.executable}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(elsewhere.parent))
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    assert find_program("vllm", None) == (str(beside), "serve")
    beside.unlink()
    assert find_program("vllm", None) == (str(elsewhere), "serve")
