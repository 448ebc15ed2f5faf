"""A loaded model: that of one role, or of several that share it."""

from __future__ import annotations

from pytest_cepbench.chains.batching import CallCounts, in_words
from pytest_cepbench.chains.device_swap import DeviceSwap
from pytest_cepbench.errors import CepError, DeviceMemoryError
from pytest_cepbench.models.protocols import BoundRole, Model, Movable
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory


class ModelHandle:
    """Loads a model when it is first asked for, lets go of it and brings it back.

    bound: how it is loaded, and where it works; of roles that share one model any will do.
    residency: who else is on the device.
    """

    def __init__(self, bound: BoundRole, residency: DeviceSwap) -> None:
        self.residency = residency
        self._bound = bound
        self._model: Model | None = None
        self._away = False
        self._fault: CepError | None = None

    @property
    def device(self) -> str:
        """Where the model works."""
        return self._bound.device

    @property
    def loaded(self) -> bool:
        """Whether the model is at hand."""
        return self._model is not None

    def model(self, tally: CallCounts) -> Model:
        """The loaded model, on its device; the tally is that of the role that asks.

        Raises CheckpointError or ModelError when it cannot be loaded: the same one to everybody who
        asks again, for what is wrong with a checkpoint or a server would cost every case its time.
        """
        if self._fault is not None:
            raise self._fault
        self.residency.enter(self)
        if self._model is None:
            self._model = self._load(tally)
        elif self._away and isinstance(self._model, Movable):
            self._come_back(self._model, tally)
        self._away = False
        return self._model

    def leave(self) -> None:
        """Let go of the device: the weights wait in host memory, or are loaded again."""
        if self._model is None or self._away:
            return
        if isinstance(self._model, Movable) and self.device != "cpu":
            self._model.move("cpu")
            self._away = True
        elif not self._bound.lasting:
            self._model = None
        release_memory()

    def _load(self, tally: CallCounts) -> Model:
        try:
            with tally.at_work():
                model = self._bound.load()
        except DeviceMemoryError:
            raise  # there may be room another time
        except CepError as error:
            self._fault = error.with_traceback(None)
            raise
        tally.loads += 1
        return model

    def _come_back(self, model: Movable, tally: CallCounts) -> None:
        try:
            with tally.at_work():
                model.move(self.device)
        except Exception as error:
            # Somebody else took the memory meanwhile; whatever else a library raises is a bug.
            if not is_out_of_memory(error):
                raise
            msg = f"{self._bound.spec} has no room on {self.device} any more ({in_words(error)})"
            raise DeviceMemoryError(msg) from error
