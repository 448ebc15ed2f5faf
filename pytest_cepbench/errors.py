"""Every exception the project raises on purpose.

Each message names what was given, what was expected and what to do next. `CepError` is a user's or
an environment's fault and is shown without a traceback; anything else that escapes is a bug of ours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class CepError(Exception):
    """Base of all errors that are explained to the user in one message."""


class SpecError(CepError):
    """A model spec or a setting that cannot be understood."""


class RoleError(CepError):
    """A model was asked to play a role that it cannot play."""


class CheckpointError(CepError):
    """A checkpoint's files are missing, damaged or of a kind that is not allowed."""


class IdentityError(CepError):
    """A model is not the one that was fingerprinted, or not the same one for all processes of a run."""


class MissingDependencyError(CepError):
    """A package of an optional extra is needed and not installed."""


class ModelError(CepError):
    """A model could not be loaded or run at all: infrastructure, not drift."""


class DeviceMemoryError(ModelError):
    """A model does not fit into memory, or not a single input of it does."""


class ImageError(CepError):
    """Bytes that are not an image this project accepts."""


class DatasetError(CepError):
    """A data set is absent, empty, or holds something that cannot be used."""


class SuiteError(CepError):
    """A suite's TOML file is wrong."""


class StoreError(CepError):
    """The store cannot be used."""


class DamagedIndexError(StoreError):
    """The store's database file is damaged; what can be read of it can be saved."""


class StoreVersionError(StoreError):
    """The store was written by another, incompatible version."""


class StoreFullError(StoreError):
    """The store could not write: no space left."""


class RedirectError(StoreError):
    """A web server redirects to another place; the text says where, without secrets.

    Raised inside of an HTTP library; the user sees it as the reason of another StoreError.
    """


class UnfitFileError(OSError):
    """What lies under a name is no regular file, or larger than what is expected there.

    An error of the file system to whoever reads: each says of which file it is, in its own kind.
    """

    def __init__(self, words: str) -> None:
        super().__init__(errno.EINVAL, words)

    def __str__(self) -> str:
        return str(self.strerror)


class WriteError(CepError):
    """Files could not be written; the message says which, why, and what lies there now."""


class BaselineError(CepError):
    """A baseline file cannot be understood."""


class MeasurementError(CepError):
    """A case could not be measured, so nothing can be said of the checkpoint."""


class InconclusiveWarning(UserWarning):
    """A case passed although its samples do not tell; turn it into an error to make such runs fail."""


def unknown_name(what: str, given: str, known: Iterable[str]) -> str:
    """Sentence for a name that is not known: what was given, the nearest match, all that exist."""
    names = sorted(known)
    close = get_close_matches(given, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {given!r}.{hint} Known: {', '.join(names) or '(none)'}."
