"""Models of the user's own: `python:package.module:factory?name=value`.

The factory is called with the spec's parameters as strings and returns an object that satisfies a
role's Protocol. The object states its identity itself, by these attributes:

    fingerprint: str        required: whatever decides its answers besides `params`
    params: Mapping         inference parameters that can change the output (default: none)
    seeded: bool            whether the output depends on the seed (default: not for an encoder, a
                            detector or a VQA model)
    queries: str            what a detector may be asked: "free-text" (default), or "classes", the
                            plain names of those that it knows
    batch_size: int         most inputs in one call (default: 8)
    device: str             where it works, as torch names it, or "server" where that is outside of
                            this machine (default: "cpu"); with --cep-residency=swap its method
                            `move(device)`, if it has one, is called with "cpu" and this in turn
    files: Sequence         paths of the files that the fingerprint covers (default: none known);
                            they are looked at again before and after the first answers
    reads: Collection       kinds that a describer or an encoder reads (default: text and image;
                            also sound where it has the method `encode_sounds`)
    makes: str              what a generator makes: "image" (default) or "sound"
    what: str               a name for people (default: the spec's target)

A judge that has the method `score_answers(answers, seeds)` can score single answers too.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from pytest_cepbench.artifacts import Modality, canonical_json, digest_json, digest_text
from pytest_cepbench.errors import RoleError, did_you_mean, named_error, public_names, unknown_name
from pytest_cepbench.models.binding import (
    SHORT_FINGERPRINT,
    BindContext,
    BoundRole,
    CoveredFiles,
    DetectedModel,
    Resources,
)
from pytest_cepbench.models.protocols import (
    CODE,
    READS,
    AnswerScorer,
    Model,
    Queries,
    RoleName,
    SoundEncoder,
    is_unified,
)
from pytest_cepbench.models.roles import ROLES
from pytest_cepbench.models.spec import ModelSpec

ADAPTER = "python/1"

_SEEDED = ("describer", "generator", "judge", "writer", "editor", "interleaver")
"""Roles whose answers are taken to depend on the seed where the model does not say."""

_DIGITS = 16


def roles_of(model: object) -> tuple[RoleName, ...]:
    """The roles whose Protocol an object satisfies."""
    return tuple(name for name, role in ROLES.items() if isinstance(model, role.protocol))


def detect(spec: ModelSpec) -> DetectedModel:
    """The roles of a `python:` model, which is made for that. Raises as `make_model`."""
    model = make_model(spec)
    roles = roles_of(model)
    unified = is_unified(roles)
    return DetectedModel(spec.target, roles, "", unified, *_kinds(spec, model))


def bind(spec: ModelSpec, role: RoleName, context: BindContext) -> BoundRole:
    """Bind a `python:` model. The object is made here, since it alone knows its identity; a factory
    should put off loading weights to the first call.

    Raises SpecError when it cannot be imported or made, or its attributes are of the wrong kind,
    RoleError naming the missing methods when it does not satisfy the role's Protocol.
    """
    model = make_model(spec)
    kind = type(model).__name__
    if not isinstance(model, ROLES[role].protocol):
        missing = [
            str(m) for m in ROLES[role].required if not callable(getattr(model, m.name, None))
        ]
        able = " and ".join(roles_of(model)) or "no role"
        article = "an" if role[0] in "aeiou" else "a"
        raise RoleError(
            f"{spec.text!r} is a {kind}, which can play {able}; {article} {role} needs "
            f"the method {' and '.join(missing)}"
        )
    params: dict[str, Any] = {
        "spec": dict(spec.params),
        "model": dict(_attribute(spec, model, "params", Mapping, {})),
    }
    if role == "detector":
        known = get_args(Queries)
        expected = " or ".join(map(repr, known))
        params["queries"] = _attribute(
            spec, model, "queries", str, "free-text", known.__contains__, expected
        )
    try:
        canonical_json(params)
    except (TypeError, ValueError) as error:
        raise spec.error(f"params must be built-in types and finite numbers ({error})") from error
    named = _stated(spec, model, "files", ())
    try:
        paths = [Path(os.fspath(path)).absolute() for path in named]
    except TypeError as error:
        raise spec.error(
            f"{kind}.files must be the paths of the files that its fingerprint covers, got "
            f"{named!r}"
        ) from error
    files = None
    if paths:
        files = CoveredFiles(
            spec.text,
            context.hash_file,
            lambda hash_file: digest_json([[str(path), hash_file(path)] for path in paths]),
        )
        # From here on they are looked at again; the model's own digest of them is a moment old.
        assert files.fingerprint
    stated = _stated(spec, model, "fingerprint", None)
    if not isinstance(stated, str) or not stated:
        raise spec.error(
            f"{kind}.fingerprint must be a non-empty text, got {stated!r}. Results "
            "are stored under it: without one, the stored answers of other weights would be served "
            "as this model's. Give a digest of the weights and of the code version"
        )
    # The modules that the spec names, that define the factory where that is imported from
    # elsewhere, and that define the model's class. A `functools.partial` names the module of its
    # own class.
    module, factory = spec.target.partition(":")[0], _import(spec)
    defining = factory.__module__ if hasattr(factory, "__qualname__") else module
    source = source_of(module, defining, type(model).__module__)
    reads, makes = _kinds(spec, model)
    return BoundRole(
        role=role,
        spec=spec.text,
        what=_attribute(spec, model, "what", str, spec.target),
        # Baselines name a model by the first digits: of "my-model/3 c0ffee..." these are no digits
        # at all.
        fingerprint=stated if len(stated) <= SHORT_FINGERPRINT else digest_text(stated),
        adapter=ADAPTER,
        load=lambda: model,
        params=params,
        seeded=_attribute(spec, model, "seeded", bool, role in _SEEDED),
        resources=Resources(
            _attribute(spec, model, "batch_size", int, 8, lambda size: size > 0, "1 or more"),
            lasting=True,
            shares=spec.text,
        ),
        provenance={
            "device": _attribute(spec, model, "device", str, "cpu"),
            CODE: f"{spec.target} ({source})" if source else spec.target,
        },
        files=files,
        reads=reads,
        makes=makes,
        scores_answers=role == "judge" and isinstance(model, AnswerScorer),
    )


def _kinds(spec: ModelSpec, model: object) -> tuple[frozenset[Modality], Modality]:
    """The kinds of artifacts that a model reads, and the one that it makes.

    Models of other roles may have attributes of these names that mean something else.
    """
    known, roles = get_args(Modality), roles_of(model)
    if not {"describer", "encoder", "generator"}.intersection(roles):
        return READS, "image"
    hears = READS | {"sound"} if isinstance(model, SoundEncoder) else READS
    exist: Callable[[Any], bool] = lambda kinds: (  # noqa: E731
        not isinstance(kinds, str) and set(kinds) <= set(known)
    )
    words = f"a set of {', '.join(map(repr, known))}"
    reads = _attribute(spec, model, "reads", Collection, hears, exist, words)
    made = [kind for kind in known if kind != "text"]
    words = " or ".join(map(repr, made))
    makes = _attribute(spec, model, "makes", str, "image", made.__contains__, words)
    return frozenset(reads), makes


@functools.cache
def make_model(spec: ModelSpec) -> Model:
    """Import what a `python:` spec names and call it with the spec's parameters.

    An object that already plays a role is taken as it is, unless parameters are given for it. Each
    spec is made once per process: detection and two roles of one model share the object, which may
    hold weights. Raises SpecError saying which part failed.
    """
    made = _import(spec)
    if isinstance(made, type) or not roles_of(made):
        if not callable(made):
            raise spec.error(
                f"{spec.target} is a {type(made).__name__}; expected a factory, or an object with "
                "the methods of a role"
            )
        known: list[str] | None = None
        with suppress(TypeError, ValueError):  # some callables of C have no signature
            parameters = inspect.signature(made).parameters.values()
            kinds = inspect.Parameter
            by_name = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
            if all(parameter.kind is not kinds.VAR_KEYWORD for parameter in parameters):
                known = [parameter.name for parameter in parameters if parameter.kind in by_name]
        for name in spec.params:
            if known is not None and name not in known:
                what = unknown_name(f"parameter for {spec.target}", name, known)
                raise spec.error(what)
        with _user_code(spec, "the factory"):
            made = made(**spec.params)
    elif spec.params:
        raise spec.error(f"{spec.target} is no factory, so it takes no parameters")
    return made  # type: ignore[no-any-return] # judged by roles_of, at run time


@contextmanager
def _user_code(
    spec: ModelSpec, what: str, hint: Callable[[BaseException], str] = lambda _: ""
) -> Iterator[None]:
    """Have whatever the user's code raises explained by its own words, as a SpecError.

    A module or a factory may also call `sys.exit()` or `pytest.skip()` ("no GPU"), which are no
    `Exception` and would end the process, or skip a test, without a word of the model.

    what: the code that runs. hint: what to add for an exception.
    """
    try:
        yield
    except KeyboardInterrupt:  # of the person at the terminal
        raise
    except BaseException as error:
        raise spec.error(f"{what} raised {named_error(error)}{hint(error)}") from error


def _import(spec: ModelSpec) -> Any:
    module_name, colon, attribute = spec.target.partition(":")
    if not (module_name and colon and attribute):
        raise spec.error("expected python:package.module:factory")
    here = str(Path.cwd())
    if here not in sys.path:
        # As `python -m` does: the user's module is often next to the tests.
        sys.path.insert(0, here)
    package, _, name = module_name.rpartition(".")

    def nearest(error: BaseException) -> str:
        if not isinstance(error, ModuleNotFoundError) or error.name != module_name:
            return ""
        beside = pkgutil.iter_modules([str(Path(here, *package.split(".")))])
        near = did_you_mean(name, [module.name for module in beside])
        return f".{near}" if near else ""

    what = f"importing {module_name!r} from {here} or the installed packages"
    with _user_code(spec, what, nearest):
        imported = importlib.import_module(module_name)
    for name in attribute.split("."):
        if not hasattr(imported, name):
            public = public_names(imported)
            known = ", ".join(public) or "nothing"
            raise spec.error(
                f"{module_name} has no {attribute!r}; it has {known}.{did_you_mean(name, public)}"
            )
        imported = getattr(imported, name)
    return imported


def _stated(spec: ModelSpec, model: object, name: str, default: object) -> Any:
    """An attribute of the model. Raises SpecError where it is a property that raises."""
    with _user_code(spec, f"{type(model).__name__}.{name}"):
        return getattr(model, name, default)


def _attribute(
    spec: ModelSpec,
    model: object,
    name: str,
    kind: type,
    default: Any,
    valid: Callable[[Any], bool] = lambda _: True,
    expected: str = "",
) -> Any:
    """An attribute of the model; SpecError where it is of another kind, or not valid.

    expected: what is valid, for people, where the kind alone does not say it.
    """
    value = _stated(spec, model, name, default)
    fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if not fits or not valid(value):
        must_be = expected if fits else kind.__name__
        owner = f"{type(model).__name__}.{name}"
        raise spec.error(f"{owner} must be {must_be}, got {value!r}")
    return value


def source_of(*modules: str) -> str:
    """File and digest of imported modules, in one phrase: `models.py 0123456789abcdef`.

    Where the code of a user's model changes and its stated fingerprint does not, stored answers of
    the code before are served. The digest is kept beside results, where it can be compared, and
    never in a key: a changed comment must not cost a night of computing.

    modules: names as in `sys.modules`; the first one with a file of source code is named. Empty
    where none has one.
    """
    files: dict[str, str] = {}
    for name in dict.fromkeys(modules):
        file = Path(getattr(sys.modules.get(name), "__file__", None) or "")
        if file.suffix == ".py" and file.is_file():
            root = file.parents[name.count(".") + (file.name == "__init__.py")]
            files[file.relative_to(root).as_posix()] = sha256(file.read_bytes()).hexdigest()
    return f"{next(iter(files))} {digest_json(sorted(files.items()))[:_DIGITS]}" if files else ""
