"""Models of the roles of a suite, from options and from its file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import SpecError, SuiteError, SuiteNotApplicableError
from pytest_cepbench.suites import (
    Assignments,
    RoleChoices,
    assign_models,
    assigned_role,
    load_suite,
)
from tests.datasets.files import put
from tests.suites.world import read_suite

HEAD = """\
name = "roles"
version = 1
[data]
loader = "shapes"
[chain]
start = "both"
generations = 4
[prompts]
describe = "describe"
"""

ROLES = """\
[roles]
describer = "shapes:?miss=0.1"
generator = "shapes:?move=0.1"
encoder = "shapes:"
detector = "shapes:"
"""

ENCODERS = """\
[encoders]
cross = "python:tests.plugin.user_models:encoder"
[metrics.mcd.mappings]
text-to-image = "cross"
image-to-image = "encoder"
"""

PRESETS = """\
[presets.plain]
model = "shapes:"
[presets.lossy]
model = "shapes:?miss=0.1&move=0.3"
parameters = { miss = 0.2, recolor = 0.5, swap = 0 }
"""

GC = "[metrics.gc]\n"

GENEVAL = '[metrics.geneval]\ncolor_encoder = "cross"\n'


def _assign(tmp_path: Path, text: str, **choices: Any) -> Assignments:
    assignments, _ = assign_models(read_suite(tmp_path, HEAD + text), RoleChoices(**choices))
    return assignments


def specs_of(assignments: Assignments) -> dict[str, str]:
    """The models by role."""
    return {name: assignment.spec.text for name, assignment in assignments.roles.items()}


def test_the_suites_roles_play_where_nothing_is_said(tmp_path: Path) -> None:
    """Only the roles that chains and metrics need; the describer is gated. A model that plays
    several roles takes the first that is free, the describer, unless `--cep-role` says otherwise.
    """
    assignments = _assign(tmp_path, ROLES + GC)
    assert specs_of(assignments) == {
        "describer": "shapes:?miss=0.1", "generator": "shapes:?move=0.1", "encoder": "shapes:",
    }  # fmt: skip
    assert (assignments.under_test, assignments.subject) == ("describer", "shapes:?miss=0.1")
    free = {"describer": "shapes:"}
    assert _assign(tmp_path, ROLES + GC, model="shapes:", roles=free).under_test == "generator"
    assert _assign(tmp_path, ROLES + GC, model="shapes:", role="encoder").under_test == "encoder"


@pytest.mark.parametrize(
    ("text", "missing", "message"),
    [
        (ROLES + GC, "describer", "'roles' needs a describer: give one with --describer="),
        (ROLES + GC, "generator", "'roles' needs a generator: give one with --generator="),
        (ROLES + GC, "encoder", "'roles' needs an encoder: give one with --encoder="),
        (ROLES + GENEVAL, "detector", "'roles' needs a detector: give one with --detector="),
        (
            ROLES + GENEVAL,
            "cross",
            r"the encoder 'cross': .* --encoder cross=FOLDER_OR_HUB_ID, or .* under \[encoders\]",
        ),
    ],
)
def test_a_role_without_a_model_is_named(
    tmp_path: Path, text: str, missing: str, message: str
) -> None:
    """With the option that fills it."""
    incomplete = "\n".join(line for line in text.split("\n") if not line.startswith(missing))
    with pytest.raises(SpecError, match=message):
        _assign(tmp_path, incomplete)
    if text == ROLES + GC:
        named = _assign(tmp_path, incomplete, roles={missing: "shapes:"})
        assert specs_of(named)[missing] == "shapes:"


def test_further_encoders_are_those_of_the_suite_or_of_the_command_line(tmp_path: Path) -> None:
    """`--encoder NAME=SPEC` goes before the file; the unnamed one keeps its own model."""
    own = _assign(tmp_path, ROLES + ENCODERS)
    assert specs_of(own)["cross"] == "python:tests.plugin.user_models:encoder"
    assert own.roles["cross"].role == "encoder"
    assignments = _assign(tmp_path, ROLES + ENCODERS, encoders={"cross": "shapes:"})
    assert specs_of(assignments)["cross"] == "shapes:"
    assert assignments.roles["cross"].source == "--encoder cross"
    both = _assign(
        tmp_path,
        ROLES + ENCODERS,
        encoders={"cross": "shapes:"},
        roles={"encoder": "python:tests.plugin.user_models:encoder"},
    )
    assert specs_of(both)["encoder"] == "python:tests.plugin.user_models:encoder"
    assert specs_of(both)["cross"] == "shapes:"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("preset:plain", "shapes:"),
        ("preset:plain?miss=0.4", "shapes:?miss=0.4"),
        # The model's own parameters go before the preset's, and what was typed before both.
        ("preset:lossy", "shapes:?miss=0.1&recolor=0.5&swap=0&move=0.3"),
        ("preset:lossy?move=0.7&miss=0", "shapes:?miss=0&recolor=0.5&swap=0&move=0.7"),
        ("preset:lossy?model=shapes:", "shapes:?miss=0.2&recolor=0.5&swap=0"),
        ("preset:plain?model=python:tests.plugin.user_models:generator",
         "python:tests.plugin.user_models:generator"),
    ],
)  # fmt: skip
def test_a_preset_stands_for_a_model_with_its_parameters(
    tmp_path: Path, spec: str, expected: str
) -> None:
    """As the model under test, by option, and in the suite's own roles."""
    assignments = _assign(tmp_path, ROLES + GC + PRESETS, model=spec)
    assert (assignments.under_test, assignments.subject) == ("generator", expected)
    assignments = _assign(tmp_path, ROLES + GC + PRESETS, roles={"generator": spec})
    assert specs_of(assignments)["generator"] == expected
    assert assignments.roles["generator"].source == f"--generator {spec}"
    assignments = _assign(tmp_path, ROLES.replace("shapes:?move=0.1", spec) + GC + PRESETS)
    assert specs_of(assignments)["generator"] == expected


