"""The models of a suite's roles: those that the user named, else the suite's own.

A spec of a suite's file that begins with ./ or ../ counts from the folder of that file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.errors import (
    DatasetError,
    MissingDependencyError,
    RoleError,
    SpecError,
    SuiteError,
    SuiteNotApplicableError,
    did_you_mean,
    unknown_name,
)
from pytest_cepbench.files import shown_path
from pytest_cepbench.measures.base import ENCODER, JUDGE, SuiteContext, readers_of
from pytest_cepbench.measures.measure_registry import (
    make_answer_measures,
    make_measures,
    tests_judges,
)
from pytest_cepbench.models.binding import DetectedModel, detect
from pytest_cepbench.models.binding import check_installed as check_libraries
from pytest_cepbench.models.protocols import ROLE_NAMES, UNIFIED_ROLES, RoleName
from pytest_cepbench.models.spec import HUMAN, PRESET, REPLAY, ModelSpec, parse_spec
from pytest_cepbench.suites.data import data_name
from pytest_cepbench.suites.definition import ANSWERING, ANSWERS_ONLY, Suite

if TYPE_CHECKING:
    from pytest_cepbench.datasets.opening.answers import RecordedAnswers
    from pytest_cepbench.datasets.replay import Replay

_RELATIVE = ("./", "../")

Part = RoleName | Literal["unified"]
"""What a model under test can be told to play: a role, or both of a unified model."""


@dataclass(frozen=True)
class RoleAssignment:
    """One role of a run and the model that plays it.

    role: what the model plays.
    spec: of the model.
    source: the option or suite that names it.
    force: whether the role stands although detection does not give it.
    """

    role: RoleName
    spec: ModelSpec
    source: str
    force: bool = False


@dataclass(frozen=True)
class RoleChoices:
    """The models that the user named.

    model: spec of the model under test, if any.
    role: which role it is to play, or "unified" for describer and generator; None to detect it.
    roles: specs for single roles.
    encoders: specs for the named encoders of suites.
    preferred: roles that the model under test plays rather than others, where it can.
    The properties are computed once: for a hub id, detection costs a request to the hub.
    """

    model: str | None = None
    role: Part | None = None
    roles: Mapping[RoleName, str] = field(default_factory=dict)
    encoders: Mapping[str, str] = field(default_factory=dict)
    preferred: tuple[RoleName, ...] = ()

    @cached_property
    def model_spec(self) -> ModelSpec | None:
        """The spec of the model under test, if any. Raises SpecError where it is malformed."""
        return None if self.model is None else parse_spec(self.model)

    @cached_property
    def replay(self) -> str | None:
        """The spec of chains made elsewhere, where `--model` names them.

        Raises SpecError where a role is given that no model would play then.
        """
        if self.model_spec is None or self.model_spec.scheme != REPLAY:
            return None
        growers = ("describer", "generator", "writer", "editor", "interleaver")
        wrong = [f"--{role}" for role in growers if role in self.roles]
        if self.role is not None:
            wrong.append("--cep-role")
        if wrong:
            raise SpecError(f"--model={self.model} brings its results with it: drop {wrong[0]}")
        return self.model

    @cached_property
    def recorded(self) -> Replay | RecordedAnswers | None:
        """The chains or answers made elsewhere, where they are what is under test.

        Raises SpecError as `replay`, DatasetError for what cannot be read.
        """
        spec = self.model_spec
        if self.replay is None or spec is None:
            return None
        from pytest_cepbench.datasets.replay import open_replay

        for param in spec.params:
            if param != "layout":
                known = unknown_name("parameter", param, ["layout"])
                raise SpecError(f"replay:{spec.target}: {known}")
        return open_replay(spec.target, spec.params.get("layout"))

    @cached_property
    def replayed(self) -> Literal["chains", "answers"]:
        """Kind of what was made elsewhere and is under test. Raises as `recorded`."""
        from pytest_cepbench.datasets.opening.answers import RecordedAnswers

        return "answers" if isinstance(self.recorded, RecordedAnswers) else "chains"

    @cached_property
    def played(self) -> tuple[RoleName, ...]:
        """The roles that `--model` plays, as far as a suite needs them.

        The given role; else both roles of a unified model that are free; else the first role that
        it can play and that is free. Raises RoleError when it can play none, SpecError and
        CheckpointError for a wrong spec.
        """
        if self.role == "unified":
            return self._free(UNIFIED_ROLES, "said to be unified")
        if self.role is not None:
            return (self.role,)
        if self.model_spec is None:
            # Of answers, the parts that the user named; else who writes, the others held fixed.
            named = tuple(role for role in self.preferred if role in self.roles)
            return named or self.preferred[:2] or ("describer",)
        if self.model_spec.scheme == PRESET:
            return ("generator",)
        detected = self._detected
        if not detected.roles:
            raise RoleError(
                f"--model={self.model} is a {detected.what}: no role could be told from its "
                f"configuration. Say which it plays with --cep-role={'|'.join(ROLE_NAMES)}"
            )
        prefers = any(role in detected.roles for role in self.preferred)
        free = any(role not in self.roles for role in UNIFIED_ROLES)
        if detected.unified and free and not prefers:
            return self._free(UNIFIED_ROLES, f"a {detected.what}")
        # What plays a role of chains does so in their suites, even where it could write answers.
        chain_roles = tuple(role for role in detected.roles if role not in ANSWERS_ONLY)
        able = detected.roles if prefers or not chain_roles else chain_roles
        return self._free(able, f"a {detected.what}")[:1]

    def unfit(self, made: Modality) -> str:
        """Why `--model` cannot be in chains of a modality, as the beginning of a sentence.

        Empty where it can, and where the user said which role it plays.
        """
        spec = self.model_spec
        if spec is None or self.role is not None or spec.scheme in (PRESET, REPLAY):
            return ""
        if "describer" in self.played and made not in self._detected.reads:
            return f"--model={self.model} reads no {made}s, which"
        if "generator" in self.played and made != self._detected.makes:
            return f"--model={self.model} makes {self._detected.makes}s, not the {made}s that"
        return ""

    @cached_property
    def _detected(self) -> DetectedModel:
        assert self.model_spec is not None
        return detect(self.model_spec)

    def _free(self, roles: Iterable[RoleName], what: str) -> tuple[RoleName, ...]:
        """The roles without an option of their own, in their usual order.

        what: the model is. Raises SpecError where there is none.
        """
        able = [role for role in dict.fromkeys((*self.preferred, *ROLE_NAMES)) if role in roles]
        free = tuple(role for role in able if role not in self.roles)
        if not free:
            taken = ", ".join(f"--{role}" for role in able)
            raise SpecError(
                f"--model={self.model} is {what}, and {taken} is given as well: drop one"
            )
        return free

    @cached_property
    def assigned(self) -> Mapping[str, RoleAssignment]:
        """The roles whose models the user named; `--model` goes before a role's own option.

        Raises as `played`.
        """
        assigned: dict[str, RoleAssignment] = {}
        for role, text in self.roles.items():
            assigned[role] = _named(role, text, f"--{role}")
        for name, text in self.encoders.items():
            assigned[name] = _named("encoder", text, f"--encoder {name}")
        if self.model_spec is not None and self.replay is None:
            for role in self.played:
                assigned[role] = RoleAssignment(
                    role, self.model_spec, "--model", force=self.role is not None
                )
        return assigned


def possible_roles(choices: RoleChoices, name: str) -> list[RoleAssignment]:
    """The assignment of a role, and where `--model` alone names it the other roles it could have.

    Which of them it plays each suite decides: one of answers has other roles than one of chains.
    """
    assignment = choices.assigned[name]
    model = choices.model_spec
    if model is None or assignment.source != "--model" or assignment.force:
        return [assignment]
    able = detect(model).roles if model.scheme != PRESET else ()
    others = dict.fromkeys((*(role for role in ANSWERING if role in able), *able))
    return [
        assignment,
        *(replace(assignment, role=role) for role in others if role not in choices.assigned),
    ]


def assigned_role(choices: RoleChoices, role: RoleName) -> RoleAssignment:
    """The model that the user named for a role. Raises SpecError where none was named."""
    if role not in choices.assigned:
        raise SpecError(
            f"no model is given for the {role}: give one with --{role}=FOLDER_OR_HUB_ID"
        )
    return choices.assigned[role]


def _named(role: RoleName, text: str, source: str) -> RoleAssignment:
    """A role that an option names; forced where the checkpoint's configuration tells no role."""
    spec = parse_spec(text)
    if spec.scheme == REPLAY:
        raise SpecError(f"{text!r}: chains made elsewhere are given with --model")
    force = spec.scheme != PRESET and not detect(spec).roles
    return RoleAssignment(role, spec, source, force=force)


