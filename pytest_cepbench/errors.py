"""Every exception of the package, below one base.

Each message names what was given, what was expected and what to do next. A `CepError` is shown
without a traceback; anything else that escapes is a bug of this package. Signals between modules
are handled before a user would see them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Literal

from pytest_cepbench.escapes import mask_secrets


class CepError(Exception):
    """Base of all errors that are explained to the user in one message."""


class SpecError(CepError):
    """A model spec or a setting that cannot be understood."""


class RoleError(CepError):
    """A model was asked to play a role that it cannot play."""


class CheckpointError(CepError):
    """A checkpoint's files are missing, damaged or of a kind that is not allowed."""


class IdentityError(CepError):
    """A model is not the one that was fingerprinted, or not the same for all processes of a run."""


class MissingDependencyError(CepError):
    """A package of an optional extra is needed and not installed."""


class ModelError(CepError):
    """A model could not be loaded or run at all: infrastructure, not drift."""


class OtherModelError(ModelError):
    """What another node of a cluster has is not the run's model."""


FaultKind = Literal["again", "throttled", "content", "parameter", "rejected", "fatal"]
"""again: another try may succeed.
throttled: the same, and all requests are to slow down.
content: the provider's policy forbids this input.
parameter: the server does not accept one of the parameters.
rejected: this request is wrong to the server.
fatal: every request would end like this one."""


@dataclass(eq=False)
class ApiError(CepError):
    """The reason why a request to a server of models has no answer; its client tells users of it.

    kind: what follows from it.
    words: the server's or the network's own.
    status: of HTTP; None where there was no response at all.
    wait: seconds that the server asks to wait.
    parameter: the one that the server does not accept.
    code: the server's own name of the fault, lower case.
    cause: why, where the status does not say it; empty where it does.
    """

    kind: FaultKind
    words: str = ""
    status: int | None = None
    wait: float | None = None
    parameter: str | None = None
    code: str = ""
    cause: str = ""


class DeviceMemoryError(ModelError):
    """A model does not fit into memory, or not a single input of it does."""


class ArtifactError(CepError):
    """Bytes that are not an artifact of the kind that is expected."""


class ImageError(ArtifactError):
    """Bytes that are not an image this project accepts."""


class SoundError(ArtifactError):
    """Bytes or samples that are not a sound this project accepts."""


class UnreadError(CepError):
    """A file could not be read for want of memory, file handles or rights, or for a faulty disk.

    Nothing is known of what it holds: nothing is deleted or counted as damaged because of it.
    """


class DatasetError(CepError):
    """A data set is empty, or holds something that cannot be used."""


class DataAbsentError(CepError):
    """The data set of a suite is not on this machine: its cases are skipped with this reason."""


class SuiteError(CepError):
    """A suite's TOML file is wrong."""


class SuiteNotApplicableError(CepError):
    """A suite has no role for the models named: its cases are skipped with this reason."""


class StoreError(CepError):
    """The store cannot be used."""


class DamagedIndexError(StoreError):
    """The store's database file is damaged; what can be read of it can be saved."""


class StoreVersionError(StoreError):
    """The store was written by another, incompatible version."""


class StoreFullError(StoreError):
    """The store could not write: no space left."""


class NotInStoreError(CepError):
    """A step of a baseline's model is not in the store, and the model is not there to be asked."""


