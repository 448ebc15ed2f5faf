"""`cepbench agree judges`: what is known of a judge, by files of verdicts or by asking it."""

from __future__ import annotations

import re
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.cli.output import Section, Table, percent, show, tell, write_and_show
from pytest_cepbench.cli.session import measuring, verdicts_line
from pytest_cepbench.datasets.opening.answers import RecordedAnswers, read_answers
from pytest_cepbench.datasets.opening.questions import load_opening
from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts, write_battles
from pytest_cepbench.errors import CepError, EndedError, SpecError, unknown_name
from pytest_cepbench.files import read_text
from pytest_cepbench.metrics.battles import JudgedBattle
from pytest_cepbench.metrics.judge_agreement import Agreement, Share
from pytest_cepbench.metrics.judge_card import TRUE_WIN_RATE, OrderEffect
from pytest_cepbench.ratings.folder import Ratings, Votes, read_ratings, read_votes
from pytest_cepbench.ratings.votes import named_battles
from pytest_cepbench.report import number_format
from pytest_cepbench.report.writers import write_reports
from pytest_cepbench.store import Store
from pytest_cepbench.studies.judge_card import (
    AskedJudge,
    AskedOrder,
    MeasuredJudge,
    collect_verdicts,
    compare_judges,
    measure_judge,
    require_models,
)
from pytest_cepbench.studies.panels import (
    EQUAL,
    SHAPES_PANEL,
    BattlePanel,
    choose_battles,
    opening_panel,
    ratings_panel,
    shapes_panel,
)
from pytest_cepbench.suites import RoleChoices
from pytest_cepbench.suites.judge_cards import card_path, identify_judge, read_card
from pytest_cepbench.suites.role_assignment import assigned_role

number = partial(number_format.number, decimals=3)
"""A coefficient, or a dash."""

_OF_ASKED = ("on", "order", "samples", "seed", "answers", "data", "partial", "dry_run")

DATA = "opening"
"""Name of OpenING's questions, as its suite has it."""


def run_judges(arguments: Namespace) -> int:
    """Measure, print and write a card, or the agreement of two; exit codes as in `main`."""
    verdicts: list[Path] = arguments.verdicts
    if len(verdicts) == 2 and arguments.judge is None and arguments.people is None:
        return _compare_judges(arguments)
    _refuse(arguments, ["unseen"], "is of two judges: a card has --seen MODEL")
    if arguments.judge is not None:
        return _ask_judge(arguments)
    if len(verdicts) != 1 or arguments.people is None:
        raise SpecError(
            "give a file of the judge's verdicts with --people FILE, the judge itself with "
            "--judge=SPEC --on FILE, or two files of verdicts"
        )
    _refuse(arguments, _OF_ASKED, "is of a judge that is asked: add --judge=SPEC")
    names = ModelNames()
    judge = read_verdicts(verdicts[0], names)
    people = read_battles(
        arguments.people, names, lambda *study: [battle for _, battle in named_battles(*study)]
    )
    measured = measure_judge(
        (verdicts[0].stem, arguments.people.stem),
        judge,
        people,
        seen=[names(name) for name in arguments.seen],
    )
    name = f"judge-card-{measured.judge}"
    write_and_show(arguments, {"card": measured}, _card_page(measured), name)
    return 0


def _refuse(arguments: Namespace, names: Iterable[str], why: str) -> None:
    """Raise SpecError for the first of these options that is given."""
    for name in names:
        if getattr(arguments, name):
            raise SpecError(f"--{name.replace('_', '-')} {why}")


def votes_with_remarks(ratings: Ratings) -> Votes:
    """The votes of a study; a line tells of each kind that does not count. Raises DatasetError."""
    votes = read_votes(ratings)
    for line in votes.remarks:
        tell(line)
    return votes


def read_battles(
    path: Path, names: ModelNames, of_votes: Callable[[Ratings, Votes], Sequence[JudgedBattle]]
) -> list[JudgedBattle]:
    """Those of a file of verdicts, or of a ratings folder, by the majority. Raises DatasetError."""
    if not path.is_dir():
        return read_verdicts(path, names)
    ratings = read_ratings(path)
    battles = of_votes(ratings, votes_with_remarks(ratings))
    return [replace(b, first=names(b.first), second=names(b.second)) for b in battles]


# -- two judges -----------------------------------------------------------------------------------


