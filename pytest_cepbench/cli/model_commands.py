"""The commands on models, their battles and judges, with their options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import (
    BASELINES,
    DATA,
    DEFAULT,
    DRY_RUN,
    EXIT_CODES,
    MODELS,
    REFUSED,
    ROLE_AND_DATA,
    STORE,
    SUITE,
    UNMEASURED,
    UNWRITTEN,
    Command,
    Option,
    OptionGroup,
    comma_names,
    flag,
    number_from,
    option,
    several,
    shared,
    verdict_file,
)

_SHOWN_ANSWERS = [
    option(
        "--answers",
        metavar="[MODEL=]FOLDER",
        nargs="+",
        action="extend",
        default=[],
        help="the answers of a model in OpenING's layout (several allowed)",
    ),
    *shared(
        "data",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="where the questions lie: opening=FOLDER",
    ),
    flag("--partial", "leave out battles whose question or answers are not all there"),
]
"""Where what a judge is shown lies, for battles of which the verdicts alone are in a file."""

_ARENA_OUT = option("--out", metavar="DIR", default=".cepbench/arena", help=DEFAULT)

_PAIR_MODEL = option(
    "--pair-model",
    choices=("ordered", "davidson", "rao-kupper"),
    default="ordered",
    help=f"ordered logit of all four verdicts, or one of those in which ties are alike; {DEFAULT}",
)

_FORFEITS = option(
    "--forfeits",
    choices=("charged-and-credited", "charged", "ignored"),
    default="charged-and-credited",
    help=f"lost by the one and won by the other, lost only, or left out; {DEFAULT}",
)

_BY = option(
    "--by",
    choices=("task", "meta-topic", "capability", "difficulty"),
    help="win rates of OpenING's tasks, meta-topics, capabilities, or of common and hard tasks too",
)

_ARENA_ACTIONS = (
    Command(
        "play",
        "let answers of several models battle before a judge, and rank the models",
        UNMEASURED,
        [
            option(
                "answers",
                metavar="[NAME=]ANSWERS",
                nargs="+",
                help="a folder of answers in OpenING's layout, or the report of a run of the suite",
            ),
            option(
                "--suite",
                metavar="SUITE",
                type=Path,
                default="pytest_cepbench.suites.opening",
                help=f"whose questions, judge and order they are; {DEFAULT}",
            ),
            option("--judge", metavar="SPEC", help="the judge; default: the suite's own"),
            option("--rounds", metavar="K", default=2, help=f"of each question; {DEFAULT}"),
            option(
                "--order",
                choices=("both", "balanced"),
                help="show each pair of answers in both orders, or once; default: the suite's",
            ),
            option(
                "--only",
                choices=("text", "image"),
                help="leave the other modality out of the answers",
            ),
            option(
                "--reference",
                metavar="NAME",
                help="let the reference answers battle too, as a model of this name",
            ),
            option("--samples", metavar="N", help="the first N battles of all"),
            option("--seed", metavar="SEED", default=0, help=f"of draw and judge; {DEFAULT}"),
            option("--name", metavar="NAME", help="of the leaderboard; default: the suite's"),
            flag("--plan", "say what it would take, and ask nothing"),
            *DATA,
            _PAIR_MODEL,
            _FORFEITS,
            _BY,
            option("--out", metavar="DIR", default=".cepbench/play", help=DEFAULT),
            *STORE,
        ],
        run="arena_play",
    ),
    Command(
        "rejudge",
        "let a suite's accepted answers be judged by another judge from now on",
        REFUSED,
        [
            SUITE,
            option("--judge", metavar="SPEC", help="the judge; default: the suite's own"),
            DRY_RUN,
            *BASELINES,
            *STORE,
        ],
        run="arena:rejudge",
        recovers=True,
    ),
    Command(
        "leaderboard",
        "rank the models of each file of verdicts, by win rates and by a model of pairs",
        UNWRITTEN,
        [
            option("verdicts", metavar="VERDICTS", nargs="+", help="verdicts of one judge each"),
            _PAIR_MODEL,
            option("--battles", metavar="VERDICTS", help="the battles that were to be judged"),
            flag(
                "--merge-equal-ids",
                "count verdicts of one question and the same two model ids once, as OpenING's "
                "script does, and name those that fall away",
            ),
            several(
                "--no-answer",
                metavar="MODEL",
                help=(
                    "a model whose arranged battles without verdict are forfeits (several allowed)"
                ),
            ),
            _FORFEITS,
            _BY,
            _ARENA_OUT,
        ],
        run="arena",
    ),
    Command(
        "training",
        "write battles with the verdicts of people or of the truth, to train a judge with them",
        UNWRITTEN,
        [
            option(
                "sources",
                metavar="SOURCE",
                nargs="+",
                help="a suite of battles with stored verdicts, such as suites/judge; a study of "
                "pairs, ratings/NAME; people's verdicts in OpenING's format; or shapes-arena, "
                "battles of the embedded world, which the truth decides",
            ),
            option(
                "--format",
                choices=("chat", "battles"),
                default="chat",
                help="chats for trl and LLaMA-Factory, each battle in both orders; or a table that "
                f"suites/judge reads; {DEFAULT}",
            ),
            option("--out", metavar="DIR", required=True, help="a new folder for the files"),
            several(
                "--unseen",
                metavar="NAME",
                help="a model, or a category, whose battles go into a split of their own (several "
                "allowed)",
            ),
            option(
                "--prompt",
                choices=("criteria", "letters", "opening-gpt", "opening-intjudge"),
                default="criteria",
                help=f"what the judge is asked, as in its spec; {DEFAULT}",
            ),
            option(
                "--samples",
                metavar="N",
                help="so many battles of each panel, chosen by --seed; fewer are among more",
            ),
            option("--seed", metavar="SEED", default=0, help=f"of that choice; {DEFAULT}"),
            *_SHOWN_ANSWERS,
            *STORE,
        ],
        run="arena:export_training",
    ),
)

_ASKED = OptionGroup(
    "a judge that is asked",
    [
        option("--judge", metavar="SPEC", help="the judge, in the place of a file of its verdicts"),
        option(
            "--on",
            metavar="FILE|RATINGS",
            help="verdicts of people, or a folder of ratings, whose battles it judges; or "
            "shapes-arena, the battles of the embedded world, which the truth decides",
        ),
        option(
            "--order",
            choices=("both", "balanced"),
            help="show each pair of answers in both orders, or once; default: both",
        ),
        option(
            "--samples",
            metavar="N",
            help="ask about so many battles, chosen by --seed; fewer are among more",
        ),
        option("--seed", metavar="SEED", help="of the judge and of the choice; default: 0"),
        *_SHOWN_ANSWERS,
        flag("--dry-run", "keep no card beside the baselines"),
        *BASELINES,
        *STORE,
    ],
)

_DRAWS = option(
    "--draws", metavar="N", default=1000, help=f"of the bootstrap behind each interval; {DEFAULT}"
)

_RATINGS = option("ratings", metavar="RATINGS", help="a ratings folder")

_OUT = option("--out", metavar="DIR", default=".cepbench/agreement", help=DEFAULT)

_JUDGES: list[Option | OptionGroup] = [
    option(
        "verdicts",
        metavar="VERDICTS",
        nargs="*",
        help="verdicts of the judge, with --people; or of two judges, the first of which is right",
    ),
    option(
        "--people",
        metavar="FILE|RATINGS",
        type=verdict_file,
        help="verdicts of people on the same battles, in either order of the answers, or a folder "
        "of their ratings",
    ),
    several(
        "--seen",
        metavar="MODEL",
        help="a model that was known while the judge was made (several allowed)",
    ),
    several(
        "--unseen",
        metavar="MODEL",
        help="a model that the second of two judges did not know while it was made (several "
        "allowed)",
    ),
    several(
        "--repeat",
        metavar="FILE|N",
        help="verdicts of the same judge, asked again (several allowed); with --judge, how often "
        "it is asked again, each time with another seed",
    ),
    _OUT,
    _ASKED,
]

ARENA = Command(
    "arena",
    "let models battle: their ranks, another judge, verdicts to train a judge with",
    None,
    commands=_ARENA_ACTIONS,
)

AGREE = Command(
    "agree",
    "how far judges, people and the metrics of models agree with one another",
    None,
    commands=(
        Command(
            "models",
            "what people think of each model, and how the metrics of runs agree with them",
            UNWRITTEN,
            [
                _RATINGS,
                several(
                    "--report",
                    metavar="[NAME=]REPORT",
                    help="JSON report (--cep-report) of a run of a rated model (several allowed)",
                ),
                _DRAWS,
                _OUT,
            ],
            run="agree:agree_models",
        ),
        Command(
            "judges",
            "a judge against people, as a card of its agreement, order effect and bias; or two "
            "judges over the battles that both judged",
            EXIT_CODES.format("the judge gave no verdict or the files could not be written"),
            _JUDGES,
            run="judges:agree_judges",
        ),
        Command(
            "people",
            "how far annotators agree with one another, with themselves and with known answers",
            UNWRITTEN,
            [_RATINGS, _DRAWS, _OUT],
            run="agree:agree_people",
        ),
    ),
)


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(_one_seed(name) for name in comma_names(text))


_one_seed = number_from(0, "no seed; whole numbers from 0 on are expected, as in --seeds=0,1,2")

_STUDIED = "how far the numbers of a suite move when something else than the model changes"

_STUDY = [
    SUITE,
    option(
        "--vary",
        required=True,
        choices=("seeds", "generators", "encoders", "lengths", "weighting"),
        help="the seed; the text-to-image model; the encoder that compares the same chains; "
        "descriptions of fewer than 20, 20 to 60, and more than 60 words; or GC@T against s(T), "
        "its last similarity without weights",
    ),
    option(
        "--model",
        metavar="[NAME=]SPEC",
        action="append",
        required=True,
        help="a model under test, and its name in tables (several allowed)",
    ),
    option("--seeds", metavar="N,N,...", type=_seeds, help="that are compared; default: 0,1,2,3,4"),
    *(option for role, option in MODELS.items() if role not in ("generator", "encoder")),
    several(
        "--generator",
        metavar="[NAME=]SPEC",
        help="the generator, the same for all; or one of those that are compared, and its name in "
        "tables",
    ),
    several(
        "--encoder",
        metavar="[NAME=]SPEC",
        help="model whose vectors are compared, with NAME= one of the suite's further encoders; or "
        "one of the encoders that are compared, and its name in tables",
    ),
    option(
        "--seat",
        metavar="NAME",
        help="which of the suite's encoders is exchanged; default: the one without a name",
    ),
    *ROLE_AND_DATA,
    option("--metrics", metavar="NAME,...", help="of the suite's metrics; default: all"),
    option(
        "--parts",
        metavar="NAME,...",
        default=(),
        help="categories, groups or mappings, beside the whole",
    ),
    *STORE,
    option("--out", metavar="DIR", default=".cepbench/studies", help=DEFAULT),
]

STUDY = Command(
    "study", _STUDIED, UNMEASURED, _STUDY, description=f"Measure {_STUDIED}.", run="study"
)
