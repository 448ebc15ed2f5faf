"""Which worker judges what: cases that need the same chains stay together."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise

import pytest

from pytest_cepbench.plugin.workers.scheduler import (
    CATEGORY,
    POOLED,
    WHOLE,
    CaseHint,
    grouped,
    guess_hint,
    unit_of,
)
from tests.plugin.project import SHAPES, Project

TWO_METRICS = SHAPES.replace("[metrics.gc]", "[metrics.gc]\n[metrics.s]")

SLOW = """\
import time
from PIL import Image
from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image

class Slow:
    fingerprint, seeded = "slow/1", False

    def describe(self, images, prompt, seeds):
        time.sleep(0.004 * len(images))
        return [caption(parse_image(ImageArtifact.from_pil(image))) for image in images]
"""

STOPPING = """\
import time, pytest

@pytest.fixture(autouse=True)
def ending(request):
    if "color" in request.node.name:
        pytest.skip("nothing to do")
    time.sleep(1.5)
    pytest.fail("too late")
"""

_DONE = re.compile(r"^\[(gw\d)\].*/(test_\w+)\.py::")

_LINE = re.compile(r"\[(gw\d)\].*test_drift\[(.+)-(?:gc|s|failures)\]")


def _workers(result: pytest.RunResult) -> dict[str, set[str]]:
    """The workers that judged cases of each category, from pytest's verbose lines."""
    seen: dict[str, set[str]] = defaultdict(set)
    for line in result.outlines:
        match = _LINE.search(line)
        if match:
            seen[match[2]].add(match[1])
    return seen


@pytest.mark.slow
def test_the_metrics_of_a_category_are_judged_by_one_worker(project: Project) -> None:
    """No category is split over workers, and both judge some; also where no model is named."""
    project.suite(TWO_METRICS)

    result = project.run("-n", "2", "-v")

    workers = _workers(result)
    assert len(workers) == 9
    assert all(len(names) == 1 for names in workers.values())
    assert set().union(*workers.values()) == {"gw0", "gw1"}


@pytest.mark.slow
def test_what_is_averaged_comes_after_what_it_is_averaged_over(project: Project) -> None:
    """The whole suite is dealt last, when most of its chains are in the store."""
    project.suite(TWO_METRICS)

    result = project.run("-n", "2", "-v", "--model=shapes:?miss=0.2")

    order = [match[2] for line in result.outlines if (match := _LINE.search(line))]
    assert order.index("overall") >= len(order) - 9


@pytest.mark.slow
def test_a_worker_stays_with_the_models_that_it_has(project: Project) -> None:
    """Two suites with other models: no worker goes back and forth; plain tests come at the end."""
    project.suite(TWO_METRICS, "one")
    other = TWO_METRICS.replace('"toy"', '"other"')
    project.suite(other.replace('describer = "shapes:', 'describer = "shapes:?miss=0.1'), "two")
    project.write("one/test_plain.py", "def test_one(): pass\n\ndef test_two(): pass\n")

    result = project.run("-n", "2", "-v")

    result.assert_outcomes(passed=2, failed=38)
    done = [match for line in result.outlines if (match := _DONE.search(line))]
    assert len(done) == 40
    for worker in ("gw0", "gw1"):
        modules = [match[2] for match in done if match[1] == worker]
        changes = [pair for pair in pairwise(modules) if pair[0] != pair[1]]
        assert len(changes) <= 2, modules
        assert "test_plain" not in [before for before, _ in changes], modules


@pytest.mark.slow
def test_a_worker_without_tests_helps(project: Project) -> None:
    """One case on two workers: its chains are shared, nothing is computed twice, all is counted."""
    project.write("slow.py", SLOW)
    text = SHAPES.replace("samples_per_category = 2", "samples_per_category = 16")
    project.suite(text.replace("iterations = 2", "iterations = 1"))
    args = ("-k", "overall-gc", "--model=python:slow:Slow")
    project.run("-p", "no:xdist", "--cep-store=alone", *args)
    alone = project.report()["effort"]

    result = project.run("-n", "2", *args)

    (case,) = project.report()["cases"]
    effort = project.report()["effort"]
    assert effort["inputs"] == alone["inputs"]
    assert 0 < case["effort"]["inputs"] < effort["inputs"]
    assert effort["roles"] == {"describer": 2, "generator": 2, "encoder": 2}
    result.stdout.fnmatch_lines(["* model loads (*) by 2 workers, *"])


