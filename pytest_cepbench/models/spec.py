"""Model specs: the string a user types for a model, taken apart: `SCHEME:TARGET?NAME=VALUE&...`.

`SCHEMES` is the one table of schemes: parsing, binding, docs and tests read it. To add a provider,
write a module with functions `detect` and `bind` (`binding` lists them all) and enter it here.
Without a scheme the target is a folder or a hub id.
"""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, unquote, unquote_plus

from pytest_cepbench.errors import SpecError, nearest_name, unknown_name
from pytest_cepbench.escapes import HIDDEN, SECRET_FROM, environment_secrets
from pytest_cepbench.models import ROLE_NAMES, RoleName

HUMAN, PRESET, REPLAY = "human", "preset", "replay"


@dataclass(frozen=True)
class Scheme:
    """A scheme of model specs, as far as it is known without importing its provider.

    name: what a spec begins with, before the colon; empty for folders and hub ids.
    summary: what such a spec names, for people.
    roles: that its models can play, all together.
    module: provides its models; empty where a suite replaces the spec before any is bound.
    served: whether its models work on a server: they need no device, and their key is here.
    """

    name: str
    summary: str
    roles: tuple[RoleName, ...]
    module: str = ""
    served: bool = False


_HERE = "pytest_cepbench.models"

SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "",
            "a checkpoint: a folder, or the id of one on the Hugging Face hub",
            ROLE_NAMES,
            f"{_HERE}.checkpoints.binding",
        ),
        Scheme(
            "shapes",
            "the built-in rule-based models of the shapes world, exact or degraded by known "
            "amounts",
            tuple(role for role in ROLE_NAMES if role != "editor"),
            f"{_HERE}.rule_based",
        ),
        Scheme(
            "tones",
            "the built-in rule-based models of the world of tones: they hear and play sounds",
            ("describer", "generator", "encoder"),
            f"{_HERE}.rule_based",
        ),
        Scheme(
            "python",
            "a model of your own: an object that satisfies a role's Protocol",
            ROLE_NAMES,
            f"{_HERE}.python_model",
        ),
        Scheme(
            "openai",
            "a model behind an OpenAI-compatible server",
            ("describer", "generator", "judge", "writer", "vqa"),
            f"{_HERE}.api.provider",
            served=True,
        ),
        Scheme(
            "serve",
            "a checkpoint behind a server that the run starts: vllm, sglang or transformers",
            ("describer", "judge", "writer", "vqa"),
            f"{_HERE}.serving.provider",
            served=True,
        ),
        Scheme(
            "unicom",
            "Unicom's released weights, one file without a configuration",
            ("encoder",),
            f"{_HERE}.encoders.file_encoders",
        ),
        Scheme(
            "cleanfid",
            "clean-fid's Inception, one file without a configuration",
            ("encoder",),
            f"{_HERE}.encoders.file_encoders",
        ),
        Scheme(
            HUMAN,
            "people, whose votes or descriptions are in a ratings folder",
            ("judge", "describer"),
            f"{_HERE}.people",
        ),
        Scheme(PRESET, "settings of a suite for a generator", ("generator",)),
        Scheme(
            REPLAY, "chains that were made elsewhere, in the place of describer and generator", ()
        ),
    )
}


_BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)

P = TypeVar("P")


@dataclass(frozen=True)
class ModelSpec:
    """A spec taken apart; its text identifies it.

    text: as typed, which is also what `str` gives.
    scheme: one of `SCHEMES`; "" for folders and hub ids.
    target: what follows the scheme, without parameters.
    params: as typed, strings.
    """

    text: str
    scheme: str
    target: str
    params: Mapping[str, str] = field(hash=False)

    def __str__(self) -> str:
        return self.text

    def error(self, fault: str) -> SpecError:
        """The error that something is wrong with this spec; fault: what, and what to do."""
        return SpecError(f"model spec {self.text!r}: {fault}")


def parse_spec(text: str) -> ModelSpec:
    """Take a spec apart.

    Raises SpecError when it is empty, a parameter is malformed or repeated, or holds the value of
    an environment variable that is named like a key, or that `key_env` names; and for bytes that
    are no UTF-8, where the model is asked by requests.
    """
    if not text.strip():
        raise SpecError(
            "a model spec is empty: give a folder, a hub id, shapes: or "
            "python:package.module:factory"
        )
    # A folder whose name happens to hold '?' or ':'. Unlike Path.exists, this is False for a name
    # that is too long for any file, such as one with a prompt in it.
    if os.path.exists(text):  # noqa: PTH110 - see above
        return ModelSpec(text, "", text, {})
    body, _, query = text.partition("?")
    scheme, colon, rest = body.partition(":")
    if colon and scheme not in SCHEMES and nearest_name(scheme, SCHEMES, cutoff=0.75):
        raise SpecError(
            f"model spec '{scheme}:...': {unknown_name('scheme', scheme, filter(None, SCHEMES))}"
        )
    if not colon or scheme not in SCHEMES:
        scheme, rest = "", body
    _refuse_keys(body, query)
    pairs: list[tuple[str, str]] = []
    with suppress(ValueError):
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    if len(dict(pairs)) < len(pairs) or (query and not pairs):
        shown = f"{body}?..." if SCHEMES[scheme].served else text  # one may be a key
        raise SpecError(
            f"model spec {shown!r}: parameters are written ?name=value&name=value, each of them "
            "once"
        )
    if SCHEMES[scheme].served and text.encode("utf-8", "ignore").decode() != text:
        raise SpecError(f"model spec {body!r}: some of its bytes are no UTF-8, as requests are")
    return ModelSpec(text, scheme, rest, dict(pairs))


