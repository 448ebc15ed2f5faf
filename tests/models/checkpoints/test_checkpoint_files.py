"""Which files of a checkpoint are read and fingerprinted, and faults of weights before loading."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint import stored_precision
from pytest_cepbench.models.checkpoints.checkpoint_files import readable_files
from pytest_cepbench.models.checkpoints.format_detection import read_json
from pytest_cepbench.models.checkpoints.parameters import SourceOptions
from tests.models.binding import bind_text
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
from tests.special_files import DEPTH, DIGITS, a_pointer


def test_pickled_weights_are_refused_and_allowed_by_name(tmp_path: Path) -> None:
    """Unpickling can run code: refused with the remedy. Once the user says so, they are the model,
    and their bytes count.
    """
    folder = write_checkpoint(tmp_path / "m", LLAVA, "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="allow_pickle=true"):
        inspect(folder)
    assert inspect(folder, "?allow_pickle=true").roles == ("describer", "writer")
    shards = ["pytorch_model-00001-of-00001.bin", "pytorch_model.bin.index.json"]
    pickled = SourceOptions(allow_pickle=True)
    assert readable_files([*shards, "optimizer.bin"], "transformers", {}, pickled) == shards
    before = fingerprint_of(folder, "?allow_pickle=true"), fingerprint_of(folder)
    (folder / "pytorch_model.bin").write_bytes(b"other")
    assert fingerprint_of(folder, "?allow_pickle=true") != before[0]
    assert fingerprint_of(folder) == before[1]
    # Libraries read the pickled weights all the same: their bytes go on to count.
    for name in (
        "projector.safetensors",
        "model-ema.safetensors",
        "diffusion_pytorch_model.safetensors",
    ):
        (folder / name).write_bytes(safetensors_bytes())
    beside = fingerprint_of(folder, "?allow_pickle=true")
    (folder / "pytorch_model.bin").write_bytes(b"another")
    seen = [beside, fingerprint_of(folder, "?allow_pickle=true")]
    (folder / "model.fp16.safetensors").write_bytes(safetensors_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"a third")
    seen.append(fingerprint_of(folder, "?allow_pickle=true"))
    # So it is with a variant: it goes before the plain safetensors.
    (folder / "model.fp16.safetensors").rename(folder / "model.safetensors")
    for content in (b"one", b"two"):
        (folder / "pytorch_model.fp16.bin").write_bytes(content)
        seen.append(fingerprint_of(folder, "?allow_pickle=true&variant=fp16"))
    assert len(set(seen)) == len(seen)


def test_another_variant_is_named(tmp_path: Path) -> None:
    """Weights in fp16 files only: the message must say which parameter brings them."""
    folder = write_checkpoint(tmp_path / "m", LLAVA, None)
    with pytest.raises(CheckpointError, match="no weights"):
        inspect(folder)
    write_checkpoint(folder, LLAVA, "model.fp16.safetensors")
    with pytest.raises(CheckpointError, match="variant=fp16"):
        inspect(folder)
    assert inspect(folder, "?variant=fp16").roles == ("describer", "writer")


@pytest.mark.parametrize("length", [0, 4, 8, 30, -1])
def test_half_written_safetensors_are_found_without_loading(tmp_path: Path, length: int) -> None:
    """A file cut anywhere, its last byte included, must be refused as damaged."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    (folder / "model.safetensors").write_bytes(safetensors_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*write or fetch it again"):
        inspect(folder)


@pytest.mark.parametrize("part", ["unet", "text_encoder"])
def test_weights_that_were_not_gathered_are_named(tmp_path: Path, part: str) -> None:
    """ZeRO-3 leaves (0,) in the place of what other processes held; quantized layers may be so."""
    folder = write_pipeline(tmp_path / "p")
    (file,) = (folder / part).glob("*.safetensors")
    write_tensors(file, {"norm.weight": (4,), "q.weight": (0,)})
    words = r"no values of q\.weight.* stage3_gather_16bit_weights_on_model_save"
    with pytest.raises(CheckpointError, match=words):
        inspect(folder)
    write_tensors(file, {"g_idx": (0,)}, g_idx="I32")
    inspect(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "generation_config.json"])
def test_files_that_were_not_fetched_are_called_so(tmp_path: Path, name: str) -> None:
    """A checkout without `git lfs pull` has pointers in the place of the large ones, one of git
    annex or DVC links to nothing, without which some libraries do in silence.
    """
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    (folder / "eval_metrics.json").symlink_to("fetched-by-nobody")  # which no library reads
    inspect(folder)
    a_pointer(folder / name)
    with pytest.raises(CheckpointError, match=rf"{name}.*a pointer of Git LFS.*git lfs pull"):
        bind_text(str(folder), "describer")
    (folder / name).unlink()
    (folder / name).symlink_to("fetched-by-nobody")
    if name != "config.json":
        with pytest.raises(CheckpointError, match=rf"{name}: links to files that are not there"):
            inspect(folder)


