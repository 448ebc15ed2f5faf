"""Model specs bound for their roles: who answers for a scheme, and what a bound role is.

A provider's module, which `spec.SCHEMES` names, is imported when a spec of its scheme is first
used. Loaded files are the fingerprinted files: a fingerprint is taken when a run starts, weights
are read when they are first needed, and a trainer may write into the folder meanwhile. Answers of
one checkpoint would then be stored under another's name, so files are checked around loading.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.errors import (
    CepError,
    CheckpointError,
    DeviceMemoryError,
    IdentityError,
    SpecError,
    UnfitFileError,
    few_of,
)
from pytest_cepbench.files import FileStamp
from pytest_cepbench.models.protocols import READS, Model, RoleName
from pytest_cepbench.models.spec import SCHEMES, ModelSpec


@dataclass(frozen=True)
class DetectedModel:
    """A model as its spec or its configuration tells, before it is bound.

    what: architecture, pipeline class or factory, for people.
    roles: the roles it can play; empty where its configuration tells none.
    because: why these roles or why none, completing the sentence "it ..."; may be empty.
    unified: whether it is one model that describes and generates, so that both are under test.
    reads, makes: as of `BoundRole`.
    """

    what: str
    roles: tuple[RoleName, ...]
    because: str = ""
    unified: bool = False
    reads: frozenset[Modality] = READS
    makes: Modality = "image"


def _provided(spec: ModelSpec, name: str, default: Callable[..., Any] | None = None) -> Any:
    """A function of the module that provides the models of a spec's scheme; none loads a model.

    detect(spec), bind(spec, role, context): every module has these; they raise as those below.
    check_installed(spec): raises MissingDependencyError where a library is missing that every model
        needs.
    weights_bytes(spec, device): bytes of the loaded weights; may raise CepError, OSError and
        ValueError for a spec that is wrong.
    weights_present(spec): of an encoder, as below.
    default: in the place of one that the module does not have.
    Raises SpecError where no module provides the scheme's models.
    """
    scheme = SCHEMES[spec.scheme]
    if not scheme.module:
        raise SpecError(
            f"{scheme.name}: names {scheme.summary}, which no model can be bound to by itself"
        )
    return getattr(importlib.import_module(scheme.module), name, default)


def detect(spec: ModelSpec) -> DetectedModel:
    """Find out what a spec names and which roles it can play, without loading a model.

    Raises CheckpointError when there is nothing to detect, SpecError for a `python:` model that
    cannot be imported and for a scheme that names no model.
    """
    detected: DetectedModel = _provided(spec, "detect")(spec)
    return detected


def bind(
    spec: ModelSpec, role: RoleName, context: BindContext, *, force: bool = False
) -> BoundRole:
    """Resolve a spec for one role: identity and parameters now, the model when it is needed.

    force: try a checkpoint in a role that detection does not give it, because the user said so.
    Raises RoleError when the model cannot play the role, CheckpointError for damaged or missing
    files, SpecError for parameters that are unknown or wrong.
    """
    context = replace(context, force=force)
    bound: BoundRole = _provided(spec, "bind")(spec, role, context)
    files, load = bound.files, bound.load
    if files is None:
        return bound

    def load_unchanged() -> Model:
        with files.unchanged():
            return load()

    return replace(bound, load=load_unchanged)


def check_installed(spec: ModelSpec) -> None:
    """Raise MissingDependencyError where a library is missing that every model of the scheme needs.

    The other libraries of a checkpoint are known only when it is bound, for which its weights are
    read. A served model needs the client alone.
    """
    _provided(spec, "check_installed", lambda _: None)(spec)


def weights_bytes(spec: ModelSpec, device: str | None = None) -> int | None:
    """Bytes that a model's weights take once they are loaded in the precision of its spec.

    device: where it will run (cpu or cuda), instead of the one that follows from the spec.
    None where they are unknown: for `python:` models, built-in and served ones, for weights that
    are not here yet, and for a spec that is wrong, which binding explains.
    """
    size: int | None = None
    with suppress(CepError, OSError, ValueError):
        size = _provided(spec, "weights_bytes", lambda *_: None)(spec, device)
    return size


def features_name(spec: ModelSpec) -> str:
    """A short name of an encoder's features, for labels: "Inception", "clip-vit-base-patch32"."""
    if spec.scheme == "cleanfid":
        return "Inception"
    last = spec.target.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return last.removesuffix(".pt").removesuffix(".safetensors") or spec.scheme


