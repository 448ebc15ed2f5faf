"""Names that users write: options with their twins, and the keys of suite files."""

from __future__ import annotations

import types
from dataclasses import asdict
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from pytest_cepbench.evaluation.settings import OPTIONS
from pytest_cepbench.measures.measure_registry import ANSWER_KINDS, KINDS
from pytest_cepbench.plugin.options import settings_of
from pytest_cepbench.suites.definition import SuiteTable
from tests.golden.frozen import assert_frozen
from tests.plugin.project import Project


def test_options_with_their_twins_and_defaults(project: Project) -> None:
    """Each option's flags, ini key, variable, choices, and what counts where it is not given."""
    settings = settings_of(project.pytester.parseconfig("-p", "no:terminal"))
    defaults = {
        name: str(value).replace(str(project.path), "ROOT")
        for name, value in asdict(settings).items()
        if name not in ("sources", "listing")
    }
    options = {
        option.name: {
            "flags": [option.flag, *([f"--{option.name}"] if option.short else [])],
            "ini": option.ini,
            "environment": option.env,
            "choices": option.choices,
            "several": option.multiple,
            "switch": option.switch,
        }
        for option in OPTIONS
    }
    assert_frozen("options.json", {"options": options, "defaults": defaults})


def test_keys_of_suite_files() -> None:
    """Every key of a suite.toml with type and default, table by table, and those of each metric."""
    tables: dict[str, Any] = {"": _keys(SuiteTable)}
    for kind, table in KINDS.items():
        tables[f"metrics.{kind}"] = _keys(table)
    for kind, table in ANSWER_KINDS.items():
        tables[f"metrics.{kind} of answers"] = _keys(table)
    assert_frozen("suite_keys.json", tables)


def _keys(table: type) -> dict[str, Any]:
    hints = get_type_hints(table)
    return {
        field.encode_name: {
            "type": _type(hints[field.name]),
            **({} if field.required else {"default": _default(field)}),
        }
        for field in msgspec.structs.fields(table)
    }


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default)
    return msgspec.to_builtins(field.default_factory())


def _type(hint: Any) -> Any:
    """A type in words, a table with its own keys."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _keys(hint)
    if hint is types.NoneType or (isinstance(hint, type) and not get_args(hint)):
        return hint.__name__
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    inner = [_type(part) for part in get_args(hint)]
    if get_origin(hint) in (list, dict):
        return {get_origin(hint).__name__: inner[-1]}
    return inner if get_args(hint) else repr(hint)
