"""`cepbench view`: a real server for this machine, and the same pages in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cepbench.report.history.file import append_run, report_digest, run_record
from tests.cli.conftest import Home
from tests.cli.serving import get, served
from tests.report.history.runs import judged, origin
from tests.report.pages import read_page

RUN = origin(1).run

PAGED = origin(4).run

FILES = {"page.css": "p {}", f"images/image-{0:016x}.webp": "picture"}
"""Files beside a page."""


def make_project(root: Path) -> None:
    """A project with two runs; the report of the second is gone."""
    (root / "r.json").write_text("{}")
    (root / "r.html").write_text("<p>page of the report</p>")
    facts = {"report": "../../r.json", "report_bytes": 2, "digest": report_digest(b"{}")}
    add_run(root, 1, **facts)
    add_run(root, 2, report="../../gone.json", report_bytes=5, digest="0")
    add_page(root)


def add_page(root: Path) -> None:
    """A run whose page has its files beside it, in a folder that has other things as well."""
    folder = root / "page"
    (folder / "images").mkdir(parents=True)
    (folder / "index.html").write_text("<p>page of the folder</p>")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "secret.txt").write_text("secret")
    (folder / "page.js").symlink_to(folder / "secret.txt")
    (folder / "images" / f"image-{1:016x}.webp").symlink_to(folder / "secret.txt")
    page = (folder / "index.html").read_bytes()
    facts = {"page_bytes": len(page), "page_digest": report_digest(page)}
    add_run(root, 4, page="../../page/index.html", **facts)


def add_run(root: Path, number: int, **facts: object) -> None:
    """A run more."""
    run, identities = run_record(origin(number, **facts), [judged(0.7)])
    append_run(root / ".cepbench" / "history", run, identities)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that is served."""
    root = tmp_path_factory.mktemp("served")
    make_project(root)
    return root


@pytest.fixture(scope="module")
def port(project: Path) -> Iterator[int]:
    """Port of a server process."""
    with served(project) as port:
        yield port


@pytest.mark.slow
def test_pages_are_served(port: int, project: Path) -> None:
    """The history links to reports that are there; a run that is added shows at the next look."""
    status, page = get(port, "/")
    assert (status, "History of 3 runs" in page) == (200, True)
    assert f"runs/{RUN}.html" in read_page(page).values("href")
    assert get(port, f"/runs/{RUN}.html") == (200, "<p>page of the report</p>")
    assert get(port, f"/runs/{RUN}.json") == (200, "{}")

    assert f"runs/{PAGED}/index.html" in read_page(page).values("href")
    assert get(port, f"/runs/{PAGED}/index.html") == (200, "<p>page of the folder</p>")
    for name, text in FILES.items():
        assert get(port, f"/runs/{PAGED}/{name}") == (200, text)

    add_run(project, 3)
    assert "History of 4 runs" in get(port, "/")[1]
    (project / "page" / "index.html").write_text("<p>page of another one</p>")
    assert get(port, f"/runs/{PAGED}/index.html")[0] == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        f"/runs/{origin(2).run}.html",
        f"/runs/{RUN}.py",
        "/runs/../r.json",
        "/runs/..%2f..%2fr.json",
        "/r.json",
        f"/runs/{PAGED}/secret.txt",
        f"/runs/{PAGED}/page.js",
        f"/runs/{PAGED}/images/image-{1:016x}.webp",
        f"/runs/{PAGED}/images/../secret.txt",
        f"/runs/{PAGED}/images/..%2fsecret.txt",
        f"/runs/{PAGED}/..%2f..%2fr.json",
        f"/runs/{PAGED}/",
        f"/runs/{RUN}/index.html",
    ],
)
def test_nothing_else_is_served(port: int, path: str) -> None:
    """Reports by the ids of their runs, and no file by its path."""
    assert get(port, path)[0] == 404


@pytest.mark.slow
def test_other_names_of_this_machine_are_refused(port: int) -> None:
    """A page elsewhere, whose name resolves to this machine, reads nothing."""
    assert get(port, "/", host="evil.example")[0] == 400


def test_the_site_in_a_folder(home: Home) -> None:
    """The same pages, and the reports that are still there."""
    make_project(home.path)
    ended = home.command("view", "--out=site")
    page = read_page((home.path / "site" / "index.html").read_text())

    assert (ended.code, ended.out) == (0, "written: site/index.html, with 2 reports\n")
    links = {link for link in page.values("href") if not link.startswith("#")}
    assert {(home.path / "site" / link).read_text() for link in links} == {
        "<p>page of the report</p>",
        "<p>page of the folder</p>",
    }
    folder = home.path / "site" / "runs" / PAGED
    copied = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert copied == {"index.html", *FILES}
    assert (folder / "page.css").read_text() == FILES["page.css"]


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["bundle", "site"], 2, "`cepbench view bundle` is now `cepbench view --out`"),
        (["--out=.cepbench"], 1, ".cepbench is not empty: name a new folder"),
        (["--out=suite.toml/site"], 1, "could not be written"),
        (["a", "b"], 2, "unrecognized arguments: b"),
        (["none"], 2, "history 'none/.cepbench/history' cannot be read"),
        (["--port=x"], 2, "--port 'x': a number is expected"),
        (["--port=99999"], 2, "port 99999 of 127.0.0.1 cannot be used"),
    ],
)
def test_refused(home: Home, argv: list[str], code: int, message: str) -> None:
    """One line that says what is wrong."""
    make_project(home.path)
    ended = home.command("view", *argv)
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert message in ended.err
