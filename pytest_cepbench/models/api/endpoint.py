"""Where a model is served and with which key, and keys taken out of all that is shown or stored."""

from __future__ import annotations

import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.escapes import (
    HIDDEN,
    SECRET_FROM,
    mask_secrets,
    one_line,
)
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import ModelSpec

if TYPE_CHECKING:  # what masks keys in reports shall not load what asks servers
    from pytest_cepbench.models.api.parameters import ServerParams
    from pytest_cepbench.models.binding import CoveredFiles

_LONGEST = 300  # letters of a server's words

_KEY_NAMES = ("api_key", "apikey", "key", "token", "secret", "password", "authorization", "bearer")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LOOKS_LIKE_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|gsk|xai|nvapi)-[A-Za-z0-9_*.-]{6,}|hf_[A-Za-z0-9*.]{16,})"
)
_FREE_TEXTS = ("base_url", "weights", "system_prompt", "negative_prompt")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=*-]{6,}")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")

_LEVELS = 4  # of percent-encoding inside percent-encoding

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_LOWER_FORM = _LOWER | {ord("+"): ord(" ")}  # as forms of web pages are encoded


class Secret:
    """A key that is hidden in tracebacks and every other repr, and found in any text.

    It is found in letters of any case, each of them as it is or percent-encoded as in URLs, once or
    several times. A server that wants to hide it in another form can.
    """

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return HIDDEN

    def reveal(self) -> str:
        """The key itself, for the client alone."""
        return self._value

    def remove_from(self, text: str) -> str:
        """The text without the key. A short one is no secret, and would be found in any text."""
        if len(self._value) < SECRET_FROM:
            return text
        key, decoded = self._value.translate(_LOWER), text
        for _ in range(_LEVELS + 1):
            if key in decoded.translate(_LOWER) or key in decoded.translate(_LOWER_FORM):
                return self._pattern.sub(HIDDEN, text)
            if "%" not in decoded:
                break
            decoded = unquote(decoded, errors="surrogateescape")
        return text

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The key, each letter as it is or as it stands in URLs.

        Made only where the key is there: for one of 4,000 letters that takes a second.
        """
        letters = []
        for char in self._value:
            data = char.encode("utf-8", "surrogatepass")
            encoded = "".join(f"%(?:25){{0,{_LEVELS - 1}}}{byte:02x}" for byte in data)
            letters.append(f"(?:{re.escape(char)}|{encoded}{'|[+]' if char == ' ' else ''})")
        return re.compile("".join(letters), re.IGNORECASE)


def refuse_secrets(spec: ModelSpec) -> None:
    """Raise SpecError where a spec holds what looks like a key; the message does not repeat it.

    Specs are printed, stored and reported.
    """
    remedy = (
        "Keys come from the environment: set OPENAI_API_KEY, or name another variable with "
        "key_env=NAME"
    )
    for name, value in spec.params.items():
        named = name == "key_env" and value.lower() not in ("", "none")
        if name.lower() in _KEY_NAMES:
            fault = f"{name}= has no place in a spec, which is printed and stored. {remedy}"
        elif named and not _VARIABLE.fullmatch(value):
            fault = (
                "key_env is the NAME of an environment variable, in capitals; what was given is "
                f"none (it is not shown, since it may be a key). {remedy}"
            )
        elif name == "base_url" and any(mark in value for mark in "@?#"):
            fault = (
                "base_url holds a user, a password or a query, which have no place in a spec: it "
                f"is printed and stored. Set {URL_VARIABLE} instead"
            )
        elif name not in _FREE_TEXTS and _LOOKS_LIKE_KEY.search(value):
            fault = f"the value of {name} looks like a key. {remedy}"
        else:
            continue
        raise SpecError(f"model spec {spec.scheme}:{without_secrets(spec.target)}: {fault}")


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
    """A server's words on one line, shortened, without keys and anything that looks like one.

    Servers repeat the key they refuse, whole or in part; other programs what the environment holds.
    """
    text = mask_secrets(text)
    for secret in secrets:
        text = secret.remove_from(text)
    text = _LOOKS_LIKE_KEY.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _USERINFO.sub("", text)
    return one_line(text[: 20 * _LONGEST], _LONGEST)


class _Redaction(logging.Filter):
    """Removes the secrets of any number of servers from every record."""

    secrets: tuple[Secret, ...] = ()

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass the record on, with secrets removed from its message and its exception."""
        message = clean = record.getMessage()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        for secret in self.secrets:
            clean = secret.remove_from(clean)
            record.exc_text = record.exc_text and secret.remove_from(record.exc_text)
        if clean != message:
            record.msg, record.args = clean, ()
        return True


