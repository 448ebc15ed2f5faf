"""What a gate says of a checkpoint, read from the exit code and the JSON report of its pytest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pytest_cepbench.files import parse_json, read_text

SCHEMA = 2
"""Version of the JSON report that is understood; docs/report-schema.md."""


_MOST = 2**30  # bytes of a report

_JUDGED = {"held", "improved", "inconclusive"}
"""Verdicts of cases that do not fail a run: none of a checkpoint that is worse or not compared."""


class Outcome(StrEnum):
    """What becomes of a checkpoint. Failed: it was not measured, so nothing is known of it."""

    ACCEPTED = "accepted"
    INCONCLUSIVE = "inconclusive"
    REGRESSED = "regressed"
    FAILED = "failed"


@dataclass(frozen=True)
class GatedCase:
    """A gated number of a checkpoint.

    name: SUITE/PART/METRIC.
    label: the metric as reports show it.
    verdict: of the case, as in the JSON report.
    higher_is_better: direction of the metric.
    value: of the checkpoint, None where it could not be measured.
    baseline: value of the last accepted checkpoint, None where there is none.
    difference: to it, turned so that positive is better; with one-sided bounds `low` and `high`.
    low: lower bound of the difference, None where there is none.
    high: upper bound of the difference, None where there is none.
    """

    name: str
    label: str
    verdict: str
    higher_is_better: bool
    value: float | None
    baseline: float | None
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class GateVerdict:
    """What the gate says of a checkpoint; true where the training may go on, as `not stops`.

    checkpoint: as it was given to the gate.
    step: of the training, None where it was not given.
    outcome: what becomes of the checkpoint.
    code: exit code of the gate's process.
    cases: the numbers that can fail a run, the headline first; empty where nothing was measured.
    accepted: the last accepted checkpoint, this one included; None before the first, and where its
        files were changed since.
    report: the HTML page; it may not exist where the outcome is `failed`.
    output: what the process printed, its last 64 KiB.
    seconds: that the gate took.
    """

    checkpoint: Path
    step: int | None
    outcome: Outcome
    code: int
    cases: tuple[GatedCase, ...]
    accepted: Path | None
    report: Path
    output: str
    seconds: float

    @property
    def value(self) -> float | None:
        """The headline: the value of the first case."""
        return self.cases[0].value if self.cases else None

    @property
    def stops(self) -> bool:
        """Whether training on makes no sense: the checkpoint failed its gate or was not measured.

        An inconclusive checkpoint passes, unless the run is told to fail for it
        (`--cep-inconclusive=fail`).
        """
        return self.outcome is not Outcome.ACCEPTED and self.code != 0

    def __bool__(self) -> bool:
        """Whether the checkpoint passed its gate: `if gate(checkpoint):` is not always true."""
        return not self.stops

    @property
    def line(self) -> str:
        """The verdict in one line, for a log: the headline, why, and what to do."""
        step = "" if self.step is None else f"step {self.step}, "
        headline = self.cases[0] if self.cases else None
        number = ""
        if headline is not None and headline.value is not None:
            number = f", {headline.label} {headline.value:.4f}"
            if headline.difference is not None:
                number += f" ({headline.difference:+.4f})"
        line = f"gate: {step}{self.checkpoint}: {self.outcome}{number}"
        worse = [case for case in self.cases if case.verdict == str(self.outcome)]
        if self.outcome is Outcome.REGRESSED:
            return (
                f"{line}; worse than tolerated in {len(worse)} of {len(self.cases)} cases, "
                f"{', '.join(case.name for case in worse[:3])}: go on from "
                f"{self.accepted or 'an earlier checkpoint'}, see {self.report}"
            )
        if self.outcome is Outcome.INCONCLUSIVE:
            return (
                f"{line}; {len(worse)} of {len(self.cases)} cases have too few samples to tell: "
                "add --cep-inconclusive=more, or more samples, to the gate's options"
            )
        if self.outcome is Outcome.FAILED:
            printed = self.output.strip().splitlines() or ["the gate's process printed nothing"]
            return f"{line}; {printed[-1].strip()}: mend it, and gate this checkpoint again"
        if all(case.baseline is None for case in self.cases) and self.step != 0:
            return (
                f"{line}; the first one, held to nothing: give TrainingGate(start=...) the model "
                "that the training starts from"
            )
        return line

    @property
    def summary(self) -> str:
        """For the engineer who finds the training stopped: the output, and where to go on."""
        passed = self.outcome is Outcome.ACCEPTED
        return (
            f"{self.output.rstrip()}\n"
            f"{self.checkpoint}: {self.outcome}{'' if passed else ', the training stops here'}\n"
            f"last accepted checkpoint: {self.accepted or 'none'}\n"
            f"report: {self.report if self.report.exists() else 'none was written'}"
        )


def read_outcome(
    code: int, report: Path, *, first: bool
) -> tuple[Outcome, tuple[GatedCase, ...], str]:
    """The outcome of a run of pytest, from its exit code and its JSON report.

    code: pytest's exit code.
    first: whether the run was to accept what it measured, as the first of a training.
    Returns it with the cases that can fail a run, the headline first, and why it is `failed` where
    pytest's own output does not say it. Never raises for what a run left behind: what cannot be
    read is `failed`.
    """
    cases: tuple[GatedCase, ...] = ()
    try:
        document = parse_json(read_text(report, _MOST))
        if document["schema"] != SCHEMA:
            reason = f"{report} has schema {document['schema']}, and {SCHEMA} is expected"
            return Outcome.FAILED, (), reason
        entries = [entry for entry in document["cases"] if entry["primary"]]
        accepted = any(entry["accepted"] for entry in entries)
        passed = document["verdict"] in ("passed", "undecided")
        cases = tuple(  # all of them, or none: a report in parts says nothing
            GatedCase(
                name=f"{entry['suite']}/{entry['part']}/{entry['metric']}",
                label=entry["label"],
                verdict=entry["judgement"]["verdict"],
                higher_is_better=(entry["measurement"] or {}).get("higher_is_better", True),
                value=(entry["measurement"] or {}).get("value"),
                baseline=entry["judgement"]["baseline_value"],
                difference=entry["judgement"]["difference"],
                low=entry["judgement"]["low"],
                high=entry["judgement"]["high"],
            )
            for entry in entries
        )
        reason = "" if cases else "no case was judged that can fail a run: name a suite, or a test"
    except FileNotFoundError:
        reason = f"pytest ended with exit code {code} and wrote no report"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{report} cannot be read as a JSON report: {error!r}"
    if not cases:
        return Outcome.FAILED, (), reason
    verdicts = {each.verdict for each in cases}
    outcome = Outcome.FAILED
    if accepted and not first:
        reason = "the run accepted what it was to judge: remove --snapshot-update from its options"
    elif code == 0 and not passed:
        reason = "the report's verdict is neither `passed` nor `undecided`"
    elif code == 0 and not first and (others := verdicts - _JUDGED):
        reason = f"the run passed, and a case that can fail it is {', '.join(sorted(others))}"
    elif code == 0:
        undecided = not first and "inconclusive" in verdicts
        outcome = Outcome.INCONCLUSIVE if undecided else Outcome.ACCEPTED
    elif code == 1 and "regressed" in verdicts:
        outcome = Outcome.REGRESSED
    elif code == 1 and "inconclusive" in verdicts <= _JUDGED:
        outcome = Outcome.INCONCLUSIVE
    return outcome, cases, reason