@dataclass(frozen=True)
class Assignments:
    """All roles of a suite's run, and which of them are under test.

    roles: the model of each role that the suite needs, by the name of a role or a further encoder.
    gated: the role under test, both of a unified model, or "replay" where the chains were made
    elsewhere.
    subject: the spec of what is under test.
    replay: the chains or answers that were made elsewhere.
    spare: models that were named for roles that no chain or metric needs; a user's own test may
    call them.
    """

    roles: Mapping[str, RoleAssignment]
    gated: tuple[str, ...]
    subject: str
    replay: Replay | RecordedAnswers | None = None
    spare: Mapping[str, RoleAssignment] = field(default_factory=dict)

    @property
    def under_test(self) -> str:
        """The roles under test, in words."""
        return "+".join(self.gated)


def assign_models(suite: Suite, choices: RoleChoices) -> tuple[Assignments, dict[str, Any]]:
    """Assign a model to every role that a suite needs, and make its measures.

    `--model` goes first, then the role's own option, then the suite's default. Raises SpecError
    naming the option that is missing, SuiteError for metrics that do not fit the suite and for a
    folder that it names and that is not there, the errors of `RoleChoices`, and
    SuiteNotApplicableError where the model under test has nothing to do, or a preset is named that
    the suite does not have.
    """
    what, judging = f"suite {suite.name!r}", tests_judges(suite.metrics)
    if choices.replay is not None:
        of_chains, brings = suite.answer_plan is None, choices.replayed
        if judging or of_chains != (brings == "chains"):
            brought = "chains" if brings == "chains" else "interleaved answers"
            asks = "is of chains" if of_chains else "asks for interleaved answers"
            asks = "has judges under test" if judging else asks
            raise SuiteNotApplicableError(f"{choices.replay} brings {brought}, and {what} {asks}")
    if suite.answer_plan is not None:
        choices = replace(choices, preferred=("judge",) if judging else ANSWERING)
    named = named_models(suite, choices)
    measures, needed = _measures(suite, named, choices)
    return _assign(suite, choices, named, needed), measures