def _compare_judges(arguments: Namespace) -> int:
    why = (
        "is of a judge's card: give its verdicts with --people FILE, or the judge itself with "
        "--judge=SPEC --on FILE"
    )
    _refuse(arguments, ("seen", *_OF_ASKED), why)
    names = ModelNames()
    first, second = file_titles(arguments.verdicts).values()
    compared = compare_judges(
        (first, second),
        read_verdicts(arguments.verdicts[0], names),
        read_verdicts(arguments.verdicts[1], names),
        [names(name) for name in arguments.unseen],
    )
    lines = (
        f"judged by {first} alone: {compared.only_first}",
        f"judged by {second} alone: {compared.only_second}",
        f"Krippendorff's alpha over the four verdicts in order: {number(compared.alpha)}",
        f"unseen models: {', '.join(compared.unseen) or 'none named (--unseen MODEL)'}",
        "chance: agreement of a judge that always gives the most frequent verdict of the first",
        _agreement_table(compared.agreements),
    )
    title = f"agreement of {first} and {second}: {compared.shared:,} battles"
    counts = _confusion_table(first, second, compared.confusion)
    page = [Section(title, lines), Section("verdicts", (counts,))]
    write_and_show(arguments, {"comparison": compared}, page, f"agreement-{first}-{second}")
    return 0


def file_titles(paths: Sequence[Path]) -> dict[Path, str]:
    """A name for each file: its own, after its folder's where several have it.

    Raises SpecError where two have the same even so.
    """
    stems = Counter(path.stem for path in paths)
    titles = {
        path: path.stem if stems[path.stem] == 1 else f"{path.resolve().parent.name}-{path.stem}"
        for path in paths
    }
    if len(set(titles.values())) < len(paths):
        twice = Counter(titles[path] for path in paths).most_common(1)[0][0]
        raise SpecError(f"two files are called {twice!r}: rename one, results are named after them")
    return titles


# -- a judge that is asked -------------------------------------------------------------------------


def _ask_judge(arguments: Namespace) -> int:
    """Ask the judge; print, write and keep its card; exit codes as in `main`."""
    _check_asked(arguments)
    order: AskedOrder = arguments.order or "both"
    seed: int = arguments.seed or 0
    embedded = arguments.on == SHAPES_PANEL
    with measuring(arguments.store, Path(arguments.on)) as (pool, begin):
        choices = RoleChoices(roles={"judge": arguments.judge})
        judge = pool.runner(assigned_role(choices, "judge"))
        names = ModelNames()
        if embedded:
            panel = shapes_panel(pool, arguments.samples, seed)
        else:
            panel = _people_panel(arguments, pool.store, names)
            chosen = choose_battles(panel.people, arguments.samples, seed)
            panel = replace(panel, people=chosen)
        seen = [*map(names, arguments.seen)]
        require_models(seen, panel.people)  # now, not after thousands of calls
        begin()
        given = collect_verdicts(panel.people, panel.pair, judge, order, tell, seed=seed)
        tell(verdicts_line(judge))
        identity = identify_judge(judge.bound)
        left_out = Counter(panel.left_out) + Counter({EQUAL: given.equal})
        asked = AskedJudge(identity, order, seed, given.failures, left_out)
        card = measure_judge(
            (arguments.judge, panel.name), given.verdicts, panel.people, seen=seen, asked=asked
        )
    name = re.sub(r"[^A-Za-z0-9.+_-]+", "-", card.judge).strip("-.")[-80:] or "judge"
    file = f"judge-card-{name}"
    write_and_show(arguments, {"card": card}, _card_page(card), file)
    verdicts: dict[str, Sequence[JudgedBattle]] = {f"{name}-verdicts.json": given.verdicts}
    if embedded:
        verdicts[f"{name}-truth.json"] = panel.people
    try:
        for written, battles in verdicts.items():
            write_battles(arguments.out / written, battles)
        lines = [f"verdicts: {arguments.out / written}" for written in verdicts]
        if not arguments.dry_run:
            path = card_path(arguments.baselines, identity)
            earlier = read_card(path)
            write_reports(path, {".json": read_text(arguments.out / f"{file}.json")})
            before = "" if earlier is None else f" in the place of that of {earlier.date}"
            shown = "runs with this judge show it; commit it with the baselines"
            lines.append(f"card: {path}{before}: {shown}")
    except (CepError, OSError) as error:
        raise EndedError(str(error)) from error
    show([], *lines)
    return 0


