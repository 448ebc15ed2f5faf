"""`transformers serve` for a tiny checkpoint, started by a run or before it, beside the same
checkpoint in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pytest_cepbench.errors import IdentityError
from pytest_cepbench.models.api.roles import ApiModel
from pytest_cepbench.models.binding import BoundRole, bind
from pytest_cepbench.models.protocols import (
    Describer,
    RoleName,
)
from pytest_cepbench.models.serving.run_servers import RunServers
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import bind_text, context_with
from tests.tiny.common import pictures

pytestmark = [pytest.mark.models, pytest.mark.slow]

_PROMPT = "describe the image"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A describer with a chat template."""
    for library in ("torch", "transformers", "fastapi", "openai", "uvicorn", "httpx2"):
        pytest.importorskip(library, reason=f"`transformers serve` is asked, which needs {library}")
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported

    from tests.tiny.describers import build_llava

    with quiet():
        return build_llava(tmp_path_factory.mktemp("served") / "llava")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunServers]:
    """The servers of a run; the tests share the only one, which takes ten seconds to start."""
    run = tmp_path_factory.mktemp("run")
    with closing(RunServers(run / "servers", run / "logs")) as servers:
        yield servers


def _served(checkpoint: Path, servers: RunServers, role: RoleName = "describer") -> BoundRole:
    query = "engine=transformers&engine_args=--device cpu&dtype=float32&max_tokens=12"
    return bind(parse_spec(f"serve:{checkpoint}?{query}"), role, context_with(servers))


def test_a_served_checkpoint_says_what_it_says_here(checkpoint: Path, servers: RunServers) -> None:
    """Greedy captions are equal word for word, under one fingerprint."""
    here = bind_text(f"{checkpoint}?max_new_tokens=12", "describer")
    served = _served(checkpoint, servers)
    images = pictures(((64, 64), (48, 80), (96, 40)))
    models = here.load(), served.load()
    assert isinstance(models[0], Describer)
    assert isinstance(models[1], ApiModel)

    own = models[0].describe(images, "describe", [0] * 3)
    replies = models[1].describe(images, "describe", [0] * 3)

    assert served.fingerprint == here.fingerprint
    assert [reply.value for reply in replies] == list(own)
    assert len(set(own)) > 1
    assert all(reply.provenance["engine"] == "transformers serve" for reply in replies)


def test_weights_that_change_while_they_are_served_stop_the_case(
    checkpoint: Path, servers: RunServers
) -> None:
    """It maps them into memory, where it has no accelerator: another file is another model."""
    model = _served(checkpoint, servers).load()
    assert isinstance(model, ApiModel)
    (image,) = pictures(((64, 64),))
    (weights,) = checkpoint.glob("*.safetensors")
    content = weights.read_bytes()
    try:
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(IdentityError, match="written again: model"):
            model.describe([image], "describe", [0])
    finally:
        weights.write_bytes(content)