def _measures(
    suite: Suite, named: Mapping[str, RoleAssignment], choices: RoleChoices
) -> tuple[dict[str, Any], list[str]]:
    """The measures of a suite, and the roles that it needs: who grows or answers, then readers."""
    replayed = choices.replay is not None
    if suite.answer_plan is not None:
        answers = make_answer_measures(suite.metrics, suite.name, suite.table.arena.against)
        made = not replayed and not tests_judges(suite.metrics)
        needed: list[str] = [*_answering(suite, named, choices)] if made else []
        judged = any(measure.judged or measure.scored for measure in answers.values())
        return answers, [*needed, *[JUDGE] * judged]
    specs = {name: expand_preset(suite, own).spec for name, own in named.items()}
    measures = make_measures(suite.metrics, SuiteContext(suite.name, suite.plans, specs))
    growers = {
        plan.role(generation)
        for plan in suite.plans.values()
        for generation in range(1, plan.generations + 1)
    }
    required = (own for measure in measures.values() for own in measure.required_features(None))
    names = dict.fromkeys((*sorted(growers), *readers_of(required)))
    return measures, [name for name in names if not (replayed and name in growers)]


def needed_roles(suite: Suite) -> dict[str, str | None]:
    """The roles that a suite needs, with the model that its file names for each, None where none.

    Where a suite of interleaved answers names no one who answers, they are those of a writer.
    Raises SuiteError for metrics that do not fit the suite.
    """
    written = {name: text for name, (_, text) in _written_specs(suite).items()}
    choices = RoleChoices()
    named = named_models(suite, choices)
    if suite.answer_plan is not None and not {"writer", "interleaver"} & named.keys():
        named["writer"] = RoleAssignment("writer", parse_spec("shapes:"), "")
    return {name: written.get(name) for name in _measures(suite, named, choices)[1]}


def named_models(suite: Suite, choices: RoleChoices) -> dict[str, RoleAssignment]:
    """The models that the user or the suite names, by the name of the role."""
    source = f"suite {suite.name}"
    return {
        name: RoleAssignment(
            next((role for role in ROLE_NAMES if role == name), "encoder"),
            locate(suite, text),
            source,
        )
        for name, (_, text) in _written_specs(suite).items()
    } | dict(choices.assigned)


