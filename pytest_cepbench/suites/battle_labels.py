"""People's labels of battles: the battles as labels name them, and what a case may use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cepbench.errors import DatasetError, LabelError, SpecError
from pytest_cepbench.gate.labels.label_file import (
    BattleDigests,
    Contestant,
    label_folder,
    read_label_files,
)
from pytest_cepbench.gate.labels.usable import (
    check_drawn_first,
    find_labels,
    people_scores,
)
from pytest_cepbench.gate.policy import LabelsName
from pytest_cepbench.measures.answer_data import AnswerData, Opponents
from pytest_cepbench.measures.base import Measured
from pytest_cepbench.models.spec import HUMAN
from pytest_cepbench.suites.definition import Suite
from pytest_cepbench.suites.model_options import RoleAssignment

BOUNDS_IDENTITY = "people's labels, prediction-powered/1"
"""Of measurements whose bounds labels have to make."""


@dataclass(frozen=True)
class BattleLabels:
    """The label files of a suite, and the battles that they are to be of.

    baselines: folder of accepted baselines.
    suite: its name.
    rule: see `LabelsName`.
    """

    baselines: Path
    suite: str
    rule: LabelsName

    @property
    def present(self) -> bool:
        """True where there are label files, and they count."""
        folder = label_folder(self.baselines, self.suite)
        return self.rule != "ignored" and any(folder.glob("*.jsonl"))

    def applied(
        self,
        measured: Measured,
        data: AnswerData,
        opponents: Opponents,
        *,
        partial: bool,
    ) -> Measured:
        """The measured win rate with people's labels of its battles, or why it goes without them.

        partial: whether some samples are not looked at.
        Labels that may not decide are an obstacle: with what they say left out, the judge alone
        would decide what people were asked about.
        """
        equal = all(
            other == own or (name, other) in measured.battles.redrawn
            for name, own in measured.battles.answers.items()
            for other in [opponents.answers.get(name)]
        )
        if self.rule == "ignored" or equal:  # people have nothing to add
            return measured
        if not self.present or partial:
            return self._without(measured, "not all samples are looked at" if partial else "")
        try:
            files = read_label_files(label_folder(self.baselines, self.suite))
            usable = find_labels(files, contestants(data, opponents), self.suite)
            if usable.file is None:
                return replace(
                    self._without(measured, ""), notes=(*measured.notes, *usable.notes())
                )
            early = check_drawn_first(
                usable.file, data.first_verdicts(data.dataset.samples, opponents).values()
            )
        except LabelError as error:
            return _with_obstacle(measured, str(error))
        clusters = {s.id: s.unit for s in measured.samples if s.unit != s.id}
        decided = {own.sample for own in contestants(data, opponents) if own.battle.decided}
        people, why = people_scores(usable, measured.scores, decided, clusters)
        notes = [*usable.notes(), early] if early else usable.notes()
        labelled = replace(measured, notes=(*measured.notes, *notes))
        if people is not None:
            people = replace(people, needed=self.rule == "needed")
            return replace(labelled, battles=replace(labelled.battles, labels=people))
        return self._without(labelled, why, warn=True)

    def _without(self, measured: Measured, why: str, *, warn: bool = False) -> Measured:
        """The same, judged by the judge alone: noted, or an obstacle where labels are needed.

        why: they are not used; "" where there are none.
        warn: whether that is a warning.
        """
        if self.rule == "needed":
            none = "there are none: draw them with `cepbench rate draw` before the judge is asked"
            obstacle = (
                f"labels: this suite needs people's labels of these very battles, and {why or none}"
            )
            return _with_obstacle(measured, obstacle)
        note = f"people's labels are not used, the judge decides alone: {why}"
        if warn:
            return replace(measured, warnings=(*measured.warnings, note))
        return replace(measured, notes=(*measured.notes, note)) if why else measured


def _with_obstacle(measured: Measured, why: str) -> Measured:
    obstacles = (*measured.battles.obstacles, why)
    return replace(measured, battles=replace(measured.battles, obstacles=obstacles))


def contestants(data: AnswerData, opponents: Opponents) -> list[Contestant]:
    """The battles of all samples of a suite, each answered. Raises as `AnswerData.answers`."""
    samples = data.dataset.samples
    battles = []
    for sample, pair in zip(samples, data.pairs(samples, opponents), strict=True):
        sides = ("" if own is None else own.digest for own in (pair.candidate, pair.opponent))
        battle = BattleDigests(pair.question.digest, *sides)
        battles.append(Contestant(battle, sample.id, sample.categories[0], sample.unit))
    return battles


ONE_ITERATION = "suites/folder-described"
"""A suite in which people can describe."""


def check_people(suite: Suite, assignment: RoleAssignment) -> None:
    """Raise SpecError where people play a role by ratings of another suite, or cannot play it.

    Ratings without a suite, of items of one's own, are of any; so is a folder that cannot be read,
    which binding explains.
    """
    if assignment.spec.scheme != HUMAN:
        return
    from pytest_cepbench.ratings.folder import read_ratings

    try:
        study = read_ratings(Path(assignment.spec.target)).study
    except DatasetError:
        return
    problem = ""
    if study.kind == "describe" and describes_drawings(suite):
        problem = (
            "needs a suite whose chains start with an image and have one iteration, such as "
            f"{ONE_ITERATION}: people described images of the study, and not what models "
            "drew of them"
        )
    elif study.suite not in ("", suite.name):
        seen = "images" if study.kind == "describe" else "answers"
        problem = (
            f"holds ratings of the suite {study.suite!r}: people have to see the {seen} of this one"
        )
    if problem:
        raise SpecError(f"suite {suite.name!r}: {assignment.spec} {problem}")


def describes_drawings(suite: Suite) -> bool:
    """Whether a describer is asked about an image that a model drew, which people never saw."""
    return any(plan.generations > 1 + (start != "text") for start, plan in suite.plans.items())
