"""The sources and checkers of facts by the names that suites give them, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from pytest_cepbench.chains import Modality
from pytest_cepbench.metrics.geneval import GENEVAL
from pytest_cepbench.suites.measures.base import ENCODER, MetricTable
from pytest_cepbench.suites.measures.fact_checks import (
    FactChecker,
    FactSource,
    SceneChecker,
    SceneSource,
)
from pytest_cepbench.suites.measures.geneval_facts import DetectorChecker, PromptSource
from pytest_cepbench.suites.measures.vqa_facts import QuestionSource, VqaChecker
from pytest_cepbench.suites.measures.vqa_questions import (
    CONTROLS,
    LEAST_CONTROL,
    PROMPT,
    QuestionSettings,
)


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
    threshold, counting_threshold, colors, color_encoder: of the detector; see `ComplianceTable`.
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
    settings = QuestionSettings(table.prompt, table.controls, table.least_control)
    return VqaChecker(settings)


def _detector_checker(table: FactsTable) -> FactChecker:
    thresholds = {
        name: value
        for name in ("threshold", "counting_threshold")
        if (value := getattr(table, name)) is not None
    }
    return DetectorChecker(replace(GENEVAL, **thresholds), table.colors, table.color_encoder)


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
