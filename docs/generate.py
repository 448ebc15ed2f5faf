"""Writes the tables of the reference from the package: `python docs/generate.py`.

A page holds a table between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is a function of
this file, with words for its arguments; what stands between the marks is written anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("api-models.md", "commands.md", "models.md", "reference.md", "report-schema.md")

_MARKED = re.compile(
    r"(<!-- generated: (?P<name>\w+)(?P<words>(?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL
)

_ADAPTERS = {
    "T": "models.text_model.parameters:GenerationParams",
    "V": "models.text_model.parameters:ConversationParams",
    "J": "models.text_model.parameters:LocalJudgeParams",
    "X": "models.text_model.parameters:UnifiedParams",
    "G": "models.pipelines.pipeline:PipelineParams",
    "P": "models.pipelines.roles:EditorParams",
    "A": "models.sounds.generators:SoundGeneratorParams",
    "E": "models.encoders.transformers_encoder:TransformersEncoderParams",
    "O": "models.encoders.library_encoders:EncoderParams",
    "M": "models.encoders.library_encoders:TimmEncoderParams",
    "U": "models.encoders.file_encoders:UnicomParams",
    "I": "models.encoders.file_encoders:InceptionParams",
    "W": "models.detectors.transformers_detectors:DetectorParams",
    "K": "models.detectors.transformers_detectors:ClassesParams",
    "server": "models.api.parameters:ServerParams",
    "serve": "models.serving.engines:ServeParams",
    "chat": "models.api.parameters:ChatParams",
    "image": "models.api.parameters:ImageParams",
    "judge": "models.api.parameters:JudgeParams",
    "vqa": "models.api.parameters:VqaParams",
    "writer": "models.api.parameters:WriterParams",
    "human": "models.people:PeopleParams",
    "describer": "models.rule_based.scene_models:DescriberKnobs",
    "generator": "datasets.shapes.degrade:Degradation",
    "answer": "datasets.shapes.arena:AnswerDegradation",
    "judges": "models.rule_based.arena_models:JudgeKnobs",
    "questions": "models.rule_based.scene_models:VqaKnobs",
    "tones": "datasets.tones:ToneKnobs",
}
"""Letter or name of a row -> the class of the parameters that a spec can have."""

_LIBRARY = "as in the model's library"


def filled(page: str) -> str:
    """The page with its tables as the package has them now."""

    def table(match: re.Match[str]) -> str:
        rows = globals()[match["name"]](*match["words"].split())
        return match[1] + "\n" + "\n".join(rows) + "\n\n" + match[4]

    return _MARKED.sub(table, page)


# -- tables ----------------------------------------------------------------------------------------


def words() -> Iterator[str]:
    """The glossary."""
    from pytest_cepbench.report.pages import TERMS

    yield from ("| word | meaning |", "|---|---|")
    yield from (f"| {word} | {meaning} |" for word, meaning in TERMS.items())


def options() -> Iterator[str]:
    """The options of pytest."""
    from pytest_cepbench.evaluation.settings import OPTIONS

    yield from _head("option", "value", "meaning")
    for option in OPTIONS:
        names = f"`{option.flag}`" + (f", `--{option.name}`" if option.short else "")
        yield _row(names, _code(option.metavar), option.help)


def parameters(*names: str) -> Iterator[str]:
    """Parameters of specs, each once, with the adapters that have it where there are several."""
    several = len(names) > 1
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        for labels, default, note in _parameters(_class(_ADAPTERS[name])):
            rows.setdefault((labels, default, note), []).append(name)
    yield from _head("parameter", *(["of"] if several else []), "default", "meaning")
    for (labels, default, note), of in rows.items():
        letters = all(len(name) == 1 for name in names)
        everywhere = "all" if len(of) == len(names) else ("" if letters else ", ").join(of)
        yield _row(labels, *([everywhere] if several else []), _code(default), note)


def flags() -> Iterator[str]:
    """The flag that each parameter of an engine becomes."""
    from pytest_cepbench.models.serving.engines import ENGINES

    yield from _head("parameter", *ENGINES)
    for name in ENGINES["vllm"].flags:
        shown = (each.flags.get(name) for each in ENGINES.values())
        yield _row(_code(name), *(_code(flag) if flag else "none" for flag in shown))


def suite_keys() -> Iterator[str]:
    """The keys of suite.toml."""
    import msgspec

    from pytest_cepbench.measures.base import MetricTable
    from pytest_cepbench.suites import definition

    by_name = {
        "cases": definition.CaseTable,
        "metrics": MetricTable,
        "presets": definition.PresetTable,
    }
    yield from _head("key", "default", "meaning")
    notes = _notes(definition.SuiteTable)
    for field in msgspec.structs.fields(definition.SuiteTable):
        named = by_name.get(field.name)
        table = named or _struct(field.type)
        if table is None:
            key = f"{field.name}.NAME" if field.name in ("groups", "encoders") else field.name
            yield _row(_code(key), _code(_of_struct(field)), notes.get(field.name, ""))
            continue
        yield from _struct_rows(table, f"{field.name}.NAME" if named else field.name)


def _struct_rows(table: type, prefix: str) -> Iterator[str]:
    """A row for each text of the table's docstring; the rest has the docstring's first sentence."""
    import msgspec

    notes = _notes(table)
    about = (table.__doc__ or "").split("\n")[0].split(";")[0]
    groups: dict[tuple[str, str], list[str]] = {}
    for field in msgspec.structs.fields(table):
        note = notes.get(field.name) or about
        groups.setdefault((note, _of_struct(field)), []).append(field.name)
    for (note, default), names in groups.items():
        yield _row(", ".join(_code(f"{prefix}.{name}") for name in names), _code(default), note)


def metric_settings() -> Iterator[str]:
    """The settings that single metrics have."""
    import msgspec

    from pytest_cepbench.measures.base import MetricTable
    from pytest_cepbench.measures.measure_registry import KINDS

    rows: dict[tuple[str, str, str], list[str]] = {}
    for kind, table in KINDS.items():
        notes = _notes(table)
        for field in msgspec.structs.fields(table):
            if field.name not in MetricTable.__struct_fields__:
                note = notes.get(field.name, "")
                rows.setdefault((field.name, _of_struct(field), note), []).append(kind)
    yield from _head("metrics", "key", "default", "meaning")
    yield from _rows_of_groups(rows)


def loader_options() -> Iterator[str]:
    """The options of the loaders."""
    from pytest_cepbench.datasets.shapes.samples import build_dataset
    from pytest_cepbench.suites.data import LOADERS, named_loader

    rows: dict[tuple[str, str, str], list[str]] = {}
    for loader in LOADERS:
        function = named_loader(loader)
        known = inspect.signature(function).parameters
        several, own = build_dataset.__doc__ or "", function.__doc__ or ""
        notes = _named_texts(several) | _named_texts(own, known)
        for name, parameter in known.items():
            if name != "path":
                row = (name, _default(parameter.default), notes.get(name, ""))
                rows.setdefault(row, []).append(loader)
    yield from _head("loader", "option", "default", "meaning")
    yield from _rows_of_groups(rows)


def _rows_of_groups(rows: dict[tuple[str, str, str], list[str]]) -> Iterator[str]:
    """A row for the names with one default and meaning, of those that have them all.

    rows: (name, default, meaning) -> who has it.
    """
    names: dict[tuple[str, ...], list[str]] = {}
    for (name, default, note), owners in rows.items():
        shown = (", ".join(map(_code, owners)), _code(default), note)
        names.setdefault(shown, []).append(_code(name))
    for (owner, default, note), own in names.items():
        yield _row(owner, ", ".join(own), default, note)


def commands() -> Iterator[str]:
    """The commands of `cepbench`, with their options as their own help lists them."""
    found = list(_commands([]))
    shared: dict[tuple[str, str], int] = {}
    for _, _, rows in found:
        for row in rows:
            shared[row] = shared.get(row, 0) + 1
    most = {name.split()[0]: (name, text) for name, text in sorted(shared, key=shared.__getitem__)}
    common = [row for row in shared if shared[row] > 1 and row in most.values()]
    for words, about, rows in found:
        yield from (f"### `{' '.join(['cepbench', *words])}`", "", about)
        own = [row for row in rows if row not in common]
        if own:
            yield from ("", *_head("option", "meaning"))
            yield from (_row(_code(name), text) for name, text in own)
        if also := [_code(row[0].split()[0]) for row in common if row in rows]:
            yield from ("", f"Also: {', '.join(also)}.")
        yield ""
    yield from ("### Options of several commands", "")
    yield from _head("option", "meaning")
    yield from (_row(_code(name), text) for name, text in common)


def _commands(words: list[str]) -> Iterator[tuple[list[str], str, list[tuple[str, str]]]]:
    """Words, what it does, and (option, text), of each command that has no further ones."""
    about, rows, own = _help(words)
    if not own:
        yield words, about, rows
    for name in own:
        yield from _commands([*words, name])


def _help(words: list[str]) -> tuple[str, list[tuple[str, str]], list[str]]:
    from pytest_cepbench.cli import main

    printed = io.StringIO()
    os.environ |= {"COLUMNS": "2000", "NO_COLOR": "1"}
    with contextlib.redirect_stdout(printed):
        main([*words, "--help"])
    lines = printed.getvalue().splitlines()
    blocks = printed.getvalue().split("\n\n")
    about = next(" ".join(b.split()) for b in blocks if not b.startswith("usage:"))
    rows: list[list[str]] = []
    own: list[str] = []
    section = ""
    for line in lines:
        if line and not line.startswith(" "):
            section = line.removesuffix(":")
        elif re.match(r"  (ACTION|COMMAND)$", line):
            section = "commands"
        elif section == "commands" and (match := re.match(r"    ([a-z-]+)(?:  |$)", line)):
            own.append(match[1])
        elif match := re.match(r"  (\S.*?)(?:  +(\S.*))?$", line):
            if not words and section != "options":
                own.append(match[1])
            elif not re.match(r"-h\b|--version", match[1]):
                rows.append([match[1], match[2] or ""])
        elif rows and not rows[-1][1] and line.startswith("      "):
            rows[-1][1] = line.strip()
    options = [(re.sub(r", --cep-.*", "", name), text) for name, text in rows]
    return about[:1].upper() + about[1:], [] if own else options, own


# -- what the package says of a name ---------------------------------------------------------------


_RECORDS = {"CaseResult": "Case", "UsageTotals": "Effort"}
"""Records of the report whose name on the page is not that of their class."""

_JSON = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def report_records() -> Iterator[str]:
    """A section for the JSON report and for every record in it: what its docstring says."""
    from pytest_cepbench.report.writers import Document

    found: dict[type, None] = {}

    def add(kind: Any) -> None:
        if _is_record(kind) and kind not in found:
            found[kind] = None
            for inner in get_type_hints(kind).values():
                add(inner)
        for argument in get_args(kind):
            add(argument)

    add(Document)
    for record in found:
        yield from _record(record)


def _is_record(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__")


def _record(record: type) -> Iterator[str]:
    """Its section: what its docstring says of all, and of each field."""
    hints = get_type_hints(record)
    said = _named_texts(record.__doc__ or "")
    paragraphs = inspect.cleandoc(record.__doc__ or "").split("\n\n")
    prose = [text for text in paragraphs if not _named_texts(text) and "Raises " not in text]
    yield f"## {_record_name(record)}\n"
    yield _in_json("\n\n".join(prose)) + "\n"
    yield from _head("field", "type", "meaning")
    rows: dict[tuple[str, str], list[str]] = {}
    for name, kind in hints.items():
        text = said[name].removesuffix(".")
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            text += ": " + ", ".join(f"`{value}`" for value in kind)
        rows.setdefault((_json_type(kind), _in_json(text)), []).append(_code(name))
    yield from (_row(", ".join(names), *cells) for cells, names in rows.items())
    yield ""


def _in_json(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def _record_name(record: type) -> str:
    name = record.__name__
    return _RECORDS.get(name) or (name.removesuffix("Shown") or name)


def _json_type(kind: Any) -> str:
    """A type as JSON has it."""
    if _is_record(kind):
        return _record_name(kind)
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return "string"
    inner = [_json_type(argument) for argument in get_args(kind) if argument is not Ellipsis]
    if get_origin(kind) in (list, tuple):
        return f"list of {inner[0]}"
    if get_origin(kind) is dict:
        return f"object of {inner[1]}"
    return " or ".join(inner) if inner else _JSON[kind]


def parameter_classes() -> list[type[Any]]:
    """The classes of the parameters that specs can have."""
    places = (*_ADAPTERS.values(), "models.checkpoints.parameters:SourceOptions")
    return [_class(place) for place in places]


def _class(place: str) -> type[Any]:
    module, _, name = place.partition(":")
    found: type[Any] = getattr(import_module(f"pytest_cepbench.{module}"), name)
    return found


def _parameters(kind: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Names, default and meaning; names of one text and default are one entry."""
    sources = _class("models.checkpoints.parameters:SourceOptions")
    groups: dict[tuple[str, str], list[str]] = {}
    for table, names in ((kind, None), (sources, getattr(kind, "SOURCES", ()))):
        notes = _notes(table)
        for field in dataclasses.fields(table):
            if field.init and (names is None or field.name in names):
                note = notes.get(field.name, _LIBRARY)
                groups.setdefault((_default(field.default), note), []).append(field.name)
    for (default, note), names in groups.items():
        yield ", ".join(map(_code, names)), default, note


