"""The code of a `python:` model: a digest of its module and of the modules that it imports from the same
folder.

A model of the user's own states its identity itself. Where its code changes and the stated
fingerprint does not, stored answers of the code before are served as if nothing had happened. The
digest is kept
beside results, never in a key: a changed comment must not cost a night of computing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from pytest_cepbench.artifacts import digest_json

_MOST = 200  # files; more of them beside a model are a library

_INSTALLED = ("site-packages", "dist-packages")

_DIGITS = 16


def source_of(*modules: str) -> str:
    """File and digest of imported modules, in one phrase: `models.py 0123456789abcdef`.

    modules: names as in `sys.modules`; the first one gives the file. What they import from the
    folder that their package lies in is read as well, as far as it is written in Python; of an
    installed package the package alone. Empty where no module has a file of source code.
    """
    files: dict[str, str] = {}
    first = ""
    for name in dict.fromkeys(modules):
        file = _file_of(name)
        if file is None:
            continue
        root = file.parents[name.count(".") + (file.name == "__init__.py")]
        package = name.partition(".")[0] if set(root.parts) & {*_INSTALLED} else ""
        module_files = dict(_read(name, root, package))
        first = first or next(iter(module_files), "")
        files |= module_files
    return f"{first} {digest_json(sorted(files.items()))[:_DIGITS]}" if files else ""


def _file_of(module: str) -> Path | None:
    path = getattr(sys.modules.get(module), "__file__", None)
    file = Path(path) if path else None
    return file if file is not None and file.suffix == ".py" and file.is_file() else None


def _read(module: str, root: Path, package: str) -> Iterator[tuple[str, str]]:
    """Name below the root and digest of a module's file, and of those that it imports; itself
    first.

    package: whose modules alone are read; any below the root where empty.
    """
    waiting, known = [module], set[Path]()
    seen = {module}
    while waiting and len(known) < _MOST:
        name = waiting.pop(0)
        file = _below(root, name)
        if file is None or file in known or package not in ("", name.partition(".")[0]):
            continue
        known.add(file)
        content = file.read_bytes()
        yield file.relative_to(root).as_posix(), sha256(content).hexdigest()
        base = name if file.name == "__init__.py" else name.rpartition(".")[0]
        new = [imported for imported in _imported(content, base) if imported not in seen]
        waiting += new
        seen.update(new)


def _below(root: Path, module: str) -> Path | None:
    path = root.joinpath(*module.split("."))
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


@lru_cache(maxsize=4 * _MOST)  # parsing is what takes the time, and each binding asks again
def _imported(content: bytes, base: str) -> tuple[str, ...]:
    """Names of what may be a module in the imports of a file. base: the package that it is in."""
    return tuple(dict.fromkeys(_names_in(content, base)))


def _names_in(content: bytes, base: str) -> Iterator[str]:
    """The names of `_imported`, in order and with repetitions."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # such a file lies there without having been imported
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = base.split(".")[: -(node.level - 1) or None] if node.level and base else []
            name = ".".join([*above, *filter(None, [node.module])])
            yield from _packages(name)
            for alias in node.names:
                yield from _packages(f"{name}.{alias.name}" if name else alias.name)


def _packages(name: str) -> Iterator[str]:
    """A module, and the packages that are imported on the way to it."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        if all(parts[:count]):
            yield ".".join(parts[:count])
