"""The command line of `cepbench`. Standard library only: help is shown at once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_cepbench.errors import did_you_mean
from pytest_cepbench.models import ROLE_NAMES

ROLES = tuple(role for role in ROLE_NAMES if role != "judge")
"""The roles that these commands can give a model; judges come from the suite alone."""

_Option = tuple[tuple[str, ...], dict[str, Any]]
"""Flags and settings of `argparse.ArgumentParser.add_argument`."""

_DEFAULT = "default: %(default)s"


def _option(*flags: str, **settings: Any) -> _Option:
    return flags, settings


def _shared(name: str, **settings: Any) -> list[_Option]:
    """An option that pytest has as `--cep-NAME`, a spelling that works here too."""
    hidden = {**settings, "dest": name, "help": argparse.SUPPRESS}
    return [((f"--{name}",), settings), ((f"--cep-{name}",), hidden)]


def _several(*flags: str, **settings: Any) -> _Option:
    return flags, {"action": "append", "default": [], **settings}


def _flag(name: str, about: str) -> _Option:
    return (name,), {"action": "store_true", "help": about}


_RESULTS = _option(
    "results", metavar="RESULTS.json", type=Path, help="what pytest --cep-report wrote"
)

_SUITE = _option(
    "suite", metavar="SUITE", type=Path, help="folder with a suite.toml, or such a file"
)

_BASELINES = _shared(
    "baselines",
    metavar="DIR",
    type=Path,
    default=Path("baselines"),
    help=f"folder of accepted baselines; {_DEFAULT}",
)

_DRY_RUN = _flag("--dry-run", "write no baseline")

_DELETE = _flag("--delete", "delete what is listed")

_STORE = _shared("store", metavar="DIR", type=Path, default=Path(".cepbench/store"), help=_DEFAULT)

_OUT = _option("--out", metavar="DIR", type=Path, default=Path(".cepbench/studies"), help=_DEFAULT)

_ROLE_AND_DATA = [
    *_shared("role", choices=(*ROLES, "unified"), help="what the models under test play"),
    *_shared(
        "data", metavar="NAME=PATH", action="append", default=[], help="where a data set lies"
    ),
    *_shared("samples", metavar="N", help="most samples of each category"),
]

_ENCODER = _several(
    "--encoder",
    metavar="[NAME=]SPEC",
    help="model whose vectors are compared; with NAME= one of the suite's further encoders",
)

_MODELS = {
    role: _ENCODER
    if role == "encoder"
    else _option(f"--{role}", metavar="SPEC", help=f"the {role}, the same for all")
    for role in ROLES
}
"""Role -> its option, where its model is the same for all."""

_STUDIES = {
    "seeds": "the same models with several seeds",
    "generators": "the same models with several text-to-image models",
    "encoders": "the same chains compared by several encoders",
    "lengths": "descriptions of fewer than 20, 20 to 60, and more than 60 words",
    "weighting": "GC@T against s(T), its last similarity without weights",
}


def _study(name: str) -> Iterator[_Option]:
    yield _SUITE
    yield _option(
        "--model",
        metavar="[NAME=]SPEC",
        action="append",
        required=True,
        help="a model under test, and its name in tables (several allowed)",
    )
    if name == "seeds":
        yield _option("--seeds", metavar="N,N,...", default="0,1,2,3,4", help=_DEFAULT)
    for role in ROLES:
        if name != f"{role}s":
            yield _MODELS[role]
            continue
        about = f"one of the {role}s that are compared, and its name in tables"
        yield _several(f"--{role}", metavar="[NAME=]SPEC", help=about)
        if role == "encoder":
            yield _option(
                "--seat",
                metavar="NAME",
                default="encoder",
                help="which of the suite's encoders is exchanged; default: the one without a name",
            )
    yield from _ROLE_AND_DATA
    yield _option("--metrics", metavar="NAME,...", help="of the suite's metrics; default: all")
    about = "categories, groups or mappings, beside the whole"
    yield _option("--parts", metavar="NAME,...", help=about)
    yield from (*_STORE, _OUT)


def _trial(model: _Option, seeds: str) -> list[_Option]:
    """Of a model that is measured with several seeds and judged by the suite's cases."""
    instead = "in the place of the suite's, for what is printed"
    about = f"how many seeds, from the suite's own on; {_DEFAULT}"
    return [
        _SUITE,
        model,
        *_MODELS.values(),
        *_ROLE_AND_DATA,
        _option("--seeds", metavar="N", default=seeds, help=about),
        *_shared("tolerance", metavar="X", help=f"tolerated drop of every case, {instead}"),
        *_shared("alpha", metavar="X", help=f"error that the cases share, {instead}"),
        *_STORE,
        *_BASELINES,
    ]


_CALIBRATED = _option(
    "--model", metavar="SPEC", required=True, help="the model that is measured against itself"
)

_EXAMINED = _option(
    "--model",
    metavar="SPEC",
    help="the model that would be gated; default: the suite's describer",
)

