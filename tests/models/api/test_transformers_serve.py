"""A tiny checkpoint behind `transformers serve`, beside the same checkpoint in this process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.steps import Step
from pytest_cepbench.models.protocols import AnsweredQuestion, AnswerScorer, Reply
from pytest_cepbench.models.torch_runtime import quiet
from pytest_cepbench.store import Store
from tests.models.binding import bind_text
from tests.tiny.common import pictures

pytestmark = [pytest.mark.models, pytest.mark.slow]

PROMPT = "describe the image"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A describer with a chat template."""
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason="describers need the [models] extra")
    pytest.importorskip("fastapi", reason="`transformers serve` needs fastapi and uvicorn")
    pytest.importorskip("uvicorn", reason="`transformers serve` needs fastapi and uvicorn")
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

    from tests.tiny.describers import build_llava

    with quiet():
        return build_llava(tmp_path_factory.mktemp("served") / "llava")


@pytest.fixture(scope="module")
def url(checkpoint: Path) -> Iterator[str]:
    """Where a server of that checkpoint listens; it takes some ten seconds to begin."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("transformers"), "serve", checkpoint,
        "--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--dtype", "float32",
    ]  # fmt: skip
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:  # ends where the server does
            lines.append(line)
            running = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
            if running:
                yield f"{running[1]}/v1"
                break
        else:
            pytest.fail(f"the server ended: {''.join(lines)}")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_a_served_checkpoint_says_what_it_says_here(
    checkpoint: Path, url: str, tmp_path: Path
) -> None:
    """Greedy captions are equal word for word, stored under the weights, and asked for once."""
    images = [ImageArtifact.from_pil(image) for image in pictures(((64, 64), (48, 80), (96, 40)))]
    specs = {
        "here": f"{checkpoint}?max_new_tokens=12",
        "served": f"openai:{checkpoint}?base_url={url}&weights={checkpoint}&max_tokens=12",
    }

    def captions(runner: RoleRunner) -> list[object]:
        steps = [
            Step(runner.key(PROMPT, 0, "image", image.digest), 0, image.to_pil) for image in images
        ]
        return list(runner.ask("describe", steps, PROMPT))

    with Store(tmp_path / "store") as store:
        runners = {
            name: RoleRunner(bind_text(spec, "describer"), store) for name, spec in specs.items()
        }
        reply = {name: captions(runner) for name, runner in runners.items()}
        again = RoleRunner(bind_text(specs["served"], "describer"), store)
        assert captions(again) == reply["served"]

    assert reply["served"] == reply["here"]
    assert len(set(map(str, reply["here"]))) > 1
    usage = runners["served"].tally.usage
    # Its list of models fails without a hub's cache, and that line may be cut: one retry.
    assert usage.requests - usage.retries == len(images)
    assert usage.retries <= 1
    assert min(usage.input_tokens, usage.output_tokens) > len(images)
    assert (again.tally.loads, again.tally.inputs) == (0, 0)


def test_a_real_server_is_asked_for_scores(checkpoint: Path, url: str) -> None:
    """Whether it takes structured output or not: an untrained model's babble is no score."""
    red, green, _ = pictures(((64, 64), (48, 80), (96, 40)))
    spec = f"openai:{checkpoint}?base_url={url}&weights={checkpoint}&max_pixels=900&retries=1"
    judge = cast("AnswerScorer", bind_text(spec, "judge").load())

    (reply,) = judge.score_answers([AnsweredQuestion(["a", red], ["red", green])], [0])

    assert isinstance(reply, Reply)
    assert isinstance(reply.value, Failure)
    assert reply.value.kind == "no-score"
    assert reply.usage.requests >= 2
