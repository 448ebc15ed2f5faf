"""What the processes of a run leave for one another, and what one does for the others."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from pytest_cepbench.errors import IdentityError, SpecError, StoreError
from pytest_cepbench.evaluation import evaluator as module
from pytest_cepbench.evaluation import run_context
from pytest_cepbench.evaluation.case_runner import help_others, prepared_shards
from pytest_cepbench.evaluation.evaluator import Evaluator
from pytest_cepbench.evaluation.run_context import (
    STOP,
    RunContext,
    check_identity,
    identities_of,
    interrupted,
    stop_flag,
    write_message,
)
from pytest_cepbench.evaluation.settings import read_settings
from pytest_cepbench.suites.gate_config import Overrides
from tests.studies.toy import TOY, write_suite


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """A run of two workers, as the first one knows it."""
    return RunContext(read_settings({}, {}, tmp_path), workers=2, worker="gw0")


def test_the_folder_of_a_run_is_gone_when_it_ends(context: RunContext, tmp_path: Path) -> None:
    """Nothing stays of a run that left nothing else; another run's folder stays."""
    folder = context.make_folder()
    write_message(folder, "note", "text")
    assert (folder / "note").read_text() == "text"
    assert (tmp_path / ".cepbench" / ".gitignore").read_text() == "*\n"
    other = replace(context, run_id="other")
    other.make_folder()

    context.remove_folder()
    assert not folder.exists()
    assert other.folder.exists()
    other.remove_folder()
    assert list(tmp_path.iterdir()) == []
    context.make_folder()
    (tmp_path / ".cepbench" / "report.json").touch()
    context.remove_folder()
    assert {path.name for path in other.settings.home.iterdir()} == {".gitignore", "report.json"}


def test_a_stop_message_is_seen_soon_and_stays(context: RunContext) -> None:
    """The file system is asked five times a second at most, and no more after the message."""
    flag = stop_flag(context.folder)
    assert not flag()
    write_message(context.make_folder(), STOP, "")
    assert not flag()
    time.sleep(0.25)
    assert flag()
    context.remove_folder()
    time.sleep(0.25)
    assert flag()


def bound(fingerprint: str, spec: str = "a") -> Any:
    """A model, as far as its identity goes."""
    return SimpleNamespace(role="describer", spec=spec, adapter="toy/1", fingerprint=fingerprint)


def test_workers_agree_on_the_model_that_was_bound_first(context: RunContext) -> None:
    """By the controller, else by a worker; another model under the same name is refused."""
    known = identities_of([bound("one")])
    assert known == {"describer a": "toy/1 one"}
    first = partial(check_identity, context, known)
    second = partial(check_identity, replace(context, worker="gw1"), known)

    first(bound("one"))
    with pytest.raises(IdentityError, match="worker gw1, and was toy/1 one when the controller"):
        second(bound("two"))
    first(bound("three", spec="b"))
    second(bound("three", spec="b"))
    with pytest.raises(IdentityError, match="toy/1 three when worker gw0 bound it"):
        second(bound("four", spec="b"))


def test_pools_and_engines_that_do_not_fit_are_refused() -> None:
    """Where a pool came from, what was given, and what is expected.

    A pool without a cluster, unless the ini file has it for other runs; turns with one.
    """
    for given, message in (
        ("describer:actors=1.5", "'actors=1.5' is not understood"),
        ("describer:actors=2,actors=2", "'actors=2' is not understood"),
        ("describer:gpus=1.5", "'gpus=1.5' is not understood"),
        ("describr:actors=1", "Did you mean 'describer'?"),
    ):
        with pytest.raises(ValueError, match="from here") as raised:
            read_settings({"ray-pool": [given]}, {"ray-pool": "from here"}, Path())
        assert message in str(raised.value)
    pool, turns = {"ray-pool": ["encoder:gpus=1"]}, {"engine": ["ray"], "residency": ["swap"]}
    for values, source in (
        (pool, "--cep-ray-pool"), (pool, "gate_checkpoint(ray_pool=)"), (turns, "ini residency")
    ):  # fmt: skip
        with pytest.raises(ValueError, match="cep-engine=ray") as raised:
            read_settings(values, dict.fromkeys(values, source), Path())
        assert str(raised.value).startswith(source)
    known = read_settings(pool | {"residency": ["swap"]}, {"ray-pool": "ini ray_pool"}, Path())
    assert known.ray_pools == {"encoder": {"gpus": 1}}


def test_settings_are_read_from_texts(tmp_path: Path) -> None:
    """The last text counts where one is wanted; paths are made absolute, URLs stay."""
    values = {
        "model": ["a", "b"],
        "encoder": ["e", "text=f"],
        "data": ["photos=x"],
        "shared": ["s3://bucket/p", "folder"],
        "budget": ["800,60s"],
        "attribute": ["0"],
        "ray-pool": ["describer:actors=4,gpus=0.5"],
    }
    settings = read_settings(values, dict.fromkeys(values, "here"), tmp_path)

    assert (settings.model, settings.roles, settings.encoders) == (
        "b",
        {"encoder": "e"},
        {"text": "f"},
    )
    assert settings.data == {"photos": Path("x").absolute()}
    assert settings.shared == ("s3://bucket/p", Path("folder").absolute())
    assert (settings.budget.samples, settings.budget.seconds) == (800, 60.0)
    assert settings.attribute == 0
    assert settings.ray_pools == {"describer": {"actors": 4, "gpus": 0.5}}
    assert settings.baselines == tmp_path / "baselines"
    assert settings.names_models
    assert not read_settings({}, {}, tmp_path).names_models


