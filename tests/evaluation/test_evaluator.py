"""What one process of a run holds: threads for its share of the cores, a store that a plan leaves alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(("workers", "threads"), [(1, None), (2, 4), (3, 2), (16, 1)])
def test_workers_divide_the_cores(tmp_path: Path, workers: int, threads: int | None) -> None:
    """One process leaves torch its own choice; several have a share each, at least one thread."""
    evaluator = _evaluator(tmp_path, workers)

    assert evaluator.models.context.threads == threads
    evaluator.close()


def test_the_environment_says_how_many_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that the engineer or a lease set stays."""
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    evaluator = _evaluator(tmp_path, workers=2)

    assert evaluator.models.context.threads is None
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


def test_a_store_that_cannot_be_opened_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every case meets the error of the first try, and a report goes without its images."""
    tries = []

    def refuse(*_: object, **__: object) -> None:
        tries.append(1)
        msg = "the disk is full"
        raise StoreError(msg)

    monkeypatch.setattr(module, "Store", refuse)
    evaluator = _evaluator(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreError, match="the disk is full"):
            _ = evaluator.store

    assert len(tries) == 1
    assert evaluator.stored_image("0" * 64) is None
    assert (evaluator.damage, evaluator.publish(None, None)) == ([], [])
    evaluator.close()


def test_an_image_that_is_gone_is_none(tmp_path: Path) -> None:
    """The report's page does without it."""
    evaluator = _evaluator(tmp_path)

    assert evaluator.stored_image("0" * 64) is None
    evaluator.close()


def test_a_remark_of_a_model_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the case that it came with; models that share a remark give it once."""
    remarks = ["batches of 4 fit into memory"]
    runner = SimpleNamespace(tally=SimpleNamespace(remarks=remarks))
    monkeypatch.setattr(Evaluator, "runners", [runner, runner])
    evaluator = _evaluator(tmp_path)

    assert evaluator.drain_messages() == ["batches of 4 fit into memory"]
    assert evaluator.drain_messages() == []
    remarks.append("batches of 2 fit into memory")
    assert evaluator.drain_messages() == ["batches of 2 fit into memory"]
    _ = evaluator.shards
    assert evaluator.drain_messages() == []
    evaluator.close()
