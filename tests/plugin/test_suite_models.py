"""Detectors, further encoders and presets from the command line; several suites in one folder."""

from __future__ import annotations

import pytest

from tests.plugin.project import EACH_MODE, PHOTOS, SHAPES, TEST_MODULE, Project, assert_one_message

TASKS = """\
name = "tasks"
version = 1
[data]
loader = "shapes-tasks"
options = { samples_per_category = 2 }
[chain]
start = "text"
generations = 3
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
detector = "shapes:"
[gate]
gate = "threshold"
[metrics.mgg]
colors = "detector"
[metrics.failures]
tolerance = 0.0
"""

DRIFT = """\
name = "drift"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 1 }
[chain]
start = "both"
generations = 5
[prompts]
describe = "describe"
[roles]
describer = "shapes:"
generator = "shapes:"
encoder = "shapes:"
[encoders]
a = "shapes:"
[metrics.mcd.mappings]
text-to-text = "a"
image-to-image = "b"
text-to-image = "encoder"
[metrics.sdr.mappings]
text-to-text = "a"
"""

BLIND = """\
from pytest_cepbench.artifacts import Detections

class Blind:
    fingerprint = "blind/1"
    queries = "classes"

    def detect(self, images, queries):
        return [Detections() for _ in images]

def detector():
    return Blind()

class Alike:  # all vectors are close together, and no two are the same
    def __init__(self, name):
        self.fingerprint = name

    def encode_images(self, images):
        return self._vectors(image.tobytes() for image in images)

    def encode_texts(self, texts):
        return self._vectors(text.encode() for text in texts)

    def _vectors(self, contents):
        import zlib
        import numpy
        angles = numpy.array([zlib.crc32(content) / 2**32 / 100 for content in contents])
        return numpy.stack([numpy.cos(angles), numpy.sin(angles)], axis=1)

def encoder(name="alike"):
    return Alike(name)
"""


@pytest.fixture
def tasks(project: Project) -> Project:
    """Pictures judged by the embedded detector, and models of the user's own beside them."""
    project.suite(TASKS)
    project.write("own.py", BLIND)
    return project


def test_a_detector_under_test(tasks: Project) -> None:
    """`--model` may be a detector: it is gated; one that finds nothing makes all pictures wrong."""
    same = ("--cep-role=detector", "--model=shapes:")
    assert tasks.run(*same, "--snapshot-update").ret == pytest.ExitCode.OK
    result = tasks.run("-vv", "--model=python:own:detector")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["cepbench: model under test, detector: python:own:detector (*"])
    verdicts = tasks.verdicts()
    assert verdicts["overall-mgg"] == verdicts["colors-mgg"] == "regressed"
    assert verdicts["overall-failures"] == "held"
    result.stdout.fnmatch_lines(
        ["  colors/000* 1.0000 * 0.0000 * -1.0000", "    generation 1: 1 *expected*"]
    )


def test_both_roles_of_a_unified_model_are_under_test(project: Project) -> None:
    """One model, one verdict for both; a loss is put down to the role that it came from."""
    project.suite(PHOTOS)
    project.photos({"red.png": (200, 10, 10), "green.png": (10, 200, 10), "blue.png": (9, 9, 200)})
    unified = "--model=python:user_models:unified"
    accepted = project.run(unified, "--snapshot-update")
    assert accepted.ret == pytest.ExitCode.OK
    accepted.stdout.fnmatch_lines(
        [
            "cepbench: model under test, describer: python:user_models:unified (*",
            "cepbench: model under test, generator: python:user_models:unified (*",
            "cepbench: suite * gates describer+generator python:user_models:unified (encoder *",
        ]
    )
    pale = project.run_here("-vv", f"{unified}?behaviour=pale")
    assert pale.ret == pytest.ExitCode.TESTS_FAILED
    pale.stdout.fnmatch_lines(["*By role: describer 0.0000, generator 0.*"])
    half = project.run_here(f"{unified}?behaviour=pale", "--cep-role=generator")
    half.stdout.fnmatch_lines(
        ["*under test: baseline describer+generator, now generator: 2 cases*"]
    )


