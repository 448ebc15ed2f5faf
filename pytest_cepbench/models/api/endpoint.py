"""Where a model is served and with which key, out of its spec and the environment."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.api.credentials import Secret, public_url, without_secrets
from pytest_cepbench.models.api.request_params import ServerParams
from pytest_cepbench.models.protocols import RoleName

OFFICIAL = "https://api.openai.com/v1"
"""Where the client goes when nobody says otherwise."""

URL_VARIABLE = "OPENAI_BASE_URL"

_NO_KEY = "none"
"""Sent where there is no key: the client wants one, and servers without keys do not look at it."""


@dataclass(frozen=True)
class Endpoint:
    """A served model.

    model: its name there. role: what it plays here. url: without user, password and query, for
    people. address: what the client is given, still with its query. key: None where none is sent.
    user: of basic authentication, None for none. key_env: where the key was looked for. others: what
    else of the address nobody is to see, its password and the values of its query.
    """

    model: str
    role: RoleName
    url: str
    address: Secret
    key: Secret | None
    user: Secret | None
    key_env: str | None
    others: tuple[Secret, ...] = ()

    @property
    def name(self) -> str:
        """The model as messages call it."""
        return f"{self.role} openai:{self.clean(self.model)}"

    @property
    def api_key(self) -> str:
        """What the client is given as key."""
        return _NO_KEY if self.key is None else self.key.reveal()

    @property
    def headers(self) -> dict[str, str]:
        """Headers beside the client's own."""
        return {} if self.user is None else {"Authorization": f"Basic {self.user.reveal()}"}

    def clean(self, text: str) -> str:
        """A stranger's words on one line, without keys."""
        return without_secrets(text, self.secrets)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must not be seen."""
        return tuple(one for one in (self.key, self.user, *self.others) if one is not None)


def shown_url(params: ServerParams) -> str:
    """Where the model is served, for people and provenance."""
    return public_url(_address(params, os.environ))


def find_endpoint(
    model: str, role: RoleName, params: ServerParams, environment: Mapping[str, str] = os.environ
) -> Endpoint:
    """Look up address and key.

    Raises ModelError naming the variable where a key is needed and not set, and where what is set
    cannot be an address or a key.
    """
    address = _address(params, environment)
    name = f"{role} openai:{without_secrets(model)}"
    parts = _parts(address)
    if parts is None:
        msg = (
            f"{name}: {public_url(address)} is no address of a server. Correct base_url= in its spec, or "
            f"{URL_VARIABLE}: http://HOST:PORT/v1 is expected"
        )
        raise ModelError(msg)
    user = None
    others = [value for _, value in parse_qsl(parts.query)]
    if parts.username is not None:
        password = unquote(parts.password or "")
        others.append(password)
        pair = f"{unquote(parts.username)}:{password}"
        user = Secret(b64encode(pair.encode()).decode())
        # Taken out, since libraries log the addresses that they call.
        address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    url = public_url(address)
    value = environment.get(params.key_env, "").strip() if params.key_env else ""
    named = params.key_env not in (None, "OPENAI_API_KEY")
    if not value and user is None and (named or (params.key_env and url == OFFICIAL)):
        msg = (
            f"{name}: no key for {url}: the environment variable "
            f"{params.key_env} is not set. Set it, or name another with key_env=NAME (key_env=none "
            "sends no key)"
        )
        raise ModelError(msg)
    if not (value.isascii() and value.isprintable()) or " " in value:
        msg = f"{name}: what {params.key_env} holds is no key (it is not shown). Set it anew"
        raise ModelError(msg)
    key = Secret(value) if value else None
    hidden = tuple(map(Secret, others))
    return Endpoint(model, role, url, Secret(address), key, user, params.key_env, hidden)


def _parts(address: str) -> SplitResult | None:
    """The parts of an address, None where it is none of a server."""
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if known else None


def _address(params: ServerParams, environment: Mapping[str, str]) -> str:
    return params.base_url or environment.get(URL_VARIABLE, "").strip() or OFFICIAL
