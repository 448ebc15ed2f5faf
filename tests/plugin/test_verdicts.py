"""Every verdict from end to end, in every way to run: exit code, word, text and report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import (
    EACH_MODE,
    MODES,
    REGRESSED,
    TEST_MODULE,
    Project,
    contents,
)
from tests.plugin.scored_project import (
    Ended,
    ScoredProject,
    junit_properties,
    model,
    scored_suite,
)


def test_without_a_baseline_the_gate_fails_and_says_how_to_accept(toy: Project) -> None:
    """Nothing compared is never a pass; one command accepts, and then the same model holds."""
    first = toy.run_here("-vv", "-rf", "-k", "count")
    assert first.ret == pytest.ExitCode.TESTS_FAILED
    first.stdout.fnmatch_lines(
        [
            "test_toy.py::test_drift?count-gc? NO-BASELINE *",
            "no-baseline: toy, count, GC@2 (nothing has been accepted yet to compare with)",
            "*next: run again with --snapshot-update to accept these numbers, and commit the",
            "        file",
            "*no baseline: run again with --snapshot-update to accept what was measured",
            "NO-BASELINE test_toy.py::test_drift?count-gc? - 1.0000 now, no baseline *",
        ]
    )
    assert not toy.baselines.exists()
    second = toy.run_here("-v", "-k", "count", "--snapshot-update")
    assert second.ret == pytest.ExitCode.OK
    second.stdout.fnmatch_lines(
        ["*count-gc? ACCEPTED *", "1 baseline written below baselines: commit them"]
    )
    third = toy.run_here("-v", "-k", "count")
    assert third.ret == pytest.ExitCode.OK
    third.stdout.fnmatch_lines(["*count-gc? HELD *", "HELD *count GC@2 *"])
    assert toy.verdicts() == {"count-gc": "held"}


def test_a_baseline_of_something_else_is_incomparable(accepted: Project) -> None:
    """A number is never put against one that means something else; what differs is named."""
    accepted.edit("suite.toml", 'describe = "describe"', 'describe = "it"')
    accepted.edit("suite.toml", 'generator = "shapes:"', 'generator = "shapes:?miss=0.1"')
    result = accepted.run_here("-vv", "-k", "color")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (case,) = accepted.report()["cases"]
    assert (case["verdict"], case["difference"]) == ("incomparable", None)
    result.stdout.fnmatch_lines(
        [
            # pytest 8 names the project of which this one is a copy as well.
            "test_toy.py::test_drift?color-gc?* INCOMPARABLE *",
            "  describe prompt: baseline describe, now it",
            "  generator: baseline *miss=*",
            "*or accept a new one with",
            "*--snapshot-update",
        ]
    )


def test_the_marker_chooses_parts_and_metrics(toy: Project) -> None:
    """Categories and metrics narrow the cases; markers of module and function are merged."""
    toy.write(
        "test_toy.py",
        "import pytest\n\npytestmark = pytest.mark.cep(metrics=['gc'], categories=('shape',))\n\n"
        f"@pytest.mark.cep(categories=['overall', 'color'])\n{TEST_MODULE}",
    )
    result = toy.run_here("--collect-only", "-q")
    ids = [line for line in result.outlines if "::" in line]
    assert ids == ["test_toy.py::test_drift[color-gc]", "test_toy.py::test_drift[overall-gc]"]


NONSENSE = {
    "color": (None, b"nonsense", "cannot be read: *"),
    "count": (None, b"\xff\xfe\x00", "cannot be read: *"),
    "crowded": (None, b"", "cannot be read: *"),
    "existence": (b"value = 1.0", b"value = 0.5", "says value = 0.5 and its scores give 1.0; *"),
    "position": (b"format = 2", b"format = 0", "has format 0, which never was; *"),
    "relation": (
        b"relation/gc",
        b"color/gc",
        "is of case 'toy/color/gc', not of 'toy/relation/gc'; *",
    ),
    "shape": (b"n = 2", b"n = 3", "says n = 3 and holds the scores of 2; *"),
    "size": (b'0000" = 1.0', b'0000" = nan', "holds no scores, or scores that are not finite; *"),
    "overall": (
        b'"color/0001" =',
        b'"color/0000" =',
        "cannot be read: Cannot overwrite a value *; *",
    ),
}
"""For each category's baseline a bad edit: (what goes, None for all; by what; how it is told)."""