def test_a_fixed_detector_is_part_of_what_is_compared(tasks: Project) -> None:
    """`--detector` replaces the suite's, and a baseline made with another one is incomparable."""
    assert tasks.run_here("--snapshot-update", "-k", "colors").ret == pytest.ExitCode.OK
    result = tasks.run_here("-vv", "--detector=python:own:detector", "-k", "colors")
    assert tasks.verdicts() == {"colors-mgg": "incomparable"}
    result.stdout.fnmatch_lines(["cepbench: detector: python:own:detector (*"])
    result.stdout.fnmatch_lines(["  detector: baseline the shapes world's own detector *, now *"])


def test_the_detector_fixture(tasks: Project) -> None:
    """The suite's, or the one that is named; without either the option is named."""
    play = """\
from PIL import Image

def test_play(cep_detector):
    assert not cep_detector.detect([Image.new("RGB", (64, 64))], [["circle"]])[0].found
"""
    tasks.write("test_own.py", play)
    tasks.run_here("test_own.py").assert_outcomes(passed=1)
    tasks.write("elsewhere/test_own.py", play)
    tasks.run_here("elsewhere", "--detector=python:own:detector").assert_outcomes(passed=1)
    tasks.run_here("elsewhere").stdout.fnmatch_lines(
        ["*no model is given for the detector: give one with --detector=FOLDER_OR_HUB_ID"]
    )


@pytest.mark.slow
def test_further_encoders_by_name(project: Project) -> None:
    """`--encoder a=... --encoder b=...`: each has its own role, the unnamed one the usual role."""
    project.suite(DRIFT)
    project.write("own.py", BLIND)
    result = project.run_here("-k", "mcd")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["suite 'drift' needs the encoder 'b': give one with --encoder b=*"]
    )
    named = (
        "--encoder",
        "b=python:own:encoder?name=b",
        "--cep-encoder=a=python:own:encoder?name=a",
    )
    result = project.run("-v", "-k", "mcd", *named, "--encoder=shapes:")
    identities = {case["part"]: case["identity"] for case in project.report()["cases"]}
    assert "own:encoder" in identities["text-to-text"]["a"]
    assert "name': 'b'" in identities["image-to-image"]["b"]
    assert "shapes" in identities["text-to-image"]["encoder"]
    values = [case["value"] for case in project.report()["cases"]]
    assert values == pytest.approx([1.0] * 4, abs=1e-4)
    result.stdout.fnmatch_lines(["cepbench: a: python:own:encoder?name=a (*"])


def test_further_encoders_in_the_environment_and_the_ini_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joined by `;` or one a line, named and unnamed together; a folder is no name."""
    project.suite(DRIFT)
    project.write("own.py", BLIND)
    monkeypatch.setenv("CEPBENCH_ENCODER", "b=python:own:encoder?name=b;shapes:")
    project.run_here("-k", "image-to-image")
    assert "own:encoder" in project.report()["cases"][0]["identity"]["b"]
    monkeypatch.delenv("CEPBENCH_ENCODER")
    ini = (project.path / "pytest.ini").read_text()
    project.write("pytest.ini", f"{ini}cepbench_encoder =\n  shapes:\n  b=shapes:\n")
    project.run_here("-k", "image-to-image")
    assert "shapes" in project.report()["cases"][0]["identity"]["b"]
    (project.path / "b=x").mkdir()
    assert_one_message(project.run_here("--encoder=b=x"), "b=x")


def test_a_named_encoder_that_is_wrong_is_one_message(project: Project) -> None:
    """Before anything is collected, like any other model."""
    project.suite(DRIFT)
    assert_one_message(project.run_here("--encoder=b=python:nowhere:f"), "'nowhere'")
    assert_one_message(project.run_here("--encoder", "b=shapes:?miss=1"), "shapes encoder")


def test_a_named_encoder_that_no_suite_knows_is_said(project: Project) -> None:
    """A mistyped name would otherwise leave the suite's own encoder in use, unseen."""
    project.suite(DRIFT)
    result = project.run_here("--encoder=b=shapes:", "--encoder=bb=shapes:", "-k", "image-to-image")
    result.stdout.fnmatch_lines(
        ["cepbench: no suite here has an encoder 'bb' (--encoder bb=...) Did you mean 'b'?"]
    )