def _assign(
    suite: Suite,
    choices: RoleChoices,
    named: Mapping[str, RoleAssignment],
    needed: Sequence[str],
) -> Assignments:
    """The needed roles with their models, and which of them are under test."""
    known = {name: expand_preset(suite, assignment) for name, assignment in named.items()}
    played = ("replay",) if choices.replay is not None else choices.played
    gated = tuple(role for role in played if role in (*needed, "replay"))
    if not gated:
        raise SuiteNotApplicableError(
            f"the {' and '.join(played)} under test has no role in suite {suite.name!r}, which has "
            f"{', '.join(needed)}: name with --model what is to be gated, and its role there with "
            "--cep-role"
        )
    problem = choices.unfit(suite.table.chain.made) if suite.answer_plan is None else ""
    if problem:
        raise SuiteNotApplicableError(f"{problem} suite {suite.name!r} has in its chains")
    for name in needed:
        if name not in known:
            option = f"--{name}=FOLDER_OR_HUB_ID (or as --model, to gate it)"
            what = f"{'an' if name == 'encoder' else 'a'} {name}"
            if name not in ROLE_NAMES:
                option = f"--encoder {name}=FOLDER_OR_HUB_ID, or name it under [encoders]"
                what = f"the encoder {name!r}"
            raise SpecError(f"suite {suite.name!r} needs {what}: give one with {option}")
        spec = named[name].spec
        if spec.scheme == PRESET and "model" not in spec.params:
            key, text = f"presets.{spec.target}.model", suite.table.presets[spec.target].model
        elif name not in choices.assigned:
            key, text = _written_specs(suite)[name]
        else:
            continue
        folder = Path(locate(suite, text).target).absolute()
        if text.startswith(_RELATIVE) and not folder.exists():
            option = f"--{name}=" if name in ROLE_NAMES else f"--encoder {name}="
            raise SuiteError(
                f"suite {suite.name!r}: {key} = {text!r} in {str(suite.file)!r} counts from the "
                f"folder of that file, and {str(folder)!r} is not there: put the checkpoint there, "
                f"or name another with {option}FOLDER_OR_HUB_ID"
            )
    roles = {name: known[name] for name in needed}
    subject = roles[gated[0]].spec.text if choices.replay is None else choices.replay
    spare = {name: assignment for name, assignment in known.items() if name not in roles}
    return Assignments(roles, gated, subject, choices.recorded, spare)


def check_installed(suite: Suite, assignments: Assignments) -> None:
    """Raise SpecError where a model needs libraries that are not installed here."""
    for assignment in assignments.roles.values():
        try:
            check_libraries(assignment.spec)
        except MissingDependencyError as error:
            raise SpecError(
                f"suite {suite.name!r}: {assignment.role} {assignment.spec}: {error}"
            ) from error


def _written_specs(suite: Suite) -> dict[str, tuple[str, str]]:
    """Key and text of each spec in the suite's file, by the name of the role."""
    defaults = {role: getattr(suite.table.roles, role) for role in ROLE_NAMES}
    written: dict[str, tuple[str, str]] = {
        role: (f"roles.{role}", text) for role, text in defaults.items() if text is not None
    }
    return written | {
        name: (f"encoders.{name}", text) for name, text in suite.table.encoders.items()
    }


def _answering(
    suite: Suite, known: Mapping[str, RoleAssignment], choices: RoleChoices
) -> list[RoleName]:
    """The roles that make a suite's answers: an interleaver, or a writer with those who draw.

    What the user named goes first: of both, the interleaver. Raises SpecError where there is none,
    and SuiteNotApplicableError for a writer whose texts nobody draws, where the suite's own answers
    are an interleaver's.
    """
    if "interleaver" in choices.assigned:
        return ["interleaver"]
    if "writer" in known and ("writer" in choices.assigned or "interleaver" not in known):
        if "interleaver" in known and "generator" not in known:
            raise SuiteNotApplicableError(
                f"suite {suite.name!r} is answered by an interleaver and has no generator to draw "
                "what a writer says: name one with --generator=SPEC"
            )
        composed: list[RoleName] = ["writer", "generator", "editor"]
        return composed if "editor" in known else composed[:2]
    if "interleaver" in known:
        return ["interleaver"]
    raise SpecError(
        f"suite {suite.name!r} needs a model that answers in texts and images: give an "
        "--interleaver=SPEC, or a --writer=SPEC with a --generator=SPEC (one of them as --model, "
        "to gate it)"
    )


def expand_preset(suite: Suite, assignment: RoleAssignment) -> RoleAssignment:
    """The assignment; where its spec names a preset, with the model and settings of that.

    Raises SuiteNotApplicableError for a preset that the suite does not have.
    """
    spec, presets = assignment.spec, suite.table.presets
    if spec.scheme != PRESET:
        return assignment
    if spec.target not in presets:
        raise SuiteNotApplicableError(
            f"suite {suite.name!r}: {unknown_name('preset', spec.target, presets)}"
        )
    preset = presets[spec.target]
    params = dict(spec.params)
    named = params.pop("model", None)
    model = locate(suite, preset.model) if named is None else parse_spec(named)
    written = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in preset.parameters.items()
    }
    params = {**written, **model.params, **params}
    body = f"{model.scheme}:{model.target}" if model.scheme else model.target
    expanded = parse_spec(f"{body}?{urlencode(params)}" if params else body)
    return replace(assignment, spec=expanded, source=f"{assignment.source} {spec}")


