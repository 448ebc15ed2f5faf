"""The command line of `cepbench`. Standard library only: help is shown at once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_cepbench.errors import did_you_mean

ROLES = ("describer", "generator", "encoder", "detector")

_STUDIES = {
    "seeds": "the same models with several seeds",
    "generators": "the same models with several text-to-image models",
    "encoders": "the same chains compared by several encoders",
    "lengths": "descriptions of fewer than 20, 20 to 60, and more than 60 words",
    "weighting": "GC@T against s(T), its last similarity without weights",
}

_EXIT_CODES = (
    "exit code: 0, 1 where something could not be measured, 2 for a mistake in what was asked"
)

_EXIT_CODES_OF_FILES = (
    "exit code: 0, 1 where the results were refused or a file could not be changed, 2 for a "
    "mistake in what was asked"
)

_EXIT_CODES_OF_DOCTOR = (
    "exit code: 0, also with remarks; 1 where a problem was found, 2 for a mistake in what was "
    "asked"
)

_STORE_CODES = (
    "exit code: 0, 1 where something is damaged, was refused or could not be written, 2 for a "
    "mistake in what was asked"
)

_DEFAULT = "default: %(default)s"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, choice or option. Its commands are of its class."""

    def error(self, message: str) -> NoReturn:
        """As argparse, with a question behind the message where a name is like a known one."""
        hint = ""
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message):
            hint = did_you_mean(match[1], re.findall(r"[^',\s]+", match[2]))
        elif match := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            hint = did_you_mean(match[1], self._flags())
        super().error(f"{message}.{hint}" if hint else message)

    def _flags(self) -> Iterator[str]:
        """Of this parser and of its commands, which leave what they do not know to it."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse names it nowhere else
                for command in action.choices.values():
                    yield from command._flags()  # noqa: SLF001 - of its own class
            else:
                yield from (flag for flag in action.option_strings if flag.startswith("--"))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments as strings. Raises SystemExit for what argparse refuses, and after help."""
    parser = _Parser(
        prog="cepbench",
        description="Baselines of the gate, and what test runs do not measure.",
        epilog=_EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    about = "how far the numbers of a suite move when something else than the model changes"
    study = commands.add_parser("study", help=about, description=f"Measure {about}.")
    kinds = study.add_subparsers(dest="study", metavar="STUDY", required=True)
    for name, help_ in _STUDIES.items():
        kind = kinds.add_parser(name, help=help_, description=f"{help_}.", epilog=_EXIT_CODES)
        _add_study(kind, name)
    about = "measure the noise of a model against itself over seeds, and keep it with the baselines"
    _add_calibrate(
        commands.add_parser("calibrate", help=about, description=f"{about}.", epilog=_EXIT_CODES)
    )
    about = "check whether a suite as it is set up can see anything, without gating"
    _add_doctor(
        commands.add_parser(
            "doctor", help=about, description=f"{about}.", epilog=_EXIT_CODES_OF_DOCTOR
        )
    )
    for name, about, add in (
        ("accept", "accept the results of a run as baselines", _add_accept),
        ("prune", "find baselines that no case has any more, and delete them", _add_prune),
    ):
        description, epilog = f"{about}.", _EXIT_CODES_OF_FILES
        add(commands.add_parser(name, help=about, description=description, epilog=epilog))
    about = "rank the models of several runs of a suite, by paired differences"
    _add_leaderboard(
        commands.add_parser("leaderboard", help=about, description=f"{about}.", epilog=_EXIT_CODES)
    )
    about = "rank models by the verdicts of a judge, compare two judges"
    arena = commands.add_parser("arena", help=about, description=f"{about}.", epilog=_EXIT_CODES)
    _add_arena_actions(arena)
    about = "look at a store of results, make it smaller, copy it"
    store = commands.add_parser("store", help=about, description=f"{about}.", epilog=_STORE_CODES)
    _add_store_actions(store)
    return parser.parse_args(argv)


def _add_accept(parser: argparse.ArgumentParser) -> None:
    _add_results(parser)
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="why, in a sentence; kept in each baseline"
    )
    parser.add_argument(
        "--case",
        metavar="[SUITE/]PART/METRIC",
        action="append",
        default=[],
        help="accept this case only (several allowed); default: all",
    )
    _add_baselines(parser)
    parser.add_argument(
        "--move-anchor",
        action="store_true",
        help="make what is accepted the anchor too: the steps until here are forgotten",
    )
    parser.add_argument(
        "--accept-insensitive",
        "--cep-accept-insensitive",
        action="store_true",
        help="accept also what lies at the floor by chance, where a regression could not be seen",
    )
    _add_dry_run(parser)
    remeasure = parser.add_argument_group("a checkpoint that was chosen as the best of several")
    remeasure.add_argument(
        "--remeasure",
        metavar="SUITE",
        type=Path,
        help="measure it again, on held-out samples or under a fresh seed, and accept that",
    )
    remeasure.add_argument("--model", metavar="SPEC", help="default: as in the results")
    for role in ROLES:
        _add_role(remeasure, role, "")
    _add_play(remeasure)
    _add_store(remeasure)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    _add_results(parser)
    parser.add_argument("--delete", action="store_true", help="delete what is listed")
    parser.add_argument(
        "--suite",
        metavar="NAME",
        action="append",
        default=[],
        help="also all baselines of this suite, which is gone (several allowed)",
    )
    _add_baselines(parser)


