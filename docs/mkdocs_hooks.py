"""Builds the site from the repository's own tree, so that one set of relative links serves both.

MkDocs reads one folder of pages. Here pages also lie at the root, in `reference/` and in
`benchmarks/results/`: each gets the address that it has in the repository, and every file that a
page links to comes along. The first use of each word of the glossary on a page leads there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]

PAGES = ("*.md", "docs/*.md", "benchmarks/results/*.md", "reference/*.md")

GLOSSARY = "docs/reference.md"

_LINK = re.compile(r"\]\(([^)#\s]+)")

_CELL_CODE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")

_WORDS = re.compile(r"## Words\n.*?\n## ", re.DOTALL)

_NOT_PROSE = re.compile(
    r"(^```.*?^```|^    .*?$|^#.*?$|^\|.*?$|<[^>]*>|`[^`]*`|!?\[[^\]]*\]\([^)]*\))",
    re.DOTALL | re.MULTILINE,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages, the files that they link to, and what the theme brings along."""
    from mkdocs.structure.files import Files

    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    linked = {target for page in pages for target in _linked_files(page)}
    linked |= {ROOT / str(sheet) for sheet in config.extra_css}
    theme = [file for file in files if file.abs_src_path is None or _is_outside(file)]
    return Files([*theme, *(_file(path, config) for path in dict.fromkeys([*pages, *linked]))])


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """A page that people read, with links into the glossary.

    In a code span of a table GitHub wants a bar escaped, and Markdown's extension shows the escape.
    """
    bars = _CELL_CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)
    return with_links_to_words(bars, page.file.src_uri)


def with_links_to_words(markdown: str, page: str) -> str:
    """A page of `docs` or the front page, whose first use of each word is a link with its meaning.

    page: its path from the root. Code, headings, tables and links stay as they are.
    """
    if page == GLOSSARY or not re.fullmatch(r"README\.md|docs/[^/]+\.md", page):
        return markdown
    listed = _WORDS.search((ROOT / GLOSSARY).read_text(encoding="utf-8"))
    assert listed is not None
    meanings = dict(re.findall(r"^\| ([a-z ]+) \| (.+) \|$", listed[0], re.MULTILINE)[1:])
    address = f"{'docs/' if page == 'README.md' else ''}reference.md#words"
    words = re.compile(rf"\b({'|'.join(sorted(meanings, key=len, reverse=True))})s?\b")
    left = set(meanings)

    def linked(match: re.Match[str]) -> str:
        if match[1] not in left:
            return match[0]
        left.remove(match[1])
        return f'[{match[0]}]({address} "{meanings[match[1]]}")'

    parts = _NOT_PROSE.split(markdown)
    return "".join(part if odd % 2 else words.sub(linked, part) for odd, part in enumerate(parts))


def _linked_files(page: Path) -> set[Path]:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    targets = {(page.parent / link).resolve() for link in links if "://" not in link}
    return {target for target in targets if target.is_file() and target.suffix != ".md"}


def _is_outside(file: File) -> bool:
    return not Path(str(file.abs_src_path)).is_relative_to(ROOT)


def _file(path: Path, config: MkDocsConfig) -> File:
    from mkdocs.structure.files import File

    where = path.relative_to(ROOT).as_posix()
    return File.generated(config, where, abs_src_path=str(path))
