"""Pages of runs from templates: everything escaped, nothing hidden, one style."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from pytest_cepbench.escapes import visible

_LOADER = jinja2.PackageLoader("pytest_cepbench.report", "templates")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=_LOADER,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
    )
    style = resources.files("pytest_cepbench.report").joinpath("templates", "style.css")
    environment.globals["style"] = Markup(style.read_text(encoding="utf-8"))  # noqa: S704 - ours
    return environment


def render(template: str, **values: Any) -> str:
    """A page from a template of `report/templates`. Texts are escaped, and `visible`."""
    return _environment().get_template(template).render(**values)


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it; what macros made is of such texts already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value
