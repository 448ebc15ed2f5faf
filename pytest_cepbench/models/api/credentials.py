"""Keys stay where they are: in the environment, and in the requests that need them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from urllib.parse import urlsplit

from pytest_cepbench.errors import SpecError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.models.api.redaction import Redactor
from pytest_cepbench.models.spec import ModelSpec

HIDDEN = "[key]"

_LONGEST = 300  # letters of somebody else's words
_SECRET_FROM = 8
"""Letters of a key that is one: servers without keys are given "EMPTY" or "none", which are words too."""

_KEY_NAMES = ("api_key", "apikey", "key", "token", "secret", "password", "authorization", "bearer")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LOOKS_LIKE_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|gsk|xai|nvapi)-[A-Za-z0-9_*.-]{6,}|hf_[A-Za-z0-9*.]{16,})"
)
_FREE_TEXTS = ("base_url", "weights", "revision", "system_prompt", "negative_prompt")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=*-]{6,}")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


class Secret:
    """A key that does not show: neither in a traceback's locals nor in any other repr."""

    def __init__(self, value: str) -> None:
        self._value = value

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self._value)

    def __repr__(self) -> str:
        return HIDDEN

    def reveal(self) -> str:
        """The key itself, for the client alone."""
        return self._value

    def out_of(self, text: str) -> str:
        """The text without the key, in any of the forms that a `Redactor` knows.

        A short one is no secret, and would be found in any text.
        """
        return self._redactor.redact(text, HIDDEN) if len(self._value) >= _SECRET_FROM else text


def refuse_secrets(spec: ModelSpec) -> None:
    """Raise SpecError where a spec holds what looks like a key; the message does not repeat it.

    Specs are printed, stored and reported.
    """
    remedy = "Keys come from the environment: set OPENAI_API_KEY, or name another variable with key_env=NAME"
    for name, value in spec.params.items():
        shown = f"model spec openai:{without_secrets(spec.target)}"
        if name.lower() in _KEY_NAMES:
            msg = f"{shown}: {name}= has no place in a spec, which is printed and stored. {remedy}"
            raise SpecError(msg)
        if (
            name == "key_env"
            and value.lower() not in ("", "none")
            and not _VARIABLE.fullmatch(value)
        ):
            msg = (
                f"{shown}: key_env is the NAME of an environment variable, in capitals; what was given "
                f"is none (it is not shown, since it may be a key). {remedy}"
            )
            raise SpecError(msg)
        if name == "base_url" and _holds_more(value):
            msg = (
                f"{shown}: base_url holds a user, a password or a query, which have no place in a spec: "
                "it is printed and stored. Set OPENAI_BASE_URL instead"
            )
            raise SpecError(msg)
        if name not in _FREE_TEXTS and _LOOKS_LIKE_KEY.search(value):
            msg = f"{shown}: the value of {name} looks like a key. {remedy}"
            raise SpecError(msg)


def _holds_more(url: str) -> bool:
    return "@" in url or "?" in url or "#" in url


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(a URL that cannot be read)"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}".rstrip("/")


def without_secrets(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Somebody else's words on one line, shortened, without keys and what looks like one.

    Servers repeat the key they refuse, whole or in part.
    """
    for secret in secrets:
        text = secret.out_of(text)
    text = _LOOKS_LIKE_KEY.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _USERINFO.sub("", text)
    return one_line(text[: 20 * _LONGEST], _LONGEST)
