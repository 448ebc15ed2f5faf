"""Models that a suite names by where they lie: from any folder the same, and missed in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_cepbench.errors import SuiteError
from pytest_cepbench.suites import RoleChoices, assign_models, load_suite

SUITE = """\
name = "near"
version = 1
[data]
loader = "shapes"
[prompts]
describe = "describe"
[roles]
describer = "../../models/describer?batch_size=2"
generator = "preset:drawing"
encoder = "./encoder"
[presets.drawing]
model = "../../models/generator"
parameters = { height = 64 }
[encoders]
other = "../../models/other"
[metrics.gc]
[metrics.sim]
encoder = "other"
"""

MODELS = ("models/describer", "models/generator", "models/other", "suites/near/encoder")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The suite's file in a project with folders where its models are; started in the project."""
    for name in (*MODELS, "mine", "elsewhere"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    made = tmp_path / "suites" / "near" / "suite.toml"
    made.write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    return made


def specs(file: Path, choices: RoleChoices | None = None) -> dict[str, str]:
    """The models by role."""
    assignments, _ = assign_models(load_suite(file), choices or RoleChoices())
    return {name: assignment.spec.text for name, assignment in assignments.roles.items()}


@pytest.mark.parametrize("named", ["suites/near/suite.toml", "elsewhere/../suites/near/suite.toml"])
def test_specs_are_shown_as_they_would_be_typed(file: Path, named: str) -> None:
    """Relative to where pytest was started, however the suite's file was named; parameters stay."""
    assert specs(Path(named)) == {
        "describer": "models/describer?batch_size=2",
        "generator": "models/generator?height=64",
        "encoder": "suites/near/encoder",
        "other": "models/other",
    }


def test_models_that_lie_elsewhere_are_named_from_the_root(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that they are found from a folder that does not hold them."""
    root = Path.cwd()
    monkeypatch.chdir("elsewhere")
    assert specs(file)["describer"] == f"{root}/models/describer?batch_size=2"
    assert specs(file)["encoder"] == f"{root}/suites/near/encoder"


def test_a_suite_reached_by_a_link_keeps_its_models(file: Path) -> None:
    """Its paths count from where the suite lies, not from where the link does."""
    Path("linked").symlink_to(file.parent)
    assert specs(Path("linked/suite.toml")) == specs(file)


def test_a_question_mark_in_the_name_of_a_folder_is_part_of_it(file: Path) -> None:
    """Where a folder of that very name is there."""
    Path("models/what?size=2").mkdir()
    file.write_text(SUITE.replace("describer?batch_size=2", "what?size=2"))
    assert specs(file)["describer"] == "models/what?size=2"


def test_what_is_typed_counts_from_where_it_is_typed(file: Path) -> None:
    """The model that an option gives a preset is the user's, with the suite's parameters."""
    choices = RoleChoices(roles={"generator": "preset:drawing?model=./mine"})
    assert specs(file, choices)["generator"] == "./mine?height=64"


@pytest.mark.parametrize(
    ("folder", "key", "option"),
    [
        (
            "models/describer",
            "roles.describer = '../../models/describer?batch_size=2'",
            "--describer=",
        ),
        ("models/generator", "presets.drawing.model = '../../models/generator'", "--generator="),
        ("suites/near/encoder", "roles.encoder = './encoder'", "--encoder="),
        ("models/other", "encoders.other = '../../models/other'", "--encoder other="),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_there_is_missed_at_once(
    file: Path, folder: str, key: str, option: str
) -> None:
    """Key, file, folder and what to do, in one line."""
    Path(folder).rename("moved")
    with pytest.raises(SuiteError) as raised:
        specs(file)
    message = str(raised.value)
    assert message.startswith(
        f"suite 'near': {key} in {str(file)!r} counts from the folder of that file"
    )
    assert f"{str(Path.cwd() / folder)!r} is not there" in message
    assert message.endswith(f"or name another with {option}FOLDER_OR_HUB_ID")
    assert "\n" not in message


def test_only_models_that_are_needed_are_missed(file: Path) -> None:
    """A role whose model the user names, or that no chain and no metric needs."""
    Path("models/generator").rename("moved")
    assert specs(file, RoleChoices(roles={"generator": "shapes:"}))["generator"] == "shapes:"
    Path("models/other").rename("gone")
    file.write_text(re.sub(r"\[metrics.sim\].*", "", SUITE, flags=re.DOTALL))
    assert "other" not in specs(file, RoleChoices(roles={"generator": "shapes:"}))