def _notes(kind: type) -> dict[str, str]:
    """Name of a field -> what the docstrings of its class and the bases say of it."""
    notes: dict[str, str] = {}
    known = set(getattr(kind, "__annotations__", ())) | set(
        getattr(kind, "__struct_fields__", getattr(kind, "__dataclass_fields__", ()))
    )
    for base in reversed(kind.__mro__):
        for name, text in _named_texts(base.__dict__.get("__doc__") or "", known).items():
            notes[name] = _resolved(name, text, base) or notes.get(name, "")
    return notes


def _resolved(name: str, text: str, kind: type) -> str:
    """The text, or that of the class which it refers to ("as in `OtherTable`")."""
    if match := re.fullmatch(r"(.*?)(?:as in|see) `(\w+)`\.?", text):
        siblings: dict[str, type] = {}
        for base in kind.__mro__[1:-1]:
            others: list[type] = base.__subclasses__()
            siblings |= {each.__name__: each for each in others}
        other = getattr(sys.modules[kind.__module__], match[2], siblings.get(match[2]))
        if inspect.isclass(other) and other is not kind:
            return _notes(other).get(name, "")
    return text


def _named_texts(docstring: str, known: Iterable[str] = ()) -> dict[str, str]:
    """The lines `NAME, NAME: TEXT` of a docstring, with the lines that go on with them.

    known: names that may also begin within a line, behind a full stop.
    """
    texts: dict[str, str] = {}
    names: list[str] = []
    text = inspect.cleandoc(docstring)
    for name in known:
        text = re.sub(rf"\. ({name}(?:, \w+)*): ", r".\n\1: ", text)
    for line in text.splitlines():
        if match := re.match(r"(\w+(?:, \w+)*): (.+)", line):
            names = match[1].split(", ")
            texts |= dict.fromkeys(names, match[2])
        elif names and line and (line.startswith("    ") or not texts[names[0]].endswith(".")):
            texts |= {name: f"{texts[name]} {line.strip()}" for name in names}
        else:
            names = []
    return texts


def _struct(hint: Any) -> type | None:
    """The table that a key holds, where it holds one."""
    import msgspec

    kinds = [hint, *get_args(hint)]
    return next((k for k in kinds if inspect.isclass(k) and issubclass(k, msgspec.Struct)), None)


def _of_struct(field: Any) -> str:
    import msgspec

    if field.default_factory is not msgspec.NODEFAULT:
        return _default(field.default_factory())
    return "" if field.default is msgspec.NODEFAULT else _default(field.default)


def _default(value: object) -> str:
    if value is None or value in ("", {}, [], ()) or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- Markdown --------------------------------------------------------------------------------------


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    text = " ".join(text.split()).removesuffix(".")
    # A bar ends a cell, also in code; `<` would begin a tag.
    return re.sub(r"(?<!\\)\|", r"\\|", text).replace("<", "&lt;")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main(pages: Iterable[str] = PAGES) -> None:
    """Write every page that holds a table."""
    sys.path.insert(0, str(ROOT))
    for name in pages:
        page = ROOT / "docs" / name
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
