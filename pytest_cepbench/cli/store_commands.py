"""The commands on stores, with their options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import Command, Option, OptionGroup, flag, option, several
from pytest_cepbench.cli.shared_options import DAMAGED, DELETE, STORE


def _needed(about: str) -> Option:
    return several(
        "--baselines",
        metavar="DIR",
        type=Path,
        help=f"{about} of these baselines made (several allowed)",
    )


_EXPORTED = OptionGroup(
    None,
    [
        _needed("only what the models"),
        option(
            "--used-within",
            metavar="7d",
            help="only what runs used in the last so many days (d) or weeks (w)",
        ),
    ],
)

_URL = option(
    "url", metavar="URL|DIR", help="s3://BUCKET/PREFIX, gs://..., or a folder that machines mount"
)

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
                    _needed("keep all that the models"),
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
        "export",
        "write a frozen copy, a folder or one .tar, for others to read",
        DAMAGED,
        [
            option(
                "target",
                metavar="TARGET",
                type=Path,
                help="folder to make, or archive where it ends in .tar",
            ),
            flag("--force", "replace an earlier copy that is at TARGET"),
            _EXPORTED,
            *STORE,
        ],
    ),
    Command(
        "import",
        "take over what is sound of another store or an archive",
        DAMAGED,
        [
            option(
                "source", metavar="SOURCE", type=Path, help="folder of a store, or archive of one"
            ),
            *STORE,
        ],
    ),
    Command("push", "upload what a shared store of objects lacks", DAMAGED, [_URL, *STORE]),
    Command("pull", "take over what a shared store of objects has more", DAMAGED, [_URL, *STORE]),
)

STORE_COMMAND = Command(
    "store",
    "look at a store of results, make it smaller, copy it",
    DAMAGED,
    commands=_STORE_ACTIONS,
)
