"""GenEval and MGG: whether images show what their prompts ask for, from what a detector found.

In order: `queries` for the detector, `objects_by_class` of its answers, `objects_to_color` for the
color rule, `judge`; then the accuracies over all images.
"""

from pytest_cepbench.metrics.geneval.colors import (
    COLORS,
    TEMPLATES,
    color_prompts,
    crop_object,
    zero_shot_color,
)
from pytest_cepbench.metrics.geneval.detections import (
    GENEVAL,
    MGG_CODE,
    QUERY_STYLES,
    DetectorQuery,
    Found,
    QueryStyle,
    SelectionSettings,
    objects_by_class,
    queries,
)
from pytest_cepbench.metrics.geneval.prompt_check import (
    PromptResult,
    ToColor,
    judge,
    objects_to_color,
    overall_accuracy,
    overall_by_generation,
    relations,
)
from pytest_cepbench.metrics.geneval.requirements import (
    RELATIONS,
    TASKS,
    Clause,
    Exclusion,
    Position,
    Prompt,
    Relation,
    Task,
    parse_prompt,
    prompt_metadata,
)

__all__ = [
    "COLORS",
    "GENEVAL",
    "MGG_CODE",
    "QUERY_STYLES",
    "RELATIONS",
    "TASKS",
    "TEMPLATES",
    "Clause",
    "DetectorQuery",
    "Exclusion",
    "Found",
    "Position",
    "Prompt",
    "PromptResult",
    "QueryStyle",
    "Relation",
    "SelectionSettings",
    "Task",
    "ToColor",
    "color_prompts",
    "crop_object",
    "judge",
    "objects_by_class",
    "objects_to_color",
    "overall_accuracy",
    "overall_by_generation",
    "parse_prompt",
    "prompt_metadata",
    "queries",
    "relations",
    "zero_shot_color",
]
