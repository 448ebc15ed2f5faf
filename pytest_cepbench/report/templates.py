"""Pages of runs from templates: everything escaped, nothing hidden, one style."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from pytest_cepbench.escapes import visible
from pytest_cepbench.report.case_table import hops_of
from pytest_cepbench.report.chain_pairs import observed_losses, paired_steps, sample_anchor
from pytest_cepbench.report.number_format import number

_LOADER = jinja2.ChoiceLoader(
    [
        jinja2.PackageLoader("pytest_cepbench.report", "templates"),
        jinja2.PackageLoader("pytest_cepbench.report", "."),  # macros of the page of a run
    ]
)


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
    environment.globals["style"] = source_of("templates/style.css")
    environment.globals |= {function.__name__: function for function in _FUNCTIONS}
    return environment


def source_of(name: str) -> Markup:
    """A style or script of this package, as it stands in a page. name: from the folder `report`."""
    text = resources.files("pytest_cepbench.report").joinpath(name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - ours


def render(template: str, **values: Any) -> str:
    """A page from a template of `report/templates`. Texts are escaped, and `visible`."""
    return _environment().get_template(template).render(**values)


_FUNCTIONS = (hops_of, number, observed_losses, paired_steps, sample_anchor)
"""Functions of the macros of the page of a run, each under its own name."""


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it; what macros made is of such texts already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value
