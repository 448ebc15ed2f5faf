"""Models that measure and fail: of many samples an error, of few the worst case, never a score."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench import CaseResult, gate_checkpoint
from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_text
from pytest_cepbench.artifacts.outcome import CRITERIA
from pytest_cepbench.chains import Modality
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena
from pytest_cepbench.errors import MeasurementError, UnscoredError
from pytest_cepbench.gate import Measurement, Policy, Verdict, dump_baseline, judge, record_of
from pytest_cepbench.gate.baseline import anchor_path, baseline_path
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle, RoleName, VqaQuestion
from pytest_cepbench.models.rule_based.scene_models import ShapesDetector, ShapesVqa, VqaKnobs
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, ChainRun, RoleChoices, SuiteRun
from tests.gate.build import replace
from tests.suites.answers import WORSE, prepare
from tests.suites.world import Namer, stage, vector

_MODEL = f"python:{__name__}:"

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
describer = "shapes:"
generator = "shapes:"
encoder = "MODEL"
"""
"""56 scenes, described and drawn."""


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
generator = "shapes:"
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

    cases: their ids; `metrics` has their metrics.
    role, model: that measures; as below.
    start, generation: of the chains' artifacts that it reads; no start where it reads answers.
    """

    text: str
    cases: tuple[str, ...]
    metrics: str
    role: str
    model: str
    start: Modality | None = "image"
    generation: int = 2


WIN_RATE = Setup(BATTLES, ("overall-win_rate",), "[metrics.win_rate]\n", "judge", "Judge", None)

SETUPS = {
    "encoder": Setup(
        IMAGES,
        ("overall-gc", "overall-mcd", "overall-retrieval", "overall-failures"),
        "[metrics.gc]\n[metrics.retrieval]\n[metrics.failures]\n"
        '[metrics.mcd]\nmappings = { image-to-image = "encoder" }\n',
        "encoder",
        "Encoder",
    ),
    "detector": Setup(
        f'{TEXTS}detector = "MODEL"\n', ("overall-geneval",),
        '[metrics.geneval]\ncolors = "detector"\n', "detector", "Detector", "text", 1,
    ),
    "vqa": Setup(
        f'{TEXTS}vqa = "MODEL"\n', ("overall-soft_tifa_am",), "[metrics.soft_tifa_am]\n",
        "vqa", "Vqa", "text", 1,
    ),
    "judge": replace(
        WIN_RATE, cases=("overall-win_rate", "overall-criteria"),
        metrics="[metrics.win_rate]\n[metrics.criteria]\n",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """Measures one setup again and again, while its model fails at more or less.

    made: folder of stores with what the models under test made, which nothing has read.
    """

    folder: Path
    setup: Setup
    kind: str
    opened: ExitStack
    made: Path

    @property
    def candidate(self) -> str:
        """The model under test; in battles another than the accepted one."""
        return WORSE if self.setup.start is None else ""

    def run(self, model: str = "", broken: Sequence[str] = ()) -> tuple[SuiteRun, list[Case]]:
        """A run that finds all chains or answers in its store, and its cases."""
        file = self.folder / "broken.txt"
        file.write_text("\n".join(broken), encoding="utf-8")
        grown, place = self.made / digest_text(self.setup.text), self.folder / uuid4().hex
        if not grown.exists():
            with Store(grown) as store:
                for own in {"", self.candidate}:
                    suite, cases = self._prepare(self.folder / "grower", store, own)
                    suite.grow([(cases[0], suite.dataset.samples)])
        shutil.copytree(grown, place / "store", ignore=shutil.ignore_patterns("new", "images"))
        (place / "store" / "images").symlink_to(grown / "images")
        return self._prepare(place, self.opened.enter_context(Store(place / "store")), model)

    def _prepare(self, folder: Path, store: Store, model: str) -> tuple[SuiteRun, list[Case]]:
        setup = self.setup
        spec = f"{_MODEL}{setup.model}?kind={self.kind}&file={self.folder / 'broken.txt'}"
        text = (setup.text + setup.metrics).replace("MODEL", spec)
        if setup.start is None:
            answers = prepare(folder, store, text, model or None)
            answers.baselines.mkdir(exist_ok=True)
            if self.accepted.exists():
                shutil.copytree(self.accepted, answers.baselines, dirs_exist_ok=True)
            return answers.run, [answers.cases[name] for name in setup.cases]
        role: RoleName = "generator" if setup.start == "text" else "describer"
        staged = stage(folder, text, store, RoleChoices(WORSE, role=role))
        return staged.run, [staged.cases[name] for name in setup.cases]

    @property
    def accepted(self) -> Path:
        """Folder of accepted baselines."""
        return self.folder / "accepted"

    @cached_property
    def baselines(self) -> dict[Case, Measurement]:
        """The measurements of the model that does not fail, accepted."""
        suite, cases = self.run()
        baselines = {case: record_of(suite.measure(case)) for case in cases}
        for case, baseline in baselines.items():
            path = baseline_path(self.accepted, case.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dump_baseline(baseline), encoding="utf-8")
        return baselines

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Sample -> digest of what the model reads of it, of those that share it with no other."""
        suite, _ = self.run(self.candidate)
        samples = suite.dataset.samples
        if isinstance(suite, ChainRun):
            assert self.setup.start is not None
            chains = suite.data.chains(self.setup.start, samples)
            read = {n: c.links[self.setup.generation].digest for n, c in chains.items()}
        else:
            texts = {s.id: next(p for p in s.question if isinstance(p, str)) for s in samples}
            read = {name: digest_text(text) for name, text in texts.items()}
        often = Counter(read.values())
        return {name: digest for name, digest in read.items() if often[digest] == 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the models under test made, by what it begins with: the same for all setups."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture(scope="module")
def bench(
    tmp_path_factory: pytest.TempPathFactory, made: Path, request: pytest.FixtureRequest
) -> Iterator[Bench]:
    """The setup of a name, whose model fails in a way."""
    name, kind = request.param
    with ExitStack() as opened:
        yield Bench(tmp_path_factory.mktemp(name), SETUPS[name], kind, opened, made)


EVERY = pytest.mark.parametrize(
    "bench",
    [
        pytest.param((name, kind), id=f"{name}-{kind}", marks=[pytest.mark.slow] * (kind != first))
        for name, first in zip(SETUPS, cycle(("raise", "odd")), strict=False)
        for kind in ("raise", "odd")
    ],
    indirect=True,
)
"""Every setup; the other way to fail, which is as much of one, in the long tests."""


@EVERY
def test_many_failures_are_an_error(bench: Bench) -> None:
    """Of a tenth of the samples or of all: no number, and the role, the kinds and the model."""
    assert bench.baselines
    inputs = bench.inputs
    tenth = [inputs[name] for name in sorted(inputs)][::10]
    kind = "exception" if bench.kind == "raise" else r"[a-z]+-[a-z]+"
    said = rf"the {bench.setup.role} \(.*({kind}|no vector)"
    for broken in (tenth, [EVERYTHING]):
        suite, cases = bench.run(bench.candidate, broken)
        for case in cases:
            with pytest.raises(MeasurementError, match=said):
                suite.measure(case)


@EVERY
def test_few_failures_are_left_out_and_count_as_the_worst(bench: Bench) -> None:
    """No score is made up, none of the others moves, and the bounds have both ends."""
    baselines, inputs, policy = bench.baselines, bench.inputs, Policy("regression", 0.02)
    suite, cases = bench.run(bench.candidate)
    wholes = {case: suite.measure(case) for case in cases}
    parts = next(iter(wholes.values())).scores.values()
    scored = {name for part in parts for name in part}
    victim = next(name for name in sorted(inputs) if name in scored)
    suite, cases = bench.run(bench.candidate, [inputs[victim]])
    for case, whole in wholes.items():
        measured = suite.measure(case)
        assert {name for part in measured.unscored.values() for name in part} == {victim}
        rest = {n: {s: x for s, x in p.items() if s != victim} for n, p in whole.scores.items()}
        assert measured.scores == rest
        if measured.curve:  # of the samples that were read
            mean = np.mean(list({s: x for part in rest.values() for s, x in part.items()}.values()))
            assert measured.curve[-1] == pytest.approx(mean, abs=1e-6)
        (warning,) = [text for text in measured.warnings if "failed at" in text]
        assert f"the {bench.setup.role} (" in warning
        assert f"failed at 1 of {len(scored)} samples (1 " in warning
        low, high = measured.ends
        worst, best = (
            replace(
                whole,
                model={},  # as another model's: of the accepted one there would be no bounds
                scores={
                    n: {s: end if s == victim else x for s, x in part.items()}
                    for n, part in whole.scores.items()
                },
            )
            for end in ((low, high) if whole.higher_is_better else (high, low))
        )
        judged, lowest, highest = (
            judge(own, baselines[case], policy) for own in (measured, worst, best)
        )
        assert judged.low == pytest.approx(lowest.low, abs=1e-6)
        assert judged.high == pytest.approx(highest.high, abs=1e-6)
        assert any("1 samples without a score" in text for text in judged.statements)


@pytest.mark.parametrize("kind", ["raise", "odd"])
def test_a_color_that_is_not_told_is_not_wrong(tmp_path: Path, made: Path, kind: str) -> None:
    """The encoder of cut-outs failed, not the picture; prompts without a color are no part."""
    spotter = "python:tests.measures.test_geneval_score:Spotter"
    text = f'{TEXTS}detector = "{spotter}"\nencoder = "MODEL"\n'
    setup = Setup(
        text, ("overall-geneval",), "[metrics.geneval]\n", "encoder", "ColorEncoder", "text"
    )
    with ExitStack() as opened:
        bench = Bench(tmp_path, setup, kind, opened, made)
        assert bench.baselines
        suite, (case,) = bench.run(broken=[EVERYTHING])
        with pytest.raises(UnscoredError, match=r"the encoder \(.*ColorEncoder.* of 54 samples"):
            suite.measure(case)


def test_sets_without_other_samples_are_not_compared(tmp_path: Path, made: Path) -> None:
    """They have no worst case: what failed is in no set, and named by the identity of the sets."""
    setup = Setup(
        IMAGES,
        ("overall-fid", "overall-kid", "overall-diversity"),
        "[metrics.fid]\n[metrics.kid]\n[metrics.diversity]\n",
        "encoder",
        "Encoder",
    )
    with ExitStack() as opened:
        bench = Bench(tmp_path, setup, "odd", opened, made)
        whole, cases = bench.baselines, list(bench.baselines)
        names = sorted(bench.inputs)
        run, _ = bench.run(broken=[bench.inputs[name] for name in names[::10]])
        for case in cases:
            with pytest.raises(UnscoredError, match=r"the encoder \(.*nan-vector"):
                run.measure(case)
        few = []
        for name in names[:2]:
            run, _ = bench.run(broken=[bench.inputs[name]])
            few.append({case: run.measure(case) for case in cases})
        policy = Policy("regression", 0.5)
        for case, baseline in whole.items():
            first, second = (measured[case] for measured in few)
            for measured in (first, second):
                assert any("left out of the sets" in warning for warning in measured.warnings)
            for judged in (judge(first, baseline, policy), judge(second, record_of(first), policy)):
                assert judged.verdict is Verdict.INCOMPARABLE
                assert any(reason.startswith("unscored: ") for reason in judged.reasons)
            assert judge(first, record_of(first), policy).verdict is Verdict.HELD


@pytest.mark.parametrize(
    ("kind", "rules", "missing"),
    [
        ("second", 'order = "both"\n', True),
        ("second", 'order = "balanced"\n', None),
        ("odd", 'against = "gold"\n', True),
    ],
)
def test_a_battle_lacks_what_its_rules_ask_for(
    tmp_path: Path, made: Path, kind: str, rules: str, missing: bool | None
) -> None:
    """One of two orders is half a verdict."""
    setup = replace(WIN_RATE, text=BATTLES.replace("= 6", "= 2") + rules)
    with ExitStack() as opened:
        bench = Bench(tmp_path, setup, kind, opened, made)
        assert bench.baselines
        suite, (case,) = bench.run(WORSE, [EVERYTHING])
        with pytest.raises(MeasurementError, match=r"the judge \(.*no-verdict") as raised:
            suite.measure(case)
        half = isinstance(raised.value, UnscoredError) and "at 20 of 20" not in str(raised.value)
        assert half or missing  # asked in one order, only those that got none are missing


def test_accepted_answers_are_kept_whatever_the_judge_failed_to_say(
    tmp_path: Path, made: Path
) -> None:
    """A baseline of battles has every answer, so that the next one battles all of them.

    What has no verdict against its answer, or against the anchor's, has no part in either.
    """
    with ExitStack() as opened:
        bench = Bench(tmp_path, WIN_RATE, "odd", opened, made)
        (anchor,) = bench.baselines.values()
        inputs = bench.inputs
        broken = [inputs[min(inputs)]]
        suite, (case,) = bench.run(WORSE, broken)
        measured = suite.measure(case)
        record = record_of(measured)
        assert (measured.n, record.n, len(record.answers)) == (59, 60, 60)
        assert sum(map(len, record.scores.values())) == 60
        path = anchor_path(bench.accepted, case.key)
        path.parent.mkdir()
        path.write_text(dump_baseline(anchor), encoding="utf-8")
        baseline_path(bench.accepted, case.key).write_text(dump_baseline(record), encoding="utf-8")
        suite, (case,) = bench.run("shapes:?miss=0.6", broken)
        measured = suite.measure(case)
        judged = judge(measured, record, Policy("regression", 0.05), anchor=anchor)
        assert judged.since_anchor is not None
        for own, scores in (
            (judged, measured.scores),
            (judged.since_anchor, measured.anchor_scores),
        ):
            assert sum(map(len, scores.values())) == 59
            assert own.statements[0].startswith("1 samples without a score")


def test_one_failure_at_an_early_look_is_no_large_share_of_all(tmp_path: Path) -> None:
    """The look decides nothing, and the next one does; two failures are too many for any look."""
    texts = {
        sample.id: next(piece for piece in sample.question if isinstance(piece, str))
        for sample in load_shapes_arena(samples_per_category=6).samples
    }

    file, accepted = tmp_path / "broken.txt", tmp_path / "accepted"
    file.touch()
    accepted.mkdir()
    text = BATTLES.replace("MODEL", f"{_MODEL}Judge?kind=odd&file={file}")
    (accepted / "suite.toml").write_text(text + '[metrics.win_rate]\nparts = "overall"\n')
    gate_checkpoint(accepted / "suite.toml", root=accepted, snapshot_update=True)

    def gated(folder: Path, broken: Sequence[str]) -> CaseResult:
        shutil.copytree(accepted, folder)
        file.write_text("\n".join(map(digest_text, broken)), encoding="utf-8")
        more: dict[str, Any] = {"inconclusive": "more", "attribute": 0}
        result = gate_checkpoint(folder / "suite.toml", root=folder, model=WORSE, **more)
        (case,) = result.cases
        return case

    whole = gated(tmp_path / "whole", [])
    assert (whole.verdict, whole.looks) == ("regressed", [30])
    often = Counter(texts.values())
    lost = [
        texts[s] for s, change in whole.shown.differences.items() if change and often[texts[s]] == 1
    ]
    one = gated(tmp_path / "one", lost[:1])
    assert (one.verdict, one.looks) == ("regressed", [59])
    two = gated(tmp_path / "two", lost[:2])
    assert two.verdict == "error"


# -- models that measure, as a user writes them: the embedded ones, which fail at what a file names
# Before and after they fail they are one model, so that measurements stay comparable.

EVERYTHING = "*"
"""In a file: the model fails at all of its inputs."""


class Failing:
    """kind: "raise", or "odd" for what the role may not return (NaN, no verdict, bad boxes).

    file: one digest of an input a line, or `EVERYTHING`.
    """

    seeded = False

    def __init__(self, kind: str, file: str) -> None:
        self.kind, self.file = kind, Path(file)
        self.fingerprint = f"failing {type(self).__name__}/1"

    def fails(self, piece: Image.Image | str) -> bool:
        """Whether it fails at an input. Raises where it is to raise."""
        named = self.file.read_text(encoding="utf-8").split()
        if isinstance(piece, str):
            digest = digest_text(piece)
        else:
            digest = ImageArtifact.from_pil(piece).digest
        if EVERYTHING not in named and digest not in named:
            return False
        if self.kind == "raise":
            raise ArithmeticError("out of order")
        return True


class Encoder(Failing):
    """Vectors of scenes."""

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, D), NaN where it fails."""
        return np.array([vector(i) * (np.nan if self.fails(i) else 1.0) for i in images])

    encode_texts = encode_images


class ColorEncoder(Failing, Namer):
    """Colors of cut-outs; it fails at all of them or at none, and at no text."""

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, 3), NaN where it fails."""
        broken = [self.fails(image) for image in images]
        return np.where(np.array(broken)[:, None], np.nan, super().encode_images(images))


