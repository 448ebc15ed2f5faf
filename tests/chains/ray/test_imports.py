"""Ray is optional: only runs that ask for it import it."""

from __future__ import annotations

import ast

from tests.test_floors import PACKAGE, imports


def test_ray_is_imported_in_its_folder_alone_and_late() -> None:
    """Inside functions of chains/ray, so that the package can be used without it."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(name.split(".")[0] == "ray" for name in imports(tree)):
            found[path.relative_to(PACKAGE).as_posix()] = tree

    assert found
    assert all(name.startswith("chains/ray/") for name in found)
    for tree in found.values():
        top = ast.Module(
            [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], []
        )
        assert not any(name.split(".")[0] == "ray" for name in imports(top))