def locate(suite: Suite, text: str) -> ModelSpec:
    """A spec of a suite's file, parsed as it would be typed where pytest was started.

    Only the folder of a spec that begins with ./ or ../ is put in other words: from the working
    directory where it lies below that, else from the root.
    """
    if not text.startswith(_RELATIVE):
        return parse_spec(text)
    # Of the folder links are followed, since that is what its author saw; the last name is kept.
    start = suite.folder.resolve()
    whole = Path(os.path.normpath(start / text))
    if whole.exists():  # a folder whose name happens to hold '?'
        return parse_spec(f"{shown_path(whole)}")
    body, mark, params = text.partition("?")
    return parse_spec(f"{shown_path(Path(os.path.normpath(start / body)))}{mark}{params}")


ONE_ITERATION = "suites/folder-described"
"""A suite in which people can describe."""


def check_people(suite: Suite, assignment: RoleAssignment) -> None:
    """Raise SpecError where people play a role by ratings of another suite, or cannot play it.

    Ratings without a suite, of items of one's own, are of any; so is a folder that cannot be read,
    which binding explains.
    """
    if assignment.spec.scheme != HUMAN:
        return
    from pytest_cepbench.ratings.folder import read_ratings

    try:
        study = read_ratings(Path(assignment.spec.target)).study
    except DatasetError:
        return
    problem = ""
    if study.kind == "describe" and describes_drawings(suite):
        problem = (
            "needs a suite whose chains start with an image and have one iteration, such as "
            f"{ONE_ITERATION}: people described images of the study, and not what models "
            "drew of them"
        )
    elif study.suite not in ("", suite.name):
        seen = "images" if study.kind == "describe" else "answers"
        problem = (
            f"holds ratings of the suite {study.suite!r}: people have to see the {seen} of this one"
        )
    if problem:
        raise SpecError(f"suite {suite.name!r}: {assignment.spec} {problem}")


def describes_drawings(suite: Suite) -> bool:
    """Whether a describer is asked about an image that a model drew, which people never saw."""
    return any(plan.generations > 1 + (start != "text") for start, plan in suite.plans.items())


# -- names in options that a suite has to know: of data sets, encoders and presets -----------------
# A name that one suite of a run does not know may be meant for another; one that none of them
# knows is a mistake.


def check_data_names(names: Iterable[str], suites: Sequence[Suite], option: str) -> None:
    """Raise SpecError for the first name of a data set that no suite reads.

    option: that named it, for the message.
    """
    known = {name for suite in suites if (name := data_name(suite)) is not None}
    for name in names:
        if name in known:
            continue
        read = f"They read {', '.join(sorted(known))}." if known else "Their data is built in."
        elsewhere = " What other runs need can stand in the ini file, as cepbench_data."
        raise SpecError(
            f"{option} {name}=...: no suite of this run ({_names(suites)}) reads a data set "
            f"{name!r}.{did_you_mean(name, known)} {read}"
            f"{elsewhere if option.startswith('--cep-') else ''}"
        )


def check_encoders(names: Iterable[str], suites: Sequence[Suite], option: str) -> None:
    """Raise SpecError for the first further encoder that no suite has and no metric takes.

    A metric that takes the first of several would measure with another.

    option: that named it, for the message.
    Raises SuiteError as `needed_roles`.
    """
    known = {ENCODER}
    for suite in suites:
        known |= suite.table.encoders.keys() | (needed_roles(suite).keys() - set(ROLE_NAMES))
    for name in names:
        if name not in known:
            raise SpecError(
                f"{option} {name}=...: {unknown_name('encoder', name, known)} Suites of this run: "
                f"{_names(suites)}"
            )


def check_presets(named: Mapping[str, RoleAssignment], suites: Sequence[Suite]) -> None:
    """Raise SpecError for the first preset that no suite has.

    named: the models that the user named, by role.
    """
    known = {name for suite in suites for name in suite.table.presets}
    for assignment in named.values():
        spec = assignment.spec
        if spec.scheme == PRESET and spec.target not in known:
            raise SpecError(
                f"{assignment.source} {spec}: {unknown_name('preset', spec.target, known)} Suites "
                f"of this run: {_names(suites)}"
            )


def _names(suites: Sequence[Suite]) -> str:
    return ", ".join(dict.fromkeys(suite.name for suite in suites))