def test_a_baseline_edited_into_nonsense_is_an_error(accepted: Project) -> None:
    """What is no baseline or contradicts itself lets nothing pass and is named with the remedy."""
    for part, (old, new, _) in NONSENSE.items():
        (file,) = (accepted.baselines / "toy").glob(f"{part}-gc-*")
        assert old is None or old in file.read_bytes()
        file.write_bytes(new if old is None else file.read_bytes().replace(old, new, 1))
    result = accepted.run_here("-vv", "-k", "gc")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.verdicts() == {f"{part}-gc": "error" for part in NONSENSE}
    result.assert_outcomes(errors=len(NONSENSE))
    for part, (_, _, explained) in NONSENSE.items():
        result.stdout.fnmatch_lines([f"*::test_drift?{part}-gc?*ERROR *"])
        result.stdout.fnmatch_lines([f"  baseline {part}-gc-* {explained}with --snapshot-update"])


def test_an_informational_case_that_cannot_be_measured_is_named(accepted: Project) -> None:
    """The run passes by the others, and the summary says what was not measured, and why."""
    accepted.edit("suite.toml", "[gate]\n", '[gate]\nprimary = ["color/gc"]\n')
    (file,) = (accepted.baselines / "toy").glob("count-gc-*")
    file.write_text("nonsense")
    result = accepted.run_here("-k", "color or count")
    assert result.ret == pytest.ExitCode.OK
    assert accepted.verdicts() == {"color-gc": "held", "count-gc": "error"}
    result.stdout.fnmatch_lines(
        ["informational: toy count GC@2 was not measured: baseline count-gc-* cannot be read: *"]
    )


def test_the_fixtures_give_the_loaded_models(toy: Project) -> None:
    """`cep_describer` and the others are the run's models, in a suite and without one."""
    play = """\
def test_play(cep_describer, cep_generator, cep_encoder):
    image = cep_generator.generate(["a large red circle at the top left"], [1])[0]
    from PIL import Image
    picture = Image.fromarray(image)
    assert cep_describer.describe([picture], "", [2])
    assert cep_encoder.encode_images([picture]).shape[0] == 1
"""
    toy.write("test_models.py", play)
    toy.run_here("test_models.py").assert_outcomes(passed=1)
    toy.write("elsewhere/test_models.py", play)
    named = [f"--{role}=shapes:" for role in ("describer", "generator", "encoder")]
    toy.run_here("elsewhere", *named).assert_outcomes(passed=1)
    toy.run_here("elsewhere", *named[:2]).stdout.fnmatch_lines(
        ["*no model is given for the encoder: give one with --encoder=FOLDER_OR_HUB_ID"]
    )


CATEGORIES = ("aside", "better", "same", "unclear", "worse")

SUITE = scored_suite(
    n=30,
    categories=CATEGORIES,
    rest="""\
[metrics.gc]
[metrics.failures]
gate = "threshold"
tolerance = 0.0
[gate]
primary = ["better/gc", "same/gc", "unclear/gc", "worse/gc", "failures"]
""",
)

CANDIDATE = model(drop="0.045,-0.05,0,0.005,0.047", spread="0.01,0.01,0.004,0.03,0.01")

FOUND = {
    "aside-gc": "regressed",
    "better-gc": "improved",
    "same-gc": "held",
    "unclear-gc": "inconclusive",
    "worse-gc": "regressed",
    "overall-gc": "inconclusive",
    "overall-failures": "held",
}

WORDS = {"aside-gc": "regressed", "overall-gc": "inconclusive"}
"""Of what cannot fail the run, in lower case; the others in upper case."""


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """The project with baselines that the tests leave as they are."""
    project = ScoredProject.make(tmp_path_factory.mktemp("outcomes"), SUITE)
    project.accept()
    return project


