"""What one process of a run holds: threads for its share of cores, a store that no plan changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import StoreError
from pytest_cepbench.evaluation import evaluator as module
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import RunContext
from pytest_cepbench.evaluation.settings import read_settings


def _evaluator(root: Path, workers: int = 1, **values: str) -> Evaluator:
    texts = {name: [text] for name, text in values.items()}
    settings = read_settings(texts, dict.fromkeys(texts, "here"), root)
    return Evaluator(RunContext(settings, workers=workers, worker="gw0" if workers > 1 else ""))


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight, and no number of threads in the environment."""
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("workers", "set_", "threads"),
    [(1, "", None), (2, "", 4), (3, "", 2), (16, "", 1), (2, "5", None)],
)
def test_workers_divide_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, set_: str, threads: int | None
) -> None:
    """One process leaves torch its own choice; several have a share each, at least one thread.

    A number that the engineer or a lease set stays.
    """
    if set_:
        monkeypatch.setenv("OMP_NUM_THREADS", set_)
    evaluator = _evaluator(tmp_path, workers)

    assert evaluator.models.context.threads == threads
    evaluator.close()


def test_a_plan_makes_no_store(tmp_path: Path) -> None:
    """One that is there is read; without one, a folder elsewhere that is gone afterwards."""
    evaluator = _evaluator(tmp_path, plan="true")
    place = evaluator.store.root
    assert place.exists()
    evaluator.close()

    assert not place.exists()
    assert list(tmp_path.iterdir()) == []
    _evaluator(tmp_path).store.close()
    known = _evaluator(tmp_path, plan="true")
    assert known.store.root == tmp_path / ".cepbench" / "store"
    known.close()


def test_a_store_that_cannot_be_opened_is_tried_once(tmp_path: Path) -> None:
    """Every case meets the error of the first try, and a report goes without its images."""
    place = tmp_path / ".cepbench" / "store"
    place.parent.mkdir()
    place.touch()
    evaluator = _evaluator(tmp_path)
    with pytest.raises(StoreError, match=str(place)) as first:
        _ = evaluator.store
    place.unlink()
    with pytest.raises(StoreError) as second:
        _ = evaluator.store

    assert second.value is first.value
    assert not place.exists()
    assert evaluator.stored_artifact("0" * 64) is None
    assert (evaluator.damage, evaluator.publish(None, None)) == ([], [])
    evaluator.close()
