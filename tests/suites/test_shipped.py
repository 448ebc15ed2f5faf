"""The suites that are shipped: their cases, and what they are when their data is not here."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.artifacts.outcome import CRITERIA
from pytest_cepbench.datasets.folder import CATEGORIES
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import DataAbsentError
from pytest_cepbench.gate import CaseKey, Policy
from pytest_cepbench.gate.statistics.power import Design, chance_to_hold
from pytest_cepbench.measures.base import readers_of
from pytest_cepbench.store.answers import BUNDLE
from pytest_cepbench.suites import (
    Assignments,
    Case,
    RoleChoices,
    Suite,
    assign_models,
    list_cases,
    load_data,
    load_suite,
)
from pytest_cepbench.suites.gate_config import (
    Overrides,
    check_names,
    claim_of,
    settle,
)

SUITES = Path(__file__).parents[2] / "suites"

BASELINES = Path(__file__).parents[2] / "baselines"

TEXTUAL = {"OCR", "code_reasoning", "numerical_calculation", "text_translation"}

FILES = sorted(path.relative_to(SUITES).as_posix() for path in SUITES.glob("*/*.toml"))

WORLDS = ("shapes", "instrument")
"""Folders of the suites over generated scenes: trained models, and rule-based ones."""

BUILT_IN = {
    "arena/suite.toml",
    "arena/instrument.toml",
    "geneval/suite.toml",
    "judge/suite.toml",
    "tones/suite.toml",
    "tones/text.toml",
    *(f"{world}/{name}.toml" for world in WORLDS for name in ("suite", "drift", "tasks")),
}

CHOICES = RoleChoices(
    model="shapes:", role="generator", roles={"describer": "shapes:", "encoder": "shapes:"}
)

TONES = RoleChoices(
    model="tones:", role="generator", roles={"describer": "tones:", "encoder": "tones:"}
)
"""The same for chains of sounds."""

DESCRIBING = RoleChoices(model="shapes:", role="describer", roles={"encoder": "shapes:"})
"""The same for suites in which nothing is drawn."""

ANSWERING = RoleChoices(
    model="shapes:", roles={"writer": "shapes:", "generator": "shapes:", "judge": "shapes:"}
)
"""The same for suites of interleaved answers."""

JUDGING = RoleChoices(roles={"judge": "shapes:"})
"""For the suite whose answers are stored, where the judge is under test."""


def _assign(suite: Suite) -> tuple[Assignments, dict[str, Any]]:
    plans = suite.plans.values()
    if suite.answer_plan is not None:
        choices = JUDGING if suite.name == "judge" else ANSWERING
    elif all(plan.makes == "sound" for plan in plans):
        choices = TONES
    else:
        describes = all((plan.start, plan.generations) == ("image", 1) for plan in plans)
        choices = DESCRIBING if describes else CHOICES
    return assign_models(suite, choices)


def _cases(file: str, places: dict[str, Path]) -> list[Case]:
    suite = load_suite(SUITES / file)
    dataset = load_data(suite, places)
    _, measures = _assign(suite)
    return list_cases(measures, suite.name, dataset, suite.table.groups)


def test_the_suites_are_named_after_their_folders() -> None:
    """Baselines and reports say `mmeception` of what lies in `suites/mmeception`; no name twice."""
    names = {file: load_suite(SUITES / file).name for file in FILES}
    assert all(name == Path(file).parent.name for file, name in names.items() if "suite" in file)
    assert len(set(names.values())) == len(FILES) > 18


@pytest.mark.parametrize("file", FILES)
def test_every_metric_of_every_suite_can_be_made(file: str) -> None:
    """With a model in each role the settings fit the suite, and no role lacks a model."""
    suite = load_suite(SUITES / file)
    assignments, measures = _assign(suite)
    assert list(measures) == list(suite.table.metrics)
    needed = {"judge"}
    if suite.answer_plan is None:
        needed = {r for m in measures.values() for r in readers_of(m.required_features(None))}
    assert needed <= assignments.roles.keys()


def test_scores_are_of_the_answers_that_battle() -> None:
    """Data, prompts and seeds are those of the suite of battles, so no answer is made twice. Every
    criterion and the overall are cases of one kind of reply, which the judge is asked for once for
    each question; none is a battle.
    """
    battles, scores = (
        load_suite(SUITES / folder / "suite.toml") for folder in ("opening", "opening-criteria")
    )
    assert scores.table.data == battles.table.data
    assert scores.answer_plan == battles.answer_plan
    _, measures = assign_models(scores, ANSWERING)
    scored = [name for name, measure in measures.items() if measure.scored]
    assert [*scored] == ["overall_score", *CRITERIA, "judge_failures"]
    assert not any(measure.judged for measure in measures.values())


@pytest.mark.parametrize(
    "file",
    sorted(file for file in BUILT_IN if file.partition("/")[0] in (*WORLDS, "arena")),
)
def test_every_case_over_generated_scenes_ships_a_baseline(file: str) -> None:
    """They need no data, each of their cases has been accepted, and accepted answers lie beside."""
    cases = _cases(file, {})
    folder = BASELINES / cases[0].key.suite
    shipped = [tomllib.loads(path.read_text())["case"] for path in folder.glob("*.toml")]
    assert sorted(shipped) == sorted(str(case.key) for case in cases)
    assert (folder / BUNDLE).is_file() == file.startswith("arena/")


@pytest.mark.parametrize("name", ["suite", "drift", "tasks"])
def test_the_instrument_measures_what_the_default_measures(name: str) -> None:
    """The same scenes, chains, metrics and groups; only tolerances are in units of the encoder."""
    default, instrument = (load_suite(SUITES / world / f"{name}.toml").table for world in WORLDS)
    for part in ("data", "chain", "prompts", "groups", "gate", "cases"):
        assert getattr(default, part) == getattr(instrument, part)
    settings = [
        {metric: {**raw, "tolerance": None} for metric, raw in table.metrics.items()}
        for table in (default, instrument)
    ]
    assert settings[0] == settings[1]


def test_the_two_arenas_measure_the_same() -> None:
    """The trained models are asked the first of the instrument's questions, by the same rules."""
    trained, instrument = (
        load_suite(SUITES / f"arena/{name}.toml") for name in ("suite", "instrument")
    )
    for part in ("answer", "prompts", "arena", "metrics", "gate", "cases"):
        assert getattr(trained.table, part) == getattr(instrument.table, part)
    questions = {sample.id: sample for sample in load_data(instrument, {}).samples}
    for sample in load_data(trained, {}).samples:
        assert sample.metadata == questions[sample.id].metadata


