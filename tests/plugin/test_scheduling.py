"""Which worker judges what: cases that need the same chains stay together."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.plugin.project import SHAPES, Project

TWO_METRICS = SHAPES.replace("[metrics.gc]", "[metrics.gc]\n[metrics.s]")

_LINE = re.compile(r"\[(gw\d)\].*test_drift\[(.+)-(?:gc|s|failures)\]")


def _workers(result: pytest.RunResult) -> dict[str, set[str]]:
    """The workers that judged cases of each category, from pytest's verbose lines."""
    seen: dict[str, set[str]] = defaultdict(set)
    for line in result.outlines:
        found = _LINE.search(line)
        if found:
            seen[found[2]].add(found[1])
    return seen


def test_the_metrics_of_a_category_are_judged_by_one_worker(project: Project) -> None:
    """With a model named, no category is split over workers, and both workers judge some."""
    project.suite(TWO_METRICS)

    result = project.run("-n", "2", "-v", "--model=shapes:?miss=0.2")

    workers = _workers(result)
    assert len(workers) == 9
    assert all(len(names) == 1 for names in workers.values())
    assert set().union(*workers.values()) == {"gw0", "gw1"}


def test_what_is_averaged_comes_after_what_it_is_averaged_over(project: Project) -> None:
    """The whole suite is dealt last, when most of its chains are in the store."""
    project.suite(TWO_METRICS)

    result = project.run("-n", "2", "-v", "--model=shapes:?miss=0.2")

    order = [found[2] for line in result.outlines if (found := _LINE.search(line))]
    assert order.index("overall") >= len(order) - 9


def test_a_users_own_choice_of_distribution_stands(project: Project) -> None:
    """`--dist loadfile` is left to xdist: one file, one worker."""
    project.suite(TWO_METRICS)

    result = project.run("-n", "2", "-v", "--dist", "loadfile", "--model=shapes:?miss=0.2")

    assert len(set().union(*_workers(result).values())) == 1


MAPPINGS = SHAPES.replace("[chain]", '[chain]\nstart = "both"').replace(
    "[metrics.gc]", '[metrics.gc]\nstart = "image"\n[metrics.mcd]\n[metrics.mcd-2]\nkind = "mcd"'
)


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
    from pytest_cepbench.plugin.scheduling import CategoryScheduling

    scheduling = CategoryScheduling.__new__(CategoryScheduling)  # its set-up asks a running xdist
    assert scheduling._split_scope(case) == scope
