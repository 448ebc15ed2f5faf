"""`--model=replay:PATH`: what other tools have generated is gated as they left it on the disk."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_cepbench.datasets.geneval import load_geneval
from tests.acceptance.suites import data
from tests.acceptance.suites.conftest import Checkpoint, MakeProject
from tests.acceptance.suites.project import Cast, Project, assert_held_unasked, assert_none_lost
from tests.datasets.replay.files import put_table
from tests.datasets.test_mmgenbench import coded

pytestmark = [pytest.mark.models, pytest.mark.slow]

ALL = ("suites",)


@dataclass(frozen=True)
class Replayed:
    """Chains of one layout and the suite that scores them.

    cast: what is typed, the replay as the model. cases: how many there are. lost: the case that
    must fall where `lose` has taken a piece out of a copy of the replay; stopped: how many chains
    that stops. paths: what of the suite is run.
    """

    suite: str
    cast: Cast
    cases: int
    lost: str
    lose: Callable[[Path], None]
    stopped: int = 1
    paths: Sequence[str] = ALL

    @property
    def root(self) -> Path:
        """Where the replay lies."""
        return Path(self.cast.model.removeprefix("replay:"))

    @property
    def failures(self) -> str:
        """The case that counts what is missing."""
        return f"{self.lost.partition('/')[0]}/overall/failures"


def sdp(root: Path, tiny: Checkpoint) -> Replayed:
    """Both chains of three pairs over 20 generations, beside their seeds."""
    data.write_sdp(root)
    for generation in range(1, 21):
        captions = dict.fromkeys(reversed(data.SDP_CAPTIONS), f"{generation} red circles")
        described, drawn = ("text", "image") if generation % 2 == 0 else ("image", "text")
        data.write_captions(root / f"{described}-first" / f"gen-{generation}.csv", captions)
        for place, name in enumerate(data.SDP_CAPTIONS):
            folder = root / f"{drawn}-first" / f"gen-{generation}"
            data.save(data.picture(500 + 20 * place + generation), folder / name)
    encoders = {"text": "mpnet", "cross": "clip", "image": "dino"}
    cast = Cast(
        model=f"replay:{root}",
        encoders={name: str(tiny(model)) for name, model in encoders.items()},
        data={"sdp": root},
    )
    lose = "image-first/gen-4/0002.png"
    return Replayed("sdp", cast, 9, "sdp/image-to-image/mcd", lambda copy: (copy / lose).unlink())


def mmgenbench(root: Path, tiny: Checkpoint) -> Replayed:
    """A table of predictions and one of images, rows in another order."""
    described = [[str(index), f"A picture, {index}."] for index in data.mmgenbench_images()]
    rows = [["index", "prediction"], *described]
    put_table(root / "LLaVA_MMGenBench-Test.tsv", rows)
    drawn = [[str(i), coded(image, "JPEG")] for i, image in data.mmgenbench_images().items()]
    table = put_table(root / "flux-1-dev.tsv", [["index", "image"], *reversed(drawn)])
    cast = Cast(
        model=f"replay:{root}",
        roles={"encoder": f"unicom:{tiny('unicom')}?allow_pickle=true&heads=4"},
        data={"mmgenbench": data.write_mmgenbench(root.with_name(f"{root.name}-LMUData"))},
    )

    def lose(copy: Path) -> None:
        put_table(copy / table.name, [["index", "image"], *drawn[1:]])

    paths = ("suites/mmgenbench/test_mmgenbench.py::test_patterns",)
    return Replayed("mmgenbench", cast, 6, "mmgenbench/overall/sim", lose, paths=paths)


def geneval(root: Path, tiny: Checkpoint) -> Replayed:
    """GenEval's folders of those built-in prompts that are judged, four images of each."""
    chosen = load_geneval(images_per_prompt=4).limited(2).samples
    for place, sample in enumerate(chosen):
        for number in range(4):
            file = root / sample.id.partition("-")[0] / "samples" / f"{number:05}.png"
            data.save(data.picture(600 + 4 * place + number, (64, 64)), file)
    cast = Cast(
        model=f"replay:{root}",
        roles={"detector": str(tiny("mask2former-of-two"))},
        encoders={"color": str(tiny("clip"))},
        samples=2,
    )
    (umbrella,) = (sample.id for sample in chosen if sample.text == "a photo of an umbrella")
    prompt, _, which = umbrella.partition("-")
    lose = f"{prompt}/samples/{int(which):05}.png"
    return Replayed(
        "geneval",
        cast,
        8,
        "geneval/single_object/geneval",
        lambda copy: (copy / lose).unlink(),
        paths=("suites/geneval/test_geneval.py::test_tasks",),
    )