FOLDERS = ("folder", "folder-described")
"""Folders of suites for images of which nobody knows how many there are."""

MULTI_STEP = tomllib.loads((SUITES / "opening/suite.toml").read_text("utf-8"))["groups"][
    "multi-step"
]

PARTS = {
    "mmeception/suite.toml": CATEGORIES,
    "mmgenbench/suite.toml": [f"pattern {i}" for i in range(13)],
    "mmgenbench/domain.toml": [f"pattern {i}" for i in range(13)],
    "geneval/mgg.toml": ["single_object", "two_object"],
    "geneval2/suite.toml": [f"atoms-{atoms}" for atoms in range(3, 11)],
    "sdp/suite.toml": ["docci", "nocaps"],
    "folder/suite.toml": ["one", "two"],
    "folder-described/suite.toml": ["one", "two"],
    "opening/suite.toml": MULTI_STEP,
    "opening/gold.toml": MULTI_STEP,
    "opening-criteria/suite.toml": MULTI_STEP,
}
"""Categories of the data sets that are not shipped, as far as the cases depend on them."""


def _rules(file: str) -> dict[CaseKey, tuple[Policy, float]]:
    """The rules of the cases that take a part of the run's alpha."""
    suite = load_suite(SUITES / file)
    if file in BUILT_IN:
        dataset = load_data(suite, {})
    else:
        made = (Sample(f"{i:02d}", (part,), text="t") for i, part in enumerate(PARTS[file]))
        dataset = Dataset("made", {}, tuple(made))
    _, measures = _assign(suite)
    cases = list_cases(measures, suite.name, dataset, suite.table.groups)
    check_names(suite, cases)
    claims = {case.key: claim_of(suite, case.key, Overrides()) for case in cases}
    return {key: claim for key, claim in claims.items() if claim[1]}


SIZES = {
    "mmeception/suite.toml": 1187,
    "mmgenbench/suite.toml": 1284,
    "mmgenbench/domain.toml": 10000,
    "geneval/suite.toml": 553,
    "geneval/mgg.toml": 553,
    "geneval2/suite.toml": 800,
    "sdp/suite.toml": 400,
    "opening/suite.toml": 2160,
    "opening-criteria/suite.toml": 2160,
}
"""Independent samples, where the data is not here, or seeds of a sample count as one."""


