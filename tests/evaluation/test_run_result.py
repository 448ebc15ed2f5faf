"""The result of a whole run: its verdict, its exit code, and what never counts as passed."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from pytest_cepbench import GateResult
from pytest_cepbench.evaluation.run_provenance import (
    ci_address,
    gather_provenance,
    redacted_command,
)
from pytest_cepbench.evaluation.run_result import run_verdict
from pytest_cepbench.report.result import BaselineModel, CaseResult, ModelShown
from pytest_cepbench.report.writers import Provenance
from tests.report.results import case_of, replace

case = partial(
    case_of,
    nodeid="a.py::t", suite="toy", part="overall", metric="gc", label="GC@2", tolerance=0.01,
)  # fmt: skip
"""A judged case."""

HELD, REGRESSED, ERROR, UNDECIDED = (
    case(verdict=verdict) for verdict in ("held", "regressed", "error", "inconclusive")
)
INFORMATIONAL = case(verdict="regressed", primary=False)


@pytest.mark.parametrize(
    ("cases", "problems", "skipped", "code", "verdict"),
    [
        ((HELD,), (), {}, 0, "passed"),
        ((HELD, INFORMATIONAL), (), {}, 0, "passed"),
        ((HELD, UNDECIDED), (), {}, 0, "undecided"),
        ((HELD, replace(UNDECIDED, primary=False)), (), {}, 0, "passed"),
        ((HELD, replace(UNDECIDED, strict=True)), (), {}, 1, "failed"),
        ((UNDECIDED, REGRESSED), (), {}, 1, "failed"),
        ((UNDECIDED,), ("a case vanished",), {}, 3, "incomplete"),
        ((HELD,), (), {"other.toml": "not concerned"}, 0, "passed"),
        ((HELD, REGRESSED), (), {}, 1, "failed"),
        ((HELD, ERROR), (), {}, 1, "failed"),
        ((HELD,), ("a case vanished",), {}, 3, "incomplete"),
        ((REGRESSED,), ("a case vanished",), {}, 1, "incomplete"),
        ((case(verdict="incomplete"), REGRESSED), (), {}, 3, "failed"),
        ((), (), {}, 5, "incomplete"),
        ((), (), {"suite.toml": "not concerned"}, 5, "incomplete"),
        ((INFORMATIONAL,), (), {}, 5, "incomplete"),
        ((case(verdict="no-baseline", accepted=True),), (), {}, 0, "passed"),
    ],
)
def test_a_result_passes_only_where_everything_was_compared(
    cases: tuple[CaseResult, ...],
    problems: tuple[str, ...],
    skipped: dict[str, str],
    code: int,
    verdict: str,
) -> None:
    """Exit code and verdict of each kind of run; it passes where the code is 0 and nowhere else."""
    result = GateResult(cases, skipped, problems)

    assert (result.exit_code, result.verdict) == (code, verdict)
    assert result.passed == (code == 0)
    assert str(result).rstrip().splitlines()[-1] != ""
    assert f"verdict: {verdict}" in str(result)


def test_an_informational_case_that_was_not_measured_says_why() -> None:
    """It fails no run, and its reason is not hidden behind the cases that pass."""
    unmeasured = replace(ERROR, primary=False, reasons=["the server was away"])
    result = GateResult((HELD, unmeasured))

    assert result.passed
    assert (
        "informational: toy overall GC@2 was not measured: the server was away"
        in str(result).splitlines()
    )
    assert "was not measured" not in str(GateResult((HELD, INFORMATIONAL, ERROR)))
    assert run_verdict([INFORMATIONAL], []) == "incomplete"


def _git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", "-C", str(folder), *author, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a model and a folder of baselines in its only commit."""
    root = tmp_path / "repository"
    for name in ("model/config.json", "baselines/toy/overall.toml"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("{}")
    _git(tmp_path, "init", "-q", str(root))
    _git(root, "add", ".")
    _git(root, "commit", "-qm", "first")
    return root


def _gathered(project: Path) -> Provenance:
    """Of a measured case with a baseline."""
    spec = "model?dtype=float32"
    judged = case(
        verdict="regressed",
        n=3,
        value=0.5,
        model={"role": "describer", "spec": spec},
        identity={
            "samples": "3 abc", "data": "loader=folder", "describe prompt": "tell", "chain": "x",
        },
        models=[
            ModelShown("describer", spec, "f" * 64, "a model"),
            ModelShown("encoder", "clip", "e" * 64, "an encoder"),
        ],
        baseline_model=BaselineModel("describer", "old", "another", "d" * 64, "it was better"),
    )  # fmt: skip
    return gather_provenance(
        [judged],
        started=0.0,
        command=["pytest", "x"],
        baselines=project / "baselines",
        environment={},
    )


def test_a_suite_says_what_was_compared_on_what(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidate, baseline, other models, prompts and data of a suite, with commits and times.

    A hook of git sets GIT_DIR; the commit is that of the folder all the same.
    """
    monkeypatch.chdir(repository)
    monkeypatch.setenv("GIT_DIR", str(repository / "elsewhere"))
    provenance = _gathered(repository)
    monkeypatch.delenv("GIT_DIR")
    commit = _git(repository, "rev-parse", "HEAD")
    assert (provenance.started, provenance.command) == ("1970-01-01T00:00:00+00:00", "pytest x")
    assert (provenance.commit, provenance.modified, provenance.ci) == (commit, False, "")
    (suite,) = provenance.suites
    assert [model.seat for model in suite.candidate] == ["describer"]
    assert [model.seat for model in suite.fixed] == ["encoder"]
    assert suite.baselines[0].reason == "it was better"
    assert (suite.prompts, suite.data) == ({"describe prompt": "tell"}, "loader=folder")
    assert suite.samples == "3 abc"
    seconds = float(_git(repository, "log", "-1", "--format=%ct"))
    assert suite.accepted == datetime.fromtimestamp(seconds, UTC).isoformat()
    assert suite.accepted_commit == commit
    assert not suite.uncommitted
    # A clone of the last commit alone, as CI makes it, does not know which one it was.
    _git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    _git(repository, "clone", "-q", "--depth=1", repository.as_uri(), f"{repository}-clone")
    (suite,) = _gathered(Path(f"{repository}-clone")).suites
    assert (suite.accepted, suite.accepted_commit, suite.uncommitted) == ("", "", False)
    # A commit does not describe changed files, nor does its time say when they were accepted.
    (repository / "baselines/toy/overall.toml").write_text("changed")
    provenance = _gathered(repository)
    assert provenance.modified is True
    assert provenance.suites[0].uncommitted
    assert provenance.suites[0].accepted_commit == ""
    assert provenance.suites[0].accepted.endswith("+00:00")


def test_signatures_that_git_shows_are_passed_over(repository: Path) -> None:
    """`log.showSignature` puts what gpg says before the time of a commit."""
    signer = repository.parent / "gpg"
    signature = "-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----"
    signer.write_text(
        f"#!/bin/sh\ncat >/dev/null\necho '{signature}'\necho '\n[GNUPG:] SIG_CREATED ' >&2\n"
    )
    signer.chmod(0o755)
    _git(repository, "config", "gpg.program", str(signer))
    _git(repository, "commit", "-qS", "--amend", "-m", "signed")
    _git(repository, "config", "log.showSignature", "true")
    assert "SIG_CREATED" in _git(repository, "log", "-1", "--format=%ct")
    (suite,) = _gathered(repository).suites
    assert suite.accepted_commit == _git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        (
            {
                "GITHUB_SERVER_URL": "https://github.com",
                "GITHUB_REPOSITORY": "a/b",
                "GITHUB_RUN_ID": "7",
                "GITHUB_RUN_ATTEMPT": "2",
            },
            "https://github.com/a/b/actions/runs/7/attempts/2",
        ),
        ({"CI_JOB_URL": "https://gitlab.com/a/-/jobs/1"}, "https://gitlab.com/a/-/jobs/1"),
        ({"BUILD_URL": "http://user:secret@ci/job/a/1/"}, "http://ci/job/a/1"),
        ({"BUILDKITE_BUILD_URL": "https://buildkite.com/a/b"}, "https://buildkite.com/a/b"),
        ({"BUILD_URL": "javascript:alert(1)"}, ""),
        ({"GITHUB_REPOSITORY": "a/b"}, ""),
        ({}, ""),
    ],
)
def test_jobs_of_ci_systems(environment: dict[str, str], address: str) -> None:
    """Only addresses of the web are links, and they carry no password."""
    assert ci_address(environment) == address


KEY = "a1b2c3d4e5f6a7b8"


def test_keys_are_not_shown() -> None:
    """Wherever a key is: an option named like one, a URL, a variable's value, the look of one.

    Parameters of models that sound alike, short values of variables, and quotes for a shell stay.
    """
    for arguments in (
        [f"--api-key={KEY}"],
        ["--api-key", KEY],
        ["--hub-token", KEY],
        [f"--cep-shared=https://user:{KEY}@host/store"],
        [f"--cep-shared=https://host/store?X-Amz-Signature={KEY}&part=1"],
        [f"--cep-shared=https://host/store?sig={KEY}"],
        [f"--model=openai:gpt?api_key={KEY}"],
        [f"-oheader={KEY}"],
        [f"--model=sk-{KEY}"],
    ):
        command = redacted_command(["pytest", *arguments, "suites"], {"SERVICE_TOKEN": KEY})
        assert KEY not in command
        assert command.startswith("pytest ")
        assert command.endswith(" suites")
    harmless = ["pytest", "--model=dir?max_new_tokens=32&dtype=bfloat16", "-k", "a or b"]
    command = redacted_command(harmless, {"TOKENIZERS_PARALLELISM": "false", "A_TOKEN": "32"})
    assert command == "pytest '--model=dir?max_new_tokens=32&dtype=bfloat16' -k 'a or b'"
