"""The commands of `cepbench dataset`, with their options. Standard library only."""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.cli.arguments import Command, flag, option
from pytest_cepbench.cli.shared_options import DEFAULT, PAGES, STORE, UNMEASURED, UNWRITTEN

_FOLDER = option("folder", metavar="FOLDER", type=Path, help="of dataset patterns or dataset arena")

_CHECKING = [
    option(
        "--annotators",
        metavar="NAME,...|N",
        help="who checks labels, or how many people; not needed where the study is there already",
    ),
    option("--overlap", metavar="N", help="people who see each item; default: all of them"),
]

_PATTERNS = [
    option("images", metavar="IMAGES", type=Path, help="folder of images, also below it"),
    option("--out", metavar="FOLDER", type=Path, required=True, help="folder of the data set"),
    option("--describer", metavar="SPEC", required=True, help="the model that names patterns"),
    option("--writer", metavar="SPEC", help="the model that summarizes names; not with a file"),
    option("--encoder", metavar="SPEC", help="reports near duplicates, which are kept"),
    option(
        "--patterns",
        metavar="N|FILE",
        default="13",
        help=f"how many patterns a summary has at most, or a file of patterns; {DEFAULT}",
    ),
    option(
        "--per-pattern",
        metavar="N",
        default="100",
        help=f"images of each pattern that are wanted; {DEFAULT}",
    ),
    option(
        "--sampling",
        choices=("quota", "bernoulli"),
        default="quota",
        help="so many of each pattern, or each image of a pattern of M with the probability N / M, "
        f"as the paper drew; {DEFAULT}",
    ),
    option("--seed", metavar="N", default="0", help=f"of draws and of models; {DEFAULT}"),
    option(
        "--prompts",
        choices=("neutral", "paper"),
        default="neutral",
        help=f"the questions, plain or built as MMGenBench's; {DEFAULT}",
    ),
    option(
        "--examples",
        choices=("none", "paper"),
        default="none",
        help=f"whether the first question names the paper's patterns, which primes; {DEFAULT}",
    ),
    option(
        "--until",
        choices=("extract", "count", "summary", "annotate", "sample", "verify"),
        help="the last stage; verify writes the study of people too; default: sample",
    ),
    *_CHECKING,
    *STORE,
]

_FREEZE = [
    option(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="of dataset patterns or dataset arena, or a frozen set that was passed on without its "
        "images",
    ),
    option("--name", metavar="NAME", help="of the data set; default: that of the folder"),
    option("--to", metavar="DIR", type=Path, help="folder to write; default: FOLDER/frozen"),
    flag("--copy", "copy the images into the table; without it paths and digests are written"),
    flag("--unverified", "take the model's labels where nobody looked at an image"),
    option("--images", metavar="DIR", type=Path, help="where the images lie, if they have moved"),
]

_VERIFY = [
    _FOLDER,
    *_CHECKING,
    option("--seed", metavar="N", help="of the order of items; default: 0"),
    option("--images", metavar="DIR", type=Path, help="where the images lie, if they have moved"),
]

_PAIRS = [
    option("--out", metavar="FOLDER", type=Path, required=True, help="folder of the data set"),
    option("--docci", metavar="DIR", type=Path, required=True, help="local copy of DOCCI"),
    option("--nocaps", metavar="DIR", type=Path, required=True, help="local copy of NoCaps"),
    option(
        "--ids",
        metavar="FILE",
        type=Path,
        help="list of ids (source, image_id), such as the paper's; default: they are chosen",
    ),
    option(
        "--per-source",
        metavar="N",
        default="200",
        help=f"pairs that are chosen of each source; {DEFAULT}",
    ),
    option("--seed", metavar="N", default="0", help=f"of the choice; {DEFAULT}"),
    flag("--copy", "copy the images, in the layout of SDP's code"),
]

_ARENA = [
    option("templates", metavar="TEMPLATES.toml", type=Path, help="tasks and what fills them"),
    option("--out", metavar="FOLDER", type=Path, required=True, help="folder of the data set"),
]

_ACTIONS = (
    Command(
        "patterns",
        "find the patterns of your images, label them by a model, and choose images of each",
        UNMEASURED,
        _PATTERNS,
    ),
    Command(
        "verify",
        "let people check labels, or approve gold answers, on pages of this machine",
        UNWRITTEN,
        [*_VERIFY, PAGES],
    ),
    Command(
        "freeze",
        "settle the labels by vote, and write the set with its card in the layout that suites load",
        UNWRITTEN,
        _FREEZE,
    ),
    Command(
        "pairs",
        "join images and captions of DOCCI and NoCaps into pairs for SDP",
        UNWRITTEN,
        _PAIRS,
    ),
    Command(
        "arena",
        "make questions of task templates, whose gold answers people approve",
        UNWRITTEN,
        _ARENA,
    ),
)

DATASET = Command(
    "dataset",
    "make a data set of your own images or questions: labelled by models, checked by people",
    None,
    commands=_ACTIONS,
)
