"""How large the package is to a reader: lines, modules, functions, and what two ways cross.

    python -m benchmarks.house                # prints the tables
    python -m benchmarks.house --write        # puts them into docs/architecture.md, too
    python -m benchmarks.house --way folder   # names the files and types of a way

Code lines hold more than a comment or a docstring. A way is a piece of a real run that is watched:
its files are the modules of which a function ran, its types the classes whose instances were given
to such a function or returned by one. The ways need the extra models.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import tokenize
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]

PACKAGE = ROOT / "pytest_cepbench"

PAGE = ROOT / "docs" / "architecture.md"

BEGIN, END = "<!-- written by benchmarks.house -->", "<!-- end of benchmarks.house -->"

WHOLE, OTHERS = "whole package", "beside the floors"

_SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


@dataclass(frozen=True)
class Module:
    """A source file: its name as imported, its room (a top folder), and what is counted in it.

    functions: code lines of each. classes: at its top. imports: all names, wherever they are.
    """

    name: str
    room: str
    lines: int
    comments: int
    functions: tuple[int, ...]
    classes: tuple[str, ...]
    imports: frozenset[str]


def imports_of(tree: ast.AST) -> frozenset[str]:
    """What is imported anywhere in a source file, at its top or inside a function: full names."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def read_module(path: Path) -> Module:
    """Count a source file of the package."""
    text = path.read_text("utf-8")
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    nodes = list(ast.walk(tree := ast.parse(text)))
    code: set[int] = set()
    for token in tokens:
        if token.type not in _SILENT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            code -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = sorted(code)
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return Module(
        ".".join((PACKAGE.name, *parts)).removesuffix(".__init__"),
        parts[0] if len(parts) > 1 else OTHERS,
        text.count("\n"),
        sum(token.type == tokenize.COMMENT for token in tokens),
        tuple(
            bisect_right(lines, node.end_lineno or 0) - bisect_left(lines, node.lineno)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        imports_of(tree),
    )


def import_graph(imports: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """The modules that each module imports, for types too; not the package, which is lazy.

    imports: module -> all names that it imports, of values and of other packages too.
    """
    names = imports.keys() - {PACKAGE.name}
    return {
        module: {name if name in names else name.rpartition(".")[0] for name in imported}
        & names - {module}
        for module, imported in imports.items()
    }


def circle_of(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Nodes that lead to each other in a circle; none where there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1][1:])
    return []


def count_tables(paths: Sequence[Path]) -> list[str]:
    """Sizes of the package and of each room, and what there should be none of.

    paths: of all modules, or of one of each room, where only the form of the tables is asked for.
    """
    modules = [read_module(path) for path in paths]
    rooms = sorted({module.room for module in modules} - {OTHERS})
    lines = ["| room | lines | modules | median | functions | code lines each | comments |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for room in (WHOLE, *rooms, OTHERS):
        own = [module for module in modules if room in (module.room, WHOLE)]
        total = sum(module.lines for module in own)
        functions = [count for module in own for count in module.functions]
        median = statistics.median(module.lines for module in own)
        mean = statistics.fmean(functions or [0])
        share = 100 * sum(module.comments for module in own) / total
        lines.append(
            f"| {room} | {total:,} | {len(own)} | {median:.0f} | {len(functions):,} | {mean:.1f} | "
            f"{share:.1f} % |"
        )
    names = Counter(name for module in modules for name in module.classes)
    faults = {
        "modules in a circle of imports": circle_of(
            import_graph({module.name: module.imports for module in modules})
        ),
        "class names that stand twice": sorted(name for name in names if names[name] > 1),
    }
    rows = [f"| {what} | {len(own)} | {', '.join(own)} |" for what, own in faults.items()]
    return [*lines, "", "| | number | names |", "|---|---:|---|", *rows]


class Watch:
    """What functions of the package run, and which of its classes they are given or return."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.types: set[type] = set()
        self.paused = 0

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        """A profile function; what importing a module runs is left out."""
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)) or event not in ("call", "return"):
            return
        if code.co_name == "<module>":
            self.paused += 1 if event == "call" else -1
        elif self.paused:
            return
        elif event == "call":
            self.files.add(code.co_filename)
            for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
                self._note(frame.f_locals.get(name))
        elif code.co_name == "gc_at_t":  # what comes behind the last score is counted
            self.files.clear()
            self.types.clear()
        else:
            self._note(value)

    def _note(self, value: object) -> None:
        if type(value).__module__.startswith(f"{PACKAGE.name}."):
            self.types.add(type(value))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Meanwhile, also in threads that start."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def pytest_sessionfinish(self) -> Iterator[None]:
        """As a plugin: reports are written here, which is no part of the way to the terminal."""
        self.paused += 1
        yield
        self.paused -= 1


def from_folder(watch: Watch, folder: Path) -> None:
    """One image through a shipped describer: bound, loaded, asked, its text stored."""
    from hashlib import sha256

    import transformers.models.llava.modeling_llava  # noqa: F401 - ten times as long when watched
    from PIL import Image

    from pytest_cepbench.chains.role_runner import RoleRunner
    from pytest_cepbench.chains.steps import Step
    from pytest_cepbench.models.binding import BindContext, bind
    from pytest_cepbench.models.spec import parse_spec
    from pytest_cepbench.store import Store

    image = Image.new("RGB", (64, 64), "red")
    checkpoint = ROOT / "reference" / "checkpoints" / "describer-step200"
    spec = parse_spec(f"{checkpoint}?device=cpu&dtype=float32")
    context = BindContext(lambda path: sha256(path.read_bytes()).hexdigest(), threads=1)
    with watch.on(), Store(folder / "store") as store:
        runner = RoleRunner(bind(spec, "describer", context), store)
        step = Step(runner.key("describe the image", 0, "image", "0" * 64), 0, lambda: image)
        (text,) = runner.ask("describe", [step], "describe the image")
    assert isinstance(text, str), text


def to_terminal(watch: Watch, folder: Path) -> None:
    """A regression of the instrument, from its scores to the summary."""
    import pytest

    pytest.hookimpl(wrapper=True, tryfirst=True)(Watch.pytest_sessionfinish)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text("def test_it(cep_case, cep_gate): cep_gate(cep_case)\n")
    suite = ROOT / "suites" / "instrument" / "suite.toml"
    (folder / "suite.toml").write_bytes(suite.read_bytes())
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={folder}"]
    arguments += [str(folder), "-k", "crowded-gc", "--cep-role=generator", "--cep-attribute=0"]
    assert pytest.main([*arguments, "--model=shapes:", "--snapshot-update"]) == 0
    with watch.on():
        assert pytest.main([*arguments, "--model=shapes:?miss=0.3"], [watch]) == 1


WAYS: Mapping[str, tuple[str, Callable[[Watch, Path], None]]] = {
    "folder": ("`--model` folder to stored text", from_folder),
    "terminal": ("score to terminal line", to_terminal),
}


def run_way(name: str) -> dict[str, list[str]]:
    """Files and types of a way, which is watched in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.house", "--way", name]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result: dict[str, list[str]] = json.loads(ended.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Print the tables, and put them into the page where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--way", choices=WAYS, help="watch it alone, and name what it crosses")
    options = parser.parse_args()
    if options.way:
        watch = Watch()
        with tempfile.TemporaryDirectory() as folder:
            WAYS[options.way][1](watch, Path(folder))
        files = sorted(Path(file).relative_to(ROOT).as_posix() for file in watch.files)
        types = sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in watch.types)
        print(json.dumps({"files": files, "types": types}))
        return
    rows = [
        f"| {title} | {len(own['files'])} | {len(own['types'])} |"
        for own, title in ((run_way(name), title) for name, (title, _) in WAYS.items())
    ]
    ways = ["| way | files | types |", "|---|---:|---:|", *rows]
    text = "\n".join([*count_tables(sorted(PACKAGE.rglob("*.py"))), "", *ways])
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