@pytest.fixture(scope="module")
def plain(scored: ScoredProject) -> tuple[Ended, Path]:
    """All verdicts in one plain run, with its JUnit file."""
    junit = scored.path / "plain.xml"
    return scored.run(CANDIDATE, f"--junitxml={junit}"), junit


def test_every_verdict_has_its_letter_count_and_table(plain: tuple[Ended, Path]) -> None:
    """The letters i + . ? F in the order of cases, counted apart; one regression fails the run.

    Properties of every test case in the JUnit file agree with the JSON; the whole run has its
    verdict.
    """
    ended, junit = plain
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert ended.verdicts == FOUND
    ended.lines.fnmatch_lines(
        [
            "test_scored.py i+.?Fi. *",
            "Do not ship: 1 of 5 gating cases regressed; worst scored/worse GC@1 -*",
            "REGRESSED  scored worse GC@1 *",
            "lost most: worse/*: 0.800 -> 0.* (scored worse GC@1)",
            "where: scored worse GC@1 lost 100 % by the describer at generation 1",
            "cannot tell: scored unclear GC@1: 30 samples see drops from 0.*; * would see 0.0*",
            ("5 gating cases: 2 held, 1 improved, 1 inconclusive, 1 regressed; 2 informational"),
            "5 % false failures at most per run of checkpoints * (+1 with -v)",
            "1 case improved: --snapshot-update raises the baseline, *",
            "next: look at the samples in the HTML report; *",
            "worst sample: file://*",
            "=* 1 failed, 3 passed, 2 informational, 1 inconclusive in *",
        ]
    )
    assert "Traceback" not in ended.output
    assert "= FAILURES =" not in ended.output
    assert "short test summary" not in ended.output

    run, cases = junit_properties(junit)
    assert run["cepbench_verdict"] == ended.report["verdict"] == "failed"
    assert run["cepbench_headline"] == ended.report["headline"]
    assert ended.report["headline"].startswith("Do not ship: 1 of 5 gating cases regressed; ")
    assert len(cases) == len(FOUND)
    for name, case in ended.cases.items():
        properties = cases[f"test_drift[{name}]"]
        assert properties["cepbench_case"] == f"scored/{case['part']}/{case['metric']}"
        assert properties["cepbench_verdict"] == case["verdict"]
        assert properties["cepbench_primary"] == str(case["primary"]).lower()
        for field in ("value", "baseline", "difference", "low", "high", "alpha", "tolerance", "n"):
            if case[field] is None:
                assert f"cepbench_{field}" not in properties
            else:
                assert float(properties[f"cepbench_{field}"]) == case[field]


@pytest.mark.parametrize(
    "mode", ["n2", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("no-plugin", "n0"))]
)
def test_every_way_to_run_finds_the_same(
    scored: ScoredProject, plain: tuple[Ended, Path], mode: str, tmp_path: Path
) -> None:
    """Exit code, words with -v, JSON but for the effort, and JUnit do not depend on the mode."""
    first, junit = plain
    ended = scored.run(*MODES[mode], "-v", f"--junitxml={tmp_path / 'j.xml'}", CANDIDATE)
    assert ended.code == first.code
    assert ended.numbers == first.numbers
    same = ("schema", "verdict", "counts", "alpha", "problems")
    assert {name: ended.report[name] for name in same} == {n: first.report[n] for n in same}
    assert junit_properties(tmp_path / "j.xml") == junit_properties(junit)
    for name, verdict in FOUND.items():
        lines = [line for line in ended.output.splitlines() if f"[{name}]" in line and "%]" in line]
        assert len(lines) == 1
        assert WORDS.get(name, verdict.upper()) in lines[0].split()


