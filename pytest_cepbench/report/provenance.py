"""Provenance of a run: which models were compared on what, and where, when and how it ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pytest_cepbench.report.result import BaselineModel, CaseResult, ModelShown

_PROMPT = "prompt"
"""The last word of the fields of an identity that hold prompts."""


class SuiteProvenance(msgspec.Struct, frozen=True):
    """What was compared with what in one suite.

    suite: its name.
    candidate: the models under test; empty where no case was measured, or where chains were
    recorded elsewhere.
    recorded: what was under test where its chains or answers were recorded elsewhere.
    baselines: the models whose numbers were accepted, each once; empty without a baseline.
    accepted: when the folder of its baselines last changed: the time of the commit, or of the files
    where they are not committed; ISO 8601, empty where that is not known, or there is none.
    accepted_commit: the commit of that change; empty where baselines are not committed as they are.
    uncommitted: whether baselines differ from the last commit, or are in none.
    fixed: the other models: generator, encoders, detector, judge.
    prompts: of the roles, by name.
    data: the data set's identity.
    samples: number of samples of its largest case, and their digest.
    commits: spec of a model under test to the commit of the repository that has its files.
    """

    suite: str
    candidate: list[ModelShown] = []
    recorded: str = ""
    baselines: list[BaselineModel] = []
    accepted: str = ""
    accepted_commit: str = ""
    uncommitted: bool = False
    fixed: list[ModelShown] = []
    prompts: dict[str, str] = {}
    data: str = ""
    samples: str = ""
    commits: dict[str, str] = {}


class Provenance(msgspec.Struct, frozen=True):
    """Where, when and how a run was made. Texts that are not known are empty.

    started: ISO 8601, UTC.
    seconds: from there to the writing of the report.
    command: the command line of pytest without keys: see [the report](report.md#the-page).
    commit: of the git repository of the working directory.
    modified: whether its tracked files differ from that commit; None where that is not known.
    ci: address of the job, from the variables of GitHub Actions, GitLab, Jenkins or Buildkite.
    suites: in the order of their cases.
    """

    started: str = ""
    seconds: float = 0.0
    command: str = ""
    commit: str = ""
    modified: bool | None = None
    ci: str = ""
    suites: list[SuiteProvenance] = []


def suite_provenance(suite: str, results: Iterable[CaseResult]) -> SuiteProvenance:
    """What the results of one suite's cases say of its models, prompts and data."""
    measured = [result for result in results if result.identity]
    if not measured:
        return SuiteProvenance(suite)
    largest = max(measured, key=lambda result: result.n)
    models = dict.fromkeys(model for result in measured for model in result.shown.models)
    baselines = dict.fromkeys(result.shown.baseline_model for result in measured)
    replayed = largest.model.get("role") == "replay"
    under_test = [] if replayed else largest.model.get("role", "").split("+")
    return SuiteProvenance(
        suite=suite,
        candidate=[model for model in models if model.seat in under_test],
        recorded=largest.model.get("spec", "") if replayed else "",
        baselines=[model for model in baselines if model is not None],
        fixed=[model for model in models if model.seat not in under_test],
        prompts={
            name: text
            for result in measured
            for name, text in result.identity.items()
            if name.split()[-1:] == [_PROMPT]
        },
        data=largest.identity.get("data", ""),
        samples=largest.identity.get("samples", ""),
    )


def suite_names(results: Sequence[CaseResult]) -> list[str]:
    """The suites of a run, in the order of their first cases."""
    return list(dict.fromkeys(result.suite for result in results))