_ACCEPT = [
    _RESULTS,
    _option(
        "--reason", metavar="TEXT", required=True, help="why, in a sentence; kept in each baseline"
    ),
    _several(
        "--case",
        metavar="[SUITE/]PART/METRIC",
        help="accept this case only (several allowed); default: all",
    ),
    *_BASELINES,
    _flag(
        "--move-anchor",
        "make what is accepted the anchor too: the steps until here are forgotten",
    ),
    _option(
        "--accept-insensitive",
        "--cep-accept-insensitive",
        action="store_true",
        help="accept also what lies at the floor by chance, where a regression could not be seen",
    ),
    _DRY_RUN,
]

_REMEASURE = [
    _option(
        "--remeasure",
        metavar="SUITE",
        type=Path,
        help="measure it again, on held-out samples or under a fresh seed, and accept that",
    ),
    _option("--model", metavar="SPEC", help="default: as in the results"),
    *_MODELS.values(),
    *_ROLE_AND_DATA,
    *_STORE,
]

_PRUNE = [
    _RESULTS,
    _DELETE,
    _several(
        "--suite",
        metavar="NAME",
        help="also all baselines of this suite, which is gone (several allowed)",
    ),
    *_BASELINES,
]


def _needed(about: str) -> _Option:
    return _several(
        "--baselines",
        metavar="DIR",
        type=Path,
        help=f"{about} of these baselines made (several allowed)",
    )


_EXPORTED = [
    _needed("only what the models"),
    _option(
        "--used-within",
        metavar="7d",
        help="only what runs used in the last so many days (d) or weeks (w)",
    ),
]

_URL = _option(
    "url", metavar="URL|DIR", help="s3://BUCKET/PREFIX, gs://..., or a folder that machines mount"
)

_STORE_ACTIONS: tuple[tuple[str, str, list[_Option]], ...] = (
    ("stats", "what a store holds", [_flag("--json", "print JSON")]),
    (
        "verify",
        "read all of a store, and say what is damaged",
        [
            _option(
                "url",
                metavar="URL",
                nargs="?",
                help="a shared store of objects, in the place of a local one",
            ),
            _flag("--repair", "drop what is damaged; it is computed again"),
        ],
    ),
    (
        "gc",
        "find what is old, too much, or needed by no baseline, and delete it",
        [
            _option(
                "--unused-for",
                metavar="30d",
                help="results that no run has used for so many days (d) or weeks (w)",
            ),
            _option(
                "--max-size",
                metavar="20G",
                help="the least recently used results, until no more than this is left",
            ),
            _needed("keep all that the models"),
            _DELETE,
        ],
    ),
    (
        "export",
        "write a frozen copy, a folder or one .tar, for others to read",
        [
            _option(
                "target",
                metavar="TARGET",
                type=Path,
                help="folder to make, or archive where it ends in .tar",
            ),
            _flag("--force", "replace an earlier copy that is at TARGET"),
        ],
    ),
    (
        "import",
        "take over what is sound of another store or an archive",
        [
            _option(
                "source", metavar="SOURCE", type=Path, help="folder of a store, or archive of one"
            )
        ],
    ),
    ("push", "upload what a shared store of objects lacks", [_URL]),
    ("pull", "take over what a shared store of objects has more", [_URL]),
)
"""(action, what it does, its options) of `cepbench store`."""


_LEADERBOARD = [
    _option("suite", metavar="SUITE", help="its name, or its folder"),
    _option(
        "reports",
        metavar="[NAME=]REPORT",
        nargs="+",
        help="JSON reports (--cep-report) of two or more runs, and what to call their models",
    ),
    _several(
        "--case",
        metavar="PART/METRIC",
        help="rank in this case (several allowed); default: the whole suite in each metric",
    ),
    _option(
        "--out", metavar="DIR", type=Path, default=Path(".cepbench/leaderboards"), help=_DEFAULT
    ),
]

_ARENA_OUT = _option(
    "--out", metavar="DIR", type=Path, default=Path(".cepbench/arena"), help=_DEFAULT
)

