"""What is noticed about a server while it is asked: what it does not take, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_cepbench.models.api.credentials import without_secrets
from pytest_cepbench.models.api.endpoint import Endpoint
from pytest_cepbench.models.api.responses import ApiResponse
from pytest_cepbench.models.protocols import RoleName

_OTHER_NAMES = {"max_tokens": "max_completion_tokens"}
"""Parameters that newer servers know by another name."""

_MATTERS_NOT = ("response_format",)
"""Parameters that change no answer: one that is not taken is no news."""


_SERVED, _UNHEEDED = "server served", "not honoured"
"""In the provenance of results: the name under which a server answered, and what it did not honour."""

_NAMED = 3

_LONGEST_NAME = 100


def warnings_of(role: RoleName, model: str, provenances: Sequence[Mapping[str, str]]) -> list[str]:
    """What every report says of results of a server, whether they were asked for now or long ago.

    model: the name that was asked for. provenances: of results. A name that only adds a date is another
    name too: which weights an alias stands for changes.
    """
    asked = without_secrets(model)
    name = f"{role} openai:{asked}"
    served = _different(provenances, _SERVED, asked[:_LONGEST_NAME])
    unheeded = _different(provenances, _UNHEEDED, "")
    found = []
    if served:
        found.append(
            f"{name}: the server answered as {_listed(served)}, and {asked!r} was asked for: see that "
            "it is the model that is meant, and name it as the server does"
        )
    if unheeded:
        found.append(f"{name}: answers were made without what was asked for: {_listed(unheeded)}")
    return found


def _different(provenances: Sequence[Mapping[str, str]], field: str, usual: str) -> list[str]:
    """What is said under a name otherwise than usual, each once; it may come from anybody's store."""
    said = (one[field] for one in provenances if one.get(field, usual) != usual)
    return list(dict.fromkeys(map(without_secrets, said)))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more


class ServerCapabilities:
    """Keeps what is known of one server in this process."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._left_out: dict[str, str] = {}  # parameter -> how it was asked for
        self._renamed: dict[str, str] = {}
        self._notes: dict[str, None] = {}
        self._reported: dict[str, str] = {}
        self._changed: set[str] = set()
        self._cut = 0

    def allowed(self, optional: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the parameters that the server takes, under the names that it knows."""
        named = {self._renamed.get(name, name): value for name, value in optional.items()}
        return {name: value for name, value in named.items() if name not in self._left_out}

    def leave_out(self, parameter: str, value: Any, words: str) -> None:
        """The server does not take a parameter: under its other name, or not at all from now on."""
        if parameter in _OTHER_NAMES and parameter not in self._renamed:
            self._renamed[parameter] = _OTHER_NAMES[parameter]
            return
        if parameter in self._left_out or parameter in self._renamed:
            return  # another request on the way has met with the same
        # A seed differs from input to input; what matters is that none was looked at.
        number = f"{value:g}" if isinstance(value, float) else value
        shown = parameter if parameter == "seed" else f"{parameter}={number}"
        self._left_out[parameter] = shown
        if parameter not in _MATTERS_NOT:
            self._notes[
                f"{self._endpoint.name}: the server does not take {shown} "
                f"({self._endpoint.clean(words)}): it was left out"
            ] = None

    def hear(self, answer: ApiResponse) -> tuple[dict[str, str], tuple[str, ...]]:
        """Provenance of an answer's result, and what is to be told of it."""
        remarks = list(self._notes)
        reported = {k: self._endpoint.clean(v)[:_LONGEST_NAME] for k, v in answer.reported.items()}
        remarks += self._changes(reported)
        unheeded = [v for name, v in self._left_out.items() if name not in _MATTERS_NOT]
        if answer.odd:
            unheeded.append(answer.odd)
            remarks.append(f"{self._endpoint.name}: the server gave {answer.odd}")
        if answer.cut:
            self._cut += 1
            if str(self._cut).strip("0") == "1":  # 1, 10, 100, ...
                remarks.append(
                    f"{self._endpoint.name}: answers cut off by max_tokens so far: {self._cut}; a larger "
                    "one would leave them whole"
                )
        provenance = {f"server {name}": text for name, text in reported.items()}
        if unheeded:
            provenance[_UNHEEDED] = ", ".join(unheeded)
        return provenance, tuple(remarks)

    def _changes(self, reported: Mapping[str, str]) -> list[str]:
        """Where the server calls itself otherwise than before: it may be another model by now."""
        found = []
        for name, text in reported.items():
            before = self._reported.setdefault(name, text)
            if text != before and name not in self._changed:
                self._changed.add(name)
                found.append(
                    f"{self._endpoint.name}: what answers has changed during the run: its {name} was "
                    f"{before!r} and is {text!r}"
                )
        return found
