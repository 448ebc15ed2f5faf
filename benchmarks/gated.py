"""The gate over many checkpoints in one process, each as by `pytest suites/shapes --model=...`."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.shapes import load_shapes, parse_caption, sample_scene
from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.protocols import Describer, Reply
from pytest_cepbench.models.spec import parse_spec

ROOT = Path(__file__).resolve().parents[1]

BEST = ROOT / "reference" / "checkpoints" / "describer-step2000"

SUITE = ROOT / "suites" / "shapes" / "test_shapes.py"

DRIFT = f"{SUITE}::test_drift"

PROMPT = "describe the image"


@dataclass(frozen=True)
class Gated:
    """What a run said.

    code: pytest's exit code.
    verdict, value, difference: those of GC@3 over all scenes, or of the case that was asked for,
        None where there is no number; "refused" where nothing was run.
    regressed: the cases that did.
    message: the error, where there is one, without the places of files.
    truth, truth_verdict: of the case about facts, as value and verdict.
    """

    code: int
    verdict: str
    value: float | None
    difference: float | None
    regressed: tuple[str, ...]
    message: str
    truth: float | None = None
    truth_verdict: str = ""


class Bench:
    """A store, baselines and reports below one folder, for as many checkpoints as there are.

    tests: what pytest is to run. samples: of each category. generator, encoder: specs, the suite's
    own where None. case: part and metric whose verdict is told.
    """

    def __init__(
        self,
        folder: Path,
        tests: str,
        samples: int,
        generator: str | None,
        encoder: str | None,
        case: tuple[str, str] = ("overall", "gc"),
    ) -> None:
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        self.folder = folder
        self._tests = tests
        self._case = case
        self._options = [
            f"--cep-samples={samples}",
            f"--cep-store={folder / 'store'}",
            f"--cep-baselines={folder / 'baselines'}",
            *([f"--generator={generator}"] if generator else []),
            *([f"--encoder={encoder}"] if encoder else []),
        ]

    def accept(self, model: Path, *options: str) -> Gated:
        """Take a checkpoint as the baseline."""
        return self.gate(model, "--snapshot-update", *options)

    def gate(self, model: Path, *options: str) -> Gated:
        """Gate a checkpoint."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        output = io.StringIO()
        command = [self._tests, f"--model={model}", f"--cep-report={report}", *self._options]
        # The settings of this repository's own tests are no user's; assertions are not rewritten in
        # a process that has imported everything already.
        plain = ["-c", f"{self.folder / 'pytest.ini'}", "--assert=plain", "-p", "no:cacheprovider"]
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = pytest.main([*command, *options, *plain, "-p", "no:xdist"])
        if not report.exists():
            first = output.getvalue().strip().partition("\n")[0].removeprefix("ERROR: ")
            return Gated(int(code), "refused", None, None, (), _placeless(first, model))
        return _read(int(code), json.loads(report.read_bytes())["cases"], model, self._case)


def _read(code: int, cases: list[dict[str, Any]], model: Path, asked: tuple[str, str]) -> Gated:
    by_case = {(case["part"], case["metric"]): case for case in cases}
    whole, truth = by_case[asked], by_case.get(("overall", "truth"), {})
    judged = [(f"{c['part']}/{c['metric']}", c["judgement"]) for c in cases]
    reasons = [r for _, found in judged if found["verdict"] == "error" for r in found["reasons"]]
    return Gated(
        code,
        whole["judgement"]["verdict"],
        _value(whole),
        whole["judgement"]["difference"],
        tuple(name for name, found in judged if found["verdict"] == "regressed"),
        _placeless((reasons or [""])[0], model),
        _value(truth),
        truth["judgement"]["verdict"] if truth else "",
    )


def _value(case: dict[str, Any]) -> float | None:
    """What was measured of a case of a report."""
    measurement = case.get("measurement")
    return measurement["value"] if measurement else None


def _placeless(text: str, model: Path) -> str:
    return " ".join(text.split()).replace(f"{model}", model.name)


def exact_captions(model: Path, samples: int) -> float | None:
    """The share of the suite's scenes that are described without mistake, None where none is."""
    scenes = load_shapes(samples, seed=0).samples
    images = [sample.image.load().to_pil() for sample in scenes if sample.image is not None]
    try:
        describer = bind(parse_spec(f"{model}"), "describer", BindContext(str, threads=1)).load()
        assert isinstance(describer, Describer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            texts = describer.describe(images, PROMPT, [0] * len(images))
    except Exception:  # noqa: BLE001 - whatever keeps a model from describing, the gate tells it
        return None
    right = [
        sample_scene(scene) == parse_caption(str(text.value if isinstance(text, Reply) else text))
        for scene, text in zip(scenes, texts, strict=True)
    ]
    return sum(right) / len(right)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def fill_in(page: Path, name: str, text: str) -> None:
    """Put text between the marks of that name in a page, whose file has them."""
    begin, end = f"<!-- figures: {name} -->\n", "<!-- end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
