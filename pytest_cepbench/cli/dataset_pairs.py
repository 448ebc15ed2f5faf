"""`cepbench dataset pairs`: images with captions for SDP, from local copies of its two sources."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from pytest_cepbench.cli.dataset_freeze import check_name
from pytest_cepbench.cli.output import MISTAKE, NOT_DONE, Section, complain, show
from pytest_cepbench.cli.session import read_count, read_seed
from pytest_cepbench.construction.caption_pairs import (
    CaptionPairs,
    join_pairs,
    write_pairs,
)
from pytest_cepbench.errors import CepError, SpecError, WriteError


def run(arguments: Namespace) -> int:
    """Join and write; exit codes as in `main`."""
    out: Path = arguments.out
    try:
        name = out.resolve().name
        check_name(name, f"--out {str(out)!r}, whose last part names the set")
        per_source = read_count("--per-source", arguments.per_source) or 1
        seed = read_seed(arguments.seed)
        if out.exists() and not out.is_dir():
            raise SpecError(f"--out {str(out)!r} is a file: a folder is expected")
        pairs = join_pairs(arguments.docci, arguments.nocaps, arguments.ids, per_source, seed)
        written = write_pairs(pairs, out, name, copy=arguments.copy)
    except WriteError as error:
        return complain(str(error), NOT_DONE)
    except CepError as error:
        return complain(str(error), MISTAKE)
    show([_page(pairs, name)], *(f"written: {path}" for path in written))
    return 0


def _page(pairs: CaptionPairs, name: str) -> Section:
    lines = [
        f"{source}: {len(pairs.dataset.in_category(source))}" for source in pairs.dataset.categories
    ]
    if pairs.same:
        lines.append(f"images with the pixels of another pair's: {len(pairs.same)}, all kept")
    return Section(f"{name}: {len(pairs.records)} pairs", tuple(lines))
