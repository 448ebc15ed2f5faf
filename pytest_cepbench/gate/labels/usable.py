"""The labels that a measurement may use: of its own battles, drawn before their verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pytest_cepbench.errors import LabelError
from pytest_cepbench.gate.labels.draw import Contestant, draw_battles, population_digest
from pytest_cepbench.gate.labels.label_file import LabelFile
from pytest_cepbench.gate.statistics.prediction_powered import LEAST_IN_CATEGORY

_MANY_MISSING = 0.1
"""Of the drawn battles without a label, from which on reports warn."""


@dataclass(frozen=True)
class PeopleScores:
    """What people say of a random part of a measurement's battles.

    scores: sample id -> score of the candidate's answer, in [0, 1].
    probabilities: sample id -> the probability with which it was drawn.
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    probabilities: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class UsableLabels:
    """Labels of the battles of a suite.

    file: their file; None where no draw is of these battles.
    scores: sample id -> people's score of its battle.
    missing: drawn battles without a label, of those that need one.
    undrawn: labels of battles that were not drawn.
    others: labels of other answers, in other files.
    """

    file: LabelFile | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    missing: int = 0
    undrawn: int = 0
    others: int = 0

    def notes(self) -> list[str]:
        """What is not used, a sentence each."""
        notes = []
        if self.missing:
            notes.append(f"{self.missing} drawn battles have no label yet, and count as not drawn")
        if self.undrawn:
            notes.append(f"{self.undrawn} labels of battles that were not drawn are not used")
        if self.others:
            notes.append(
                f"{self.others} labels in other files are of other answers: not one is used"
            )
        return notes

    def warnings(self) -> list[str]:
        """Why they mean less than they seem to."""
        drawn = len(self.scores) + self.missing
        if not self.missing or self.missing < _MANY_MISSING * drawn:
            return []
        warning = (
            f"{self.missing} of {drawn} drawn battles have no label: if people left out the hard "
            "ones, the rest is no random part"
        )
        return [warning]


def find_labels(files: Sequence[LabelFile], battles: Sequence[Contestant]) -> UsableLabels:
    """The labels of these very battles.

    battles: all of the suite. Answers are compared by digest, so that a label of another answer is
    never taken for one of these.
    Raises LabelError where the file's battles are not those that are drawn from these.
    """
    population = population_digest(battles)
    own = next((file for file in files if file.draw.population == population), None)
    others = sum(len(file.labels) for file in files if file is not own)
    if own is None:
        return UsableLabels(others=others)
    by_sample = {contestant.sample: contestant for contestant in battles}
    if own.draw.battles != len(battles) or not _is_draw(own, battles):
        msg = (
            f"labels {own.path}: its battles are not the {own.draw.count} that are drawn from "
            f"these {len(battles)}: it was made by hand or changed; restore it from version control"
        )
        raise LabelError(msg)
    scores: dict[str, float] = {}
    wanted, missing = set(), 0
    for sample in own.drawn:
        battle = by_sample[sample].battle
        wanted.add(battle)
        label = own.labels.get(battle)
        if label is not None and not battle.decided:
            scores[sample] = label.score
        else:
            missing += not battle.decided
    undrawn = sum(battle not in wanted for battle in own.labels)
    return UsableLabels(own, scores, missing, undrawn, others)


def _is_draw(file: LabelFile, battles: Sequence[Contestant]) -> bool:
    """Whether a file's battles are those that are drawn from these."""
    drawn = draw_battles(battles, file.draw.count) if file.draw.count <= len(battles) else {}
    digests = {own.sample: own.battle for own in battles}
    return {s: (own.battle, own.probability) for s, own in file.drawn.items()} == {
        sample: (digests[sample], probability) for sample, probability in drawn.items()
    }


def check_drawn_first(file: LabelFile, verdicts: Iterable[float]) -> None:
    """Raise LabelError where the draw is younger than a verdict on its battles.

    verdicts: Unix times at which they were stored. Who has seen verdicts may want labels only where
    these disappoint, and a second look that is taken for that reason errs more often than the gate
    promises.
    """
    early = [moment for moment in verdicts if moment < file.draw.seconds]
    if early:
        first = datetime.fromtimestamp(min(early), UTC).isoformat(timespec="seconds")
        msg = (
            f"labels {file.path} were drawn on {file.draw.drawn}, after {len(early)} of the "
            f"verdicts on these battles were stored (the first on {first}): labels are drawn "
            "before the judge is asked; delete the file to go by the judge alone"
        )
        raise LabelError(msg)


def people_scores(
    labels: UsableLabels,
    measured: Mapping[str, Mapping[str, float]],
    decided: Collection[str],
    clusters: Mapping[str, str],
) -> tuple[PeopleScores | None, str]:
    """People's scores of a case, or why there are none.

    measured: category -> sample -> the judge's score.
    decided: samples whose score needs no judge: people have nothing to add.
    clusters: sample -> the cluster that it shares with others; one that is labelled in part is not.
    """
    assert labels.file is not None
    drawn = labels.file.drawn
    by_sample = {sample: score for part in measured.values() for sample, score in part.items()}
    scores = {
        sample: by_sample[sample] if sample in decided else labels.scores[sample]
        for sample in drawn
        if sample in by_sample and (sample in decided or sample in labels.scores)
    }
    whole = {clusters.get(s, s) for s in by_sample} - {
        clusters.get(s, s) for s in by_sample if s not in scores
    }
    scores = {s: score for s, score in scores.items() if clusters.get(s, s) in whole}
    for name, part in measured.items():
        units = {clusters.get(sample, sample) for sample in part if sample in scores}
        if len(units) < LEAST_IN_CATEGORY:
            return None, (
                f"category {name} has labels of {len(units)} battles, and {LEAST_IN_CATEGORY} are "
                "needed: the bounds are the judge's alone"
            )
    return PeopleScores(scores, {s: drawn[s].probability for s in scores}), ""