_REDACTION = _Redaction()

_LIBRARIES = ("httpx", "httpcore")  # also under newer names that begin so


def redact_logs(secrets: Iterable[Secret]) -> None:
    """Remove these secrets from the logs of the client's libraries, which are imported by now."""
    _REDACTION.secrets += tuple(secrets)
    # A filter works for its own logger alone, not for those below it.
    for name in [*logging.root.manager.loggerDict]:
        if name.partition(".")[0].startswith(_LIBRARIES):
            logging.getLogger(name).addFilter(_REDACTION)


OFFICIAL = "https://api.openai.com/v1"
"""The address where neither the spec nor the environment names one."""

URL_VARIABLE = "OPENAI_BASE_URL"


@dataclass(frozen=True)
class OwnServer:
    """A server that the run has started itself.

    label: of its model, for people.
    url: where its API begins.
    key: that it asks for; None for none.
    provenance: kept beside each of its results.
    log: path of its log.
    check: raises ModelError where it has ended, with the last lines of its log: no other try can
        succeed.
    files: that it may go on reading; None where there are none.
    """

    label: str
    url: str
    key: str | None
    provenance: Mapping[str, str]
    log: str
    check: Callable[[], None]
    files: CoveredFiles | None

    def unchanged(self) -> AbstractContextManager[None]:
        """Raise IdentityError where files change that it may go on reading."""
        return nullcontext() if self.files is None else self.files.unchanged("it was asked")


@dataclass(frozen=True)
class Endpoint:
    """A served model.

    model: its name on the server.
    role: that it plays here.
    url: without user, password and query, for people.
    address: for the client, with its query.
    key: None where none is sent.
    user: user and password of basic authentication, encoded; None for none.
    key_env: the environment variable of the key.
    hidden: other secrets of the address, its password and the values of its query.
    own: the server, where the run has started it.
    """

    model: str
    role: RoleName
    url: str
    address: Secret
    key: Secret | None
    user: Secret | None = None
    key_env: str | None = None
    hidden: tuple[Secret, ...] = ()
    own: OwnServer | None = None

    @cached_property
    def name(self) -> str:
        """The model as messages call it."""
        label = f"openai:{self.clean(self.model)}" if self.own is None else self.own.label
        return f"{self.role} {label}"

    def clean(self, text: str) -> str:
        """A server's words on one line, without keys."""
        return without_secrets(text, self.secrets)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All that must not be shown."""
        return tuple(secret for secret in (self.key, self.user, *self.hidden) if secret is not None)


def server_address(params: ServerParams, environment: Mapping[str, str] = os.environ) -> str:
    """Where the model is served, with what is secret in it."""
    return params.base_url or environment.get(URL_VARIABLE, "").strip() or OFFICIAL


def find_endpoint(
    model: str, role: RoleName, params: ServerParams, environment: Mapping[str, str] = os.environ
) -> Endpoint:
    """Look up address and key.

    Raises ModelError naming the variable where a key is needed and not set, and where what is set
    cannot be an address or a key.
    """
    address = server_address(params, environment)
    name = f"{role} openai:{without_secrets(model)}"
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ModelError(
            f"{name}: {public_url(address)} is no address of a server. Correct base_url= in its "
            f"spec, or {URL_VARIABLE}: http://HOST:PORT/v1 is expected"
        )
    user = None
    hidden = [value for _, value in parse_qsl(parts.query)]
    if parts.username is not None:
        password = unquote(parts.password or "")
        hidden.append(password)
        pair = f"{unquote(parts.username)}:{password}"
        user = Secret(b64encode(pair.encode()).decode())
        # Taken out, since libraries log the addresses that they call.
        address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    url = public_url(address)
    value = environment.get(params.key_env, "").strip() if params.key_env else ""
    named = params.key_env not in (None, "OPENAI_API_KEY")
    if not value and user is None and (named or (params.key_env and url == OFFICIAL)):
        raise ModelError(
            f"{name}: no key for {url}: the environment variable "
            f"{params.key_env} is not set. Set it, or name another with key_env=NAME (key_env=none "
            "sends no key)"
        )
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise ModelError(
            f"{name}: what {params.key_env} holds is no key (it is not shown). Set it anew"
        )
    return Endpoint(
        model,
        role,
        url,
        Secret(address),
        Secret(value) if value else None,
        user,
        params.key_env,
        tuple(map(Secret, hidden)),
    )
