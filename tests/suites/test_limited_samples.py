"""`--cep-samples`: fewer samples of each category, the same ones everywhere and in every run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.errors import SuiteError
from pytest_cepbench.suites import load_data, load_suite
from tests.plugin.project import SHAPES, Project, assert_one_message
from tests.suites.world import overlapping

CATEGORIES = ["a", "b", "c"]

DATASETS = st.dictionaries(
    st.text(min_size=1, max_size=6),
    st.lists(st.sampled_from(CATEGORIES), min_size=1, max_size=3, unique=True),
    min_size=1,
    max_size=30,
).map(
    lambda groups: Dataset(
        "made",
        {},
        tuple(Sample(name, tuple(own), text="t") for name, own in sorted(groups.items())),
    )
)
"""Data sets whose samples are in one to three categories."""


def _members(dataset: Dataset) -> dict[str, set[str]]:
    return {c: {sample.id for sample in dataset.in_category(c)} for c in dataset.categories}


@given(DATASETS, st.integers(1, 12))
def test_every_category_has_so_many_or_all_it_has(dataset: Dataset, most: int) -> None:
    """Exactly, also where a sample is in several categories; none of them disappears."""
    whole, limited = _members(dataset), _members(dataset.limited(most))
    assert {c: len(members) for c, members in limited.items()} == {
        c: min(most, len(members)) for c, members in whole.items()
    }
    assert all(limited[c] <= whole[c] for c in whole)


@given(DATASETS, st.integers(1, 12), st.integers(0, 12))
def test_fewer_are_always_among_more(dataset: Dataset, most: int, more: int) -> None:
    """What a short run computed is used by a longer one; a limit of a limit is the lower."""
    few, many = dataset.limited(most), dataset.limited(most + more)
    assert all(members <= _members(many)[c] for c, members in _members(few).items())
    assert _members(dataset.limited(len(dataset.samples))) == _members(dataset)


@given(DATASETS, st.integers(1, 12))
def test_the_choice_depends_on_ids_and_categories_alone(dataset: Dataset, most: int) -> None:
    """Not on what else the data set holds of its samples."""
    bare = Dataset(
        "other", {"x": 1}, tuple(Sample(s.id, s.categories, text="other") for s in dataset.samples)
    )
    assert _members(bare.limited(most)) == _members(dataset.limited(most))


@pytest.mark.slow
def test_the_choice_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Python's own hashes differ between processes; the chosen samples do not."""
    (tmp_path / "suite.toml").write_text(SHAPES.replace("category = 2", "category = 20"))
    code = (
        "import json, sys; from pathlib import Path\n"
        "from pytest_cepbench.suites import load_data, load_suite\n"
        "found = load_data(load_suite(Path(sys.argv[1])), {}, 3)\n"
        "print(json.dumps([s.id for s in found.samples]))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "suite.toml")],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    here = [s.id for s in load_data(load_suite(tmp_path / "suite.toml"), {}, 3).samples]
    assert [json.loads(run) for run in runs] == [here, here]
    assert len(here) == 8 * 3


def test_a_sample_of_several_categories_stays_in_those_it_was_chosen_for() -> None:
    """It may leave one and stay in another, so that both have their number."""
    whole = overlapping()
    own = {sample.id: sample.categories for sample in whole.samples}
    left = 0
    for most in range(1, 8):
        limited = whole.limited(most)
        kept = {sample.id: sample.categories for sample in limited.samples}
        assert all(set(categories) <= set(own[name]) for name, categories in kept.items())
        left += sum(len(kept[name]) < len(own[name]) for name in kept)
        assert {c: len(members) for c, members in _members(limited).items()} == {
            "a": most,
            "b": most,
        }
    assert left > 0


@given(DATASETS, st.integers(0, 6), st.integers(1, 6))
def test_what_is_held_out_was_never_chosen(dataset: Dataset, first: int, most: int) -> None:
    """Not one of the first samples of any category is among those that follow, in any category."""
    chosen = {sample.id for sample in dataset.limited(first).samples} if first else set()
    rest = dataset.without(first)
    left = set() if rest is None else {sample.id for sample in rest.samples}
    assert left == {sample.id for sample in dataset.samples} - chosen
    if rest is not None:
        assert not chosen & {sample.id for sample in rest.limited(most).samples}
        assert rest.whole == dataset


def test_a_suite_leaves_out_the_first_samples(tmp_path: Path) -> None:
    """`[data] skip`: what runs of so many samples look at is left out; as many others are there."""
    text = SHAPES.replace("samples_per_category = 2", "samples_per_category = 5")
    path = tmp_path / "suite.toml"
    path.write_text(text)
    first = _members(load_data(load_suite(path), {}, 2))
    path.write_text(text.replace("[chain]", "skip = 2\n[chain]"))
    second = _members(load_data(load_suite(path), {}, 2))
    assert all(len(members) == 2 for members in second.values())
    assert not any(first[name] & second[name] for name in first)
    assert {len(members) for members in _members(load_data(load_suite(path), {})).values()} == {3}


@pytest.mark.parametrize(
    ("skip", "message"),
    [
        (-1, r"data.skip = -1: at least 0 is expected"),
        (5, r"\[data\] skip = 5 leaves no sample of"),
    ],
)
def test_leaving_out_too_many_is_a_mistake(tmp_path: Path, skip: int, message: str) -> None:
    """A category without samples is named, and a number that is none."""
    text = SHAPES.replace("samples_per_category = 2", "samples_per_category = 5")
    path = tmp_path / "suite.toml"
    path.write_text(text.replace("[chain]", f"skip = {skip}\n[chain]"))
    with pytest.raises(SuiteError, match=message):
        load_data(load_suite(path), {})


@pytest.mark.slow
def test_a_run_over_few_samples(project: Project) -> None:
    """So many per category, with the same numbers on two workers, and a baseline of their own."""
    project.suite(SHAPES.replace("category = 2", "category = 6"))
    few = ("--cep-samples=2", "--model=shapes:?miss=0.3")
    project.run(*few)
    alone = project.numbers()
    assert {c["n"] for c in alone if c["part"] != "overall"} == {2}
    project.run("-n", "2", "--cep-store=another", *few)
    assert project.numbers() == alone
    assert project.run_here("--cep-samples=2", "--snapshot-update", "-k", "color").ret == 0
    assert project.run_here("--cep-samples=2", "-k", "color").ret == 0
    result = project.run_here("--cep-samples=3", "-k", "color")
    assert project.verdicts() == {"color-gc": "incomparable"}
    result.stdout.fnmatch_lines(["not comparable: *samples: baseline 2 *, now 3 *: 1 case *"])


def test_more_samples_ask_for_the_new_ones_only(project: Project) -> None:
    """The few are among the many: their chains come from the store."""
    project.suite(SHAPES.replace("category = 2", "category = 6"))
    project.run_here("--cep-samples=2", "-k", "color")
    first = project.effort()[1]
    project.run_here("--cep-samples=3", "-k", "color")
    assert 0 < project.effort()[1] < first


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", ""])
def test_a_number_that_is_none_is_a_usage_error(project: Project, value: str) -> None:
    """One message, before anything is collected."""
    project.suite(SHAPES)
    result = project.run_here(f"--cep-samples={value}")
    assert_one_message(result, f"--cep-samples {value!r}: a number of at least 1 is expected")