def genception(root: Path, tiny: Checkpoint) -> Replayed:
    """Folders of results with three drawings of each image of MME, and pickles that stay closed."""
    mme = data.write_mme(root.with_name("MME"))
    for place, image in enumerate(sorted(mme.rglob("*.jpg"))):
        category = image.relative_to(mme).parts[0]
        folder = root / category / "results_gpt-4o"
        for iteration in range(3):
            seed = 1000 + 3 * place + iteration
            data.save(data.picture(seed), folder / f"{image.stem}_{iteration}.jpg")
        (folder / f"{image.stem}_result.pkl").write_bytes(b"cbuiltins\nexit\n(I3\ntR.")
    cast = Cast(
        model=f"replay:{root}",
        roles={"encoder": f"{tiny('vit')}?pooling=cls"},
        encoders={"inception": f"cleanfid:?weights={tiny('inception')}"},
        data={"mme": mme},
    )
    lose = "count/results_gpt-4o/0001_1.jpg"
    return Replayed("mmeception", cast, 52, "mmeception/count/gc", lambda c: (c / lose).unlink())


LAYOUTS: Mapping[str, Callable[[Path, Checkpoint], Replayed]] = {
    layout.__name__: layout for layout in (sdp, mmgenbench, geneval, genception)
}


@pytest.fixture(scope="module", params=LAYOUTS)
def gated(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_project: MakeProject,
    tiny: Checkpoint,
) -> tuple[Replayed, Project]:
    """A whole replay, accepted as the baseline."""
    replayed = LAYOUTS[request.param](tmp_path_factory.mktemp("replay") / "chains", tiny)
    project = make_project(replayed.suite)
    run = project.accept(replayed.cast, paths=replayed.paths)
    assert len(run.cases) == replayed.cases
    assert run.cases[replayed.failures]["value"] == 0
    assert run.cases[replayed.lost]["model"]["role"] == "replay"
    return replayed, project


def test_a_whole_replay_holds_against_itself(gated: tuple[Replayed, Project]) -> None:
    """The same files again: the same numbers, without one look at an image."""
    replayed, project = gated
    assert_held_unasked(project.run(replayed.cast, paths=replayed.paths), replayed.cases)


def test_what_is_missing_counts_as_failed(gated: tuple[Replayed, Project], tmp_path: Path) -> None:
    """A piece that is gone is a failure of its own chain: the run regresses, and says "missing"."""
    replayed, project = gated
    copy = Path(shutil.copytree(replayed.root, tmp_path / "damaged"))
    replayed.lose(copy)

    damaged = replace(replayed.cast, model=f"replay:{copy}")
    run = project.run(damaged, paths=replayed.paths)

    assert run.code == pytest.ExitCode.TESTS_FAILED
    failures, lost = run.cases[replayed.failures], run.cases[replayed.lost]
    assert failures["failures"] == {"missing": replayed.stopped}
    assert failures["verdict"] == "regressed"
    assert lost["verdict"] == "regressed"
    assert lost["failures"] == {"missing": replayed.stopped}
    assert "missing at generation" in str(lost["chains"][0]["failure"])
    whole = [case for case in run.cases.values() if not case["failures"]]
    assert all(case["difference"] == 0 for case in whole)


def test_rows_are_matched_by_index(
    tmp_path: Path, make_project: MakeProject, tiny: Checkpoint
) -> None:
    """Predictions and images in any order are those of their own sample: the numbers stay."""
    replayed = mmgenbench(tmp_path / "chains", tiny)
    project = make_project(replayed.suite)
    project.accept(replayed.cast, paths=replayed.paths)
    table = replayed.root / "flux-1-dev.tsv"
    with table.open(newline="") as stream:
        header, *rows = csv.reader(stream, delimiter="\t")
    put_table(table, [header, *reversed(rows)])

    run = project.run(replayed.cast, paths=replayed.paths)

    assert run.code == 0, run.output
    assert_none_lost(run.report["cases"])
    assert {case["difference"] for case in run.cases.values()} == {0}


def test_pickles_alone_are_refused(
    tmp_path: Path, make_project: MakeProject, tiny: Checkpoint
) -> None:
    """GenCeption's results without images are not opened; the message says why and what to do."""
    replayed = genception(tmp_path / "chains", tiny)
    for image in replayed.root.rglob("*.jpg"):
        image.unlink()

    run = make_project(replayed.suite).run(replayed.cast, "-k", "count")

    assert run.code != 0
    assert "holds nothing but pickles, which are never opened" in run.output
    assert "give the folder with the images" in run.output
    assert "Traceback" not in run.output