def weights_present(spec: ModelSpec) -> bool:
    """True where an encoder can be used without a step that only its user can take.

    False only for clean-fid's Inception without its weights, which a site of their own gives out;
    what libraries fetch or a folder lacks shows at binding. Raises SpecError.
    """
    present: bool = _provided(spec, "weights_present", lambda _: True)(spec)
    return present


SHORT_FINGERPRINT = 16
"""Digits of a fingerprint that tell models apart for people, baselines and the store."""


Warn = Callable[[Sequence[Mapping[str, str]]], Sequence[str]]
"""Given all different provenances that results have."""


@dataclass(frozen=True)
class BindContext:
    """The parts of a run that binding needs.

    hash_file: SHA-256 (hex) of a file's bytes; the run remembers it by path, size and mtime.
    threads: CPU threads that a model of this process may use; None leaves the library's choice.
    force: whether a checkpoint is tried in a role that detection does not give it.
    servers: gives the `RunServers` of the run, made when the first model needs one; None where
        a process starts its own, if any.
    devices: by the text of a spec, the device that `auto` means for it where the process has
        several; of other specs it is the first.
    """

    hash_file: Callable[[Path], str]
    threads: int | None = None
    force: bool = False
    servers: Callable[[], Any] | None = None
    devices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class IdleParts:
    """The trained parts of a model that change nothing.

    remarks: a sentence for each.
    whole: whether these are all of its trained parts, so that it is its base.
    """

    remarks: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True)
class Resources:
    """How a bound model uses memory and time; none of it changes an answer.

    batch_size: most inputs in one call.
    grows: whether a larger batch may be tried where memory allows: the user gave no size.
    build: what else than `what`, but not the values of the weights, decides memory and speed.
    lasting: whether the model lives as long as the process, so that unloading it frees nothing.
    shares: names what is loaded where several roles of one spec are one model, loaded once for all
        of them: whichever of them loads it first; empty for a model of its own.
    dispatched: whether a library placed its parts, perhaps on all devices of the process: it is
        loaded again where others are moved.
    """

    batch_size: int = 8
    grows: bool = False
    build: str = ""
    lasting: bool = False
    shares: str = ""
    dispatched: bool = False


@dataclass(frozen=True)
class BoundRole:
    """A model spec that was resolved for one role: its identity, and how to load it when needed.

    Everything but `load` is known without loading a model or importing torch.

    role: the role it plays here.
    spec: what the user typed.
    what: what it was taken for, for people ("LlavaForConditionalGeneration").
    fingerprint: digest of everything that decides the outputs besides `params`: weights,
        configuration, tokenizer, code version of a `python:` model.
    adapter: name and version of the adapter ("transformers-describer/1"); part of every step's key.
    params: inference parameters that can change the output; part of every step's key.
    seeded: whether the output depends on the seed; where it does not, the seed is left out of the
        key, and equal inputs share one result.
    resources: how it uses memory and time.
    provenance: kept beside results, never in a key (device, library versions).
    load: makes the model; called again only after it was unloaded. Raises IdentityError
        where a file that the fingerprint covers is another one by then.
    files: those that the fingerprint covers; None for a model that has none, or names none.
    warn: warnings for people that follow from the provenance of results, a sentence each; also
        of results that an earlier run stored. None where there is nothing to tell.
    scores_answers: whether it is a judge that is an `AnswerScorer` too.
    remarks: what was found where the spec does not say so, a line each, for the header.
    idle: finds the trained parts that change nothing, in their files.
    reads: kinds of artifacts that a describer or an encoder may be given.
    makes: the kind of artifact that a generator makes.
    named_in_baselines: how baselines name it in the place of its fingerprint, where numbers stay
        comparable when that changes: people, whose votes are on other battles every time.
    """

    role: RoleName
    spec: str
    what: str
    fingerprint: str
    adapter: str
    load: Callable[[], Model]
    params: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = False
    resources: Resources = Resources()
    provenance: Mapping[str, str] = field(default_factory=dict)
    files: CoveredFiles | None = field(default=None, repr=False, compare=False)
    warn: Warn | None = field(default=None, repr=False, compare=False)
    scores_answers: bool = False
    remarks: tuple[str, ...] = ()
    idle: Callable[[], IdleParts] = field(default=IdleParts, repr=False, compare=False)
    reads: frozenset[Modality] = READS
    makes: Modality = "image"
    named_in_baselines: str = ""

    @property
    def short_fingerprint(self) -> str:
        """Its first digits, as baselines and stored results name it."""
        return self.fingerprint[:SHORT_FINGERPRINT]

    @property
    def hides_reasoning(self) -> bool:
        """Whether reasoning in its texts is no part of its answers.

        As of every model whose spec, or `params`, does not say reasoning=keep; people write answers
        alone.
        """
        return self.params.get("reasoning") != "keep" and not self.adapter.startswith("human/")

    @property
    def device(self) -> str:
        """Where the model works, as torch names it; "cpu" where it is unknown."""
        return self.provenance.get("device", "cpu")

    @property
    def identity(self) -> dict[str, Any]:
        """All that a result depends on, as built-in types: enters keys and baselines."""
        return {
            "adapter": self.adapter,
            "fingerprint": self.fingerprint,
            "params": dict(self.params),
        }