@pytest.mark.parametrize("folder", sorted({file.partition("/")[0] for file in FILES} - {*FOLDERS}))
def test_a_model_without_failures_is_held(folder: str) -> None:
    """In a run of the folder: no tolerance of failures is below what its samples can exclude."""
    files = [file for file in FILES if file.partition("/")[0] == folder]
    claims = {(file, key): claim for file in files for key, claim in _rules(file).items()}
    for (file, key), policy in settle(claims).items():
        if key.metric in ("failures", "judge_failures"):
            units = SIZES.get(file) or len(load_data(load_suite(SUITES / file), {}).samples)
            none_failed = Design(0.0, units, float(units), units - 1.0, worst=1.0)
            held = chance_to_hold(none_failed, policy.alpha, policy.tolerance)
            assert held == 1, (file, policy)


@pytest.mark.parametrize("file", FILES)
def test_what_a_suite_says_of_its_cases_is_about_cases(file: str) -> None:
    """Primary cases and rules of single ones name what is there, and some can fail a run. Half of
    the error goes to the number that matters most where the file's comment says so, so that what a
    paper reports is seen best.
    """
    suite = load_suite(SUITES / file)
    shares = {key.within: own.alpha / 0.05 for key, own in settle(_rules(file)).items()}
    assert sum(shares.values()) == pytest.approx(1.0)
    if "Half of the error" in (SUITES / file).read_text(encoding="utf-8"):
        (name,) = suite.table.cases
        assert shares[name] == pytest.approx(0.5)


@pytest.mark.parametrize("layout", ["flat", "images", "mixed"])
def test_mmeception_has_14_categories_in_2_groups(tmp_path: Path, layout: str) -> None:
    """Both released layouts of MME give 14 + 2 + 1 cases of each metric and the failure rate."""
    for i, category in enumerate(CATEGORIES):
        nested = layout == "images" or (layout == "mixed" and i % 2)
        folder = tmp_path / category / ("images" if nested else "")
        folder.mkdir(parents=True)
        Image.new("RGB", (4, 4), (i, i, i)).save(folder / "0001.png")
        (tmp_path / category / "0001.txt").write_text("Is this a picture?\tYes\n")
    suite = load_suite(SUITES / "mmeception" / "suite.toml")
    dataset = load_data(suite, {"mme": tmp_path})
    assert [sample.id for sample in dataset.samples] == sorted(f"{c}/0001.png" for c in CATEGORIES)
    cases = _cases("mmeception/suite.toml", {"mme": tmp_path})
    for metric in ("gc", "gc1", "gc_fid"):
        assert len([case for case in cases if case.key.metric == metric]) == 14 + 2 + 1
    assert len(cases) == 3 * 17 + 1
    groups = {case.key.part: set(case.categories) for case in cases if len(case.categories) > 1}
    assert groups["textual-intensive"] == TEXTUAL
    assert groups["visual-intensive"] == set(CATEGORIES) - TEXTUAL
    assert groups["overall"] == set(CATEGORIES)


def test_mmeception_has_the_papers_settings() -> None:
    """T = 3, image-first, the description prompt of Table 1, ViT-B/16's CLS token."""
    suite = load_suite(SUITES / "mmeception" / "suite.toml")
    (plan,) = suite.plans.values()
    assert (plan.start, plan.iterations) == ("image", 3)
    assert plan.describe.startswith("Please write a clear, precise, detailed, and concise")
    assert plan.describe.endswith("using less than 500 words.")
    assert plan.generate == (
        "Generate an image that fully and precisely reflects this description: {description}"
    )
    assert suite.table.roles.encoder == "google/vit-base-patch16-224-in21k?pooling=cls"
    assert suite.table.encoders == {"inception": "cleanfid:"}


@pytest.mark.parametrize("file", ["mmgenbench/suite.toml", "mmgenbench/domain.toml"])
def test_mmgenbench_has_the_settings_of_paper_and_code(file: str) -> None:
    """One iteration, descriptions cleaned and cut at 70 words, four generators at 1024 pixels."""
    suite = load_suite(SUITES / file)
    (plan,) = suite.plans.values()
    assert (plan.start, plan.generations, plan.generate) == ("image", 2, "{description}")
    assert (plan.caption_rules.clean, plan.caption_rules.max_words) == (True, 70)
    steps = {
        name: (preset.parameters["num_inference_steps"], preset.parameters["guidance_scale"])
        for name, preset in suite.table.presets.items()
    }
    assert steps == {
        "flux-1-dev": (50, 3.5), "sd3-5": (28, 3.5), "kolors": (50, 5.0), "lumina": (30, 4.0),
    }  # fmt: skip
    sides = {(p.parameters["height"], p.parameters["width"]) for p in suite.table.presets.values()}
    assert sides == {(1024, 1024)}


