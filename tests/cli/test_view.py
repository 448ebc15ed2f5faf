"""`cepbench view`: a real server for this machine, the same pages in a folder, runs that go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from pytest_cepbench.report.history.file import append_run, report_digest, run_record
from pytest_cepbench.report.history.running import ListedRun, RunState, list_running
from tests.cli.conftest import Home
from tests.plugin.scored_project import ScoredProject, scored_suite
from tests.plugin.terminal import wait_for
from tests.report.browser import chromium, dumped
from tests.report.history.runs import judged, origin
from tests.report.pages import read_page


@contextmanager
def served(project: Path) -> Iterator[int]:
    """The port of a server of a project, which an interrupt ends with exit code 0."""
    command = [sys.executable, "-m", "pytest_cepbench.cli", "view", str(project), "--port=0"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert match is not None, line
        try:
            yield int(match[1])
        except BaseException:
            server.kill()
            raise
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """Status and body of a request. host: that the browser believes to talk to."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


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


ROOT = Path(__file__).parents[2]

PATIENCE = 300.0
"""Seconds for a run to start or to end, on a machine that does much else."""

SLOW = """\
import time
from pathlib import Path

import scored


class Describer(scored.Describer):
    def describe(self, images, prompt, seeds):
        late = scored._read(images[0])[0] >= 1000
        until = time.monotonic() + (600 if late else 0)
        while time.monotonic() < until and not Path("go-on").exists():
            time.sleep(0.05)
        return super().describe(images, prompt, seeds)
"""
"""Describes the samples of the first category, and the others when it is told to."""

SUITE = scored_suite(
    n=16, categories=("a", "b"), rest='[metrics.gc]\n[gate]\ngate = "threshold"\n'
).replace("scored:Describer", "slow:Describer")


@pytest.fixture
def scored(tmp_path: Path) -> ScoredProject:
    """A project without baselines, whose cases fail, and whose second case waits."""
    scored = ScoredProject.make(tmp_path / "project", SUITE)
    (scored.path / "slow.py").write_text(SLOW)
    return scored


@contextmanager
def going_on(scored: ScoredProject, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run of pytest in a process of its own, which is killed at the end if it is still there."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH", "PYTEST"))}
    modes = () if "-n" in args else ("-p", "no:xdist")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *modes, *args]
    with subprocess.Popen(
        command,
        cwd=scored.path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def listed(scored: ScoredProject) -> list[ListedRun]:
    """The runs of the project that have not ended."""
    return list_running(scored.path / ".cepbench" / "history")


def has_judged(scored: ScoredProject, count: int = 1) -> Callable[[], bool]:
    """Whether a run has judged so many cases."""
    return lambda: any(entry.run.judged == count for entry in listed(scored))


@pytest.mark.slow
def test_a_run_is_shown_until_its_report_is(scored: ScoredProject) -> None:
    """What is judged, what fails and how far it is; then the report, under the same address."""
    with going_on(scored, "--cep-report=r.json", "-n", "2") as run:
        wait_for(has_judged(scored), PATIENCE)
        wait_for(lambda: any("b GC" in work.case for work in listed(scored)[0].run.work), 20)
        (entry,) = listed(scored)
        address = f"/runs/{entry.run.run}.html"
        with served(scored.path) as port:
            page, own = get(port, "/")[1], get(port, address)[1]
            assert entry.state == RunState.RUNNING
            for text in (page, own):
                assert "No verdict yet: 1 of 3 cases judged; 1 no-baseline." in text
                assert "scored/a/gc" in text
                assert re.search(r"scored b GC@1</b> \d+ of 16 samples", text)
                assert "passed" not in text.partition("<body>")[2]
            assert f'href="{address[1:]}"' in page
            assert get(port, f"/running/{entry.run.run}")[0] == 200

            (scored.path / "go-on").touch()
            assert run.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED
            assert listed(scored) == []
            assert not (scored.path / ".cepbench" / "history" / "running").exists()
            assert get(port, f"/running/{entry.run.run}")[0] == 404
            assert get(port, address) == (200, (scored.path / "r.html").read_text())
            assert "History of 1 run" in get(port, "/")[1]


@pytest.mark.slow
def test_a_browser_follows_by_itself(scored: ScoredProject) -> None:
    """The script of the page loads the report when there is one. The browser's time runs fast."""
    browser = chromium()
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=36000000")
    with going_on(scored) as run:
        wait_for(has_judged(scored), PATIENCE)
        (entry,) = listed(scored)
        with served(scored.path) as port:
            address = f"http://127.0.0.1:{port}/runs/{entry.run.run}.html"
            (scored.path / "go-on").touch()
            seen = dumped([browser, *flags, "--dump-dom", address])
        run.wait(PATIENCE)
    assert '<h1 class="banner' in seen
    assert "No verdict yet" not in seen


@pytest.mark.slow
def test_a_killed_run_has_no_verdict(scored: ScoredProject) -> None:
    """At once it is one that ended, beside another that goes on, and it stays one."""
    with going_on(scored) as killed, going_on(scored) as other:
        wait_for(lambda: len(listed(scored)) == 2, PATIENCE)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(30)
        states = {entry.run.process: entry.state for entry in listed(scored)}
        assert states == {killed.pid: RunState.ENDED, other.pid: RunState.RUNNING}
        with served(scored.path) as port:
            page = get(port, "/")[1]
        assert page.count("ended without a verdict") == 1
        assert "passed" not in page.partition("<body>")[2]

        (scored.path / "go-on").touch()
        assert other.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED
        (entry,) = listed(scored)
        assert (entry.run.process, entry.state) == (killed.pid, RunState.ENDED)


@pytest.mark.slow
def test_a_run_that_is_not_to_be_recorded_leaves_nothing(scored: ScoredProject) -> None:
    """Nor does one whose history cannot be written, which ends as it would have."""
    history = scored.path / ".cepbench" / "history"
    history.parent.mkdir()
    history.touch()
    with going_on(scored, "--cep-history=off") as off, going_on(scored) as unwritten:
        time.sleep(3)
        (scored.path / "go-on").touch()
        assert off.wait(PATIENCE) == unwritten.wait(PATIENCE) == pytest.ExitCode.TESTS_FAILED
    assert history.read_bytes() == b""
