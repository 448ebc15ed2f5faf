"""The command line of `cepbench`. Standard library only: help is shown at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments as strings. Raises SystemExit for what argparse refuses, and after help."""
    parser = argparse.ArgumentParser(
        prog="cepbench",
        description="Drift of multimodal models, beyond the gate.",
        epilog=_EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    about = "how far the numbers of a suite move when something else than the model changes"
    study = commands.add_parser("study", help=about, description=f"Measure {about}.")
    kinds = study.add_subparsers(dest="study", metavar="STUDY", required=True)
    for name, help_ in _STUDIES.items():
        kind = kinds.add_parser(name, help=help_, description=f"{help_}.", epilog=_EXIT_CODES)
        _add_study(kind, name)
    return parser.parse_args(argv)


def _add_study(parser: argparse.ArgumentParser, study: str) -> None:
    parser.add_argument(
        "suite", metavar="SUITE", type=Path, help="folder with a suite.toml, or such a file"
    )
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
    _add(parser, "role", choices=ROLES, help="what the models under test play")
    _add(
        parser,
        "data",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="where a data set lies",
    )
    _add(parser, "samples", metavar="N", help="most samples of each category")
    parser.add_argument(
        "--metrics", metavar="NAME,...", help="of the suite's metrics; default: all"
    )
    parser.add_argument(
        "--parts", metavar="NAME,...", help="categories, groups or mappings, beside the whole"
    )
    default = "default: %(default)s"
    _add(parser, "store", metavar="DIR", type=Path, default=Path(".cepbench/store"), help=default)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path(".cepbench/studies"), help=default
    )


def _add(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """An option that pytest has as `--cep-NAME`, which messages speak of and which works here too."""
    parser.add_argument(f"--{name}", **settings)
    parser.add_argument(f"--cep-{name}", dest=name, **settings | {"help": argparse.SUPPRESS})


def _add_role(parser: argparse.ArgumentParser, role: str, study: str) -> None:
    """A role that is the same for all, or the one that the study exchanges."""
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