def test_an_unknown_preset_is_named_with_those_that_exist(tmp_path: Path) -> None:
    """By suite; a suite without presets says so. Other suites may have it: this one is skipped."""
    with pytest.raises(
        SuiteNotApplicableError, match=r"'roles': unknown preset 'losy'. Did you mean 'lossy'\?"
    ):
        _assign(tmp_path, ROLES + GC + PRESETS, model="preset:losy")
    with pytest.raises(SuiteNotApplicableError, match=r"unknown preset 'lossy'. Known: \(none\)"):
        _assign(tmp_path, ROLES + GC, model="preset:lossy")


def test_a_model_without_a_part_does_not_concern_the_suite(tmp_path: Path) -> None:
    """Said before anybody is missed: such a suite is skipped, whatever else it needs."""
    for text in (ROLES + GC, GC):
        with pytest.raises(SuiteNotApplicableError, match="the detector under test has no role in"):
            _assign(tmp_path, text, model="shapes:", role="detector")
    drawn = HEAD.replace('"both"\ngenerations = 4', '"text"\ngenerations = 1')
    text = drawn + ROLES + '[metrics.geneval]\ncolors = "detector"\n'
    suite = read_suite(tmp_path, text)
    with pytest.raises(
        SuiteNotApplicableError,
        match="the describer under test has no role in suite 'roles', which has",
    ):
        assign_models(suite, RoleChoices())
    assignments, _ = assign_models(suite, RoleChoices("shapes:", role="generator"))
    assert list(assignments.roles) == ["generator", "detector"]
    with pytest.raises(SuiteNotApplicableError, match="and its role there with --cep-role"):
        assign_models(suite, RoleChoices("shapes:"))


