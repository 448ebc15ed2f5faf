"""GenEval's prompts: the published suite generated anew, and files of its kind."""

from pytest_cepbench.datasets.geneval.generator import (
    OBJECTS,
    PUBLISHED_SEED,
    WrittenPrompt,
    write_prompts,
)
from pytest_cepbench.datasets.geneval.loader import load_geneval

__all__ = ["OBJECTS", "PUBLISHED_SEED", "WrittenPrompt", "load_geneval", "write_prompts"]
