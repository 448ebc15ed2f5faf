"""Models behind a server, with a key kept hidden, and behind one that the run starts."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html import unescape
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.datasets.shapes import Degradation
from pytest_cepbench.models.rule_based.scene_models import (
    DescriberKnobs,
    ShapesDescriber,
    ShapesGenerator,
)
from tests.models.api.fake_server import (
    Answer,
    Seen,
    chat_answer,
    drawn,
    fault,
    serving,
)
from tests.models.serving.stand_ins import StandIn, is_alive, make_stand_in
from tests.plugin.project import SHAPES, Project, contents, wait_until

# The client imports its transport late, and tells errors by their classes: after a run in this
# process, which forgets what it imported, they would be of classes that the client does not know.
pytest.importorskip("httpx2").AsyncClient()

KEY = "0123456789/abcdef"

ECHOES = (KEY, quote(KEY, safe=""))
"""How a server repeats the key."""

SERVED = "describer openai:eye: the server answered as 'tiny-2026', and 'eye' was asked for"


def play(seen: Seen) -> Answer:
    """The world's own models, as a provider serves them."""
    if seen.path.endswith("/images/generations"):
        (pixels,) = ShapesGenerator(Degradation()).generate(
            [seen.body["prompt"]], [seen.body["seed"]]
        )
        return drawn(Image.fromarray(np.asarray(pixels)))
    return chat_answer(ShapesDescriber(DescriberKnobs()).describe(seen.images, seen.text, [0])[0])


def _said_everywhere(project: Project, terminal: str) -> list[int]:
    """Per report, how often it names the other model: terminal, JSON, HTML, Markdown, JUnit."""
    report = project.path / ".cepbench" / "report"
    texts = [
        terminal,
        report.with_suffix(".json").read_text(),
        unescape(report.with_suffix(".html").read_text()),
        unescape(report.with_suffix(".md").read_text()).replace("\\", ""),
        (project.path / "junit.xml").read_text(),
    ]
    return [text.count(SERVED) for text in texts]


@pytest.mark.slow
def test_a_server_that_names_another_model_is_told_of_in_every_report(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first run on, with both names; and as long as its answers come out of the store. The
    key, which it repeats, is in no output and no file.
    """
    project.suite(SHAPES)
    loud = ("--junitxml=junit.xml", "--showlocals", "-rA", "-vv", "-o", "log_level=DEBUG")
    with serving() as server:
        model = f"--model={server.spec(model='eye')}"
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        server.answer = lambda _: fault(500, " ".join(ECHOES))
        failed = project.run("-n", "2", model, "--snapshot-update", *loud)
        assert failed.ret == pytest.ExitCode.TESTS_FAILED
        server.answer = play
        first = project.run("-n", "2", model, "--snapshot-update", *loud)
        assert first.ret == pytest.ExitCode.OK
        assert all(_said_everywhere(project, first.stdout.str()))
    said = [part.str() for run in (failed, first) for part in (run.stdout, run.stderr)]
    assert "500: [key] [key]" in said[0]
    written = [*said, *(data.decode("latin-1") for data in contents(project.path).values())]
    assert not [echo for echo in ECHOES for text in written if echo in text]

    stored = project.run_here(model, "--junitxml=junit.xml")  # and there is no server any more
    assert stored.ret == pytest.ExitCode.OK
    assert project.effort() == (0, 0)
    assert all(_said_everywhere(project, stored.stdout.str()))
    cases = project.report()["cases"]
    assert all(any(SERVED in warning for warning in case["warnings"]) for case in cases)


def _tell_color(seen: Seen) -> str:
    """The answer of `user_models.Describer`."""
    mean = np.asarray(seen.images[0]).reshape(-1, 3).mean(axis=0).round().astype(int)
    return " ".join(map(str, mean.tolist()))


def test_answers_that_a_server_did_not_end(project: Project) -> None:
    """Half ones are an error and not stored, also one among whole ones; the next run asks a healthy
    server for that one alone.

    Cut ones are counted in terminal, JSON and HTML, and in later runs, out of the store.
    """
    project.photos({f"{i}.png": (40 * i, 10, 90) for i in range(4)})
    with serving() as server:

        def ending_one(how: str) -> Callable[[Seen], Answer]:
            def answer(seen: Seen) -> Answer:
                text = _tell_color(seen)
                return chat_answer(text, ended=how if text.startswith("0 ") else "stop")

            return answer

        server.answer = ending_one("error")
        model = f"--model={server.spec('retries=1')}"
        broken = project.run_here(model, "--snapshot-update")
        assert broken.ret == pytest.ExitCode.TESTS_FAILED
        assert set(project.verdicts().values()) == {"error"}
        broken.stdout.fnmatch_lines(["*1 of 4 chains have no answer of the describer*error*"])
        assert not project.baselines.exists()

        asked = len(server.seen)
        server.answer = ending_one("length")
        first = project.run_here(model, "--snapshot-update")
        assert project.report()["cases"][0]["value"] == pytest.approx(1.0, abs=1e-4)
        # Its description, and one for each further iteration of all chains.
        assert len(server.seen) - asked == 1
    second = project.run_here(model)

    assert project.effort() == (0, 0)
    told = "1 of 4 descriptions were cut at the limit of their length"
    for result in (first, second):
        assert result.ret == pytest.ExitCode.OK
        assert told in result.stdout.str()
    for case in project.report()["cases"]:
        assert [warning for warning in case["warnings"] if warning.startswith(told)]
    assert told in (project.path / ".cepbench" / "report.html").read_text()


# -- a server for the run: once for all processes, never when it is warm ---------------------------


COLORS = {f"{name}/{n}.png": (40 * n, 90, 10 * len(name)) for name in "ab" for n in range(4)}


@pytest.fixture
def engine(project: Project) -> StandIn:
    """The checkpoint under test, and the interpreter whose vLLM serves it; beside it photos."""
    project.photos(COLORS)
    return make_stand_in(project.path / "served")


@pytest.mark.slow
def test_workers_share_one_server_and_a_warm_run_starts_none(
    project: Project, engine: StandIn
) -> None:
    """Whichever needs it first starts it; it outlives that worker's work, and ends with the run.

    The header names it, and results are reused.
    """
    engine.behave(slow=0.5)
    first = project.run("-n", "2", f"--describer={engine.spec()}", "--snapshot-update")

    assert first.ret == pytest.ExitCode.OK
    first.stdout.fnmatch_lines(["*LlavaForConditionalGeneration on vLLM*"])
    assert len(engine.starts) == 1
    assert not is_alive(engine.starts[0]["pid"])
    workers = {case["effort"]["worker"] for case in project.report()["cases"]}
    assert workers == {"gw0", "gw1"}
    (log,) = (project.path / ".cepbench" / "servers").iterdir()
    assert "serving" in log.read_text()
    assert not (project.path / ".cepbench" / "runs").exists()

    again = project.run("-p", "no:xdist", f"--describer={engine.spec()}")
    assert again.ret == pytest.ExitCode.OK
    assert project.effort() == (0, 0)
    assert len(engine.starts) == 1


@pytest.mark.slow
def test_a_killed_run_leaves_no_server(project: Project, engine: StandIn) -> None:
    """SIGKILL of pytest in the middle of its work, and a server that does not heed SIGTERM."""
    engine.behave(seconds=0.2, child=True, deaf=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        f"--describer={engine.spec('concurrency=1')}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=project.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        wait_until(lambda: bool(engine.starts) or run.poll() is not None)
        assert run.poll() is None
        time.sleep(0.3)
        run.send_signal(signal.SIGKILL)
    engine.wait_for_end()
