"""What to do where a server cannot be used: one line each, which names the option."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from pytest_cepbench.errors import ModelError
from pytest_cepbench.escapes import redirect_target
from pytest_cepbench.models.api.endpoint import URL_VARIABLE, Endpoint
from pytest_cepbench.models.api.error_codes import ApiFault

UNREACHABLE = "unreachable"
"""Code of a fault where nobody took the connection."""

_SHOWN = 6  # names of other models


def fatal(endpoint: Endpoint, fault: ApiFault, listed: Sequence[str] = ()) -> ModelError:
    """The error of a fault that every request would end with. listed: models that the server names."""
    said = f"{fault.status}: {endpoint.clean(fault.words)}"
    where = f"{endpoint.name}: {endpoint.url}"
    if fault.status == 401:
        return ModelError(f"{where} refuses the key ({said}). {_key(endpoint)}")
    if fault.status == 403:
        return ModelError(
            f"{where} forbids it ({said}): the key has expired, or may not use this model. "
            f"{_key(endpoint)}"
        )
    if fault.status in (402, 429):
        return ModelError(f"{where} wants to be paid ({said}): the quota of the key is used up")
    if fault.pointed:
        return redirected(endpoint, fault)
    if fault.status == 404 and (listed or _is_about(endpoint.model, fault)):
        return unknown_model(endpoint, said, listed)
    return ModelError(f"{where} has no such interface ({said}). {_base_url()}")


def redirected(endpoint: Endpoint, fault: ApiFault) -> ModelError:
    """The error of a server that points to another address."""
    place = endpoint.clean(redirect_target(fault.pointed, f"{endpoint.url}/"))
    return ModelError(
        f"{endpoint.name}: {endpoint.url} points to {place} ({fault.status}), and "
        "redirects are not followed: images and prompts would go wherever a server says. If the model "
        f"is served there, write that address: base_url= in its spec, or {URL_VARIABLE}"
    )


def unknown_model(endpoint: Endpoint, said: str, listed: Sequence[str]) -> ModelError:
    """The error of a model that the server does not know."""
    return ModelError(
        f"{endpoint.name}: {endpoint.url} does not know this model ({said}).{near(endpoint, listed)} "
        f"Correct the name in --{endpoint.role} (or --model)"
    )


def unreachable(endpoint: Endpoint, fault: ApiFault) -> ModelError:
    """The error of an address where no server is."""
    return ModelError(
        f"{endpoint.name}: no server answers at {endpoint.url} ({endpoint.clean(fault.words)}). Start "
        f"it. {_base_url()}"
    )


def web_page(endpoint: Endpoint, words: str) -> ModelError:
    """The error of an address that is somebody's web site."""
    return ModelError(
        f"{endpoint.name}: {endpoint.url} answers with {endpoint.clean(words)}. {_base_url()}"
    )


def pointer(endpoint: Endpoint) -> ModelError:
    """The error of a server that answers with the addresses of its images."""
    return ModelError(
        f"{endpoint.name}: {endpoint.url} gives the address of an image instead of the image, and "
        "addresses from answers are not fetched. Let the server answer with data "
        "(response_format=b64_json, which is sent where the spec does not say none)"
    )


def silent(endpoint: Endpoint, count: int, words: str, listed: Sequence[str] = ()) -> ModelError:
    """The error of a batch in which nothing was answered. words: of the last fault."""
    missing = bool(listed) and endpoint.model not in listed
    return ModelError(
        f"{endpoint.name}: {endpoint.url} answered none of {count} requests; the last fault: "
        f"{endpoint.clean(words)}.{near(endpoint, listed) if missing else ''} See to the server; "
        "timeout=, retries= and patience= in the spec say how long it is waited for"
    )


def near(endpoint: Endpoint, listed: Sequence[str]) -> str:
    """What the server lists, the nearest names first."""
    if not listed:
        return ""
    close = get_close_matches(endpoint.model, listed, n=1)
    hint = f" Did you mean {endpoint.clean(close[0])!r}?" if close else ""
    names = ", ".join(endpoint.clean(name) for name in listed[:_SHOWN])
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{hint} It lists {names}{more}."


def _is_about(model: str, fault: ApiFault) -> bool:
    return "model" in fault.code or model in fault.words or "model" in fault.words.lower()


def _key(endpoint: Endpoint) -> str:
    if endpoint.user is not None:
        return f"Correct the user and password in {URL_VARIABLE}"
    if endpoint.key_env is None:
        return "Name the environment variable of its key with key_env=NAME"
    set_or_not = "Set" if endpoint.key is None else "Correct"
    return f"{set_or_not} {endpoint.key_env}, or name another variable with key_env=NAME"


def _base_url() -> str:
    return (
        f"Correct base_url= in its spec, or {URL_VARIABLE} (most servers want it to end with /v1)"
    )