_ARENA_ACTIONS: tuple[tuple[str, str, list[_Option]], ...] = (
    (
        "leaderboard",
        "rank the models of each file of verdicts, by win rates and by a model of pairs",
        [
            _option(
                "verdicts", metavar="FILE", type=Path, nargs="+", help="verdicts of one judge each"
            ),
            _option(
                "--pair-model",
                choices=("ordered", "davidson", "rao-kupper"),
                default="ordered",
                help="ordered logit of all four verdicts, or one of those in which ties are alike; "
                + _DEFAULT,
            ),
            _option(
                "--battles", metavar="FILE", type=Path, help="the battles that were to be judged"
            ),
            _several(
                "--no-answer",
                metavar="MODEL",
                help=(
                    "a model whose arranged battles without verdict are forfeits (several allowed)"
                ),
            ),
            _option(
                "--forfeits",
                choices=("charged-and-credited", "charged", "ignored"),
                default="charged-and-credited",
                help=f"lost by the one and won by the other, lost only, or left out; {_DEFAULT}",
            ),
            _option(
                "--by",
                choices=("task", "meta-topic"),
                help="win rates of OpenING's tasks or meta-topics too",
            ),
            _ARENA_OUT,
        ],
    ),
    (
        "agreement",
        "agreement of two judges over the battles that both judged",
        [
            _option("first", metavar="FILE", type=Path, help="verdicts that count as right"),
            _option("second", metavar="FILE", type=Path, help="verdicts of the other judge"),
            _several(
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
"""(action, what it does, its options) of `cepbench arena`."""

_JUDGE_CARD = [
    _option("verdicts", metavar="FILE", type=Path, help="verdicts of the judge"),
    _option(
        "--people",
        metavar="FILE",
        type=Path,
        required=True,
        help="verdicts of people on the same battles, in either order of the answers",
    ),
    _several(
        "--seen",
        metavar="MODEL",
        help="a model that was known while the judge was made (several allowed)",
    ),
    _several(
        "--repeat",
        metavar="FILE",
        type=Path,
        help="verdicts of the same judge, asked again (several allowed)",
    ),
    _option(
        "--out", metavar="DIR", type=Path, default=Path(".cepbench/judge-cards"), help=_DEFAULT
    ),
]

_EXIT_CODES = "exit code: 0, 1 where {}, 2 for a mistake in what was asked"

_UNMEASURED = _EXIT_CODES.format("something could not be measured")

_REFUSED = _EXIT_CODES.format("the results were refused or a file could not be changed")

_PROBLEM = (
    "exit code: 0, also with remarks; 1 where a problem was found, 2 for a mistake in what was "
    "asked"
)

_DAMAGED = _EXIT_CODES.format("something is damaged, was refused or could not be written")

_UNWRITTEN = _EXIT_CODES.format("the files could not be written")

_COMMANDS: tuple[tuple[str, str, str, list[_Option]], ...] = (
    (
        "calibrate",
        "measure the noise of a model against itself over seeds, and keep it with the baselines",
        _UNMEASURED,
        [*_trial(_CALIBRATED, seeds="5"), _DRY_RUN],
    ),
    (
        "doctor",
        "check whether a suite as it is set up can see anything, without gating",
        _PROBLEM,
        [*_trial(_EXAMINED, seeds="2"), _OUT],
    ),
    ("accept", "accept the results of a run as baselines", _REFUSED, _ACCEPT),
    ("prune", "find baselines that no case has any more, and delete them", _REFUSED, _PRUNE),
    (
        "leaderboard",
        "rank the models of several runs of a suite, by paired differences",
        _UNWRITTEN,
        _LEADERBOARD,
    ),
    (
        "judge-card",
        "measure a judge on battles that people judged: agreement, order effect, bias",
        _UNWRITTEN,
        _JUDGE_CARD,
    ),
)
"""(command, what it does, exit codes, options) of all that have no commands of their own."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, choice or option.

    Its commands are of its class.
    """

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
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - has no other name
                for command in action.choices.values():
                    yield from command._flags()  # noqa: SLF001 - of its own class
            else:
                yield from (flag for flag in action.option_strings if flag.startswith("--"))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments as strings. Raises SystemExit for what argparse refuses, and after help."""
    parser = _Parser(
        prog="cepbench",
        description="Baselines of the gate, and what test runs do not measure.",
        epilog=_UNMEASURED,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    about = "how far the numbers of a suite move when something else than the model changes"
    study = commands.add_parser("study", help=about, description=f"Measure {about}.")
    studies = study.add_subparsers(dest="study", metavar="STUDY", required=True)
    for name, about in _STUDIES.items():
        _command(studies, name, about, _UNMEASURED, _study(name))
    for name, about, exit_codes, options in _COMMANDS:
        command = _command(commands, name, about, exit_codes, options)
        if name == "accept":
            title = "a checkpoint that was chosen as the best of several"
            _add(command.add_argument_group(title), _REMEASURE)
    about = "rank models by the verdicts of a judge, compare two judges"
    arena = _command(commands, "arena", about, _UNWRITTEN)
    actions = arena.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about, options in _ARENA_ACTIONS:
        _command(actions, name, about, _UNWRITTEN, options)
    store = _command(
        commands, "store", "look at a store of results, make it smaller, copy it", _DAMAGED
    )
    actions = store.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about, options in _STORE_ACTIONS:
        action = _command(actions, name, about, _DAMAGED, options)
        if name == "export":
            _add(action.add_mutually_exclusive_group(), _EXPORTED)
        _add(action, _STORE)
    return parser.parse_args(argv)


def _command(
    commands: argparse._SubParsersAction[_Parser],
    name: str,
    about: str,
    exit_codes: str,
    options: Iterable[_Option] = (),
) -> _Parser:
    command = commands.add_parser(name, help=about, description=f"{about}.", epilog=exit_codes)
    _add(command, options)
    return command


def _add(parser: argparse._ActionsContainer, options: Iterable[_Option]) -> None:
    for flags, settings in options:
        parser.add_argument(*flags, **settings)
