"""Exceptions on their way from an actor to the driver."""

from __future__ import annotations

import pytest

from pytest_cepbench.chains.ray.actor import ActorFault, refuse_to_load
from pytest_cepbench.errors import CheckpointError, DeviceMemoryError, ModelError


@pytest.mark.parametrize("kind", [CheckpointError, ModelError, DeviceMemoryError])
def test_our_errors_arrive_as_they_are(kind: type[Exception]) -> None:
    """Of the same class, with the same words, and nothing else."""
    fault = ActorFault.of(kind("what, why, how"))
    error = fault.exception()

    assert (type(error), str(error)) == (kind, "what, why, how")
    assert fault.ours
    assert fault.memory == (kind is DeviceMemoryError)


def test_an_error_of_a_module_arrives_as_its_nearest_base() -> None:
    """The driver knows the classes of `errors` alone."""

    class LocalError(CheckpointError):
        """Known where it is raised."""

    assert type(ActorFault.of(LocalError("gone")).exception()) is CheckpointError


def test_a_model_s_own_exception_keeps_its_name() -> None:
    """What is stored of a failed input has the words that it has in a run in one process."""
    fault = ActorFault.of(ArithmeticError("no sum"))
    error = fault.exception()

    assert (type(error).__name__, str(error)) == ("ArithmeticError", "no sum")
    assert not isinstance(error, MemoryError)
    assert (fault.ours, fault.memory) == (False, False)


def test_memory_that_ran_out_is_a_memory_error_in_the_driver() -> None:
    """So the batch is halved there, as in one process."""
    fault = ActorFault.of(RuntimeError("CUDA out of memory"))
    error = fault.exception()

    assert fault.memory
    assert not fault.ours
    assert isinstance(error, MemoryError)
    assert type(error).__name__ == "RuntimeError"


def test_a_bound_role_does_not_load_in_the_driver() -> None:
    """Its model lives in an actor."""
    with pytest.raises(AssertionError, match="loaded by an actor"):
        refuse_to_load()