def test_sdp_has_the_papers_settings() -> None:
    """Both chains over 20 generations; the mapping decides the encoder, CLIP across modalities."""
    suite = load_suite(SUITES / "sdp" / "suite.toml")
    assert {start: plan.generations for start, plan in suite.plans.items()} == {
        "text": 20, "image": 20,
    }  # fmt: skip
    _, measures = assign_models(suite, CHOICES)
    assert measures["mcd"].identity == (
        "mcd/1 text-to-text by text, text-to-image by cross, image-to-image by image, "
        "image-to-text by cross"
    )
    assert suite.table.encoders["text"].endswith("all-mpnet-base-v2")
    assert suite.table.encoders["cross"].endswith("clip-vit-base-patch32")
    assert "dino" in suite.table.encoders["image"]


def test_geneval_has_the_settings_of_its_script() -> None:
    """553 prompts in six tasks, four images each, 0.3 and 0.9 in counting; MGG to generation 19."""
    suite = load_suite(SUITES / "geneval" / "suite.toml")
    dataset = load_data(suite, {})
    assert len(dataset.samples) == 4 * 553
    assert len(_cases("geneval/suite.toml", {})) == 6 + 1 + 1
    (plan,) = suite.plans.values()
    assert (plan.start, plan.generations) == ("text", 1)
    _, measures = assign_models(suite, CHOICES)
    assert "threshold=0.3 counting_threshold=0.9 max_objects=16" in measures["geneval"].identity
    (plan,) = load_suite(SUITES / "geneval" / "mgg.toml").plans.values()
    assert (plan.start, plan.generations) == ("text", 19)


def test_geneval2_has_the_settings_of_its_script(tmp_path: Path) -> None:
    """One image of each prompt, asked as the released code asks; the whole is over all prompts."""
    questions = [["Are there any dogs in the image?", "Yes"]]
    line = {"prompt": "dogs", "vqa_list": questions, "skills": ["object"]}
    lines = [json.dumps({**line, "atom_count": atoms}) for atoms in range(3, 11)]
    (tmp_path / "geneval2_data.jsonl").write_text("\n".join(lines))
    suite = load_suite(SUITES / "geneval2" / "suite.toml")
    (plan,) = suite.plans.values()
    assert (plan.start, plan.generations, plan.generate) == ("text", 1, "{description}")
    assert suite.table.roles.vqa == "Qwen/Qwen3-VL-8B-Instruct"
    _, measures = assign_models(suite, CHOICES)
    identity = measures["soft_tifa_gm"].identity
    assert "geometric mean at generation 1" in identity
    assert "asked '{question} Answer in one word.'" in identity
    cases = _cases("geneval2/suite.toml", {"geneval2": tmp_path})
    assert len([case for case in cases if case.key.metric == "soft_tifa_gm"]) == 8 + 1
    assert {case.pool for case in cases if case.key.metric.startswith("soft_tifa")} == {"samples"}


def test_folder_takes_any_images(tmp_path: Path) -> None:
    """Sub-folders are categories; images of the folder itself are one as well."""
    for name in ("a/1.png", "b/c/2.jpg", "3.webp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    ids = [case.id for case in _cases("folder/suite.toml", {"folder": tmp_path})]
    assert sorted(ids) == [
        "a-gc", "b/c-gc", "images-gc", "overall-failures", "overall-gc",
    ]  # fmt: skip


def test_what_people_describe_is_the_first_iteration_of_folder() -> None:
    """The same data, prompts and presets, so that a generator is the same for people and models."""
    folder, described = (load_suite(SUITES / name / "suite.toml") for name in FOLDERS)
    for part in ("prompts", "presets", "data", "metrics"):
        assert getattr(described.table, part) == getattr(folder.table, part)
    assert described.table.chain.iterations == 1


@pytest.mark.parametrize("file", sorted(set(FILES) - BUILT_IN))
def test_absent_data_says_how_it_is_had(file: str) -> None:
    """Without their data the suites skip, with the option to give and where to get the data."""
    with pytest.raises(DataAbsentError, match=r"give it with --cep-data [\w-]+=PATH\. \w+"):
        _cases(file, {})
