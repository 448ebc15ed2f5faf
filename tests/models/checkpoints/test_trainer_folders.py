"""Folders as trainers leave them, and hub ids: which checkpoint they are, and what is said else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints.inspection import complete_checkpoint, inspect_checkpoint
from pytest_cepbench.models.spec import parse_spec
from tests.models.checkpoints.test_pipeline_parts import FORMS
from tests.models.files import (
    LLAVA,
    STABLE_DIFFUSION,
    fingerprint_of,
    inspect,
    safetensors_bytes,
    write_adapter,
    write_checkpoint,
    write_pipeline,
    write_tensors,
)


def write_processor(folder: Path) -> None:
    """The files of a processor and a tokenizer, as far as inspection looks at them."""
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}", encoding="utf-8")


def write_run(folder: Path, *steps: int) -> Path:
    """A run's folder with checkpoints and their trainer states."""
    for step in steps:
        checkpoint = write_checkpoint(folder / f"checkpoint-{step}", LLAVA)
        (checkpoint / "optimizer.pt").write_bytes(b"state")
        write_processor(checkpoint)
    return folder


def test_which_checkpoint_of_a_run_is_taken(tmp_path: Path) -> None:
    """The run's folder and its one checkpoint are the same model, and the header says which; of
    several one has to be named, or a link or a text file with a name says which is meant. Scripts
    write config.json into the root before they train: that alone is no checkpoint.
    """
    run = write_run(tmp_path / "run", 500)
    found = inspect(run)
    assert found.path == run / "checkpoint-500"
    assert found.remarks == (f"checkpoint read from {run / 'checkpoint-500'}",)
    assert inspect(run / "checkpoint-500").remarks == ()
    write_run(run, 1000, 90)  # steps count as numbers
    with pytest.raises(
        CheckpointError,
        match=r"3 checkpoints \(checkpoint-90, checkpoint-500, checkpoint-1000\).*newest is "
        r".*checkpoint-1000",
    ):
        inspect(run)

    (run / "latest").symlink_to("checkpoint-500")
    assert inspect(run).path == run / "checkpoint-500"
    (run / "latest").unlink()
    (run / "latest").write_text("checkpoint-1000\n", encoding="utf-8")
    assert inspect(run).path == run / "checkpoint-1000"
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "latest").symlink_to(".")  # holds no checkpoint, and is not followed forever
    with pytest.raises(CheckpointError, match="no checkpoint"):
        inspect(loop)

    run = write_checkpoint(write_run(tmp_path / "begun", 500), LLAVA, None)
    assert inspect(run).path == run / "checkpoint-500"
    (run / "model.safetensors").write_bytes(safetensors_bytes())
    assert inspect(run).path == run


@pytest.mark.parametrize("text", ["", "..", "../elsewhere", "gone", "a\0b", "x" * 5000])
def test_a_latest_that_names_no_folder_is_explained(tmp_path: Path, text: str) -> None:
    """A file of that name may be anything, and must not lead out of the run."""
    run = write_run(tmp_path / "run", 500)
    (run / "latest").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="latest"):
        inspect(run)


def test_the_model_below_a_checkpoint_is_found(tmp_path: Path) -> None:
    """Some trainers keep the model in a folder of its own beside the optimizer's state."""
    step = tmp_path / "step_9"
    write_processor(write_checkpoint(step / "model", LLAVA))
    (step / "optimizer").mkdir()
    assert inspect(step).path == step / "model"


def test_a_processor_in_the_runs_root_is_found(tmp_path: Path) -> None:
    """It is part of the fingerprint, and is taken only where the checkpoint has none."""
    run = tmp_path / "run"
    checkpoint = write_checkpoint(run / "checkpoint-500", LLAVA)
    before = fingerprint_of(checkpoint)
    write_processor(run)
    found = inspect(checkpoint)
    assert found.remarks == (f"processor read from {run}",)
    assert found.tokenizer_folder == run
    assert fingerprint_of(checkpoint) != before
    changed = fingerprint_of(checkpoint)
    (run / "tokenizer.json").write_text('{"a": 1}', encoding="utf-8")
    assert fingerprint_of(checkpoint) != changed
    (checkpoint / "preprocessor_config.json").write_text("{}", encoding="utf-8")
    found = inspect(checkpoint)
    assert found.remarks == (f"tokenizer read from {run}",)
    assert found.preparation_file("tokenizer.json") == run / "tokenizer.json"
    assert found.preparation_file("preprocessor_config.json").parent == checkpoint
    write_processor(checkpoint)
    assert inspect(checkpoint).remarks == ()


