"""The commands that read people's ratings, with their options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import Command, Option, option, several

_WRITTEN = "exit code: 0, 1 where the files could not be written, 2 for a mistake in what was asked"

_RATINGS = option("ratings", metavar="RATINGS", type=Path, help="a ratings folder")


def _out(default: str) -> Option:
    return option(
        "--out", metavar="DIR", type=Path, default=Path(default), help="default: %(default)s"
    )


_DRAWS = option(
    "--draws",
    metavar="N",
    default="1000",
    help="of the bootstrap behind each interval; default: %(default)s",
)

_ONE_ANNOTATOR = option(
    "--annotator", metavar="NAME", help="of this annotator alone; default: of all"
)

AGREEMENT = Command(
    "agreement",
    "how far annotators agree with one another, with themselves and with known answers",
    _WRITTEN,
    [
        _RATINGS,
        _DRAWS,
        _out(".cepbench/agreement"),
    ],
)

ALIGNMENT = Command(
    "alignment",
    "what people think of each model, and how the metrics of runs agree with them",
    _WRITTEN,
    [
        _RATINGS,
        several(
            "--report",
            metavar="[NAME=]REPORT",
            help="JSON report (--cep-report) of a run of a rated model (several allowed)",
        ),
        _DRAWS,
        _out(".cepbench/alignment"),
    ],
)

RATINGS = Command(
    "ratings",
    "bring ratings into other tools and back",
    _WRITTEN,
    commands=(
        Command(
            "export",
            "write a study for Label Studio, its descriptions as chains, its verdicts as battles",
            _WRITTEN,
            [
                _RATINGS,
                option(
                    "--format",
                    choices=("label-studio", "replay", "opening"),
                    required=True,
                    help="tasks for Label Studio; descriptions as chains for replay:; verdicts of "
                    "the majority in OpenING's format",
                ),
                option(
                    "--out",
                    metavar="DIR",
                    type=Path,
                    help="default: below .cepbench/ratings, by name and format",
                ),
                _ONE_ANNOTATOR,
            ],
        ),
        Command(
            "import",
            "add the answers of a JSON export of Label Studio to the votes of a study",
            _WRITTEN,
            [
                _RATINGS,
                option("file", metavar="FILE", type=Path, help="what Label Studio exported"),
                several(
                    "--annotator",
                    metavar="USER=NAME",
                    help="number or address of a user there, and the annotator's name here "
                    "(several allowed)",
                ),
            ],
        ),
    ),
)
