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
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from pytest_cepbench.artifacts import Modality, canonical_json, digest_json, digest_text
from pytest_cepbench.errors import RoleError, did_you_mean, named_error, public_names
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

_UNSEEDED = ("encoder", "detector", "vqa")
"""Roles whose answers are taken not to depend on the seed where the model does not say."""


class _Stated(msgspec.Struct):
    """What a model states of itself beside its fingerprint, see above."""

    params: dict[str, Any] = {}
    seeded: bool | None = None
    queries: Queries = "free-text"
    batch_size: Annotated[int, msgspec.Meta(ge=1)] = 8
    device: str = "cpu"
    files: Any = ()
    reads: frozenset[Modality] = READS
    makes: Literal["image", "sound"] = "image"
    what: str | None = None


_OF_ROLES = {
    "queries": {"detector"},
    "reads": {"describer", "encoder", "generator"},
    "makes": {"describer", "encoder", "generator"},
}
"""Attributes that models of other roles may have with another meaning."""


def roles_of(model: object) -> tuple[RoleName, ...]:
    """The roles whose Protocol an object satisfies."""
    return tuple(name for name, role in ROLES.items() if isinstance(model, role.protocol))


def _stated(spec: ModelSpec, model: object) -> _Stated:
    """The attributes of a model. Raises SpecError for one that is of another kind, or raises."""
    kind, roles = type(model).__name__, {*roles_of(model)}
    given: dict[str, Any] = {"reads": READS | {"sound"}} if isinstance(model, SoundEncoder) else {}
    for name in _Stated.__struct_fields__:
        with _user_code(spec, f"{kind}.{name}"):
            if roles & _OF_ROLES.get(name, roles) and hasattr(model, name):
                given[name] = getattr(model, name)
    try:
        stated = msgspec.convert(given, _Stated)
        canonical_json(stated.params)
    except (TypeError, ValueError, msgspec.ValidationError) as error:
        raise spec.error(
            f"what a {kind} states of itself cannot be: {error}. Its params are built-in types and "
            "finite numbers"
        ) from error
    return stated


def detect(spec: ModelSpec) -> DetectedModel:
    """The roles of a `python:` model, which is made for that. Raises as `make_model`."""
    model = make_model(spec)
    roles, stated = roles_of(model), _stated(spec, model)
    return DetectedModel(spec.target, roles, "", is_unified(roles), stated.reads, stated.makes)


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
    stated = _stated(spec, model)
    params: dict[str, Any] = {"spec": dict(spec.params), "model": stated.params}
    if role == "detector":
        params["queries"] = stated.queries
    try:
        paths = [Path(os.fspath(path)).absolute() for path in stated.files]
        absent = [path for path in paths if not path.is_file()]
    except TypeError:
        absent = [stated.files]
    if absent:
        raise spec.error(
            f"{kind}.files must be the paths of the files that its fingerprint covers, in a list; "
            f"in {stated.files!r:.200} {str(absent[0])!r:.200} is no file"
        )
    files = None
    if paths:
        files = CoveredFiles(
            spec.text,
            context.hash_file,
            lambda hash_file: digest_json([[str(path), hash_file(path)] for path in paths]),
        )
        # From here on they are looked at again. Only now is the model asked for its own digest, so
        # that it is of these files, or the change is seen.
        assert files.fingerprint
    with _user_code(spec, f"{kind}.fingerprint"):
        own = getattr(model, "fingerprint", None)
    if not isinstance(own, str) or not own:
        raise spec.error(
            f"{kind}.fingerprint must be a non-empty text, got {own!r}. Results are stored under "
            "it: without one, the stored answers of other weights would be served as this model's. "
            "Give a digest of the weights and of the code version"
        )
    # The modules that the spec names, that define the factory where that is imported from
    # elsewhere, and that define the model's class. A `functools.partial` names the module of its
    # own class.
    module, factory = spec.target.partition(":")[0], _import(spec)
    defining = factory.__module__ if hasattr(factory, "__qualname__") else module
    source = source_of(module, defining, type(model).__module__)
    return BoundRole(
        role=role,
        spec=spec.text,
        what=stated.what or spec.target,
        # Baselines name a model by the first digits: of "my-model/3 c0ffee..." these are no digits
        # at all.
        fingerprint=own if len(own) <= SHORT_FINGERPRINT else digest_text(own),
        adapter=ADAPTER,
        load=lambda: model,
        params=params,
        seeded=role not in _UNSEEDED if stated.seeded is None else stated.seeded,
        resources=Resources(stated.batch_size, lasting=True, shares=spec.text),
        provenance={
            "device": stated.device,
            CODE: f"{spec.target} ({source})" if source else spec.target,
        },
        files=files,
        reads=stated.reads,
        makes=stated.makes,
        scores_answers=role == "judge" and isinstance(model, AnswerScorer),
    )


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
        with _user_code(spec, "the factory"):
            made = made(**spec.params)
    elif spec.params:
        raise spec.error(f"{spec.target} is no factory, so it takes no parameters")
    return made  # type: ignore[no-any-return] # judged by roles_of, at run time


@contextmanager
def _user_code(spec: ModelSpec, what: str) -> Iterator[None]:
    """Have whatever the user's code raises explained by its own words, as a SpecError.

    A module or a factory may also call `sys.exit()` or `pytest.skip()` ("no GPU"), which are no
    `Exception` and would end the process, or skip a test, without a word of the model.

    what: the code that runs.
    """
    try:
        yield
    except KeyboardInterrupt:  # of the person at the terminal
        raise
    except BaseException as error:
        raise spec.error(f"{what} raised {named_error(error)}") from error


def _import(spec: ModelSpec) -> Any:
    module_name, colon, attribute = spec.target.partition(":")
    if not (module_name and colon and attribute):
        raise spec.error("expected python:package.module:factory")
    here = str(Path.cwd())
    if here not in sys.path:
        # As `python -m` does: the user's module is often next to the tests.
        sys.path.insert(0, here)
    with _user_code(spec, f"importing {module_name!r} from {here} or the installed packages"):
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
    return f"{next(iter(files))} {digest_json(sorted(files.items()))[:16]}" if files else ""
