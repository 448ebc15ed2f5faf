"""Every verdict from end to end: exit code, word, letter, failure text and report."""

from __future__ import annotations

import pytest

from tests.plugin.project import PHOTOS, REGRESSED, SHAPES, TEST_MODULE, Project


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


def test_a_worse_model_is_regressed_with_the_numbers_and_the_samples(accepted: Project) -> None:
    """The failure text has baseline, value, difference, tolerance, the curve and who lost most."""
    result = accepted.run_here("-vv", "-rf", "-k", "crowded", REGRESSED)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (case,) = accepted.report()["cases"]
    assert case["verdict"] == "regressed"
    assert case["difference"] == pytest.approx(case["value"] - case["baseline"])
    assert case["difference"] < -case["tolerance"]
    loser = case["chains"][0]
    result.stdout.fnmatch_lines(
        [
            "test_toy.py::test_drift?crowded-gc?*REGRESSED *",
            "regressed: toy, crowded, GC@2 (the measured drop exceeds the tolerance)",
            f"  baseline {case['baseline']:>14.4f}",
            f"  now {case['value']:>19.4f}   higher is better",
            f"  difference {case['difference']:>+12.4f}",
            "  tolerance       -0.0100   threshold gate",
            "  n                     2",
            f"  course *{case['curve'][0]:.4f}  {case['curve'][1]:.4f}",
            "  samples that lost most *baseline *now *change",
            f"  {loser['sample']} *{loser['score']:.4f} *",
            "  next: look at the samples in the HTML report; if the change is meant, accept",
            "        it with --snapshot-update",
            "REGRESSED test_toy.py::test_drift?crowded-gc? - *",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_letters_and_counts_are_those_of_the_verdicts(accepted: Project) -> None:
    """The progress line has . F and E, and pytest counts errors apart from failures."""
    (accepted.baselines / "toy").rename(accepted.path / "kept")
    (accepted.baselines / "toy").mkdir()
    for name in ("color-gc", "count-gc"):
        (file,) = (accepted.path / "kept").glob(f"{name}-*")
        file.rename(accepted.baselines / "toy" / file.name)
    (nonsense,) = (accepted.baselines / "toy").glob("count-gc-*")
    nonsense.write_text("nonsense")
    result = accepted.run_here("-k", "color or count or crowded")
    result.stdout.fnmatch_lines(["test_toy.py .EF *"])
    result.assert_outcomes(passed=1, failed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


DIFFERENCES = {
    "prompt": (
        'describe = "describe"',
        'describe = "it"',
        "describe prompt: baseline describe, now it",
    ),
    "length": ("iterations = 2", "iterations = 3", "chain: baseline image-first, 4 generations, *"),
    "samples": ("category = 2", "category = 3", "samples: baseline 2 *, now 3 *"),
    "seed": ("iterations = 2", "iterations = 2\nseed = 7", "chain: baseline *seed 0, now *seed 7"),
    "version": ("version = 1", "version = 2", "suite: baseline toy/1, now toy/2"),
    "start": (
        "[chain]",
        '[chain]\nstart = "text"',
        "chain: baseline image-first, *now text-first, *",
    ),
    "fixed": (
        'generator = "shapes:"',
        'generator = "shapes:?miss=0.1"',
        "generator: baseline *miss=*",
    ),
}
"""What can make a baseline incomparable: (old, new) in the suite's file, and how it is named."""


def test_a_baseline_of_something_else_is_incomparable(accepted: Project) -> None:
    """A number is never put against one that means something else; what differs is named."""
    for name, (old, new, _) in DIFFERENCES.items():
        assert SHAPES.count(old) == 1
        accepted.write(f"{name}/suite.toml", SHAPES.replace(old, new))
        accepted.write(f"{name}/test_{name}.py", TEST_MODULE)
    result = accepted.run("-vv", "-k", "color", *DIFFERENCES)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    cases = accepted.report()["cases"]
    assert len(cases) == len(DIFFERENCES)
    assert {(case["verdict"], case["difference"]) for case in cases} == {("incomparable", None)}
    for name, (_, _, field) in DIFFERENCES.items():
        result.stdout.fnmatch_lines([f"{name}/test_{name}.py::test_drift?color-gc? INCOMPARABLE *"])
        result.stdout.fnmatch_lines(
            [f"  {field}", "*or accept a new one with", "*--snapshot-update"]
        )


def test_another_role_or_encoder_is_incomparable(project: Project) -> None:
    """The encoder, and which role is under test, are part of what a baseline means."""
    project.suite(PHOTOS)
    project.photos({"red.png": (200, 10, 10), "blue.png": (10, 10, 200)})
    assert project.run_here("--snapshot-update").ret == pytest.ExitCode.OK
    other = "python:user_models:encoder?behaviour=shy"
    project.run_here("-vv", "-k", "gc", f"--encoder={other}").stdout.fnmatch_lines(
        ["incomparable: photos, overall, GC@2 *", "  encoder: baseline *, now *"]
    )
    project.run(
        "-vv", "-k", "gc", "--model=python:user_models:generator", "--cep-role=generator"
    ).stdout.fnmatch_lines(["  under test: baseline describer, now generator"])


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
    for part, (_, _, explained) in NONSENSE.items():
        result.stdout.fnmatch_lines([f"*::test_drift?{part}-gc?*ERROR *"])
        result.stdout.fnmatch_lines([f"  baseline {part}-gc-* {explained}with --snapshot-update"])


def test_a_baseline_of_a_newer_version_is_an_error_and_says_what_to_install(
    accepted: Project,
) -> None:
    """Its fields may mean something else: no number is made of it, and it is named."""
    (file,) = (accepted.baselines / "toy").glob("color-gc-*")
    text = file.read_text()
    file.write_text(text.replace("format = 2", "format = 3\nsomething_new = 1"))
    assert file.read_text() != text
    result = accepted.run_here("-vv", "-k", "color")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.verdicts() == {"color-gc": "error"}
    result.stdout.fnmatch_lines(
        [f"  baseline {file.name} has format 3, this version reads up to 2: it was written by a *"]
    )


def test_accepting_replaces_a_baseline_that_cannot_be_read(accepted: Project) -> None:
    """A damaged file is no reason to refuse a new one, whatever its bytes are."""
    (file,) = (accepted.baselines / "toy").glob("color-gc-*")
    sound = file.read_bytes()
    file.write_bytes(b"\xff\xfe\x00")
    result = accepted.run_here("-k", "color", "--snapshot-update")
    assert result.ret == pytest.ExitCode.OK
    assert file.read_bytes() == sound


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


def test_a_model_that_cannot_be_loaded_is_an_error(toy: Project) -> None:
    """A suite's model that does not exist gives every case the verdict error, by its name."""
    toy.edit("suite.toml", 'describer = "shapes:"', 'describer = "shapes:?mis=0.1"')
    result = toy.run_here("-k", "color")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert toy.verdicts() == {"color-gc": "error"}
    result.stdout.fnmatch_lines(["*unknown parameter for *'mis'. Did you mean 'miss'?*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_tolerance_can_be_given_with_the_call_the_mark_and_the_command(accepted: Project) -> None:
    """The command line goes before the call, the call before the marker, that before the suite."""
    accepted.write(
        "test_toy.py",
        """\
import pytest

@pytest.mark.cep(categories=["color"], tolerance=0.2)
def test_marked(cep_case, cep_gate):
    assert cep_gate(cep_case).tolerance in (0.2, 0.4)

@pytest.mark.cep(categories=["color"], tolerance=0.2)
def test_called(cep_case, cep_gate):
    assert cep_gate(cep_case, tolerance=0.3).tolerance in (0.3, 0.4)
""",
    )
    accepted.run_here().assert_outcomes(passed=2)
    assert [case["tolerance"] for case in accepted.report()["cases"]] == [0.2, 0.3]
    accepted.run_here("--cep-tolerance=0.4").assert_outcomes(passed=2)
    assert [case["tolerance"] for case in accepted.report()["cases"]] == [0.4, 0.4]


def test_an_expected_failure_is_a_failure(accepted: Project) -> None:
    """A case that its author marked xfail is counted as failed: no mark makes a run green."""
    accepted.write(
        "test_toy.py",
        "import pytest\n\n@pytest.mark.xfail(reason='known')\n"
        "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n",
    )
    result = accepted.run_here("-k", "crowded", REGRESSED)
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert accepted.verdicts() == {"crowded-gc": "regressed"}
    assert accepted.report()["verdict"] == "failed"


def test_the_fixtures_give_the_loaded_models(toy: Project) -> None:
    """`describer`, `generator` and `encoder` are the run's models, in a suite and without one."""
    play = """\
def test_play(describer, generator, encoder):
    image = generator.generate(["a large red circle at the top left"], [1])[0]
    from PIL import Image
    picture = Image.fromarray(image)
    assert describer.describe([picture], "", [2])
    assert encoder.encode_images([picture]).shape[0] == 1
"""
    toy.write("test_models.py", play)
    toy.run("test_models.py").assert_outcomes(passed=1)
    toy.write("elsewhere/test_models.py", play)
    named = [f"--{role}=shapes:" for role in ("describer", "generator", "encoder")]
    toy.run("elsewhere", *named).assert_outcomes(passed=1)
    toy.run("elsewhere", *named[:2]).stdout.fnmatch_lines(
        ["*no model is given for the encoder: give one with --encoder=FOLDER_OR_HUB_ID"]
    )


def test_a_case_without_a_suite_says_what_is_missing(project: Project) -> None:
    """`cep_case` beside no suite.toml names the file that was looked for."""
    project.write("test_alone.py", "def test_drift(cep_case, cep_gate): cep_gate(cep_case)\n")
    result = project.run_here()
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"*suite file '{project.path}/suite.toml' cannot be read*"])


def test_the_suite_tolerates_what_it_says(accepted: Project) -> None:
    """The suite's own tolerance decides between held and regressed."""
    accepted.edit("suite.toml", "[metrics.gc]", "[metrics.gc]\ntolerance = 0.6")
    assert "tolerance = 0.6" not in SHAPES
    accepted.run_here("-k", "crowded", REGRESSED).assert_outcomes(passed=1)
