"""GenEval's prompts: the published suite generated anew, and files of its kind."""

from pytest_cepbench.datasets.geneval.loader import load_geneval
from pytest_cepbench.datasets.geneval.objects import OBJECTS
from pytest_cepbench.datasets.geneval.prompts import PUBLISHED_SEED, WrittenPrompt, write_prompts

__all__ = ["OBJECTS", "PUBLISHED_SEED", "WrittenPrompt", "load_geneval", "write_prompts"]
