"""Models that measure and fail: of many samples an error, of few the worst case, never a score."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains import Modality
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate import Baseline, Policy, dump_baseline, judge, record_of
from pytest_cepbench.gate.baseline import baseline_path
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, ChainRun, RoleChoices, SuiteRun
from tests.suites.answers import WORSE, prepare
from tests.suites.failing import EVERYTHING
from tests.suites.world import stage

_MODEL = "python:tests.suites.failing:"

IMAGES = """\
name = "failing"
version = 1
[data]
loader = "shapes"
options = { samples_per_category = 7 }
[chain]
iterations = 1
[prompts]
describe = "describe"
[roles]
describer = "shapes:?miss=0.1"
generator = "shapes:"
encoder = "MODEL"
"""
"""56 scenes, described and drawn."""

EDITED = IMAGES.replace("category = 7 }", 'category = 7 }\nedits = ["mirror"]')

TEXTS = """\
name = "failing"
version = 1
[data]
loader = "shapes-tasks"
options = { samples_per_category = 9 }
questions = "metadata"
[chain]
start = "text"
generations = 1
[prompts]
describe = "describe"
[roles]
generator = "shapes:?miss=0.1"
"""
"""54 prompts, drawn."""

BATTLES = """\
name = "failing"
version = 1
[data]
loader = "shapes-arena"
options = { samples_per_category = 6 }
[answer]
[prompts]
[roles]
interleaver = "shapes:"
judge = "MODEL"
[arena]
"""
"""60 questions; the judge is asked wherever the answers are others."""


@dataclass(frozen=True)
class Setup:
    """A suite in which one model measures.

    case: its id; `metrics` has its metric.
    role, model: that measures; as in `tests.suites.failing`.
    start, generation: of the chains' artifacts that it reads; no start where it reads answers.
    """

    text: str
    case: str
    metrics: str
    role: str
    model: str
    start: Modality | None = "image"
    generation: int = 2


SETUPS = {
    "gc": Setup(IMAGES, "overall-gc", "[metrics.gc]\n", "encoder", "Encoder"),
    "mcd": Setup(
        IMAGES, "overall-mcd", '[metrics.mcd]\nmappings = { image-to-image = "encoder" }\n',
        "encoder", "Encoder",
    ),
    "retrieval": Setup(
        IMAGES, "overall-retrieval", "[metrics.retrieval]\n", "encoder", "Encoder"
    ),
    "failures": Setup(
        IMAGES, "overall-failures", "[metrics.gc]\n[metrics.failures]\n", "encoder", "Encoder"
    ),
    "equivariance": Setup(
        EDITED, "overall-equivariance",
        '[metrics.equivariance]\ncompare = "vectors"\nat = 2\n', "encoder", "Encoder",
    ),
    "geneval": Setup(
        f'{TEXTS}detector = "MODEL"\n', "overall-geneval",
        '[metrics.geneval]\ncolors = "detector"\n', "detector", "Detector", "text", 1,
    ),
    "soft_tifa": Setup(
        f'{TEXTS}vqa = "MODEL"\n', "overall-soft_tifa_am", "[metrics.soft_tifa_am]\n",
        "vqa", "Vqa", "text", 1,
    ),
    "facts": Setup(
        f'{TEXTS}vqa = "MODEL"\n', "overall-facts",
        '[metrics.facts]\nfacts = "questions"\ntexts = "vqa"\npictures = "vqa"\n',
        "vqa", "Vqa", "text", 1,
    ),
    "win_rate": Setup(BATTLES, "overall-win_rate", "[metrics.win_rate]\n", "judge", "Judge", None),
    "criteria": Setup(BATTLES, "overall-criteria", "[metrics.criteria]\n", "judge", "Judge", None),
}  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """Measures one setup again and again, while its model fails at more or less.

    grown: a store with what the models under test made, which nothing has read.
    """

    folder: Path
    setup: Setup
    kind: str
    opened: ExitStack

    @property
    def candidate(self) -> str:
        """The model under test; in battles another than the accepted one."""
        return WORSE if self.setup.start is None else ""

    def run(self, model: str = "", broken: Sequence[str] = ()) -> tuple[SuiteRun, Case]:
        """A run that finds all chains or answers in its store, and its case."""
        file = self.folder / "broken.txt"
        file.write_text("\n".join(broken), encoding="utf-8")
        grown, place = self.folder / "grown", self.folder / uuid4().hex
        if not grown.exists():
            with Store(grown) as store:
                for own in {"", self.candidate}:
                    suite, case = self._prepare(self.folder / "grower", store, own)
                    suite.grow([(case, suite.dataset.samples)])
        shutil.copytree(grown, place / "store")
        return self._prepare(place, self.opened.enter_context(Store(place / "store")), model)

    def _prepare(self, folder: Path, store: Store, model: str) -> tuple[SuiteRun, Case]:
        setup = self.setup
        spec = f"{_MODEL}{setup.model}?kind={self.kind}&file={self.folder / 'broken.txt'}"
        text = (setup.text + setup.metrics).replace("MODEL", spec)
        if setup.start is None:
            answers = prepare(folder, store, text, model or None)
            answers.baselines.mkdir(exist_ok=True)
            if self.accepted.exists():
                shutil.copytree(self.accepted, answers.baselines, dirs_exist_ok=True)
            return answers.run, answers.cases[setup.case]
        role: RoleName = "generator" if setup.start == "text" else "describer"
        staged = stage(folder, text, store, RoleChoices("shapes:?miss=0.1", role=role))
        return staged.run, staged.cases[setup.case]

    @property
    def accepted(self) -> Path:
        """Folder of accepted baselines."""
        return self.folder / "accepted"

    def accept(self) -> Baseline:
        """The measurement of the model that does not fail, as the baseline."""
        suite, case = self.run()
        baseline = record_of(suite.measure(case))
        path = baseline_path(self.accepted, case.key)
        path.parent.mkdir(parents=True)
        path.write_text(dump_baseline(baseline), encoding="utf-8")
        return baseline

    def inputs(self) -> dict[str, str]:
        """Sample -> digest of what the model reads of it, of those that share it with no other."""
        suite, _ = self.run(self.candidate)
        samples = suite.dataset.samples
        if isinstance(suite, ChainRun):
            assert self.setup.start is not None
            chains = suite.chain_data.chains(self.setup.start, samples)
            read = {n: c.links[self.setup.generation].digest for n, c in chains.items()}
        else:
            texts = {s.id: next(p for p in s.question if isinstance(p, str)) for s in samples}
            read = {name: digest_text(text) for name, text in texts.items()}
        often = Counter(read.values())
        return {name: digest for name, digest in read.items() if often[digest] == 1}


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The setup of a name, whose model fails in a way."""
    name, kind = request.param
    with ExitStack() as opened:
        yield Bench(tmp_path, SETUPS[name], kind, opened)


