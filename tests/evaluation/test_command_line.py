"""The command of a run in its reports: readable, and without keys."""

from __future__ import annotations

import pytest

from pytest_cepbench.evaluation.run_provenance import redacted_command

KEY = "a1b2c3d4e5f6a7b8"


@pytest.mark.parametrize(
    "arguments",
    [
        [f"--api-key={KEY}"],
        ["--api-key", KEY],
        ["--hub-token", KEY],
        [f"--cep-shared=https://user:{KEY}@host/store"],
        [f"--cep-shared=https://host/store?X-Amz-Signature={KEY}&part=1"],
        [f"--cep-shared=https://host/store?sig={KEY}"],
        [f"--model=openai:gpt?api_key={KEY}"],
        [f"-oheader={KEY}"],
        [f"--model=sk-{KEY}"],
    ],
)
def test_keys_are_not_shown(arguments: list[str]) -> None:
    """Wherever a key is: an option named like one, a URL, a variable's value, the look of one."""
    command = redacted_command(["pytest", *arguments, "suites"], {"SERVICE_TOKEN": KEY})
    assert KEY not in command
    assert command.startswith("pytest ")
    assert command.endswith(" suites")


def test_what_is_no_key_stays() -> None:
    """Parameters of models that sound alike, short values of variables, and quotes for a shell."""
    arguments = ["pytest", "--model=dir?max_new_tokens=32&dtype=bfloat16", "-k", "a or b"]
    command = redacted_command(arguments, {"TOKENIZERS_PARALLELISM": "false", "A_TOKEN": "32"})
    assert command == "pytest '--model=dir?max_new_tokens=32&dtype=bfloat16' -k 'a or b'"


def test_without_a_command_there_is_none() -> None:
    """As in a run by the Python API."""
    assert redacted_command([], {}) == ""
