"""Out of memory: a smaller batch goes on where the larger one did not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_cepbench.errors import ModelError
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    SmallDescriber,
    SmallEncoder,
    SmallGenerator,
    grow_and_trace,
    make_runners,
    outcomes,
    samples,
)


def cuda_out_of_memory() -> Exception:
    """What libraries below torch raise."""
    return RuntimeError("CUDA error: out of memory (CUBLAS_STATUS_ALLOC_FAILED)")


def torch_out_of_memory() -> Exception:
    """What torch raises."""
    torch = pytest.importorskip("torch", reason="torch comes with the [models] extra")
    # torch is untyped here.
    return torch.OutOfMemoryError("Tried to allocate 20.00 GiB")  # type: ignore[no-any-return]


ERRORS = [
    pytest.param(MemoryError, id="Python"),
    pytest.param(cuda_out_of_memory, id="CUDA"),
    pytest.param(torch_out_of_memory, id="torch", marks=pytest.mark.models),
]


def holds(most: int, error: Callable[[], BaseException]) -> Callable[[Sequence[Any]], None]:
    """A memory that holds so many inputs and no more."""

    def fit(inputs: Sequence[Any]) -> None:
        if len(inputs) > most:
            raise error()

    return fit


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes of twenty samples where memory is large."""
    with Store(tmp_path_factory.mktemp("large") / "store") as store:
        return outcomes(grow_and_trace(PLAN, samples(20), make_runners(store)))


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("role", ["describer", "generator", "encoder"])
def test_the_batch_is_halved_until_it_fits(
    store: Store, expected: dict[str, Any], role: str, error: Callable[[], BaseException]
) -> None:
    """All results come as from a larger memory, no chain fails, and the smaller size is kept."""
    small = holds(3, error)
    models: dict[str, Any] = {
        "describer": SmallDescriber(),
        "generator": SmallGenerator(),
        "encoder": SmallEncoder(),
    }
    models[role].batch = small
    runners = make_runners(store, **models)
    assert outcomes(grow_and_trace(PLAN, samples(20), runners)) == expected
    sizes = [len(call) for call in models[role].calls]
    assert getattr(runners, role).caller.size == 2
    assert sizes[:2] == [8, 4]
    # The first batch finds the size; from then on nothing larger is tried.
    assert max(sizes[sizes.index(2) + 5 :]) == 2
    others = [model for name, model in models.items() if name != role]
    assert all(max(len(call) for call in model.calls) == 8 for model in others)


@pytest.mark.parametrize("error", ERRORS)
def test_memory_for_not_even_one_input_is_an_error(
    store: Store, error: Callable[[], BaseException]
) -> None:
    """Nothing can be said of such a model: the error names it and what may help."""
    with pytest.raises(
        ModelError, match="python:tests:generator runs out of memory on a single input"
    ):
        grow_and_trace(
            PLAN, samples(4), make_runners(store, generator=SmallGenerator(batch=holds(0, error)))
        )


def test_an_ordinary_error_does_not_shrink_the_batch(store: Store) -> None:
    """One bad input halves its own batch and no later one."""

    def refuse(inputs: Sequence[Any]) -> None:
        if any("text 1" in text.split(": ")[1:] for text in inputs):
            raise ValueError

    runners = make_runners(store, generator=SmallGenerator(batch=refuse))
    plan = PLAN.__class__("text", 1, "describe", "draw: {description}")
    traces = grow_and_trace(plan, samples(16), runners)
    assert [trace.chain.sample.id for trace in traces if trace.failure] == ["s01"]
    assert runners.generator.caller.size == 8