def test_chains_made_elsewhere_leave_readers_only(tmp_path: Path) -> None:
    """No model grows chains; encoders and detectors are assigned as ever, missing ones named."""
    spec = f"replay:{put(tmp_path / 'made', 'image-first/gen-2/a.png')}"
    assignments = _assign(tmp_path, ROLES + GC, model=spec)
    assert list(assignments.roles) == ["encoder"]
    assert (assignments.under_test, assignments.subject) == ("replay", spec)
    assert assignments.replay is not None
    assert assignments.replay.name == "sdp"
    with pytest.raises(SpecError, match="needs an encoder"):
        _assign(tmp_path, GC, model=spec)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"roles": {"describer": "shapes:"}},
            "--model=replay:made brings its results .*--describer",
        ),
        (
            {"roles": {"generator": "shapes:"}},
            "--model=replay:made brings its results .*--generator",
        ),
        ({"role": "generator"}, "--model=replay:made brings its results with it: drop --cep-role"),
        ({"model": "shapes:", "roles": {"generator": "replay:made"}}, "are given with --model"),
        ({"model": "shapes:", "encoders": {"cross": "replay:made"}}, "are given with --model"),
    ],
)
def test_chains_made_elsewhere_are_no_role(
    tmp_path: Path, choices: dict[str, Any], message: str
) -> None:
    """They come with `--model`, and with no model beside them that would have to make some."""
    with pytest.raises(SpecError, match=message):
        _assign(tmp_path, ROLES + ENCODERS, **({"model": "replay:made"} | choices))


def test_options_that_leave_no_role_or_no_model_are_named() -> None:
    """A model whose roles are all taken; and fixtures outside a suite take what the command line
    names, and say what is missing.
    """
    taken = RoleChoices("python:tests.plugin.user_models:describer", roles={"describer": "shapes:"})
    with pytest.raises(SpecError, match="and --describer is given as well: drop one"):
        _ = taken.played
    choices = RoleChoices(roles={"detector": "shapes:"})
    assert assigned_role(choices, "detector").spec.text == "shapes:"
    with pytest.raises(
        SpecError, match="no model is given for the encoder: give one with --encoder="
    ):
        assigned_role(choices, "encoder")


def test_a_unified_model_plays_both_of_its_roles(tmp_path: Path) -> None:
    """Where none was given to another model; told by the option or one object with both methods."""
    unified = "python:tests.plugin.user_models:unified"
    assignments = _assign(tmp_path, ROLES + GC, model=unified)
    assert (assignments.under_test, assignments.gated) == (
        "describer+generator",
        ("describer", "generator"),
    )
    assert specs_of(assignments) == {
        "describer": unified,
        "generator": unified,
        "encoder": "shapes:",
    }
    result = _assign(tmp_path, ROLES + GC, model="shapes:", role="unified")
    assert result.gated == assignments.gated
    beside = _assign(tmp_path, ROLES + GC, model=unified, roles={"generator": "shapes:"})
    assert beside.gated == ("describer",)
    alone = _assign(tmp_path, ROLES + GC, model=unified, role="generator")
    assert (alone.gated, specs_of(alone)["describer"]) == (("generator",), "shapes:?miss=0.1")
    with pytest.raises(
        SpecError, match="said to be unified, and --describer, --generator is given"
    ):
        _assign(
            tmp_path,
            ROLES + GC,
            model="shapes:",
            role="unified",
            roles={"describer": "shapes:", "generator": "shapes:"},
        )


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
    """The models by role, of a suite file."""
    return specs_of(assign_models(load_suite(file), choices or RoleChoices())[0])


@pytest.mark.parametrize("named", ["suites/near/suite.toml", "elsewhere/../suites/near/suite.toml"])
def test_specs_are_shown_as_they_would_be_typed(file: Path, named: str) -> None:
    """Relative to where pytest was started, however the suite's file was named; parameters stay."""
    assert specs(Path(named)) == {
        "describer": "models/describer?batch_size=2",
        "generator": "models/generator?height=64",
        "encoder": "suites/near/encoder",
        "other": "models/other",
    }


def test_where_a_model_is_looked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an option gives a preset counts from where it is typed, with the suite's parameters;
    models outside of the working directory are named from the root. A question mark is part of the
    name where a folder of that very name is there.
    """
    choices = RoleChoices(roles={"generator": "preset:drawing?model=./mine"})
    assert specs(file, choices)["generator"] == "./mine?height=64"
    root = Path.cwd()
    monkeypatch.chdir("elsewhere")
    assert specs(file)["describer"] == f"{root}/models/describer?batch_size=2"
    assert specs(file)["encoder"] == f"{root}/suites/near/encoder"
    monkeypatch.chdir(root)
    Path("models/what?size=2").mkdir()
    file.write_text(SUITE.replace("describer?batch_size=2", "what?size=2"))
    assert specs(file)["describer"] == "models/what?size=2"


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
