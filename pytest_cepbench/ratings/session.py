"""The secrets of a study, `session.json`: the addresses of its people, and the key of opaque names.

The file is for its owner alone and is kept out of version control. A study whose session is lost
gets another one: its people need new addresses, and its votes stay.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.files import MOST_TEXT, read_regular

SESSION = "session.json"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """v: version of its form. key: hexadecimal. tokens: annotator -> token. operator: token."""

    v: int
    key: str
    tokens: dict[str, str]
    operator: str


@dataclass(frozen=True)
class Session:
    """The secrets of a study.

    annotators: token -> name.
    operator: token of the person who watches.
    """

    key: bytes
    annotators: dict[str, str]
    operator: str

    def token(self, annotator: str) -> str:
        """The token of an annotator."""
        return next(token for token, name in self.annotators.items() if name == annotator)

    def opaque(self, *names: str) -> str:
        """A name that tells nothing, the same for the same names. 32 hexadecimal digits."""
        message = "\0".join(names).encode("utf-8", "surrogatepass")
        return hmac.new(self.key, message, sha256).hexdigest()[:32]


def check_annotators(names: Sequence[str]) -> None:
    """Raises DatasetError for names that cannot be those of files, and for equal ones."""
    if not names:
        raise DatasetError("a study has at least one annotator")
    for name in names:
        if not _NAME.fullmatch(name):
            raise DatasetError(
                f"annotator {name!r}: letters, digits, '.', '_' and '-' are expected, at most 64, "
                "and a letter or a digit first"
            )
    folded = [name.casefold() for name in names]
    if len(set(folded)) < len(names):
        raise DatasetError(
            f"annotators have to differ, also in lower case, got {', '.join(sorted(names))}"
        )


def open_session(folder: Path, annotators: Sequence[str]) -> Session:
    """The session of a study, made where there is none. annotators: of the study.

    Raises DatasetError for a file that cannot be read or is of others, and WriteError.
    """
    path = folder / SESSION
    try:
        content = msgspec.json.decode(read_regular(path, MOST_TEXT, links=False), type=_File)
    except FileNotFoundError:
        content = _make(path, annotators)
    except (OSError, msgspec.MsgspecError) as error:
        raise DatasetError(
            f"{path} cannot be read ({error}): delete it, and people get new addresses"
        ) from error
    if set(content.tokens) != set(annotators):
        raise DatasetError(
            f"{path} is of other annotators: delete it, and people get new addresses"
        )
    tokens = {token: name for name, token in content.tokens.items()}
    return Session(bytes.fromhex(content.key), tokens, content.operator)


def _make(path: Path, annotators: Sequence[str]) -> _File:
    tokens = {name: secrets.token_urlsafe(18) for name in annotators}
    content = _File(1, secrets.token_hex(32), tokens, secrets.token_urlsafe(18))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise WriteError(f"{path} could not be written: {error.strerror or error}") from error
    return content