def test_a_quantization_without_method_is_refused(tmp_path: Path) -> None:
    """Only the first versions of bitsandbytes' support wrote none. Whole numbers without any, read
    as weights, are hundreds of times too large.
    """
    folder = write_checkpoint(tmp_path / "m", LLAVA | {"quantization_config": {"bits": 4}})
    with pytest.raises(CheckpointError, match="quantization_config without quant_method"):
        inspect(folder)
    old = {"quant_method": None, "load_in_8bit": True}
    write_checkpoint(folder, LLAVA | {"quantization_config": old})
    assert inspect(folder).quantization == "bitsandbytes"
    write_checkpoint(folder, LLAVA)
    name = "lm_head.weight"
    write_tensors(folder / "model.safetensors", {name: (4,)}, **{name: "I8"})
    with pytest.raises(CheckpointError, match=r"whole numbers in lm_head\.weight"):
        inspect(folder)


FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))


@pytest.mark.parametrize(
    ("present", "places", "words"),
    [
        (FIRST, {"w1": FIRST, "w2": SECOND}, f"of the 2 .*{SECOND}.* do not lie"),
        (
            FIRST,
            {"w1": FIRST, "w2": "../other/model.safetensors"},
            r"names \.\./other/model\.safetensors do not lie",
        ),
        (FIRST, {"w": "inner/model.safetensors"}, r"names inner/model\.safetensors"),
        (FIRST, {}, "no weight_map"),
        (FIRST, [FIRST], "no weight_map"),
        # Of two times: one library would read the older, another the newer.
        ("model.safetensors", {"w": FIRST}, "names 1 shards, and model.safetensors beside it"),
        ("model.safetensors", {"a": "model.safetensors", "b": FIRST}, "several of its shards hold"),
    ],
    ids=["missing", "beside", "below", "empty", "list", "whole", "twice"],
)
def test_an_index_names_the_shards_that_lie_beside_it(
    tmp_path: Path, present: str, places: Any, words: str
) -> None:
    """What is missing is named; libraries would follow other places, which no digest covers."""
    folder = write_checkpoint(tmp_path / "m", LLAVA, FIRST)
    write_checkpoint(folder, LLAVA, present)
    for other in (folder / "inner", tmp_path / "other"):
        write_checkpoint(other, {})
    index = json.dumps({"weight_map": places})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    with pytest.raises(CheckpointError, match=words):
        inspect(folder)


def test_faults_of_a_pipelines_components_are_found(tmp_path: Path) -> None:
    """Each component that is a model must have its weights; a component may not be absent."""
    folder = write_pipeline(tmp_path / "p")
    assert inspect(folder).roles == ("generator", "editor")
    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="unet: no weights"):
        inspect(folder)
    shutil.rmtree(folder / "unet")
    with pytest.raises(CheckpointError, match="names a component 'unet'"):
        inspect(folder)
    # transformers would load its base, whatever lies there by then.
    adapter = write_adapter(tmp_path / "text_encoder", "elsewhere")
    write_checkpoint(adapter, {}, None)
    with pytest.raises(CheckpointError, match="text_encoder: a PEFT adapter inside"):
        inspect(folder, f"?text_encoder={adapter}")
    shutil.copy(adapter / "adapter_config.json", folder / "text_encoder")
    with pytest.raises(CheckpointError, match="text_encoder: a PEFT adapter inside"):
        inspect(folder)


def test_only_what_loading_reads_is_chosen_of_a_pipeline() -> None:
    """Of a published repository, single-file weights, other variants, pickles and pictures stay."""
    read = {"model_index.json", "unet/config.json", "text_encoder/config.json"}
    read |= {"text_encoder/model.safetensors", "tokenizer/vocab.json", "tokenizer/merges.txt"}
    read |= {"scheduler/scheduler_config.json"}
    left = {
        ".gitattributes",
        "README.md",
        "sd_xl_base_1.0.safetensors",
        "01.png",
        "unet/model.onnx",
    }
    left |= {"unet/diffusion_pytorch_model.bin", "vae_decoder/model.safetensors"}
    plain, half = (f"unet/diffusion_pytorch_model{end}.safetensors" for end in ("", ".fp16"))
    for variant, weights in ((None, plain), ("fp16", half)):
        chosen = readable_files(
            [*read, *left, plain, half],
            "diffusers",
            STABLE_DIFFUSION,
            SourceOptions(variant=variant),
        )
        assert set(chosen) == read | {weights}