def _refuse_keys(body: str, query: str) -> None:
    """Raise SpecError where a parameter holds a key, without repeating it: specs are printed,
    stored and reported.
    """
    secrets = environment_secrets()
    for name, variable in parse_qsl(query):
        value = os.environ.get(variable, "").strip() if name == "key_env" else ""
        if len(value) >= SECRET_FROM:
            secrets[variable] = value
    readings = (query, unquote(query), unquote_plus(query))
    for variable, secret in secrets.items():
        if any(secret in text for text in readings) or secret == body.partition(":")[2]:
            raise SpecError(
                f"model spec {body.replace(secret, HIDDEN)!r}: it holds the value of the "
                f"environment variable {variable}, which is taken for a key, and specs are "
                "printed, stored and reported. Keys come from the environment: set OPENAI_API_KEY, "
                "or name another variable with key_env=NAME"
            )


def given_params(params: object, *names: str) -> dict[str, Any]:
    """Those of a dataclass's parameters that are not None."""
    return {name: value for name in names if (value := getattr(params, name)) is not None}


@dataclass(frozen=True)
class Bounds:
    """What a parameter may be, in the annotation of its field: see `parse_params`.

    least, most: of a number, which is finite. above: whether `least` itself is too small.
    choices: of a word.
    """

    least: float = -math.inf
    above: bool = False
    most: float = math.inf
    choices: tuple[str, ...] = ()

    def wanted(self, value: Any) -> str:
        """What the value had to be instead; empty where it may be so."""
        if self.choices:
            known = " or " if len(self.choices) < 3 else ", "
            return "" if value in self.choices else known.join(self.choices)
        low = value <= self.least if self.above else value < self.least
        # Whole numbers have no bound, and one beyond floats would end in an OverflowError.
        if not low and value <= self.most and (isinstance(value, int) or math.isfinite(value)):
            return ""
        bounds = []
        if math.isfinite(self.least):
            bounds.append(f"{'above' if self.above else 'at least'} {self.least:g}")
        if math.isfinite(self.most):
            bounds.append(f"at most {self.most:g}")
        kind = "" if isinstance(value, int) else "a number, "
        return kind + (" and ".join(bounds) or "finite")


Natural = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
Finite = Annotated[float, Bounds()]
NotNegative = Annotated[float, Bounds(0)]
AboveZero = Annotated[float, Bounds(0, above=True)]
Share = Annotated[float, Bounds(0, above=True, most=1)]


def split_params(spec: ModelSpec, what: str, *parts: Collection[str]) -> list[ModelSpec]:
    """The spec with the parameters of each part alone.

    what: the parameters are for, in words. parts: their names.
    Raises SpecError for a parameter that is in none of them.
    """
    known = set().union(*parts)
    for name in spec.params:
        if name not in known:
            raise spec.error(unknown_name(f"parameter for {what}", name, known))
    return [
        dataclasses.replace(spec, params={n: v for n, v in spec.params.items() if n in part})
        for part in parts
    ]


def parse_parts(spec: ModelSpec, what: str, *kinds: type[Any]) -> tuple[Any, ...]:
    """Read a spec's parameters as dataclasses that share no name; raises as `parse_params`."""
    own = split_params(spec, what, *({f.name for f in dataclasses.fields(kind)} for kind in kinds))
    return tuple(parse_params(part, kind, what) for part, kind in zip(own, kinds, strict=True))


def parse_params(spec: ModelSpec, kind: type[P], what: str, beside: Collection[str] = ()) -> P:
    """Fill a dataclass of parameters from a spec's strings.

    beside: names of parameters that the spec may have too, and that are read elsewhere.
    Each field's annotation is bool, int, float or str, possibly Annotated with `Bounds`, and
    possibly `| None` (the empty string or "none" means None). Raises SpecError naming the parameter
    that is unknown or has a wrong value; a ValueError of the dataclass's own `__post_init__` is
    reported the same way.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    known = [
        field.name
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.init
    ]
    own = split_params(spec, what, known, beside)[0].params
    values = {name: _convert(spec, name, raw, hints[name]) for name, raw in own.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise spec.error(str(error)) from error


def _convert(spec: ModelSpec, name: str, raw: str, hint: Any) -> Any:
    if types.NoneType in typing.get_args(hint):
        if raw.lower() in ("", "none"):
            return None
        (hint,) = (choice for choice in typing.get_args(hint) if choice is not types.NoneType)
    kind = getattr(hint, "__origin__", hint)
    try:
        value = _BOOLEANS[raw.lower()] if kind is bool else kind(raw)
    except (KeyError, ValueError) as error:
        raise spec.error(f"parameter {name!r} must be {kind.__name__}, got {raw!r}") from error
    for bounds in getattr(hint, "__metadata__", ()):
        if wanted := bounds.wanted(value):
            raise spec.error(f"{name} must be {wanted}, got {value!r}")
    return value
