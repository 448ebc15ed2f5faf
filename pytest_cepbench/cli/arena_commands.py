"""The commands on answers, their battles and judges, with their options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import (
    BASELINES,
    DAMAGED,
    DEFAULT,
    DRY_RUN,
    EXIT_CODES,
    REFUSED,
    STORE,
    SUITE,
    UNWRITTEN,
    Command,
    Option,
    OptionGroup,
    flag,
    option,
    several,
    shared,
)

_LEADERBOARD = [
    option("suite", metavar="SUITE", help="its name, or its folder"),
    option(
        "reports",
        metavar="[NAME=]REPORT",
        nargs="+",
        help="JSON reports (--cep-report) of two or more runs, and what to call their models",
    ),
    several(
        "--case",
        metavar="PART/METRIC",
        help="rank in this case (several allowed); default: the whole suite in each metric",
    ),
    option("--out", metavar="DIR", type=Path, default=Path(".cepbench/leaderboards"), help=DEFAULT),
]

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

_ARENA_OUT = option(
    "--out", metavar="DIR", type=Path, default=Path(".cepbench/arena"), help=DEFAULT
)

_ANSWERS_ACTIONS = (
    Command(
        "export",
        "write a suite's accepted answers into one file beside its baselines, for others to battle",
        DAMAGED,
        [
            SUITE,
            option(
                "--out",
                metavar="FILE",
                type=Path,
                help="the file; default: answers.zip beside the suite's baselines. Of the layout "
                "opening a folder; default: .cepbench/answers",
            ),
            option(
                "--layout",
                choices=("bundle", "opening"),
                default="bundle",
                help=f"one file, or a folder as OpenING's scripts read it; {DEFAULT}",
            ),
            option(
                "--name",
                metavar="MODEL",
                default="accepted",
                help=f"name of the model, of the layout opening; {DEFAULT}",
            ),
            option(
                "--data",
                metavar="NAME=PATH",
                action="append",
                default=[],
                help="where the questions lie, of the layout opening",
            ),
            *BASELINES,
            *STORE,
        ],
    ),
    Command(
        "import",
        "take over answers that were exported",
        DAMAGED,
        [
            option("bundles", metavar="FILE", type=Path, nargs="+", help="what export wrote"),
            *STORE,
        ],
    ),
)

_ARENA_ACTIONS = (
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
    ),
    Command(
        "leaderboard",
        "rank the models of each file of verdicts, by win rates and by a model of pairs",
        UNWRITTEN,
        [
            option(
                "verdicts", metavar="FILE", type=Path, nargs="+", help="verdicts of one judge each"
            ),
            option(
                "--pair-model",
                choices=("ordered", "davidson", "rao-kupper"),
                default="ordered",
                help="ordered logit of all four verdicts, or one of those in which ties are alike; "
                + DEFAULT,
            ),
            option(
                "--battles", metavar="FILE", type=Path, help="the battles that were to be judged"
            ),
            several(
                "--no-answer",
                metavar="MODEL",
                help=(
                    "a model whose arranged battles without verdict are forfeits (several allowed)"
                ),
            ),
            option(
                "--forfeits",
                choices=("charged-and-credited", "charged", "ignored"),
                default="charged-and-credited",
                help=f"lost by the one and won by the other, lost only, or left out; {DEFAULT}",
            ),
            option(
                "--by",
                choices=("task", "meta-topic"),
                help="win rates of OpenING's tasks or meta-topics too",
            ),
            _ARENA_OUT,
        ],
    ),
    Command(
        "export-training",
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
            option(
                "--out", metavar="DIR", type=Path, required=True, help="a new folder for the files"
            ),
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
                "--limit",
                metavar="N",
                help="so many battles of each panel, chosen by --seed; fewer are among more",
            ),
            option("--seed", metavar="N", default="0", help=f"of that choice; {DEFAULT}"),
            *_SHOWN_ANSWERS,
            *STORE,
        ],
    ),
    Command(
        "agreement",
        "agreement of two judges over the battles that both judged",
        UNWRITTEN,
        [
            option("first", metavar="FILE", type=Path, help="verdicts that count as right"),
            option("second", metavar="FILE", type=Path, help="verdicts of the other judge"),
            several(
                "--unseen",
                metavar="MODEL",
                help=(
                    "a model that the second judge did not know while it was made (several allowed)"
                ),
            ),
            _ARENA_OUT,
        ],
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
            "--limit",
            metavar="N",
            help="ask about so many battles, chosen by --seed; fewer are among more",
        ),
        option("--seed", metavar="N", help="of the judge and of the choice; default: 0"),
        *_SHOWN_ANSWERS,
        flag("--dry-run", "keep no card beside the baselines"),
        *BASELINES,
        *STORE,
    ],
)

_JUDGE_CARD: list[Option | OptionGroup] = [
    option("verdicts", metavar="FILE", type=Path, nargs="?", help="verdicts of the judge"),
    option(
        "--people",
        metavar="FILE|RATINGS",
        type=Path,
        help="verdicts of people on the same battles, in either order of the answers, or a folder "
        "of their ratings",
    ),
    several(
        "--seen",
        metavar="MODEL",
        help="a model that was known while the judge was made (several allowed)",
    ),
    several(
        "--repeat",
        metavar="FILE|N",
        help="verdicts of the same judge, asked again (several allowed); with --judge, how often "
        "it is asked again, each time with another seed",
    ),
    option("--out", metavar="DIR", type=Path, default=Path(".cepbench/judge-cards"), help=DEFAULT),
    _ASKED,
]

LEADERBOARD = Command(
    "leaderboard",
    "rank the models of several runs of a suite, by paired differences",
    UNWRITTEN,
    _LEADERBOARD,
)

JUDGE_CARD = Command(
    "judge-card",
    "measure a judge on battles that people judged: agreement, order effect, bias",
    EXIT_CODES.format("the judge gave no verdict or the files could not be written"),
    _JUDGE_CARD,
)

ANSWERS = Command(
    "answers",
    "export and import the answers that were accepted",
    DAMAGED,
    commands=_ANSWERS_ACTIONS,
)

ARENA = Command(
    "arena",
    "rank models by the verdicts of a judge, compare two judges",
    UNWRITTEN,
    commands=_ARENA_ACTIONS,
)
