"""Formats of other tools that the report of a run is exported to, in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from pytest_cepbench.report.exports.rows import ExportedRun

Export = Callable[[ExportedRun, Path], Sequence[Path | str]]
"""Writes a run to a file, or below a folder; returns what was written, or where to, for people.

Raises SpecError for a run that the format cannot hold, MissingDependencyError where a package is
not installed, and WriteError or OSError for files that cannot be written.
"""


@dataclass(frozen=True)
class Exporter:
    """A format.

    about: what is written, for the help and the documentation.
    writer: the function of this package that writes it, as `module:function`.
    suffix: of the file that is written by default; empty for a folder.
    packages: that have to be installed, as pip names them.
    tables: whether it has rows, which may be those of samples.
    """

    about: str
    writer: str
    suffix: str = ""
    packages: tuple[str, ...] = ()
    tables: bool = False

    def load(self) -> Export:
        """The function that writes it; its module is imported now."""
        function: Export = resolve_name(f"{__name__}.{self.writer}")
        return function


EXPORTERS = {
    "csv": Exporter("a row for each case", "files:export_csv", ".csv", tables=True),
    "parquet": Exporter(
        "the same rows with types", "files:export_parquet", ".parquet", ("pyarrow",), tables=True
    ),
    "lm-eval": Exporter(
        "the results of lm-evaluation-harness, `results_*.json`", "files:export_lm_eval"
    ),
    "hf-eval-results": Exporter(
        "evaluation results of a model repository on the Hugging Face Hub, `.eval_results/*.yaml`",
        "files:export_hf_eval_results",
    ),
    "wandb": Exporter(
        "an offline run of Weights & Biases", "trackers:export_wandb", "", ("wandb",)
    ),
    "mlflow": Exporter("a run of MLflow", "trackers:export_mlflow", "", ("mlflow",)),
    "tensorboard": Exporter(
        "scalars and texts of TensorBoard", "trackers:export_tensorboard", "", ("tensorboard",)
    ),
}
"""Name, as users type it -> format."""