def test_a_suite_without_its_data_asks_for_no_models(project: Project) -> None:
    """Skipped with the way to the data, whatever model is missing too; the reason is summed up."""
    project.suite(SHAPES, "toy")
    text = SHAPES.replace('"shapes"\n', '"folder"\nhow_to_get = "Ask."\n').replace('"toy"', '"far"')
    text = text.replace("options = { samples_per_category = 2 }\n", "")
    project.suite(text.replace('generator = "shapes:"\n', ""), "far")
    result = project.run_here("-k", "color or absent", "--snapshot-update")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["skipped: data set 'folder' is not here: give it with --cep-data folder=PATH. Ask."]
    )


def test_a_curve_that_tells_no_rate_is_an_error_verdict(project: Project) -> None:
    """Perfect models do not drift: SDR has no number, MCD is judged all the same."""
    project.suite(DRIFT)
    result = project.run_here("-vv", "--encoder=b=shapes:", "-k", "text-to-text")
    assert project.verdicts() == {"text-to-text-mcd": "no-baseline", "text-to-text-sdr": "error"}
    result.stdout.fnmatch_lines(
        ["*drift/text-to-text/sdr: the curve does not tell a drift rate: *"]
    )
    mcd = project.report()["cases"][0]
    assert mcd["notes"][0].startswith("SDR text-to-text: no rate, ")
    result.stdout.fnmatch_lines(["  SDR text-to-text: no rate, *"])


@pytest.mark.slow
@EACH_MODE
def test_several_suites_in_one_folder(project: Project, mode: tuple[str, ...]) -> None:
    """One module, a suite file for each test, every case judged and named by its own suite."""
    project.write("suite.toml", SHAPES)
    project.write("tasks.toml", TASKS)
    project.write(
        "test_both.py",
        TEST_MODULE
        + "\n\nimport pytest\n\n@pytest.mark.cep(suite='tasks.toml')\n"
        + "def test_tasks(cep_case, cep_gate):\n    cep_gate(cep_case)\n",
    )
    assert project.run(*mode, "--snapshot-update").ret == pytest.ExitCode.OK
    cases = project.report()["cases"]
    assert [case["suite"] for case in cases] == ["toy"] * 10 + ["tasks"] * 8
    assert {path.parent.name for path in project.baselines.rglob("*.toml")} == {"toy", "tasks"}
    assert project.run(*mode, "-k", "tasks").ret == pytest.ExitCode.OK
    assert {case["suite"] for case in project.report()["cases"]} == {"tasks"}


def test_a_suite_that_the_model_has_no_part_in_is_skipped(tasks: Project) -> None:
    """With the reason; the others are gated, and a run of none but such suites is no pass."""
    tasks.suite(SHAPES, "toy")
    result = tasks.run("-rs", "--model=python:own:detector")
    result.assert_outcomes(skipped=1, failed=8)
    result.stdout.fnmatch_lines(["*the detector under test has no role in suite 'toy'*"])
    alone = tasks.run("toy", "--model=python:own:detector")
    assert alone.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    alone.stdout.fnmatch_lines(["no case was judged: nothing is known of the model"])


def test_a_preset_on_the_command_line(project: Project) -> None:
    """`--model=preset:NAME` gates the suite's model with its parameters, as each header says."""
    project.suite(SHAPES + "[presets.lossy]\nmodel = 'shapes:'\nparameters = { miss = 0.5 }\n")
    result = project.run("--model=preset:lossy", "-k", "crowded")
    result.stdout.fnmatch_lines(
        [
            "cepbench: model under test, generator: preset:lossy",
            "cepbench: suite toy gates generator shapes:?miss=0.5 (*",
        ]
    )
    (case,) = project.report()["cases"]
    assert case["model"]["spec"] == "shapes:?miss=0.5"
    assert case["value"] < 1.0