HashFile = Callable[[Path], str]
"""SHA-256 of a file's bytes, hexadecimal."""

_FileDigests = Mapping[Path, tuple[FileStamp, str]]

_REMEDY = (
    "What is loaded has to be what was fingerprinted, so nothing made with it is stored. Copy the "
    "checkpoint to a folder of its own and gate the copy, or gate it when the trainer has finished"
)


class CoveredFiles:
    """The files that a model's fingerprint covers.

    place: folder or file of the model, for people. hash_file: the digest of a file. identify: lists
    the files, has each hashed by what it is given, and makes one digest of them; called again
    whenever the files are looked at again, so that what appears or vanishes counts. Raises what
    `identify` raises.
    """

    def __init__(
        self, place: Path | str, hash_file: HashFile, identify: Callable[[HashFile], str]
    ) -> None:
        self._place = place
        self._hash_file = hash_file
        self._identify = identify
        self._digests: _FileDigests = {}

    @cached_property
    def fingerprint(self) -> str:
        """The digest at the first request. Raises IdentityError where a file vanishes meanwhile."""
        try:
            digest, self._digests = self._identify_files({})
        except OSError as error:
            raise IdentityError(
                f"{self._place}: its files changed while they were fingerprinted "
                f"({error}). {_REMEDY}"
            ) from error
        return digest

    @contextmanager
    def unchanged(self, what: str = "the model was loaded") -> Iterator[None]:
        """Load inside of this: the files are those of the fingerprint before and after.

        what: happens inside, for people. Files whose stamps did not move are not read again. Raises
        IdentityError naming the files that are others, also in the place of an error that loading
        raises then: what a library makes of half of a file explains nothing.
        """
        self._check(f"before {what}")
        try:
            yield
        except DeviceMemoryError:
            raise
        except Exception:
            self._check(f"while {what}")
            raise
        self._check(f"while {what}")

    def _check(self, when: str) -> None:
        expected, before = self.fingerprint, self._digests
        cause: Exception | None = None
        try:
            digest, seen = self._identify_files(before)
            if digest == expected:
                self._digests = seen
                return
            again = {p for p in before.keys() & seen.keys() if before[p][1] != seen[p][1]}
            changes = {
                "written again": again,
                "new": seen.keys() - before.keys(),
                "gone": before.keys() - seen.keys(),
            }
            what = "; ".join(
                f"{kind}: {few_of(sorted(map(self._name, paths)))}"
                for kind, paths in changes.items()
                if paths
            )
        except (OSError, CheckpointError) as error:
            what, cause = str(error), error
        raise IdentityError(
            f"{self._place}: the checkpoint changed after it was fingerprinted, {when} "
            f"({what or 'its configuration is another one'}). {_REMEDY}"
        ) from cause

    def _name(self, path: Path) -> str:
        place = Path(self._place)
        inside = path != place and path.is_relative_to(place)
        return str(path.relative_to(place)) if inside else path.name

    def _identify_files(self, known: _FileDigests) -> tuple[str, _FileDigests]:
        """The digest now, and each file's stamp and digest; known: those of the last time."""
        seen: dict[Path, tuple[FileStamp, str]] = {}

        def digest_of(path: Path) -> str:
            stamp = FileStamp.of(path)
            before, digest = known.get(path, (None, ""))
            if before is None or before != stamp or not before.settled:
                try:
                    digest = self._hash_file(path)
                except UnfitFileError as error:
                    raise CheckpointError(f"{path}: {error}") from error
            seen[path] = (stamp, digest)
            return digest

        return self._identify(digest_of), seen