@pytest.mark.slow
def test_helpers_hear_of_the_end(accepted: Project) -> None:
    """With `-x` the first failure ends what is done for others, in the middle of a model call."""
    accepted.write("slow.py", SLOW.replace("0.004 * len(images)", "60"))
    accepted.write("conftest.py", STOPPING)
    args = ("-k", "color-gc or count-gc", "--model=python:slow:Slow")

    result = accepted.run("-n", "2", "-x", *args)

    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert result.duration < 30
    assert "INTERNALERROR" not in result.stdout.str()
    assert not (accepted.path / ".cepbench" / "runs").exists()


@pytest.mark.slow
def test_a_users_own_choice_of_distribution_stands(project: Project) -> None:
    """`--dist loadfile` is left to xdist: one file, one worker."""
    project.suite(TWO_METRICS)

    result = project.run("-n", "2", "-v", "--dist", "loadfile", "--model=shapes:?miss=0.2")

    assert len(set().union(*_workers(result).values())) == 1


MAPPINGS = SHAPES.replace("[chain]", '[chain]\nstart = "both"').replace(
    "[metrics.gc]", '[metrics.gc]\nstart = "image"\n[metrics.mcd]\n[metrics.mcd-2]\nkind = "mcd"'
)


@pytest.mark.slow
def test_mappings_are_judged_by_the_worker_that_judges_the_whole(project: Project) -> None:
    """They read the same chains of all samples: two workers would grow all of them twice."""
    project.suite(MAPPINGS)

    result = project.run("-n", "2", "-v", "--model=shapes:?miss=0.2")

    lines = [line for line in result.outlines if "test_drift[" in line]
    shared = [
        line[1:4]
        for line in lines
        if line.startswith("[gw") and ("-to-" in line or "overall" in line)
    ]
    assert len(shared) == 2 * (4 + 1) + 2
    assert len(set(shared)) == 1
    others = {line[1:4] for line in lines if line.startswith("[gw") and "[c" in line}
    assert others | set(shared) == {"gw0", "gw1"}


@pytest.mark.parametrize(
    ("case", "scope"),
    [
        ("test_x.py::test_drift[color-gc]", "test_x.py::test_drift[color"),
        ("test_x.py::test_drift[a-b-gc]", "test_x.py::test_drift[a-b"),
        ("test_x.py::test_drift[a[b]::c-gc]", "test_x.py::test_drift[a[b]::c"),
        ("test_x.py::test_drift[overall-mcd-clip]", "test_x.py::test_drift[overall"),
        ("test_x.py::test_drift[text-to-image-mcd-clip]", "test_x.py::test_drift[overall"),
        ("test_x.py::test_drift[image-to-image-sdr]", "test_x.py::test_drift[overall"),
        (
            "a[1]/test_x.py::TestX::test_drift[overall-gc]",
            "a[1]/test_x.py::TestX::test_drift[overall",
        ),
        ("test_x.py::test_other[data-absent]", "test_x.py::test_other[data"),
        ("a-b[c]/test_x.py::test_plain", "a-b[c]/test_x.py::test_plain"),
        ("test_x.py::test_plain[one]", "test_x.py::test_plain[one]"),
    ],
)
def test_what_belongs_together(case: str, scope: str) -> None:
    """Metrics of a category by its name; the whole and the mappings; other tests alone."""
    assert unit_of(case) == scope


def test_long_work_is_dealt_first() -> None:
    """Of a suite: categories by cost, what is made of them, then the verdict; plain tests apart."""
    hints = [
        CaseHint("whole", "a", ("describer x",), WHOLE, 90),
        CaseHint("short", "a", ("describer x",), CATEGORY, 10),
        CaseHint("long", "a", ("describer x",), CATEGORY, 30),
        guess_hint("test_plain.py::test_one"),
        CaseHint("verdict", "a", ("describer x",), POOLED),
        CaseHint("long", "a", ("describer x",), CATEGORY, 20),
    ]
    suite, plain = grouped(hints)
    assert list(suite.units) == [(30, [2, 5]), (10, [1]), (90, [0]), (0, [4])]
    assert (set(suite.models), suite.left) == ({"describer x"}, 130)
    assert (list(plain.units), plain.models) == ([(0, [3])], frozenset())


def test_without_word_from_workers_names_tell() -> None:
    """Ids of the whole, of mappings and of a suite's verdict are known; all else is a category."""
    turns = {name: guess_hint(f"test_x.py::test_drift[{name}]").turn for name in (
        "color-gc", "overall-gc", "text-to-image-mcd", "suite-verdict",
    )}  # fmt: skip
    assert list(turns.values()) == [CATEGORY, WHOLE, WHOLE, POOLED]
