"""`cepbench rate draw` and `labels`: battles that people label, and what they said."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace as changed

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.cli.arguments import ANSWER_ROLES
from pytest_cepbench.cli.output import tell
from pytest_cepbench.cli.session import measuring
from pytest_cepbench.errors import LabelError, SpecError, SuiteError
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
from pytest_cepbench.ratings.folder import Ratings, Votes, read_ratings, read_votes
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.known_items import begin_study
from pytest_cepbench.ratings.records import Part, Source, Study
from pytest_cepbench.ratings.summary import doubtful_annotators
from pytest_cepbench.ratings.votes import battle_votes
from pytest_cepbench.replacement import replace_files
from pytest_cepbench.report.number_format import counted
from pytest_cepbench.studies.rated_items import RatedItems
from pytest_cepbench.suites import RoleChoices, load_prepared_suite
from pytest_cepbench.suites.answer_run import AnswerRun
from pytest_cepbench.suites.battle_labels import contestants

LEAST_CHECKS = 4
"""Hidden items with a known answer of each person, about."""


# -- drawing ---------------------------------------------------------------------------------------


def draw(arguments: Namespace) -> int:
    """Answer the suite's questions, and draw battles to be labelled; no judge is asked.

    Raises SpecError where there are no accepted answers, and where the battles were drawn before.
    """
    annotators, baselines = arguments.annotators or (), arguments.baselines
    if (arguments.ratings is None) != (not annotators):
        raise SpecError(
            "--ratings DIR and --annotators NAME,... belong together: who rates what is written"
        )
    specs = {role: getattr(arguments, role) for role in ANSWER_ROLES}
    roles = {role: spec for role, spec in specs.items() if spec is not None}
    choices = RoleChoices(arguments.model, arguments.role, roles)  # type: ignore[arg-type] # names
    data = dict(arguments.data)
    with measuring(arguments.store, arguments.suite) as (pool, begin):
        prepared = load_prepared_suite(arguments.suite, choices, data, arguments.samples)
        name = prepared.suite.name
        if prepared.suite.answer_plan is None:
            raise SuiteError(f"suite {name!r} asks for chains: labels are of battles of answers")
        begin()
        run = prepared.run(pool, baselines)
        assert isinstance(run, AnswerRun)
        fought = [case for case in prepared.cases if run.battles(case)]
        if not fought:
            raise SuiteError(
                f"suite {name!r} has no win rate against accepted answers to be labelled"
            )
        # Of the whole suite, where it has such a case.
        case = next((case for case in fought if case.key.part == OVERALL), fought[0])
        opponents = run.opponents_of(case).accepted
        if opponents is None:
            raise SpecError(
                f"suite {name!r} has no accepted answers to battle: accept a baseline with "
                "--snapshot-update first"
            )
        battles = _unseen_battles(run, opponents)
        population = population_digest(battles)
        path = label_path(baselines, name, population)
        if path.exists():
            raise SpecError(
                f"these battles were drawn before, into {_shown(path)}: a second draw could choose "
                "between two"
            )
        by_sample = {own.sample: own.battle for own in battles}
        drawn = {
            sample: DrawnBattle(
                sample=sample, **by_sample[sample]._asdict(), probability=probability
            )
            for sample, probability in draw_battles(battles, arguments.battles).items()
        }
        made = Draw(
            suite=name,
            population=population,
            battles=len(battles),
            count=arguments.battles,
            drawn=now(),
            model=run.model_record()["identity"],
            opponent=opponents.identity,
        )
        if arguments.ratings is not None:
            _write_study(arguments, run, opponents, drawn)
        replace_files(path.parent, {path: LabelFile(path, made, drawn).dump().encode()})
    tell(
        f"{counted(len(drawn), 'battle')} of {len(battles)} drawn into {_shown(path)}: commit it "
        "before the judge is asked"
    )
    known = sum(own.battle.decided for own in drawn.values())
    more = f"; {known} are decided without people: answers are equal or missing" if known else ""
    tell(f"{len(drawn) - known} to be rated by people{more}")
    if arguments.ratings is not None:
        tell(f"their page: cepbench rate ask {arguments.ratings}")
    return 0


def _unseen_battles(run: AnswerRun, opponents: Opponents) -> list[Contestant]:
    """All battles of the suite, its questions answered.

    Raises SpecError where all answers are the accepted ones, and where more than a few battles were
    judged before, see `judged_first`.
    """
    samples = run.data.dataset.samples
    answers = run.data.answers(samples)
    if all(opponents.answers.get(name) == own.digest for name, own in answers.items()):
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
    if judged:
        tell(
            f"{judged} of {len(samples)} battles have verdicts in the store, as where another "
            "model gave the same answers: so few have no say in the draw"
        )
    return contestants(run.data, opponents)


def _shown(path: Path) -> Path:
    """A path as the engineer would write it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _write_study(
    arguments: Namespace, run: AnswerRun, opponents: Opponents, drawn: Mapping[str, DrawnBattle]
) -> None:
    """Write a study of pairs: the drawn battles whose answers differ, with practice and checks.

    The candidate's answer is the first option of its item; pages show it on either side.
    Raises DatasetError for people or images that cannot be used, and WriteError.
    """
    samples = run.data.dataset.samples
    open_samples = [s for s in samples if s.id in drawn and not drawn[s.id].battle.decided]
    made = RatedItems("pair", run.suite.name)
    names = (run.model_record()["spec"], opponents.identity)
    store = run.data.store
    for pair in run.data.pairs(open_samples, opponents):
        assert pair.candidate is not None
        assert pair.opponent is not None
        item = make_item(
            "pair",
            made.take(pair.question, store),
            [made.take(side, store) for side in (pair.candidate, pair.opponent)],
            probability=drawn[pair.sample].probability,
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
    study = Study(
        kind="pair",
        suite=run.suite.name,
        annotators=arguments.annotators,
        overlap=arguments.overlap,
        share=1.0,
        # As many hidden checks as tell a careless rater, also where few battles are asked about.
        attention=min(0.25, max(0.05, LEAST_CHECKS / max(len(made.items), 1))),
        probability=len(drawn) / len(samples),
        population=len(samples),
    )
    begin_study(arguments.ratings, study, made.items, made.images, made.sources)


# -- taking over -----------------------------------------------------------------------------------


def import_ratings(arguments: Namespace) -> int:
    """Write what people said of drawn battles into the label files of a suite.

    Raises SpecError for a folder of something else, LabelError where nothing can be written.
    """
    ratings = read_ratings(arguments.ratings)
    if ratings.study.kind != "pair" or not ratings.study.suite:
        raise SpecError(
            f"{str(arguments.ratings)!r} holds no ratings of pairs of answers to a suite"
        )
    votes = read_votes(ratings)
    doubts = {} if arguments.all_annotators else doubtful_annotators(ratings, votes)
    for name, why in doubts.items():
        tell(f"left out: {name}, {why}; --all-annotators counts everybody")
    counting = {vote.annotator for vote in votes.answers()} - doubts.keys()
    if doubts and not counting:
        raise LabelError(f"{ratings.path}: no annotator is left whose votes count")
    labels = labels_of(ratings, votes, counting, majority=arguments.score == "majority")
    gone = labels_of(ratings, votes, doubts) if doubts else {}
    folder = label_folder(arguments.baselines, ratings.study.suite)
    files = read_label_files(folder)
    merged = [(file, _merged(file, labels, gone)) for file in files]
    for line in votes.remarks.lines:
        tell(line)
    wanted = {own.battle for file in files for own in file.drawn.values()}
    known = sum(_battle_in(wanted, battle) is not None for battle in labels)
    if not known:
        raise LabelError(
            f"not one of {len(labels)} rated battles was drawn for {folder}: labels are of battles "
            "that `cepbench rate draw` chose before the judge was asked"
        )
    contents = {new.path: new.dump().encode() for file, new in merged if new.labels != file.labels}
    if contents:
        replace_files(folder, dict(contents))
    for path in contents:
        tell(f"labels written to {_shown(path)}")
    if len(labels) > known:
        tell(f"{len(labels) - known} rated battles were not drawn, and are left out")
    tell(f"{counted(known, 'label')} of {len(counting)} people")
    return 0


def labels_of(
    ratings: Ratings, votes: Votes, annotators: Collection[str] = (), *, majority: bool = False
) -> dict[BattleDigests, Label]:
    """People's labels of the battles of a ratings folder, the first answer as the candidate.

    annotators: whose votes count; everybody's where empty. A win scores 1, a tie half, a loss 0.
    majority: whether the most frequent of the three counts, a tie where there is none, in the place
    of their mean.
    """
    labels = {}
    for _, own in sorted(battle_votes(ratings, votes, annotators).items()):
        first, second = own.item.options
        pieces = (own.item.question, first.parts, second.parts)
        battle = BattleDigests(*map(_pieces_digest, pieces))  # as runs have it
        score = round(own.score, 6)
        if majority:
            given = Counter(0.5 if w.startswith("Tie") else w == "A" for w in own.winners.values())
            (most, times), *others = given.most_common()
            score = 0.5 if others and others[0][1] == times else float(most)
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
                f"{file.path} has the label {old.score:g} of {counted(old.votes, 'vote')} for a "
                f"battle that has {new.score:g} of {new.votes} here: import the votes of all "
                "people together"
            )
        merged[own] = new
    return LabelFile(file.path, file.draw, file.drawn, merged)