@pytest.mark.parametrize(
    ("text", "message"),
    [("[" * DEPTH, "nested too deeply"), ("9" * DIGITS, "thousands of digits"), ("{", "")],
    ids=["deep", "digits", "cut off"],
)
def test_a_configuration_that_no_parser_takes(tmp_path: Path, text: str, message: str) -> None:
    """One line with its name, and no traceback."""
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=rf"config\.json: not readable as JSON .*{message}"):
        read_json(path)


# -- fingerprints ----------------------------------------------------------------------------------

READ = (
    "config.json", "generation_config.json", "tokenizer.json", "merges.txt", "bpe.codes",
    "tokenizer.model", "processor_config.json", "chat_template.jinja",
    "qformer_tokenizer/tokenizer.json",
)  # fmt: skip
PASSED_OVER = (
    "README.md", "trainer_state.json", "optimizer.pt", "training_args.bin", "sample.png",
    ".gitattributes", "pytorch_model.bin", "modeling_custom.py",
)  # fmt: skip


@pytest.fixture
def llava(tmp_path: Path) -> Path:
    """A describer's folder with all that such a folder holds."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    for name in (*READ[1:], *PASSED_OVER):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}", encoding="utf-8")
    return folder


def test_what_loading_reads_counts_and_nothing_else(llava: Path) -> None:
    """A byte more in a configuration, tokenizer or chat template is another model; notes, training
    state, pickled twins and unused code are not.
    """
    seen = [fingerprint_of(llava)]
    for name in READ:
        path = llava / name
        path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")
        seen.append(fingerprint_of(llava))
    (llava / "model.safetensors").write_bytes(safetensors_bytes(b"\1\0\x80?"))  # one value
    seen.append(fingerprint_of(llava))
    assert len(set(seen)) == len(READ) + 2
    for name in PASSED_OVER:
        (llava / name).write_text("something else", encoding="utf-8")
        assert fingerprint_of(llava) == seen[-1]
        (llava / name).unlink()
        assert fingerprint_of(llava) == seen[-1]


READ_BY_CODE = (
    "modeling_custom.py", "table.npy", "extra/table.json", "extra/labels.index.json",
    "vision/clip.v2.pt", "vision/model.bin", "vision/tower.safetensors", "mm_projector.bin",
    "kernels.cu", "vision/scaler.pt",
)  # fmt: skip
STATES = (
    "checkpoint-5/a.bin", "global_step5/mp_rank_00.pt", "optimizer_0/a.bin", "optimizer.pt",
    "training_args.bin", "scheduler.pt", "rng_state_0.pth", "pytorch_model.bin",
)  # fmt: skip


def test_code_counts_where_it_runs(llava: Path) -> None:
    """With remote code on, a line of Python is part of the model, and so is what it may read; a
    training's states and other checkpoints in the folder stay out of it.
    """
    seen, without = [fingerprint_of(llava, "?trust_remote_code=true")], fingerprint_of(llava)
    for name in (*STATES, *READ_BY_CODE):
        (llava / name).parent.mkdir(exist_ok=True)
        (llava / name).write_text("x = 1", encoding="utf-8")
        seen.append(fingerprint_of(llava, "?trust_remote_code=true"))
        assert fingerprint_of(llava) == without
    assert set(seen[: len(STATES) + 1]) == {seen[0]}
    assert len(set(seen)) == len(READ_BY_CODE) + 1
    (llava / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        inspect(llava, "?trust_remote_code=true")


DAC = {"audio_tokenizer_class": "DacModel", "audio_tokenizer_name_or_path": "org/dac"}


@pytest.mark.parametrize(
    ("name", "entries", "words"),
    [
        (
            "config.json",
            {"auto_map": {"AutoModel": "org/code--modeling.Model"}},
            r": .*org/code.*shorten the entry .* \"modeling\.Model\"",
        ),
        ("config.json", {"attn_implementation": "org/x"}, ": attn_implementation is 'org/x', a k"),
        ("config.json", {"_attn_implementation": "org/x"}, ": _attn_implementation is 'org/x', a"),
        ("config.json", {"backbone": "org/vit"}, ": .* built by the configuration of 'org/vit'"),
        ("tokenizer_config.json", {"vocab_file": __file__}, ": vocab_file is the file '/"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["org/x--t.T", None]}}, ": .*t.T"),
        (
            "processor_config.json",
            {"image_processor": {"auto_map": {"AutoImageProcessor": "org/x--image.P"}}},
            ": its code lies in the repository org/x",
        ),
        ("config.json", {"architecture": "hf-hub:org/vit"}, ": .*built by .* 'hf-hub:org/vit'"),
        ("config.json", {"transformers_weights": "../w.safetensors"}, r": .* from '\.\./w.safe"),
        ("config.json", {"transformers_weights": "consolidated.safetensors"}, ": its weights wou"),
        ("processor_config.json", {"audio_tokenizer": DAC}, ": its audio tokenizer .*'org/dac'"),
        ("audio_tokenizer_config.json", DAC, ": its audio tokenizer .*'org/dac'"),
    ],
)
def test_what_would_be_read_elsewhere_is_refused(
    tmp_path: Path, name: str, entries: dict[str, Any], words: str
) -> None:
    """Libraries load it by its name, whatever lies there by then: no fingerprint can vouch. Only
    code asks for trust first.
    """
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    stored = LLAVA if name == "config.json" else {}
    (folder / name).write_text(json.dumps({**stored, **entries}), encoding="utf-8")
    (folder / "consolidated.safetensors").write_bytes(safetensors_bytes())
    query = "?trust_remote_code=true" if "--" in str(entries) else ""
    with pytest.raises(CheckpointError, match=f"{name}{words}"):
        fingerprint_of(folder, query)


def test_what_pipelines_and_open_clip_would_read_elsewhere_is_refused(tmp_path: Path) -> None:
    """A kernel is code; timm builds an image tower by a configuration of the hub."""
    kernel = {"attn_implementation": "org/kernel"}
    pipeline = write_pipeline(tmp_path / "p")
    write_checkpoint(pipeline / "text_encoder", kernel)
    with pytest.raises(CheckpointError, match=r"text_encoder/config\.json: .*a kernel of the hub"):
        fingerprint_of(pipeline)
    for tower, stated, words in (
        ("vision_cfg", {"timm_model_name": "hf-hub:org/vit"}, "configuration of 'hf-hub:org/vit'"),
        ("text_cfg", {"tokenizer_kwargs": {"bpe_path": "/a/b.txt.gz"}}, "those of another file"),
    ):
        config = {"model_cfg": {tower: stated}}
        name = "open_clip_model.safetensors"
        folder = write_checkpoint(tmp_path / "m", config, name, index="open_clip_config.json")
        with pytest.raises(CheckpointError, match=words):
            fingerprint_of(folder)


def test_what_only_looks_like_another_place_is_read(tmp_path: Path) -> None:
    """Names of the libraries' own, files that nobody reads, and those of where it was trained."""
    configs: list[dict[str, Any]] = [
        {"attn_implementation": "sdpa", "backbone": "vit"},
        {"backbone": "org/vit", "backbone_config": {"model_type": "vit"}},
        # Of a model's own code.
        {"backbone": {"url": "https://org/vit"}, "architecture": {"type": "vit"}},
        {"transformers_weights": "model.safetensors", "architecture": "vit"},
    ]
    for config in configs:
        assert fingerprint_of(write_checkpoint(tmp_path / "own", LLAVA | config))
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    named = {
        "vocab_file": str(folder / "config.json"),
        "special_tokens_map_file": __file__,
        "tokenizer_file": str(tmp_path / "elsewhere" / "tokenizer.json"),
        "merges_file": "m" * 300,  # of which the system says more than that it is not there
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
    assert fingerprint_of(folder)


def test_every_component_of_a_pipeline_counts(tmp_path: Path) -> None:
    """Scheduler and text encoder decide the picture as much as the unet does. Loaders follow links,
    so a tokenizer shared by several checkpoints is part of each.
    """
    folder = write_pipeline(tmp_path / "p")
    seen = {fingerprint_of(folder)}
    for name in (
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/model.safetensors",
        "unet/diffusion_pytorch_model.safetensors",
    ):
        path = folder / name
        path.write_bytes(path.read_bytes() + b" ")
        seen.add(fingerprint_of(folder))
    assert len(seen) == 5
    (folder / "single_file.safetensors").write_bytes(safetensors_bytes())
    assert fingerprint_of(folder) in seen

    before = fingerprint_of(folder)
    (folder / "tokenizer").rename(tmp_path / "shared")
    (folder / "tokenizer").symlink_to(tmp_path / "shared")
    (tmp_path / "shared" / "loop").symlink_to(folder)
    assert fingerprint_of(folder) == before
    (tmp_path / "shared" / "tokenizer_config.json").write_text("{} ", encoding="utf-8")
    assert fingerprint_of(folder) != before


def test_a_pipelines_precision_is_its_first_components(tmp_path: Path) -> None:
    """A pipeline's index states none; a component's does, and any other checkpoint's own."""
    folder = write_pipeline(tmp_path / "p")
    assert stored_precision(inspect(folder)) == {}
    write_checkpoint(folder / "unet", {"torch_dtype": "float16"}, None)
    assert stored_precision(inspect(folder)) == {"torch_dtype": "float16"}
    write_checkpoint(folder / "text_encoder", {"dtype": "bfloat16"}, None)
    assert stored_precision(inspect(folder)) == {"dtype": "bfloat16"}
    single = inspect(write_checkpoint(tmp_path / "m", {**LLAVA, "dtype": "float16"}))
    assert stored_precision(single)["dtype"] == "float16"
