"""Unified models and models behind a server, in runs on a cluster."""

from __future__ import annotations

import pytest

# As in test_cluster_runs.py: what may be imported only once is imported here.
pytest.importorskip("ray")
pytest.importorskip("httpx2")

import pytest_cepbench.evaluation.ray_engine  # noqa: F401 - see above
from pytest_cepbench.models.rule_based.scene_models import DescriberKnobs, ShapesDescriber
from tests.models.api.fake_server import Answer, Seen, chat_answer, serving
from tests.plugin.project import SHAPES, Project

Arguments = tuple[str, ...]


def _describe(seen: Seen) -> Answer:
    return chat_answer(ShapesDescriber(DescriberKnobs()).describe(seen.images, seen.text, [0])[0])


@pytest.mark.slow
def test_a_model_behind_a_server_is_asked_from_here(
    project: Project, describing: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key stays with the driver: no node gets it. No request is made twice."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-only-here")
    project.suite(SHAPES)
    with serving() as server:
        server.answer = _describe
        model = f"--model={server.spec()}", "--cep-role=describer"
        project.run_here(*model, "--snapshot-update")
        project.run_here(*model)
        near, asked = project.numbers(), len(server.seen)

        result = project.run_here(*model, *describing)

        assert result.ret == pytest.ExitCode.OK
        assert project.numbers() == near
        assert len(server.seen) == 2 * asked
        assert {request.headers["authorization"] for request in server.seen} == {
            "Bearer sk-only-here"
        }
