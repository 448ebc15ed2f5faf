"""Builds the site from the repository's own tree, so that one set of relative links serves both.

MkDocs reads one folder of pages. Here pages also lie at the root, in `reference/` and in
`benchmarks/results/`: each gets the address that it has in the repository, and every file that a
page links to comes along.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[1]

PAGES = ("*.md", "docs/*.md", "benchmarks/results/*.md", "reference/*.md")

_LINK = re.compile(r"\]\(([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages, the files that they link to, and what the theme brings along."""
    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    linked = {target for page in pages for target in _linked_files(page)}
    theme = [file for file in files if file.abs_src_path is None or _is_outside(file)]
    return Files([*theme, *(_file(path, config) for path in dict.fromkeys([*pages, *linked]))])


def _linked_files(page: Path) -> set[Path]:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    targets = {(page.parent / link).resolve() for link in links if "://" not in link}
    return {target for target in targets if target.is_file() and target.suffix != ".md"}


def _is_outside(file: File) -> bool:
    return not Path(str(file.abs_src_path)).is_relative_to(ROOT)


def _file(path: Path, config: MkDocsConfig) -> File:
    where = path.relative_to(ROOT).as_posix()
    return File.generated(config, where, abs_src_path=str(path))