def _add_calibrate(parser: argparse.ArgumentParser) -> None:
    _add_suite(parser)
    parser.add_argument(
        "--model", metavar="SPEC", required=True, help="the model that is measured against itself"
    )
    for role in ROLES:
        _add_role(parser, role, "")
    _add_play(parser)
    _add_trial(parser, seeds="5")
    _add_store(parser)
    _add_baselines(parser)
    _add_dry_run(parser)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    _add_suite(parser)
    parser.add_argument(
        "--model",
        metavar="SPEC",
        help="the model that would be gated; default: the suite's describer",
    )
    for role in ROLES:
        _add_role(parser, role, "")
    _add_play(parser)
    _add_trial(parser, seeds="2")
    _add_store(parser)
    _add_baselines(parser)
    _add_out(parser)


def _add_trial(parser: argparse.ArgumentParser, seeds: str) -> None:
    """Options for the number of seeds, and for the numbers that cases are judged by."""
    parser.add_argument(
        "--seeds",
        metavar="N",
        default=seeds,
        help="how many seeds, from the suite's own on; default: %(default)s",
    )
    whose = "in the place of the suite's, for what is printed"
    _add(parser, "tolerance", metavar="X", help=f"tolerated drop of every case, {whose}")
    _add(parser, "alpha", metavar="X", help=f"error that the cases share, {whose}")


def _add_store_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about, add in (
        ("stats", "what a store holds", _add_stats),
        ("verify", "read all of a store, and say what is damaged", _add_verify),
        ("gc", "find what is old, too much, or needed by no baseline, and delete it", _add_gc),
        ("export", "write a frozen copy, a folder or one .tar, for others to read", _add_export),
        ("import", "take over what is sound of another store or an archive", _add_import),
        ("push", "upload what a shared store of objects lacks", _add_url),
        ("pull", "take over what a shared store of objects has more", _add_url),
    ):
        action = actions.add_parser(name, help=about, description=f"{about}.", epilog=_STORE_CODES)
        add(action)
        _add_store(action)


def _add_stats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help="a shared store of objects, in the place of a local one",
    )
    parser.add_argument(
        "--repair", action="store_true", help="drop what is damaged; it is computed again"
    )


def _add_gc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unused-for",
        metavar="30d",
        help="results that no run has used for so many days (d) or weeks (w)",
    )
    parser.add_argument(
        "--max-size",
        metavar="20G",
        help="the least recently used results, until no more than this is left",
    )
    _add_needed(parser, "keep all that the models of these baselines made (several allowed)")
    parser.add_argument("--delete", action="store_true", help="delete what is listed")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=Path,
        help="folder to make, or archive where it ends in .tar",
    )
    which = parser.add_mutually_exclusive_group()
    _add_needed(which, "only what the models of these baselines made (several allowed)")
    which.add_argument(
        "--used-within",
        metavar="7d",
        help="only what runs used in the last so many days (d) or weeks (w)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace an earlier copy that is at TARGET"
    )


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", type=Path, help="folder of a store, or archive of one"
    )


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url",
        metavar="URL|DIR",
        help="s3://BUCKET/PREFIX, gs://..., or a folder that machines mount",
    )


def _add_needed(parser: argparse._ActionsContainer, about: str) -> None:
    parser.add_argument(
        "--baselines", metavar="DIR", type=Path, action="append", default=[], help=about
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", metavar="RESULTS.json", type=Path, help="what pytest --cep-report wrote"
    )


def _add_baselines(parser: argparse.ArgumentParser) -> None:
    _add(
        parser,
        "baselines",
        metavar="DIR",
        type=Path,
        default=Path("baselines"),
        help=f"folder of accepted baselines; {_DEFAULT}",
    )


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="write no baseline")


def _add_suite(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "suite", metavar="SUITE", type=Path, help="folder with a suite.toml, or such a file"
    )


def _add_play(parser: argparse._ActionsContainer) -> None:
    """Options for the models of each role, and the data."""
    _add(parser, "role", choices=(*ROLES, "unified"), help="what the models under test play")
    _add(
        parser,
        "data",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="where a data set lies",
    )
    _add(parser, "samples", metavar="N", help="most samples of each category")


def _add_store(parser: argparse._ActionsContainer) -> None:
    default = Path(".cepbench/store")
    _add(parser, "store", metavar="DIR", type=Path, default=default, help=_DEFAULT)


