"""The sources and checkers of facts by the names that suites give them, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pytest_cepbench.chains import Modality
from pytest_cepbench.datasets.questions import METADATA, METADATA_KINDS
from pytest_cepbench.datasets.shapes.questions import SCENE_KINDS
from pytest_cepbench.measures.base import ENCODER, MetricTable, SuiteContext
from pytest_cepbench.measures.fact_checks import (
    FactChecker,
    FactSource,
    QuestionSource,
    SceneChecker,
    SceneSource,
    VqaChecker,
)
from pytest_cepbench.measures.geneval_facts import DetectorChecker, PictureReader, PromptSource
from pytest_cepbench.measures.vqa_questions import (
    CONTROLS,
    LEAST_CONTROL,
    PROMPT,
    QuestionSettings,
)
from pytest_cepbench.metrics.geneval_prompts import ATOM_KINDS, GENEVAL


class FactsTable(MetricTable, frozen=True, kw_only=True):
    """facts: F1 of a sample's atomic facts over the texts and pictures of its chain.

    facts: where they come from: "scene", the generated scene of the embedded world; "questions",
    what `[data] questions` asks; "geneval", the clauses of GenEval's metadata.
    texts, pictures: what checks them there: "scene", the world's grammar and rules of sight; "vqa",
    the VQA model; of pictures also "detector", by GenEval's rules.
    kinds: of facts that count; all that the source has when left out.
    at: the last iteration that counts; the chain's when left out.
    start: which chains, where the suite plays both.
    prompt, controls, least_control: how the VQA model is asked; see `SoftTifaTable`.
    threshold, counting_threshold, colors, color_encoder: of the detector; see `GenevalTable`.
    """

    facts: str = "scene"
    texts: str = "scene"
    pictures: str = "scene"
    kinds: list[str] | None = None
    at: int | None = None
    start: Modality | None = None
    prompt: str = PROMPT
    controls: int = CONTROLS
    least_control: float = LEAST_CONTROL
    threshold: float | None = None
    counting_threshold: float | None = None
    colors: Literal["clip", "detector"] = "clip"
    color_encoder: str = ENCODER


def _vqa_checker(table: FactsTable) -> FactChecker:
    return VqaChecker(QuestionSettings(table.prompt, table.controls, table.least_control))


def _detector_checker(table: FactsTable) -> FactChecker:
    thresholds = {
        name: value
        for name in ("threshold", "counting_threshold")
        if (value := getattr(table, name)) is not None
    }
    settings = replace(GENEVAL, **thresholds)
    return DetectorChecker(PictureReader("facts", settings, table.colors, table.color_encoder))


SOURCES: Mapping[str, Callable[[FactsTable], FactSource]] = {
    "scene": lambda _: SceneSource(),
    "questions": lambda _: QuestionSource(),
    "geneval": lambda _: PromptSource(),
}
"""Name under `facts` -> what makes the source."""

TEXT_CHECKERS: Mapping[str, Callable[[FactsTable], FactChecker]] = {
    "scene": lambda _: SceneChecker(),
    "vqa": _vqa_checker,
}
"""Name under `texts` -> what makes the checker; raises ValueError for a setting out of range."""

PICTURE_CHECKERS: Mapping[str, Callable[[FactsTable], FactChecker]] = {
    **TEXT_CHECKERS,
    "detector": _detector_checker,
}
"""Name under `pictures` -> what makes the checker; raises as those of texts."""


# -- which source, checkers and data go together ---------------------------------------------------


@dataclass(frozen=True)
class _Fit:
    """What a source of facts goes with.

    checkers: the names of those that can check its facts.
    loaders: of the package's loaders, those whose samples have such facts; None where that depends
    on `[data] questions`.
    kinds: of its facts; None for any.
    """

    checkers: tuple[str, ...]
    loaders: tuple[str, ...] | None
    kinds: tuple[str, ...] | None


_FITS: Mapping[str, _Fit] = {
    "scene": _Fit(("scene",), ("shapes", "shapes-tasks"), SCENE_KINDS),
    "questions": _Fit(("vqa",), None, None),
    "geneval": _Fit(("vqa", "detector"), ("geneval", "shapes-tasks"), ATOM_KINDS),
}
"""Name under `facts` -> what goes with it."""

_ASKED = ("geneval2",)
"""Loaders whose samples have questions of their own."""


def misfits(
    table: FactsTable, modalities: tuple[Modality, ...], context: SuiteContext
) -> Iterator[str]:
    """What does not go together in a table whose names are all known, a sentence each.

    modalities: of the artifacts that are checked.
    What a user's own loader gives is not known before the data is read.
    """
    used = {
        key: (name, known)
        for modality, key, name, known in (
            ("text", "texts", table.texts, TEXT_CHECKERS),
            ("image", "pictures", table.pictures, PICTURE_CHECKERS),
        )
        if modality in modalities
    }
    fit = _FITS[table.facts]
    wrong = [key for key, (name, _) in used.items() if name not in fit.checkers]
    if wrong:
        given = " and ".join(f'{key} = "{used[key][0]}"' for key in wrong)
        able = " and ".join(
            f"{key} = {_either(own for own in fit.checkers if own in used[key][1])}"
            for key in wrong
        )
        others = [
            other
            for other, fits in _FITS.items()
            if all(name in fits.checkers for name, _ in used.values())
        ]
        instead = f", or facts = {_either(others)}" if others else ""
        yield f'{given} cannot check facts = "{table.facts}": give {able}{instead}'
    own_loader = not context.loader or context.loader.startswith("python:")
    if fit.loaders is not None and not own_loader and context.loader not in fit.loaders:
        yield (
            f'facts = "{table.facts}" and [data] loader = "{context.loader}" do not go together: '
            f"its samples have no such facts; those of {' and '.join(fit.loaders)} have"
        )
    asks = table.facts == "questions" or any(name == "vqa" for name, _ in used.values())
    if asks and context.questions is None and not own_loader and context.loader not in _ASKED:
        asking = "questions" if table.facts == "questions" else "vqa"
        yield (
            f'"{asking}" needs questions about the samples, and there are none: name a file of '
            f'them with [data] questions = FILE, or questions = "{METADATA}"'
        )
    kinds = METADATA_KINDS if fit.kinds is None and context.questions == METADATA else fit.kinds
    foreign = [kind for kind in table.kinds or () if kinds is not None and kind not in kinds]
    if foreign:
        assert kinds is not None
        yield (
            f'kinds = ["{foreign[0]}"]: facts = "{table.facts}" has none of this kind, it has '
            f"{', '.join(kinds)}"
        )


def _either(names: Iterable[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)