EVERY = pytest.mark.parametrize(
    "bench",
    [
        pytest.param((name, kind), id=f"{name}-{kind}")
        for name in SETUPS
        for kind in ("raise", "odd")
    ],
    indirect=True,
)


@EVERY
def test_many_failures_are_an_error(bench: Bench) -> None:
    """Of a tenth of the samples or of all: no number, and the role, the kinds and the model."""
    bench.accept()
    inputs = bench.inputs()
    tenth = [inputs[name] for name in sorted(inputs)][::10]
    kind = "exception" if bench.kind == "raise" else r"[a-z]+-[a-z]+"
    for broken in (tenth, [EVERYTHING]):
        suite, case = bench.run(bench.candidate, broken)
        with pytest.raises(
            MeasurementError, match=rf"the {bench.setup.role} \(.*({kind}|no vector)"
        ):
            suite.measure(case)


@EVERY
def test_few_failures_are_left_out_and_count_as_the_worst(bench: Bench) -> None:
    """No score is made up, none of the others moves, and the bounds have both ends."""
    baseline = bench.accept()
    suite, case = bench.run(bench.candidate)
    whole = suite.measure(case)
    inputs = bench.inputs()
    scored = {name for part in whole.scores.values() for name in part}
    victim = next(name for name in sorted(inputs) if name in scored)
    suite, case = bench.run(bench.candidate, [inputs[victim]])
    measured = suite.measure(case)
    assert {name for part in measured.unscored.values() for name in part} == {victim}
    rest = {n: {s: x for s, x in p.items() if s != victim} for n, p in whole.scores.items()}
    assert measured.scores == rest
    (warning,) = [text for text in measured.warnings if "failed at" in text]
    assert f"the {bench.setup.role} (" in warning
    assert f"failed at 1 of {len(scored)} samples (1 " in warning
    policy = Policy("regression", 0.02)
    low, high = measured.ends
    worst, best = (
        replace(
            whole,
            scores={
                n: {s: end if s == victim else x for s, x in part.items()}
                for n, part in whole.scores.items()
            },
        )
        for end in ((low, high) if whole.higher_is_better else (high, low))
    )
    judged, lowest, highest = (judge(m, baseline, policy) for m in (measured, worst, best))
    assert judged.low == pytest.approx(lowest.low, abs=1e-6)
    assert judged.high == pytest.approx(highest.high, abs=1e-6)
    assert any("1 samples without a score" in text for text in judged.statements)