def _add_leaderboard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="its name, or its folder")
    parser.add_argument(
        "reports",
        metavar="[NAME=]REPORT",
        nargs="+",
        help="JSON reports (--cep-report) of two or more runs, and what to call their models",
    )
    parser.add_argument(
        "--case",
        metavar="PART/METRIC",
        action="append",
        default=[],
        help="rank in this case (several allowed); default: the whole suite in each metric",
    )
    out = Path(".cepbench/leaderboards")
    parser.add_argument("--out", metavar="DIR", type=Path, default=out, help=_DEFAULT)


def _add_arena_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    about = "rank the models of each file of verdicts, by win rates and by a model of pairs"
    leaderboard = actions.add_parser(
        "leaderboard", help=about, description=f"{about}.", epilog=_EXIT_CODES
    )
    leaderboard.add_argument(
        "verdicts", metavar="FILE", type=Path, nargs="+", help="verdicts of one judge each"
    )
    leaderboard.add_argument(
        "--pair-model",
        choices=("ordered", "davidson", "rao-kupper"),
        default="ordered",
        help="ordered logit of all four verdicts, or one of those in which ties are alike; "
        "default: %(default)s",
    )
    leaderboard.add_argument(
        "--battles", metavar="FILE", type=Path, help="the battles that were to be judged"
    )
    leaderboard.add_argument(
        "--no-answer",
        metavar="MODEL",
        action="append",
        default=[],
        help="a model whose arranged battles without verdict are forfeits (several allowed)",
    )
    leaderboard.add_argument(
        "--forfeits",
        choices=("charged-and-credited", "charged", "ignored"),
        default="charged-and-credited",
        help="lost by the one and won by the other, lost only, or left out; default: %(default)s",
    )
    leaderboard.add_argument(
        "--by",
        choices=("task", "meta-topic"),
        help="win rates of OpenING's tasks or meta-topics too",
    )
    about = "agreement of two judges over the battles that both judged"
    agreement = actions.add_parser(
        "agreement", help=about, description=f"{about}.", epilog=_EXIT_CODES
    )
    agreement.add_argument("first", metavar="FILE", type=Path, help="verdicts that count as right")
    agreement.add_argument("second", metavar="FILE", type=Path, help="verdicts of the other judge")
    agreement.add_argument(
        "--unseen",
        metavar="MODEL",
        action="append",
        default=[],
        help="a model that the second judge did not know while it was made (several allowed)",
    )
    for action in (leaderboard, agreement):
        out = Path(".cepbench/arena")
        action.add_argument("--out", metavar="DIR", type=Path, default=out, help=_DEFAULT)


def _add_study(parser: argparse.ArgumentParser, study: str) -> None:
    _add_suite(parser)
    parser.add_argument(
        "--model",
        metavar="[NAME=]SPEC",
        action="append",
        required=True,
        help="a model under test, and its name in tables (several allowed)",
    )
    if study == "seeds":
        parser.add_argument(
            "--seeds", metavar="N,N,...", default="0,1,2,3,4", help="default: %(default)s"
        )
    for role in ROLES:
        _add_role(parser, role, study)
    _add_play(parser)
    parser.add_argument(
        "--metrics", metavar="NAME,...", help="of the suite's metrics; default: all"
    )
    parser.add_argument(
        "--parts", metavar="NAME,...", help="categories, groups or mappings, beside the whole"
    )
    _add_store(parser)
    _add_out(parser)


def _add_out(parser: argparse.ArgumentParser) -> None:
    out = Path(".cepbench/studies")
    parser.add_argument("--out", metavar="DIR", type=Path, default=out, help=_DEFAULT)


def _add(parser: argparse._ActionsContainer, name: str, **settings: Any) -> None:
    """Add an option that pytest has as `--cep-NAME`, a spelling that works here too."""
    parser.add_argument(f"--{name}", **settings)
    parser.add_argument(f"--cep-{name}", dest=name, **settings | {"help": argparse.SUPPRESS})


def _add_role(parser: argparse._ActionsContainer, role: str, study: str) -> None:
    """A role that is the same for all, or the one that the study, if it is one, exchanges."""
    if study == f"{role}s":
        parser.add_argument(
            f"--{role}",
            metavar="[NAME=]SPEC",
            action="append",
            default=[],
            help=f"one of the {role}s that are compared, and its name in tables",
        )
        if role == "encoder":
            parser.add_argument(
                "--seat",
                metavar="NAME",
                default="encoder",
                help="which of the suite's encoders is exchanged; default: the one without a name",
            )
    elif role == "encoder":
        parser.add_argument(
            "--encoder",
            metavar="[NAME=]SPEC",
            action="append",
            default=[],
            help="model whose vectors are compared; with NAME= one of the suite's further encoders",
        )
    else:
        parser.add_argument(f"--{role}", metavar="SPEC", help=f"the {role}, the same for all")