@pytest.mark.parametrize("mode", ["no-plugin", pytest.param("n2", marks=pytest.mark.slow)])
def test_warnings_as_errors_on_the_command_line_fail_it(scored: ScoredProject, mode: str) -> None:
    """`-W error` is meant for it too: a failure with the numbers and without a traceback."""
    ended = scored.run(*MODES[mode], "-W", "error", CANDIDATE, "-k", "unclear", "-vv")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    ended.lines.fnmatch_lines(["inconclusive: scored, unclear, GC@1 (the samples do not tell *"])
    assert ended.report["verdict"] == "failed"
    assert "Traceback" not in ended.output
    assert "test_scored.py:2:" not in ended.output


@pytest.mark.parametrize("argument", ["--cep-inconclusive=fail", "--cep-gate=noninferiority"])
def test_an_inconclusive_case_fails_where_that_is_asked_for(
    scored: ScoredProject, argument: str
) -> None:
    """By the option, or a gate that passes only what it knows; held still passes."""
    ended = scored.run(argument, CANDIDATE, "-k", "unclear or same", "-v")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert ended.verdicts == {"same-gc": "held", "unclear-gc": "inconclusive"}
    assert ended.cases["unclear-gc"]["strict"]
    assert ended.report["verdict"] == "failed"
    ended.lines.fnmatch_lines(
        [
            "*test_drift?unclear-gc? INCONCLUSIVE *",
            "inconclusive: scored, unclear, GC@1 (*",
            "  next: gate more samples or seeds, *",
            "=* 1 failed, 1 passed, *",
        ]
    )
    assert "InconclusiveWarning" not in ended.output


def test_informational_cases_alone_are_no_pass(scored: ScoredProject) -> None:
    """Where nothing could have failed, nothing is known: exit code 5, and the summary says so."""
    ended = scored.run(CANDIDATE, "-k", "aside", "-v")
    assert ended.code == pytest.ExitCode.NO_TESTS_COLLECTED
    ended.lines.fnmatch_lines(
        ["*test_drift?aside-gc? regressed *", "no case was judged: nothing is known of the model"]
    )
    assert ended.report["counts"] == {"informational": 1}
    assert ended.report["alpha"] is None


# -- the same without xdist, with it idle, and on two workers --------------------------------------


@pytest.mark.slow
@EACH_MODE
def test_accepting_writes_the_same_files(
    toy: Project, mode: tuple[str, ...], accepted_root: Path
) -> None:
    """The baselines that a run accepts do not depend on the mode, byte for byte.

    All is in the store then: where it is run again nothing is loaded, nothing computed, all held.
    """
    result = toy.run_cold(*mode, "--snapshot-update")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["10 baselines written below baselines: commit them"])
    assert len(contents(toy.baselines)) == 10
    assert contents(toy.baselines) == contents(accepted_root / "baselines")
    again = toy.run(*mode)
    assert again.ret == pytest.ExitCode.OK
    assert toy.effort() == (0, 0)
    again.stdout.fnmatch_lines(["0 model loads, 0 model inputs (0.0 s in models), * the store"])
    assert set(toy.verdicts().values()) == {"held"}


def test_cases_are_chosen_as_any_test_is(accepted: Project) -> None:
    """Only the chosen cases are judged, and a run of some cases is complete in itself.

    `-x` ends at the first verdict that fails, and the report does not claim more than that.
    """
    accepted.write("test_plain.py", "def test_color_of_nothing(): pass\n")
    for arguments, chosen in (
        (["-k", "color"], {"color-gc"}),
        (["-m", "cep", "-k", "overall"], {"overall-gc", "overall-failures"}),
        (["test_toy.py::test_drift[count-gc]"], {"count-gc"}),
    ):
        result = accepted.run_here(*arguments)
        assert result.ret == pytest.ExitCode.OK
        assert set(accepted.verdicts()) == chosen
        result.stdout.no_fnmatch_line("*INCOMPLETE*")

    result = accepted.run_here("-x", REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len([v for v in accepted.verdicts().values() if v == "regressed"]) == 1
    assert accepted.report()["verdict"] == "incomplete"
    result.stdout.fnmatch_lines(["INCOMPLETE: * tests did not report: *"])
