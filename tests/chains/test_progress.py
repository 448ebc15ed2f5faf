"""Progress of a case: what is done, how fast of late, and how long the rest takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_cepbench.chains import steps as module
from pytest_cepbench.chains.steps import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that passes, in seconds."""
    now = [50.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_case_begins_anew(clock: list[float]) -> None:
    """Nothing of the case before is left but its name, until that ends."""
    progress = Progress()
    progress.begin("first", 4, 10)
    progress.step, progress.waiting, progress.samples = "generation 1", True, 2
    clock[0] += 1
    progress.add(10)
    progress.begin("second", 2, 6)

    assert (progress.case, progress.of_samples, progress.of_steps) == ("second", 2, 6)
    assert (progress.samples, progress.steps, progress.step) == (0, 0, "")
    assert not progress.waiting
    assert progress.rate is None
    progress.end()
    assert progress.case == ""


def test_the_rate_is_that_of_the_case(clock: list[float]) -> None:
    """From its begin on; the rest at that rate is what is left."""
    progress = Progress()
    unknown = [progress.rate, progress.left]
    progress.begin("case", 1, 20)
    progress.add(0)  # no time has passed, nothing is done
    assert [*unknown, progress.rate] == [None] * 3
    clock[0] += 4
    progress.add(8)

    assert (progress.rate, progress.left) == (2.0, 6.0)
    progress.add(22)
    assert progress.left == 0.0


def test_the_rate_is_of_the_last_minute(clock: list[float]) -> None:
    """A model that is slower than the one before, or than the store, shows soon."""
    progress = Progress()
    progress.begin("case", 1, 1000)
    for steps, seconds in ((600, 1), (1, 59), (1, 1)):
        clock[0] += seconds
        progress.add(steps)
    assert progress.rate == pytest.approx(2 / 60)
    clock[0] += 1
    progress.add(1)
    assert progress.rate == pytest.approx(1.0)  # what is more than a minute old is left out
    clock[0] += 600
    progress.add(6)
    assert progress.rate == pytest.approx(6 / 600)