def test_a_processor_elsewhere_is_named(tmp_path: Path) -> None:
    """processor= brings its tokenizer, tokenizer= takes the place of any other."""
    checkpoint = write_checkpoint(tmp_path / "model", LLAVA)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_processor(tmp_path / name)
    (tmp_path / "a" / "chat_template.jinja").write_text("a", encoding="utf-8")
    one = inspect(checkpoint, f"?processor={tmp_path / 'a'}")
    assert one.tokenizer_folder == tmp_path / "a"
    both = inspect(checkpoint, f"?processor={tmp_path / 'a'}&tokenizer={tmp_path / 'b'}")
    assert both.preparation_file("tokenizer.json") == tmp_path / "b" / "tokenizer.json"
    assert both.preparation_file("processor_config.json").parent == tmp_path / "a"
    assert both.preparation_file("chat_template.jinja").parent == tmp_path / "a"
    with both.preparation_folder() as folder:
        linked = {path.name for path in folder.iterdir()}
    assert linked == {
        "config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja",
    }  # fmt: skip
    assert not folder.exists()
    with pytest.raises(CheckpointError, match=r"processor=.*holds no processor"):
        inspect(checkpoint, f"?processor={checkpoint}")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ["latest=global_step7", "global_step7/mp_rank_00_model_states.pt", "zero_to_fp32.py"],
            r"python {run}/zero_to_fp32\.py {run} {run}/consolidated .* --tag global_step7",
        ),
        (
            ["pytorch_model/zero_pp_rank_0_mp_rank_00_model_states.pt"],
            r"python -m deepspeed\.utils\.zero_to_fp32 {run} {run}/consolidated --safe_serial",
        ),
        (["pytorch_model_fsdp_rank0.bin", "config.json={}"], "found nothing|no weights|neither"),
        (["pytorch_model_fsdp_0/.metadata"], "weights without a configuration.*base=FOLDER"),
        (["model.safetensors"], "weights without a configuration.*base=FOLDER"),
    ],
)
def test_states_say_what_to_do(tmp_path: Path, names: list[str], words: str) -> None:
    """What only its own library reads is refused with the command that consolidates it."""
    run = tmp_path / "a" / "run"
    for written in names:
        name, _, text = written.partition("=")
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(text, encoding="utf-8")
        if name.endswith(".safetensors"):
            write_tensors(run / name, {"lm_head.weight": (2, 2)})
    with pytest.raises(CheckpointError, match=words.replace("{run}", str(run))):
        inspect(run)


def test_only_a_folder_with_weights_is_suggested(tmp_path: Path) -> None:
    """A configuration without weights is no checkpoint that could be meant."""
    write_checkpoint(tmp_path / "run" / "hf", LLAVA, None)
    with pytest.raises(CheckpointError, match="no checkpoint") as refused:
        inspect(tmp_path / "run")
    assert "Did you mean" not in str(refused.value)
    write_checkpoint(tmp_path / "run" / "final", LLAVA)
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(CheckpointError, match=r"final/, hf/, notes\.txt.*Did you mean .*final"):
        inspect(tmp_path / "run")


def test_a_state_beside_a_whole_model_is_left_out(tmp_path: Path) -> None:
    """Trainers write both: the whole model is read as it always was."""
    folder = write_checkpoint(tmp_path / "checkpoint-500", LLAVA)
    before = fingerprint_of(folder)
    (folder / "global_step500").mkdir()
    (folder / "global_step500" / "mp_rank_00_model_states.pt").write_bytes(b"state")
    (folder / "pytorch_model_fsdp_0").mkdir()
    (folder / "pytorch_model_fsdp_0" / ".metadata").write_bytes(b"state")
    (folder / "latest").write_text("global_step500", encoding="utf-8")
    assert inspect(folder).parts == ()
    assert fingerprint_of(folder) == before


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A describer's folder."""
    return write_checkpoint(tmp_path / "base", LLAVA)


