"""Where a model is served and with which key, and keys taken out of all that is shown or stored."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.escapes import HIDDEN, mask_secrets, one_line
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
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")

OFFICIAL = "https://api.openai.com/v1"
"""The address where neither the spec nor the environment names one."""

URL_VARIABLE = "OPENAI_BASE_URL"


class Secret(str):
    """A key. Tracebacks with locals show its repr, which is not the key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


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
            fault = f"base_url holds a user, a password or a query. {remedy}"
        elif name not in _FREE_TEXTS and _LOOKS_LIKE_KEY.search(value):
            fault = f"the value of {name} looks like a key. {remedy}"
        else:
            continue
        raise SpecError(f"model spec {spec.scheme}:{without_secrets(spec.target)}: {fault}")


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "(a URL that cannot be read)"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}".rstrip("/")


def mask_keys(
    text: str, key: str | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """A server's words without keys and anything that looks like one.

    Servers repeat the key they refuse, whole or in part; other programs what the environment holds.
    """
    text = mask_secrets(text, {**environment, "CEPBENCH_MODEL_KEY": key} if key else environment)
    return _USERINFO.sub("", _LOOKS_LIKE_KEY.sub(HIDDEN, text))


def without_secrets(
    text: str, key: str | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """The same on one line, shortened."""
    return one_line(mask_keys(text, key, environment)[: 20 * _LONGEST], _LONGEST)


@dataclass(frozen=True)
class OwnServer:
    """A server that the run has started itself.

    label: of its model, for people.
    provenance: kept beside each of its results.
    log: path of its log.
    check: raises ModelError where it has ended, with the last lines of its log: no other try can
        succeed.
    files: that it may go on reading; None where there are none.
    """

    label: str
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
    url: where its API begins.
    key: None where none is sent.
    key_env: the environment variable of the key.
    own: the server, where the run has started it.
    """

    model: str
    role: RoleName
    url: str
    key: Secret | None
    key_env: str | None = None
    own: OwnServer | None = None

    @property
    def name(self) -> str:
        """The model as messages call it."""
        label = f"openai:{self.clean(self.model)}" if self.own is None else self.own.label
        return f"{self.role} {label}"

    def clean(self, text: str) -> str:
        """A server's words on one line, without keys."""
        return without_secrets(text, self.key)


def server_address(params: ServerParams) -> str:
    """Where the model is served."""
    return params.base_url or os.environ.get(URL_VARIABLE, "").strip() or OFFICIAL


def find_endpoint(model: str, role: RoleName, params: ServerParams) -> Endpoint:
    """Look up address and key.

    Raises ModelError naming the variable where a key is needed and not set, and where what is set
    cannot be an address or a key.
    """
    address = server_address(params)
    name, url = f"{role} openai:{without_secrets(model)}", public_url(address)
    known = urlsplit(url).hostname and url.startswith(("http://", "https://"))
    if not known or any(mark in address for mark in "@?#"):
        raise ModelError(
            f"{name}: {url} is no address of a server, or holds more than one. Correct base_url= "
            f"in its spec, or {URL_VARIABLE}: http://HOST:PORT/v1 is expected, without user and "
            "query"
        )
    value = os.environ.get(params.key_env, "").strip() if params.key_env else ""
    named = params.key_env not in (None, "OPENAI_API_KEY")
    if not value and (named or (params.key_env and url == OFFICIAL)):
        raise ModelError(
            f"{name}: no key for {url}: the environment variable "
            f"{params.key_env} is not set. Set it, or name another with key_env=NAME (key_env=none "
            "sends no key)"
        )
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise ModelError(
            f"{name}: what {params.key_env} holds is no key (it is not shown). Set it anew"
        )
    return Endpoint(model, role, url, Secret(value) if value else None, params.key_env)
