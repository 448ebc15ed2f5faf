"""Loaded models, and which of them lie on a device: all of them, or one role's at a time."""

from __future__ import annotations

from collections.abc import Callable

from pytest_cepbench.chains.batching import CallCounts, in_words
from pytest_cepbench.errors import CepError, DeviceMemoryError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Model, Movable
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory


class DeviceSwap:
    """The models on each device.

    swap: one model at a time on each device, where it cannot hold several.
    begin: called once, before the first model is loaded.
    """

    def __init__(self, *, swap: bool = False, begin: Callable[[], None] | None = None) -> None:
        self.swap = swap
        self._begin = begin
        self._resident: dict[str, list[ModelHandle]] = {}

    def make_room(self, handle: ModelHandle) -> None:
        """Unload others where a model needs the device; called before it is loaded or moved."""
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()
        resident = self._resident.setdefault(handle.device, [])
        if self.swap:
            for neighbours in self._resident.values():
                for neighbour in [other for other in neighbours if other.meets(handle)]:
                    neighbour.unload()
                    neighbours.remove(neighbour)
            resident[:] = [handle]
        elif not any(neighbour is handle for neighbour in resident):
            resident.append(handle)

    def unload_all(self) -> None:
        """Free all devices; models come back when they are asked again."""
        for resident in self._resident.values():
            for handle in resident:
                handle.unload()
            resident.clear()


class ModelHandle:
    """A model of one role, or of several that share it: loaded when it is first asked for.

    bound: how it is loaded, and where it works; of roles that share one model any will do.
    residency: the models that are on the device.
    """

    def __init__(self, bound: BoundRole, residency: DeviceSwap) -> None:
        self.residency = residency
        self._bound = bound
        self._model: Model | None = None
        self._in_host_memory = False
        self._fault: CepError | None = None

    @property
    def device(self) -> str:
        """Where the model works."""
        return self._bound.device

    def meets(self, other: ModelHandle) -> bool:
        """Whether it is another model that lies on a device of that one.

        A model whose parts a library placed lies on all accelerators of the process.
        """
        if other is self or self.device == other.device:
            return other is not self
        divided = self._bound.dispatched or other._bound.dispatched
        return divided and "cpu" not in (self.device, other.device)

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded."""
        return self._model is not None

    def model(self, tally: CallCounts) -> Model:
        """The loaded model, on its device.

        tally: counts of the role that asks. Raises CheckpointError or ModelError when the model
        cannot be loaded: the same error every time, since what is wrong with a checkpoint or a
        server would cost every case its time.
        """
        if self._fault is not None:
            raise self._fault
        self.residency.make_room(self)
        if self._model is None:
            self._model = self._load(tally)
        elif self._in_host_memory and isinstance(self._model, Movable):
            self._move_back(self._model, tally)
        self._in_host_memory = False
        return self._model

    def unload(self) -> None:
        """Free the device: the weights wait in host memory, or are loaded again."""
        if self._model is None or self._in_host_memory:
            return
        stays = self.device == "cpu" or self._bound.dispatched
        if isinstance(self._model, Movable) and not stays:
            self._model.move("cpu")
            self._in_host_memory = True
        elif not self._bound.lasting:
            self._model = None
        release_memory()

    def _load(self, tally: CallCounts) -> Model:
        try:
            with tally.timed():
                model = self._bound.load()
        except DeviceMemoryError:
            raise  # there may be room another time
        except CepError as error:
            self._fault = error.with_traceback(None)
            raise
        tally.loads += 1
        return model

    def _move_back(self, model: Movable, tally: CallCounts) -> None:
        try:
            with tally.timed():
                model.move(self.device)
        except Exception as error:
            # Another process took the memory; whatever else a library raises is a bug.
            if not is_out_of_memory(error):
                raise
            raise DeviceMemoryError(
                f"{self._bound.spec} has no room on {self.device} any more ({in_words(error)}). "
                "Give it a device of its own (device=, --cep-devices-per-worker), device_map= or "
                "offload="
            ) from error