def _check_asked(arguments: Namespace) -> None:
    """Raise SpecError for options that a judge cannot be asked by."""
    if arguments.verdicts or arguments.people is not None:
        file = "--people" if arguments.people else f"the file {str(arguments.verdicts[0])!r}"
        raise SpecError(
            f"--judge is asked itself: drop {file}, and give people's verdicts with --on FILE"
        )
    if arguments.on is None:
        raise SpecError(
            "--judge needs --on FILE, verdicts of people on the battles that it is to judge, or "
            f"--on {SHAPES_PANEL}"
        )
    whole = arguments.on == SHAPES_PANEL or Path(arguments.on).is_dir()
    if whole and (arguments.answers or arguments.data or arguments.partial):
        raise SpecError(
            f"--on {arguments.on} brings questions and answers: drop --answers, --data, --partial"
        )


def _people_panel(arguments: Namespace, store: Store, names: ModelNames) -> BattlePanel:
    """The battles of a ratings folder, or of a file of verdicts with questions and answers.

    Raises SpecError for options, DatasetError for a file or a folder that cannot be read.
    """
    path = Path(arguments.on)
    if path.is_dir():
        ratings = read_ratings(path)
        panel = ratings_panel(ratings, votes_with_remarks(ratings))
        for model in dict.fromkeys(m for b in panel.people for m in (b.first, b.second)):
            names(model)  # so that --seen may spell it otherwise
        return panel
    people = read_verdicts(path, names)
    answers = _read_answer_folders(arguments.answers, names, people)
    folders = dict(arguments.data)
    if unknown := sorted(folders.keys() - {DATA}):
        raise SpecError(f"--data: {unknown_name('data set', unknown[0], [DATA])}")
    folder = folders.get(DATA)
    if isinstance(folder, str):
        raise SpecError(f"--data {DATA}={folder}: a folder is expected here")
    if folder is None:
        raise SpecError(
            f"the questions of {str(path)!r} are needed: say where OpenING's lie with --data "
            f"{DATA}=FOLDER, and give the answers of each model with --answers FOLDER"
        )
    # What cannot be shown is counted over all battles, whichever are chosen.
    every = choose_battles(people, None, 0)
    questions = load_opening(folder)
    return opening_panel(path.stem, every, questions, answers, store, partial=arguments.partial)


def _read_answer_folders(
    texts: Iterable[str], names: ModelNames, battles: Iterable[JudgedBattle]
) -> dict[str, RecordedAnswers]:
    """Model -> its recorded answers, of `[MODEL=]FOLDER`.

    battles: that the answers are of; a folder of another model is passed over, and said.
    Raises SpecError for two folders of a model and for a model that is named and has no battle,
    DatasetError for a folder that cannot be read.
    """
    models = {model for battle in battles for model in (battle.first, battle.second)}
    answers: dict[str, RecordedAnswers] = {}
    for text in texts:
        given, _, folder = ("", "", text) if Path(text).exists() else text.rpartition("=")
        recorded = read_answers(Path(folder))
        model = names(given or recorded.model)
        if model in answers:
            raise SpecError(
                f"--answers: {folder!r} and {str(answers[model].path)!r} are both of {model!r}"
            )
        if model in models:
            answers[model] = recorded
        elif given:
            raise SpecError(f"--answers {text!r}: {unknown_name('model', given, models)}")
        else:
            tell(f"{folder} is not used: no battle has the model {model!r}")
    return answers


# -- the card --------------------------------------------------------------------------------------


LARGE_ORDER_EFFECT = 0.3
"""Logits that have to be excluded, or a judge should be asked in both orders. Below, one call of
balanced order sees nearly as much for half the price."""

FEW_BATTLES = 100
"""With fewer, the intervals of a card are too wide to choose a judge by."""

_READINGS = {"fdt": "ties forced", "three_way": "ties one verdict", "decided": "both decided"}