@contextmanager
def name_errors() -> Iterator[None]:
    """Raise SpecError where a name or a path is longer than any file's, which `Path.exists` raises
    OSError for: what was pasted into an option is looked up in many places.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        names = (error.filename, error.filename2)
        paths = [os.fsdecode(name) for name in names if isinstance(name, str | bytes)]
        longest = max((part for path in paths for part in Path(path).parts), key=len, default="")
        what = f"{longest[:60]}...: no file has so long a name, or so long a path"
        raise SpecError(what) from error


class UnfitFileError(OSError):
    """A path holds no regular file, or one that is larger than expected.

    The one exception that is no `CepError`: the code that reads a file handles it with the other
    errors of the file system, in a message that names the file.
    """

    def __init__(self, words: str) -> None:
        super().__init__(errno.EINVAL, words)

    def __str__(self) -> str:
        return str(self.strerror)


class WriteError(CepError):
    """Files could not be written; the message says which, why, and what lies there now."""


class BaselineError(CepError):
    """A baseline file cannot be understood."""


class SeriesError(CepError):
    """The record of a series of gates cannot be understood, or does not fit the run."""


class HistoryError(CepError):
    """The history of runs cannot be read, or holds nothing of what was asked for."""


class MeasurementError(CepError):
    """A case could not be measured, so nothing can be said of the checkpoint."""


class UnscoredError(MeasurementError):
    """Models that measure failed at so many samples of a case that nothing is measured.

    samples: how many.
    """

    def __init__(self, message: str, samples: int) -> None:
        super().__init__(message)
        self.samples = samples


class InconclusiveWarning(UserWarning):
    """A case passed although its samples do not tell; turn it into an error to fail such runs."""


class IncomparableError(CepError):
    """A measurement and its baseline are of different things.

    reasons: one sentence for each thing that differs.
    fields: the names of those things: fields of the identity, "direction", "samples".
    """

    def __init__(self, reasons: tuple[str, ...], fields: tuple[str, ...] = ()) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons
        self.fields = fields


class TooFewError(CepError, ValueError):
    """A set has fewer samples than a distance, or one without a block of them, needs."""


class StoppedError(CepError):
    """The run is ending, and the result is not needed any more."""


class TrainingGateError(CepError):
    """A gate in a training loop is set up wrongly, or its folder cannot be used."""


class TrainingStoppedError(CepError):
    """A gate stopped a training: its last checkpoint did not pass.

    code: exit code of the gate, never 0.
    """

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words, code)
        self.code = code or 1

    def __str__(self) -> str:
        return str(self.args[0])


# -- signals between modules -----------------------------------------------------------------------


class EndedError(CepError):
    """Ends a command of `cepbench`.

    code: exit code: 1 where something could not be done, or 130 where it was interrupted.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class DamagedInputsError(CepError):
    """Stored images that steps start from are damaged.

    indices: of those steps, among the steps that were asked for.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__(f"{len(indices)} stored inputs are damaged")
        self.indices = tuple(indices)


class DamagedChainsError(CepError):
    """Stored images of chains are damaged, and the chains have to be grown again.

    keys: of the steps that made the images.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"{len(keys)} images are damaged")
        self.keys = tuple(keys)


class UnreadableReplyError(CepError):
    """A model's reply that holds no JSON object of the expected form; the message says why."""


# -- names that are not known ----------------------------------------------------------------------


def nearest_name(given: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name most like a given one, upper and lower case being alike; None if none is.

    cutoff: least likeness, in [0, 1], as `difflib` measures it, which takes 0.2 ms a name: of many
        names those are compared that begin most alike.
    """
    from difflib import get_close_matches  # only where a name is wrong

    names, low = {name.lower(): name for name in known}, given.lower()
    begin = os.path.commonprefix
    alike = nlargest(2_000, names, key=lambda name: len(begin([name, low])))
    close = get_close_matches(low, alike, n=1, cutoff=cutoff)
    return names[close[0]] if close else None


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A question that follows a sentence, after a space; empty where no known name is alike."""
    name = nearest_name(given, known)
    return "" if name in {None, given} else f" Did you mean {name!r}?"


def unknown_name(what: str, given: str, known: Iterable[str]) -> str:
    """Sentence for a name that is not known: what was given, the nearest match, all that exist."""
    names = sorted(known)
    return (
        f"unknown {what} {given!r}.{did_you_mean(given, names)} "
        f"Known: {', '.join(names) or '(none)'}."
    )


def public_names(module: object) -> list[str]:
    """The names of a module, or another object, that do not begin with an underscore."""
    return sorted(name for name in vars(module) if not name.startswith("_"))


def few_of(names: Iterable[str], most: int = 5) -> str:
    """The first of some names, for a message, and how many more there are."""
    shown = sorted(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def is_exit(error: BaseException) -> bool:
    """Whether a model or a loader of the user's called `sys.exit()` or `pytest.skip()`.

    Either would end or skip more than what it speaks for.
    """
    # pytest's class is known by its name: only the plugin imports pytest.
    skips = type(error).__name__ == "Skipped" and not isinstance(error, Exception)
    return isinstance(error, SystemExit) or skips


_PACKAGE = str(Path(__file__).parent) + os.sep
_SERVERS = str(Path(__file__).parent / "models" / "api") + os.sep


def is_own_bug(error: BaseException) -> bool:
    """Whether this package's own code raised an exception that came out of a call of a model.

    Its adapters run inside of the call. What they raise about numbers and texts may be the answer
    to what a model gave them; an assertion or a name that does not exist never is. Where a model
    answers over an API, its failures come as replies, so that no exception is one.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    kinds = AssertionError | AttributeError | NameError
    return file.startswith(_SERVERS) or (isinstance(error, kinds) and file.startswith(_PACKAGE))


def error_line(error: BaseException) -> str:
    """What an error of a library says, in one line of limited length, without keys."""
    text = " ".join(mask_secrets(str(error)).split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:400]} ..."


def named_error(error: BaseException) -> str:
    """The class of an error of foreign code and what it says, without keys."""
    return f"{type(error).__name__}: {mask_secrets(str(error))}"


def in_words(error: BaseException) -> str:
    """An exception of a model as text, short enough to be stored."""
    return named_error(error)[:300]