class Detector(Failing):
    """Boxes of shapes."""

    queries = "classes"

    def detect(self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]) -> list[Any]:
        """The boxes, or a failure."""
        found: list[Any] = list(ShapesDetector().detect(images, queries))
        return [
            Failure("bad-boxes", "inside out") if self.fails(image) else own
            for image, own in zip(images, found, strict=True)
        ]


class Vqa(Failing):
    """Answers about scenes."""

    def answer(self, pieces: Sequence[Any], questions: Sequence[Sequence[VqaQuestion]]) -> Any:
        """The probabilities, NaN where it fails."""
        answers: list[Any] = list(ShapesVqa(VqaKnobs()).answer(pieces, questions))
        return [
            [float("nan")] * len(own) if self.fails(piece) else own
            for piece, own in zip(pieces, answers, strict=True)
        ]


class Judge(Failing):
    """Verdicts and scores of answers, by the first text of their questions.

    kind: also "second", for no verdict where the answer of the smaller digest is shown second, in
    one of two orders.
    """

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Any]:
        """The answer of more words, which misses fewer objects; or no verdict."""
        return [self._verdict(*each) for each in zip(battles, seeds, strict=True)]

    def _verdict(self, battle: Battle, seed: int) -> Any:
        first, second = (
            " ".join(piece for piece in answer if isinstance(piece, str))
            for answer in (battle.first, battle.second)
        )
        if self.fails(_text(battle.question)) and (self.kind != "second" or first > second):
            return Failure("no-verdict", "I cannot decide.")
        lead = len(first.split()) - len(second.split())
        return "A" if lead > 0 else "B" if lead < 0 else ("Tie(A)", "Tie(B)")[seed % 2]

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> list[Any]:
        """Scores, or none."""
        return [
            Failure("no-score", "I cannot decide.")
            if self.fails(_text(answered.question))
            else dict.fromkeys(CRITERIA, 5 + len(answered.answer) % 2)
            for answered in answers
        ]


def _text(question: Sequence[Any]) -> str:
    return next(piece for piece in question if isinstance(piece, str))
