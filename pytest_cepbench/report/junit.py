"""A case as properties of its test: what JUnit files and other plugins can carry of it."""

from __future__ import annotations

from pytest_cepbench.report.number_format import printable
from pytest_cepbench.report.result import CaseResult

PREFIX = "cepbench_"

_NUMBERS = ("value", "baseline", "difference", "low", "high", "alpha", "tolerance", "n")


def properties_of(result: CaseResult) -> list[tuple[str, str]]:
    """(name, text) pairs for pytest's `user_properties`; what is not known is left out.

    Texts of type str exactly, without control characters and lone surrogates: a report that xdist
    cannot send is lost. Numbers are read back as they were by `float`; `primary` is true or false.
    There is a `warning` for each.
    """
    case = f"{result.suite}/{result.part}/{result.metric}"
    fields = {
        "case": printable(case, 500),
        "verdict": "accepted" if result.accepted else printable(result.verdict),
        **{name: str(value) for name in _NUMBERS if (value := getattr(result, name)) is not None},
        "primary": "true" if result.primary else "false",
    }
    warnings = [("warning", printable(warning, 700)) for warning in result.warnings]
    return [(PREFIX + name, text) for name, text in (*fields.items(), *warnings)]