def test_adapter_and_base_are_found_and_named(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an absolute path, from the working folder, or from the adapter's own; one in a run's root
    too, by itself and among `adapters`. A base by another name may be another model, which only its
    user can know.
    """
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate([str(base), "base", "../../base", "./base"]):
        adapter = write_adapter(tmp_path / "runs" / str(number), name)
        found = inspect(adapter)
        assert found.path == base
        assert found.roles == ("describer", "writer")
        assert found.place == adapter
        assert found.remarks == (f"adapter {number} (LORA) merged into {base}",)

    adapter = write_adapter(tmp_path / "adapter", "org/llava-7b")
    found = inspect(adapter, f"?base={base}")
    assert found.remarks[0] == (
        f"the adapter was trained on 'org/llava-7b', and is applied to {base}"
    )
    write_adapter(adapter, "/cluster/models/base")
    assert len(inspect(adapter, f"?base={base}").remarks) == 1

    write_adapter(tmp_path / "run" / "checkpoint-7", str(base))
    found = inspect(tmp_path / "run")
    assert found.path == base
    assert [part.path.name for part in found.adapters] == ["checkpoint-7"]
    assert inspect(base, f"?adapters={tmp_path / 'run'}").adapters == found.adapters


def test_an_absent_base_is_one_line(tmp_path: Path) -> None:
    """It says which one is missing, and how to name it."""
    for name in ("org/model", "/gone/base"):
        adapter = write_adapter(tmp_path / "adapter", name, revision="v1")
        with pytest.raises(CheckpointError, match=rf"base model '{name}'.*base=FOLDER"):
            inspect(adapter)
    with pytest.raises(CheckpointError, match=r"names no base model.*base=FOLDER"):
        inspect(write_adapter(tmp_path / "none", None))
    with pytest.raises(CheckpointError, match=r"bas: no such folder.*Did you mean .*base"):
        inspect(adapter, f"?base={write_checkpoint(tmp_path / 'base', LLAVA).with_name('bas')}")


def test_adapters_that_are_not_whole_or_not_alone_are_refused(base: Path, tmp_path: Path) -> None:
    """Half-written, pickled, without its configuration, or with weights that PEFT never reads; a
    whole model beside an adapter, and an adapter as the base of another.
    """
    adapter = write_adapter(tmp_path / "adapter", str(base))
    weights = adapter / "adapter_model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-2])
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors: .* bytes where"):
        inspect(adapter)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"adapter without weights.*adapter_config\.json"):
        inspect(adapter)
    weights.write_bytes(data)
    (adapter / "non_lora_trainables.bin").write_bytes(b"pickle")
    with pytest.raises(CheckpointError, match=r"non_lora_trainables\.bin beside the adapter"):
        inspect(adapter)
    (adapter / "non_lora_trainables.bin").unlink()
    # Cut off in writing, or another thing.
    for text in ("{", "[]", '{"peft_type": 3}', '{"peft_type": "A\\nB"}', "{}"):
        (adapter / "adapter_config.json").write_text(text, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"adapter_config\.json"):
            inspect(adapter)

    adapter = write_adapter(tmp_path / "adapter", str(base))
    second = write_adapter(tmp_path / "second", str(adapter))
    with pytest.raises(CheckpointError, match=r"its base .* is an adapter too"):
        inspect(second)
    with pytest.raises(SpecError, match="is an adapter itself"):
        inspect(adapter, f"?adapters={second}")
    write_adapter(base, str(base))
    with pytest.raises(CheckpointError, match="a whole model and a PEFT adapter"):
        inspect(base)


def test_an_adapter_is_not_merged_into_a_pipeline_or_a_quantized_base(tmp_path: Path) -> None:
    """Those of a pipeline are named in another way; the few bits of a quantized base would round
    what the adapter adds away.
    """
    base = write_checkpoint(tmp_path / "sd", STABLE_DIFFUSION, None, index="model_index.json")
    adapter = write_adapter(tmp_path / "adapter", str(base))
    with pytest.raises(CheckpointError, match="applied to a model of transformers"):
        inspect(adapter)

    config = {**LLAVA, "quantization_config": {"quant_method": "bitsandbytes"}}
    adapter = write_adapter(tmp_path / "a", str(write_checkpoint(tmp_path / "base", config)))
    found = inspect(adapter)
    assert found.adapters[0].settings == {"merge": False}
    assert found.remarks[0].endswith("/base, which is quantized")
    with pytest.raises(SpecError, match=r"merge=true, and .* is quantized"):
        inspect(adapter, "?merge=true")


# -- hub ids ---------------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one repository at one commit, known as main and as v2; and no network."""
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="hub ids need huggingface_hub"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    repository = tmp_path / "cache" / "models--org--model"
    write_checkpoint(repository / "snapshots" / COMMIT, LLAVA)
    (repository / "refs").mkdir()
    for name in ("main", "v2"):
        (repository / "refs" / name).write_text(COMMIT, encoding="utf-8")
    return tmp_path / "cache"


def test_ids_are_found_in_the_cache(cache: Path, tmp_path: Path) -> None:
    """Branch, tag and commit lead to the snapshot, and the commit is recorded; a base by its hub
    id, at the revision that the adapter names or another branch's.
    """
    base = cache / "models--org--model" / "snapshots" / COMMIT
    for query in ("", "?revision=v2", f"?revision={COMMIT}"):
        checkpoint = inspect("org/model", query)
        assert (checkpoint.path, checkpoint.revision) == (base, COMMIT)
        assert checkpoint.roles == ("describer", "writer")
    config = {"peft_type": "LORA", "base_model_name_or_path": "org/model", "revision": "v2"}
    adapter = write_checkpoint(
        tmp_path / "adapter", config, "adapter_model.safetensors", index="adapter_config.json"
    )
    for query in ("", "?base=org/model"):
        checkpoint = inspect(adapter, query)
        assert checkpoint.path == base
        assert (checkpoint.repository, checkpoint.revision) == ("org/model", COMMIT)
    repository = cache / "models--org--adapter"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    cached = repository / "snapshots" / COMMIT
    shutil.copytree(adapter, cached)
    (part,) = inspect_checkpoint(parse_spec("org/adapter")).adapters
    assert (part.path, part.revision) == (cached, COMMIT)
    (cache / "models--org--model" / "refs" / "v2").unlink()
    with pytest.raises(CheckpointError, match=r"'org/model' at revision 'v2' is neither"):
        inspect_checkpoint(parse_spec(str(adapter)))


@pytest.mark.parametrize("place", ["org/model", "org/model/fast.safetensors@v2"])
def test_lora_weights_come_from_the_cache(cache: Path, tmp_path: Path, place: str) -> None:
    """By the id alone, or with the file and the revision; another file is asked for."""
    snapshot = cache / "models--org--model" / "snapshots" / COMMIT
    for name in ("pytorch_lora_weights.safetensors", "fast.safetensors"):
        write_tensors(snapshot / name, FORMS["kohya"])
    base = write_pipeline(tmp_path / "base")
    (part,) = inspect_checkpoint(parse_spec(f"{base}?lora={place}")).parts
    assert part.path.parent == snapshot
    stem = "fast" if "fast" in place else "pytorch_lora_weights"
    assert part.path.name == f"{stem}.safetensors"
    with pytest.raises(CheckpointError, match=r"no slow\.safetensors"):
        inspect_checkpoint(parse_spec(f"{base}?lora=org/model/slow.safetensors"))


@pytest.mark.parametrize("target", ["org/other", "org/model?revision=v9", "checkpoints/step-80"])
def test_what_is_nowhere_says_what_was_tried(cache: Path, target: str) -> None:
    """Neither a folder nor cached: the message must name both places and the offline switch. What
    cannot be a hub id is a missing folder and nothing else.
    """
    with pytest.raises(CheckpointError, match="no folder of this name") as caught:
        inspect_checkpoint(parse_spec(target))
    assert str(cache) in str(caught.value)
    assert "HF_HUB_OFFLINE is set" in str(caught.value)
    with pytest.raises(CheckpointError, match="no such folder"):
        inspect_checkpoint(parse_spec("/nowhere/checkpoints/step-80"))


@pytest.mark.parametrize("reachable", [True, False])
def test_what_loading_reads_is_fetched_where_the_hub_answers(
    cache: Path, monkeypatch: pytest.MonkeyPatch, reachable: bool
) -> None:
    """Of all files those that loading can read, by their plain names; else the cache serves."""
    import huggingface_hub

    names = ["config.json", "model.safetensors", "pytorch_model.bin", "README.md"]
    fetched: list[list[str]] = []

    class Hub:
        def list_repo_files(self, repository: str, revision: str) -> list[str]:
            assert (repository, revision) == ("org/model", COMMIT)
            if not reachable:
                raise OSError
            return names

    spec = parse_spec("org/model")
    checkpoint = inspect_checkpoint(spec)
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)

    def download(_repository: str, revision: str, allow_patterns: list[str]) -> str:
        fetched.append(allow_patterns)
        return revision

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    complete_checkpoint(checkpoint)
    assert fetched == ([["config.json", "model.safetensors"]] if reachable else [])
