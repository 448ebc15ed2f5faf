"""suites/geneval2: a small file of the released layout, rule-based models and a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.datasets.shapes.samples import sample_scene
from pytest_cepbench.datasets.shapes.scene import COUNTS
from tests.acceptance.conftest import MakeProject
from tests.acceptance.suites.project import Cast, Gated
from tests.tiny.common import JUDGE_WORDS

pytestmark = pytest.mark.slow


def write_prompts(folder: Path) -> Path:
    """Captions of scenes as prompts, with questions of the embedded world's grammar."""
    lines = []
    for sample in load_shapes(samples_per_category=3).samples:
        scene = sample_scene(sample)
        asked: dict[str, tuple[str, str]] = {}
        for thing in scene.objects:
            noun = f"{thing.color} {thing.shape}{'es' if thing.shape == 'cross' else 's'}"
            number = sum((o.color, o.shape) == (thing.color, thing.shape) for o in scene.objects)
            asked[f"How many {noun} are in the image?"] = (COUNTS[number - 1], "count")
            asked[f"Are there any {noun} in the image?"] = ("Yes", "object")
        lines.append(
            {
                "prompt": sample.text,
                "atom_count": 2 + len(scene.objects),
                "vqa_list": [[question, answer] for question, (answer, _) in asked.items()],
                "skills": [skill for _, skill in asked.values()],
            }
        )
    folder.mkdir()
    file = folder / "geneval2_data.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def gated(make_project: MakeProject, tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """The suite as it is shipped, with the embedded generator and VQA model accepted."""
    data = write_prompts(tmp_path_factory.mktemp("geneval2") / "copy")
    cast = Cast(model="shapes:", roles={"vqa": "shapes:"}, data={"geneval2": data})
    project = make_project("geneval2")
    return Gated(project, cast, project.accept(cast, "--cep-role=generator"))


def test_prompts_are_measured_by_atomicity_and_as_a_whole(gated: Gated) -> None:
    """GM of each atomicity, both means over all prompts; a perfect generator has 1 in all."""
    cases = gated.run.cases
    assert set(cases) == {
        *(f"geneval2/atoms-{atoms}/soft_tifa_gm" for atoms in (3, 4, 5, 6)),
        "geneval2/overall/soft_tifa_gm",
        "geneval2/overall/soft_tifa_am",
        "geneval2/overall/failures",
    }
    assert {case["value"] for name, case in cases.items() if "failures" not in name} == {1.0}
    assert cases["geneval2/overall/soft_tifa_gm"]["n"] == 24


def test_a_checkpoint_that_says_yes_to_all_is_an_error(gated: Gated, tmp_path: Path) -> None:
    """A real VLM that would have every prompt met: its control questions show it."""
    folder = build_yes_sayer(tmp_path / "yes-sayer")
    vqa = f"{folder}?device=cpu&dtype=float32"
    cast = Cast("shapes:", {"vqa": vqa}, data=gated.cast.data, samples=2)
    run = gated.project.run(cast, "--cep-role=generator")
    assert run.code != 0
    gm = run.cases["geneval2/overall/soft_tifa_gm"]
    assert gm["verdict"] == "error"
    assert "0 of" in run.output
    assert "about what is absent" in " ".join(run.output.split())


@pytest.mark.models
def test_a_tiny_checkpoint_answers_softly(gated: Gated, tmp_path: Path) -> None:
    """Without controls, which an untrained model cannot pass, its probabilities are the score."""
    folder = build_yes_sayer(tmp_path / "vlm", bias=0.0)
    suite = gated.project.folder / "suites" / "geneval2" / "suite.toml"
    text = suite.read_text()
    suite.write_text(text.replace("controls = 2", "controls = 0"))
    try:
        vqa = f"{folder}?device=cpu&dtype=float32"
        cast = Cast("shapes:", {"vqa": vqa}, data=gated.cast.data, samples=2)
        run = gated.project.run(cast, "--cep-role=generator")
    finally:
        suite.write_text(text)
    am = run.cases["geneval2/overall/soft_tifa_am"]
    gm = run.cases["geneval2/overall/soft_tifa_gm"]
    assert 0 < gm["value"] <= am["value"] < 0.5


def build_yes_sayer(folder: Path, bias: float = 1.0) -> Path:
    """A tiny Llava that says "Yes" whatever it reads; with bias 0 an untrained one."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from pytest_cepbench.models.torch_runtime import quiet
    from tests.tiny.describers import build_llava

    words = (*JUDGE_WORDS, "Yes", "yes", "No", "no", *COUNTS, *map(str.capitalize, COUNTS))
    with quiet():
        build_llava(folder, words=tuple(dict.fromkeys(words)))
        if bias:
            model = transformers.LlavaForConditionalGeneration.from_pretrained(folder)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            language = model.model.language_model
            for layer in language.layers:  # nothing but the token itself reaches the head
                layer.self_attn.o_proj.weight.data.zero_()
                layer.mlp.down_proj.weight.data.zero_()
            language.embed_tokens.weight.data.fill_(1.0)
            model.lm_head.weight.data.zero_()
            yes = tokenizer.convert_tokens_to_ids("Yes")
            model.lm_head.weight.data[yes] = bias
            model.save_pretrained(folder)
    return folder
