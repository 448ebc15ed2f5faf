"""The commands on stores, with their options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import Command, OptionGroup, flag, option, several
from pytest_cepbench.cli.shared_options import DAMAGED, DELETE, STORE

_STORE_ACTIONS = (
    Command("stats", "what a store holds", DAMAGED, [flag("--json", "print JSON"), *STORE]),
    Command(
        "verify",
        "read all of a store, and say what is damaged",
        DAMAGED,
        [
            option(
                "url",
                metavar="URL",
                nargs="?",
                help="a shared store of objects, in the place of a local one",
            ),
            flag("--repair", "drop what is damaged; it is computed again"),
            *STORE,
        ],
    ),
    Command(
        "gc",
        "find what is old, too much, or needed by no baseline, and delete it",
        DAMAGED,
        [
            option(
                "--unused-for",
                metavar="30d",
                help="results that no run has used for so many days (d) or weeks (w)",
            ),
            option(
                "--max-size",
                metavar="20G",
                help="the least recently used results, until no more than this is left",
            ),
            OptionGroup(
                None,
                [
                    several(
                        "--baselines",
                        metavar="DIR",
                        type=Path,
                        help="keep all that the models of these baselines made (several allowed)",
                    ),
                    flag(
                        "--without-baselines",
                        "delete also what is kept for the project's baselines",
                    ),
                ],
            ),
            DELETE,
            *STORE,
        ],
    ),
    Command(
        "pull",
        "take over what a shared store of objects has more",
        DAMAGED,
        [
            option(
                "url",
                metavar="URL|DIR",
                help="s3://BUCKET/PREFIX, gs://..., or a folder that machines mount",
            ),
            *STORE,
        ],
    ),
)

STORE_COMMAND = Command(
    "store",
    "look at a store of results, make it smaller, fill it from a shared one",
    DAMAGED,
    commands=_STORE_ACTIONS,
)