def _evaluator(root: Path, workers: int = 1, **values: str) -> Evaluator:
    texts = {name: [text] for name, text in values.items()}
    settings = read_settings(texts, dict.fromkeys(texts, "here"), root)
    return Evaluator(RunContext(settings, workers=workers, worker="gw0" if workers > 1 else ""))


def test_workers_divide_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process leaves torch its own choice; several have a share each, at least one thread.

    A number that the engineer or a lease set stays.
    """
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def threads(workers: int) -> int | None:
        evaluator = _evaluator(tmp_path, workers)
        evaluator.close()
        return evaluator.models.context.threads

    assert [threads(workers) for workers in (1, 2, 3, 16)] == [None, 4, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert threads(2) is None


def test_a_plan_makes_no_store_and_a_broken_one_is_tried_once(tmp_path: Path) -> None:
    """One that is there is read; without one, a folder elsewhere that is gone afterwards.

    Where it cannot be opened every case meets the error of the first try, and a report goes without
    its images.
    """
    evaluator = _evaluator(tmp_path, plan="true")
    place = evaluator.store.root
    assert place.exists()
    evaluator.close()
    assert not place.exists()
    assert list(tmp_path.iterdir()) == []
    _evaluator(tmp_path).store.close()
    known = _evaluator(tmp_path, plan="true")
    place = known.store.root
    assert place == tmp_path / ".cepbench" / "store"
    known.close()

    shutil.rmtree(place)
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


class Describer:
    """A model that tests interrupt in its calls: `before` comes first in each."""

    fingerprint = "interrupted/1"
    seeded = False

    def before(self) -> None:
        """Nothing."""

    def describe(self, images: Sequence[Image.Image], _: str, __: Sequence[int]) -> list[str]:
        """The same for every image."""
        self.before()
        return ["a red circle"] * len(images)


@contextmanager
def _helping(folder: Path) -> Iterator[Evaluator]:
    """A process of a run of the toy suite's cases, which `Describer` grows."""
    describer = "python:tests.evaluation.test_run_context:Describer"
    path = write_suite(folder, TOY.replace('describer = "shapes:"', f'describer = "{describer}"'))
    evaluator = Evaluator(RunContext(read_settings({}, {}, folder), workers=2, worker="gw0"))
    cases = evaluator.suites.get(path).cases
    evaluator.assign({case.id: (path, case, Overrides()) for case in cases})
    yield evaluator
    evaluator.close()


def test_only_the_work_itself_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that ends by itself is not, neither while it goes on nor afterwards. Interrupts that a
    shell has ignored, as in what it starts in the background, stay ignored.

    However early the interrupt comes: without an interval, before the work has begun.
    """
    interrupts: list[int] = []
    asked, stop = threading.Event(), threading.Event()

    def stopped() -> bool:
        asked.set()
        return stop.is_set()

    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        monkeypatch.setattr(run_context, "_INTERVAL", 0.001)
        with interrupted(stopped):
            assert asked.wait(20)
            (watch,) = [t for t in threading.enumerate() if t.name == "cepbench-stop"]
        stop.set()
        watch.join(20)
        assert not watch.is_alive()
        assert interrupts == []

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for interval in (0, 0.001):
            monkeypatch.setattr(run_context, "_INTERVAL", interval)
            with pytest.raises(KeyboardInterrupt), interrupted(lambda: True):
                time.sleep(30)
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_help_is_interrupted_in_the_middle_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the engineer's Ctrl-C, which is passed on, or by the controller: that ends no more."""
    monkeypatch.setattr(run_context, "_INTERVAL", 0.001)
    begun: list[float] = []
    with _helping(tmp_path) as evaluator:
        monkeypatch.setattr(Describer, "before", lambda _: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            help_others(evaluator)

        def stop(_: object) -> None:
            begun.append(time.monotonic())
            write_message(evaluator.context.make_folder(), STOP, "")
            time.sleep(30)

        monkeypatch.setattr(Describer, "before", stop)
        help_others(evaluator)

    assert len(begun) == 1
    assert time.monotonic() - begun[0] < 20


def test_an_error_while_helping_is_left_to_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that judges the case meets it too, and reports it."""

    def read_fingerprint(_: object) -> str:
        return (tmp_path / "no-such-file").read_text()

    monkeypatch.setattr(Describer, "fingerprint", property(read_fingerprint))
    with _helping(tmp_path) as evaluator:
        help_others(evaluator)
        path, case, _ = prepared_shards(evaluator).cases[0]
        with pytest.raises(SpecError, match=r"Describer\.fingerprint raised FileNotFoundError"):
            evaluator.shards.compute(path, case)
