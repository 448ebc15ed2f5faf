"""Log lines of the client's libraries, which may quote a server that repeats a key: without it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pytest_cepbench.models.api.credentials import Secret

_LIBRARIES = ("openai", "httpx", "httpcore")  # also under newer names that begin so


class _Redaction(logging.Filter):
    """Takes secrets out of every record that passes; of any number of servers."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: tuple[Secret, ...] = ()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the record pass, without secrets in its words and in those of its exception."""
        said = record.getMessage()
        clean = self._clean(said)
        if clean != said:
            record.msg, record.args = clean, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = self._clean(logging.Formatter().formatException(record.exc_info))
        return True

    def _clean(self, text: str) -> str:
        for secret in self.secrets:
            text = secret.out_of(text)
        return text


_REDACTION = _Redaction()


def keep_out_of_logs(secrets: Iterable[Secret]) -> None:
    """Have the loggers of the client's libraries, imported by now, say nothing of these any more."""
    _REDACTION.secrets += tuple(secrets)
    # A filter is asked by its own logger alone, not by those below it.
    for name in [*logging.root.manager.loggerDict]:
        if name.partition(".")[0].startswith(_LIBRARIES):
            logging.getLogger(name).addFilter(_REDACTION)
