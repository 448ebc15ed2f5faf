"""Where, when and how a run was made: commits of its files, its job, its command without keys."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from pytest_cepbench.escapes import HIDDEN, is_secret_name
from pytest_cepbench.models.api.endpoint import public_url, without_secrets
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.writers import Provenance, SuiteProvenance, suite_provenance

_QUERY = re.compile(r"(?<=[?&])(?P<name>[^=&\s]+)=(?P<value>[^&\s]*)")


def redacted_command(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """A command line as a shell reads it, with its keys replaced by `[key]`.

    Removed are: values of options and parameters that are named like a key (`--api-key=...`,
    `?token=...`), values of such variables of the environment wherever they stand, the users and
    passwords of URLs, and what looks like a key. Long arguments are cut.

    arguments: program first; may be empty.
    environment: variables, of which some hold keys.
    """

    def hidden(match: re.Match[str]) -> str:
        return f"{match['name']}={HIDDEN}" if is_secret_name(match["name"]) else match[0]

    shown: list[str] = []
    value_is_key = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if value_is_key and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif argument.startswith("-") and equals and is_secret_name(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(without_secrets(_QUERY.sub(hidden, argument), environment=environment))
        is_option = argument.startswith("-") and not equals
        value_is_key = is_option and is_secret_name(name)
    return shlex.join(shown)


_GIT_SECONDS = 5.0
"""Longest wait for git: a report does without what a slow file system does not tell in time."""

_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")

_JOB_ADDRESSES = ("CI_JOB_URL", "RUN_DISPLAY_URL", "BUILD_URL", "BUILDKITE_BUILD_URL")
"""Variables of GitLab, Jenkins (twice) and Buildkite that hold the address of a job."""


def gather_provenance(
    results: Sequence[CaseResult],
    *,
    started: float,
    command: Sequence[str],
    baselines: Path,
    environment: Mapping[str, str] = os.environ,
) -> Provenance:
    """The provenance of a run that ends now.

    started: seconds since the epoch.
    command: as it was typed, program first; empty where there was none.
    baselines: folder of the accepted baselines.
    environment: holds the variables of CI systems, and keys, which the command is cleared of.
    """
    project = Path.cwd()
    return Provenance(
        started=_iso(started),
        seconds=round(max(0.0, time.time() - started), 3),
        command=redacted_command(command, environment),
        commit=_git(project, "rev-parse", "--verify", "HEAD") or "",
        modified=_modified(project, "--untracked-files=no"),
        ci=ci_address(environment),
        suites=[
            _suite_provenance(suite, results, baselines / suite)
            for suite in dict.fromkeys(result.suite for result in results)
        ],
    )


def _suite_provenance(
    suite: str, results: Sequence[CaseResult], baselines: Path
) -> SuiteProvenance:
    """With the time at which baselines were accepted."""
    own = suite_provenance(suite, (result for result in results if result.suite == suite))
    accepted = commit = ""
    if own.baselines and baselines.is_dir():
        show = ("-1", "--no-show-signature", "--format=%ct %H %P", "--", ".")
        last = (_git(baselines, "log", *show) or "").split()
        if not last or _modified(baselines, "--", ".") is not False:
            changes: list[float] = []  # what lies there is in no commit
            with suppress(OSError):
                changes = [path.stat().st_mtime for path in baselines.iterdir()]
            accepted = _iso(max(changes)) if changes else ""
        elif len(last) > 2 or _git(baselines, "rev-parse", "--is-shallow-repository") != "true":
            accepted, commit = _iso(float(last[0])), last[1]
        # Else the first commit of a shallow clone, as CI makes it, in which all files are new.
    return replace(
        own, accepted=accepted, accepted_commit=commit, uncommitted=bool(accepted and not commit)
    )


def ci_address(environment: Mapping[str, str]) -> str:
    """Address of the CI job that the process belongs to, or ""; GitHub's is put together."""
    server, repository, run = (
        environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    )
    addresses = [environment.get(name, "") for name in _JOB_ADDRESSES]
    if server and repository and run:
        attempt = environment.get("GITHUB_RUN_ATTEMPT", "")
        suffix = f"/attempts/{attempt}" if attempt else ""
        addresses.insert(0, f"{server}/{repository}/actions/runs/{run}{suffix}")
    for address in addresses:
        if address.startswith(("https://", "http://")):
            return public_url(address)
    return ""


def _modified(folder: Path, *options: str) -> bool | None:
    """Whether files differ from the commit; None without a repository.

    For the user's own project alone: git may run programs that a repository configures.
    options: of `git status`.
    """
    status = _git(folder, "status", "--porcelain", *options)
    return None if status is None else bool(status)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None where it fails, is not there, or takes too long."""
    # A hook of git sets variables that would lead to its own repository.
    environment = {name: text for name, text in os.environ.items() if name not in _GIT_VARIABLES}
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder)]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and no argument of a repository
            [*command, *arguments],
            capture_output=True,
            check=True,
            timeout=_GIT_SECONDS,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
