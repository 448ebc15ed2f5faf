"""The exit code of a run: pytest's own, unless the ledger knows of something worse.

Registered after the conftest.py files of the command line, so that nothing comes after it: hooks at
the end of a session may set its exit status to whatever they like.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_cepbench.plugin.controller import CONTROLLER

Code = int | str | None
"""As `sys.exit` takes it."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Code, Code]:
    """Settle what the process, or `pytest.main`, returns."""
    try:
        code = yield
    except SystemExit as leaving:  # a hook at the end of the session called sys.exit
        worse = _judged(config, leaving.code)
        if worse == leaving.code:
            raise
        raise SystemExit(worse) from leaving
    return _judged(config, code)


def _judged(config: pytest.Config, code: Code) -> Code:
    controller = config.stash.get(CONTROLLER, None)
    return code if controller is None else controller.exit_code(code)
