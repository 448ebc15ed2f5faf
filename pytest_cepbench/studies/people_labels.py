"""Battles that people label before a judge is asked: their draw, their study, their labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace as changed

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.errors import LabelError, SpecError, SuiteError
from pytest_cepbench.files import shown_path
from pytest_cepbench.gate.labels.label_file import (
    BattleDigests,
    Contestant,
    Draw,
    DrawnBattle,
    Label,
    LabelFile,
    draw_battles,
    label_folder,
    label_path,
    now,
    population_digest,
    read_label_files,
)
from pytest_cepbench.gate.labels.usable import judged_first
from pytest_cepbench.measures.answer_data import Opponents
from pytest_cepbench.measures.cases import OVERALL
from pytest_cepbench.ratings.folder import STUDY, Ratings, Votes, read_ratings
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.known_items import begin_study
from pytest_cepbench.ratings.records import Part, Source, Study
from pytest_cepbench.ratings.votes import battle_votes
from pytest_cepbench.studies.rated_items import RatedItems
from pytest_cepbench.suites import PreparedSuite, SuiteRun
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.battle_labels import contestants

LEAST_CHECKS = 4
"""Hidden items with a known answer of each person, about."""


# -- drawing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BattlesToLabel:
    """The battles of a suite that people may label, before a judge has decided them.

    run: of the suite, its questions answered. opponents: the accepted answers.
    battles: all of them. judged: how many have verdicts in the store, which are few.
    path: of the file that a draw is written into.
    """

    run: AnswerRun
    opponents: Opponents
    battles: list[Contestant]
    judged: int
    path: Path

    def draw(self, count: int) -> LabelFile:
        """So many of them, by their digests and number alone."""
        by_sample = {own.sample: own.battle for own in self.battles}
        drawn = {
            sample: DrawnBattle(
                sample=sample, **by_sample[sample]._asdict(), probability=probability
            )
            for sample, probability in draw_battles(self.battles, count).items()
        }
        made = Draw(
            suite=self.run.suite.name,
            population=population_digest(self.battles),
            battles=len(self.battles),
            count=count,
            drawn=now(),
            model=self.run.model_record()["identity"],
            opponent=self.opponents.identity,
        )
        return LabelFile(self.path, made, drawn)


def find_battles(prepared: PreparedSuite, run: SuiteRun, baselines: Path) -> BattlesToLabel:
    """The battles of a suite with its accepted answers; the model answers what it has not yet.

    prepared: a suite of answers.
    Raises SuiteError where it has no such battles; SpecError where nothing is accepted, where all
    answers are the accepted ones or some are not in the store, where more than a few battles were
    judged before (see `judged_first`), and where they were drawn before.
    """
    name = prepared.suite.name
    assert isinstance(run, AnswerRun)
    fought = [case for case in prepared.cases if run.battles(case)]
    if not fought:
        raise SuiteError(f"suite {name!r} has no win rate against accepted answers to be labelled")
    # Of the whole suite, where it has such a case.
    case = next((case for case in fought if case.key.part == OVERALL), fought[0])
    opponents = run.opponents_of(case).accepted
    if opponents is None:
        raise SpecError(
            f"suite {name!r} has no accepted answers to battle: accept a baseline with "
            "--snapshot-update first"
        )
    samples = run.data.dataset.samples
    answers = run.data.answers(samples)
    if all(opponents.answers.get(sample) == own.digest for sample, own in answers.items()):
        raise SpecError(
            "every answer of the model is the one that was accepted: there is no battle"
        )
    missing = run.data.missing_opponents(samples, opponents)
    if missing:
        raise SpecError(
            f"{len(missing)} of {len(samples)} accepted answers are not in the store: use the "
            "store of the run that accepted them, or `cepbench store import`"
        )
    judged = len(run.data.first_verdicts(samples, opponents))
    if why := judged_first(judged, len(samples)):
        raise SpecError(why)
    battles = contestants(run.data, opponents)
    path = label_path(baselines, name, population_digest(battles))
    if path.exists():
        raise SpecError(
            f"these battles were drawn before, into {shown_path(path)}: a second draw could choose "
            "between two"
        )
    return BattlesToLabel(run, opponents, battles, judged, path)


def write_study(
    found: BattlesToLabel, drawn: LabelFile, folder: Path, annotators: Sequence[str], overlap: int
) -> None:
    """Write a study of pairs: the drawn battles whose answers differ, with practice and checks.

    The candidate's answer is the first option of its item; pages show it on either side. A study of
    these battles that is there already goes on: a draw that was stopped had written it.
    Raises DatasetError for people or images that cannot be used, and WriteError.
    """
    run, battles = found.run, drawn.drawn
    samples = run.data.dataset.samples
    open_samples = [s for s in samples if s.id in battles and not battles[s.id].battle.decided]
    made = RatedItems("pair", run.suite.name)
    names = (run.model_record()["spec"], found.opponents.identity)
    store = run.data.store
    for pair in run.data.pairs(open_samples, found.opponents):
        assert pair.candidate is not None
        assert pair.opponent is not None
        item = make_item(
            "pair",
            made.take(pair.question, store),
            [made.take(side, store) for side in (pair.candidate, pair.opponent)],
            probability=battles[pair.sample].probability,
        )
        made.items.append(item)
        made.sources += [
            Source(
                item=item.item,
                option=option.option,
                model=name,
                sample=pair.sample,
                suite=run.suite.name,
            )
            for option, name in zip(item.options, names, strict=True)
        ]
    if (folder / STUDY).is_file():
        known = read_ratings(folder)
        asked = {name for name, item in known.items.items() if item.kind == "item"}
        people = known.study.annotators, known.study.overlap
        if people == (tuple(annotators), overlap) and asked == {item.item for item in made.items}:
            return
    study = Study(
        kind="pair",
        suite=run.suite.name,
        annotators=tuple(annotators),
        overlap=overlap,
        share=1.0,
        # As many hidden checks as tell a careless rater, also where few battles are asked about.
        attention=min(0.25, max(0.05, LEAST_CHECKS / max(len(made.items), 1))),
        probability=len(battles) / len(samples),
        population=len(samples),
    )
    begin_study(folder, study, made.items, made.images, made.sources)


# -- taking over -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenLabels:
    """People's labels, and the label files that have changed by them.

    rated: battles that people labelled. known: those of them that were drawn.
    people: whose votes count.
    """

    rated: int
    known: int
    people: int
    files: tuple[LabelFile, ...]


def take_labels(
    ratings: Ratings, votes: Votes, baselines: Path, doubts: Collection[str]
) -> TakenLabels:
    """The label files of a suite with what people said of drawn battles.

    doubts: people whose votes do not count.
    Raises LabelError where nothing can be written.
    """
    counting = {vote.annotator for vote in votes.answers()} - set(doubts)
    if doubts and not counting:
        raise LabelError(f"{ratings.path}: no annotator is left whose votes count")
    labels = labels_of(ratings, votes, counting)
    gone = labels_of(ratings, votes, doubts) if doubts else {}
    folder = label_folder(baselines, ratings.study.suite)
    files = read_label_files(folder)
    merged = [(file, _merged(file, labels, gone)) for file in files]
    wanted = {own.battle for file in files for own in file.drawn.values()}
    known = sum(_battle_in(wanted, battle) is not None for battle in labels)
    if not known:
        raise LabelError(
            f"not one of {len(labels)} rated battles was drawn for {folder}: labels are of battles "
            "that `cepbench rate draw` chose before the judge was asked"
        )
    changed_files = tuple(new for file, new in merged if new.labels != file.labels)
    return TakenLabels(len(labels), known, len(counting), changed_files)


def labels_of(
    ratings: Ratings, votes: Votes, annotators: Collection[str] = ()
) -> dict[BattleDigests, Label]:
    """People's labels of the battles of a ratings folder, the first answer as the candidate.

    annotators: whose votes count; everybody's where empty. A label is the mean of their votes, of
    which a win scores 1, a tie half and a loss 0.
    """
    labels = {}
    for _, own in sorted(battle_votes(ratings, votes, annotators).items()):
        first, second = own.item.options
        pieces = (own.item.question, first.parts, second.parts)
        battle = BattleDigests(*map(_pieces_digest, pieces))  # as runs have it
        score = round(own.score, 6)
        labels[battle] = Label(**battle._asdict(), score=score, votes=len(own.winners))
    return labels


def _pieces_digest(parts: Sequence[Part]) -> str:
    return digest_json(
        [
            ["image", part.image] if part.text is None else ["text", digest_text(part.text)]
            for part in parts
        ]
    )


def _battle_in(drawn: set[BattleDigests], battle: BattleDigests) -> BattleDigests | None:
    """The drawn battle of the same two answers; None where it was not drawn."""
    other = BattleDigests(battle.question, battle.opponent, battle.candidate)
    return next((own for own in (battle, other) if own in drawn), None)


def _merged(
    file: LabelFile, labels: Mapping[BattleDigests, Label], left_out: Iterable[BattleDigests]
) -> LabelFile:
    """The file with more labels; one of fewer people gives way to one of more.

    left_out: battles rated by people who do not count: what they said before goes.
    Raises SpecError where as many people or fewer say something else.
    """
    drawn = {own.battle for own in file.drawn.values()}
    gone = {_battle_in(drawn, battle) for battle in left_out}
    merged = {battle: label for battle, label in file.labels.items() if battle not in gone}
    for battle, label in labels.items():
        own = _battle_in(drawn, battle)
        if own is None:
            continue
        score = label.score if own == battle else round(1 - label.score, 6)
        new = changed(label, candidate=own.candidate, opponent=own.opponent, score=score)
        old = merged.get(own, new)
        if old.score != new.score and old.votes >= new.votes:
            raise SpecError(
                f"{file.path} has the label {old.score:g} (votes: {old.votes}) for a "
                f"battle that has {new.score:g} (votes: {new.votes}) here: import the votes of all "
                "people together"
            )
        merged[own] = new
    return LabelFile(file.path, file.draw, file.drawn, merged)
