"""Ray is optional: only runs that ask for it import it."""

from __future__ import annotations

import ast

from tests.test_floors import TREES, imports


def test_ray_is_imported_in_its_folder_alone_and_late() -> None:
    """Inside functions of chains/ray, so that the package can be used without it."""
    importing = {
        path.as_posix(): tree
        for path, tree in TREES.items()
        if any(name.split(".")[0] == "ray" for name in imports(tree))
    }

    assert importing
    assert all(name.startswith("chains/ray/") for name in importing)
    for tree in importing.values():
        top = ast.Module(
            [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], []
        )
        assert not any(name.split(".")[0] == "ray" for name in imports(top))
