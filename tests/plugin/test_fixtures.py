"""Fixtures that give models: names of this plugin's own, and bare ones where they are free."""

from __future__ import annotations

import pytest

from pytest_cepbench.models import ROLE_NAMES
from tests.plugin.project import SHAPES, Project

BOTH_NAMES = """\
def test_models(cep_describer, describer, cep_encoder, encoder):
    assert cep_describer is describer
    assert cep_encoder is encoder
    assert len(cep_encoder.encode_texts(["a red circle"])) == 1
"""

OWNER = """\
import pytest

@pytest.fixture(scope="session")
def encoder():
    return "theirs"
"""

USER = """\
def test_owner(encoder, cep_encoder, describer):
    assert encoder == "theirs"
    assert len(cep_encoder.encode_texts(["a red circle"])) == 1
    assert describer is not None

def test_drift(cep_case, cep_gate):
    cep_gate(cep_case)
"""


def test_both_names_are_the_same_model(project: Project) -> None:
    """`cep_describer` and `describer` are one loaded model."""
    project.suite(SHAPES, module=BOTH_NAMES)
    result = project.run_here()
    result.assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["conftest", "module", "plugin-before", "plugin-after"])
def test_the_owner_of_a_bare_name_keeps_it(project: Project, how: str) -> None:
    """A conftest, test module or other plugin has `encoder`; cases run, `cep_encoder` is ours."""
    arguments = ["--snapshot-update"]
    project.suite(SHAPES, module=(OWNER if how == "module" else "") + USER)
    if how == "conftest":
        project.write("conftest.py", OWNER)
    elif how == "plugin-before":  # `-p` is loaded before installed plugins
        project.write("owner.py", OWNER)
        arguments += ["-p", "owner"]
    elif how == "plugin-after":
        project.write("owner.py", OWNER)
        project.write("conftest.py", "pytest_plugins = ['owner']\n")
    result = project.run(*arguments)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=11)


def test_a_conftest_of_a_subfolder_owns_its_tests_only(project: Project) -> None:
    """Elsewhere the bare name is the run's model."""
    project.suite(SHAPES, module=BOTH_NAMES)
    project.write("below/conftest.py", OWNER)
    project.write("below/test_owner.py", "def test_owner(encoder): assert encoder == 'theirs'\n")
    project.run_here().assert_outcomes(passed=2)


def test_fixtures_are_listed_with_what_they_give(project: Project) -> None:
    """`pytest --fixtures` has both names of each role, with a sentence."""
    listed = project.run_here("--fixtures")
    for role in ROLE_NAMES:
        for name in (f"cep_{role}", role):
            listed.stdout.fnmatch_lines([f"{name} -- *", f"    The loaded {role} of the run*"])