def _card_page(measured: MeasuredJudge) -> Iterator[Section]:
    """The sections of a card: the judge in sentences, then tables."""
    card = measured.card
    title = f"card of the judge {measured.judge}: {card.battles:,} battles that people judged too"
    yield Section(title, (*_findings(measured), *_notes(measured)))
    yield Section("agreement with people, in percent", (_agreement_table(card.agreements),))
    rms, largest = 100 * card.bias_rms, card.largest_bias
    most = f"the largest {100 * largest.bias:+.1f} for {largest.model}"
    biases = [f"bias: {rms:.1f} points (root mean square), {most}"]
    if card.slope is not None:
        meaning = "exaggerates" if card.slope > 1 else "flattens"
        biases.append(
            f"slope of its win rates on people's: {card.slope:.2f}, so it {meaning} differences "
            "between models"
        )
    rows = tuple(
        (m.model, f"{100 * m.people:.1f}", f"{100 * m.judge:.1f}", f"{100 * m.bias:+.1f}")
        for m in card.models
    )
    table = Table(("model", "people", "judge", "bias"), rows)
    yield Section("win rates with ties as 1/2, in percent", (*biases, table))
    counts = _confusion_table(measured.people, measured.judge, card.confusion)
    yield Section("verdicts", (counts,))


def _findings(measured: MeasuredJudge) -> Iterator[str]:
    card = measured.card
    yield measured.sentence
    if card.first_right.total and card.second_right.total:  # else it has no known errors
        shown, error = card.shown_win_rate()
        yield (
            f"of a true win rate of {TRUE_WIN_RATE:.2f} it would show {shown:.3f} (standard error "
            f"{error:.3f})"
        )
    yield f"it names the winner where people prefer the first answer: {_share(card.first_right)}"
    yield f"where they prefer the second: {_share(card.second_right)}"
    yield f"order effect: {_order(card.order)}; of people: {_order(card.people_order)}"
    order = card.order
    if order is None or abs(order.logit) + 1.96 * order.error >= LARGE_ORDER_EFFECT:
        yield "ask it in both orders: its order effect is large, or cannot be told"
    else:
        yield "one call in balanced order sees nearly as much as both orders"
    yield (
        f"Krippendorff's alpha: {number(card.alpha)}; correlation of scores: "
        f"{number(card.score_correlation)}, within the battles of a model "
        f"{number(card.score_correlation_within)}"
    )


def _notes(measured: MeasuredJudge) -> Iterator[str]:
    if measured.card.battles < FEW_BATTLES:
        yield f"fewer than {FEW_BATTLES} battles: the intervals are wide, and this card is a sketch"
    asked = measured.asked
    if asked is not None:
        yield f"judge: {asked.judge.identity}; {asked.order} orders, seed {asked.seed}"
        for kind, count in asked.failures.items():
            yield f"no verdict {count} times: {kind}"
        for reason, count in asked.left_out.items():
            yield f"left out: {count} battles {reason}"
    if measured.unknown_models:
        yield f"models that people did not judge: {', '.join(measured.unknown_models)}"
    yield (
        f"battles of {measured.judge} alone: {measured.judge_alone}; of {measured.people} alone: "
        f"{measured.people_alone}"
    )
    seen = ", ".join(measured.seen) or "not said (--seen MODEL), so all count as seen"
    yield f"models known while the judge was made: {seen}"


def _order(effect: OrderEffect | None) -> str:
    if effect is None:
        return "cannot be told"
    return f"{effect.logit:+.3f} logits for the first answer (standard error {effect.error:.3f})"


def _agreement_table(agreements: Iterable[Agreement]) -> Table:
    """A row for each reading of ties, in percent."""
    head = ("ties", "all", "seen", "unseen", "harmonic mean", "kappa", "chance")
    rows = tuple(
        (
            _READINGS[agreed.reading],
            *map(_share, (agreed.overall, agreed.seen, agreed.unseen)),
            percent(agreed.harmonic_mean),
            number(agreed.kappa),
            percent(agreed.chance),
        )
        for agreed in agreements
    )
    return Table(head, rows)


def _confusion_table(rows: str, columns: str, confusion: Sequence[Sequence[int]]) -> Table:
    """How often each verdict of one judge met each of another."""
    return Table(
        (f"{rows} \\ {columns}", *WINNERS),
        tuple((winner, *map(str, row)) for winner, row in zip(WINNERS, confusion, strict=True)),
    )


def _share(counted: Share) -> str:
    """A share in percent with its interval."""
    if counted.value is None:
        return "-"
    return f"{100 * counted.value:.2f} [{100 * counted.low:.1f}, {100 * counted.high:.1f}]"
