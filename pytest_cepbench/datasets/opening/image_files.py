"""Names of images that OpenING's files give, and the files below a folder that they lead to."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from pytest_cepbench.datasets.sources.file_names import unsafe
from pytest_cepbench.errors import DatasetError


class ImageFiles:
    """The files below a folder, found by name; each folder in it is listed once."""

    def __init__(self, root: Path) -> None:
        """root: a folder; a link to one is followed."""
        self._root = root
        self._real = Path(os.path.realpath(root))
        self._listed: dict[Path, dict[str, bool]] = {}
        self._spellings: dict[str, list[str]] | None = None

    def find(self, place: str, name: str) -> Path | None:
        """The regular file of a name; None where there is none.

        place: who gives the name, for messages.
        Raises DatasetError for a name or a link that leads out of the folder, and for a folder that
        cannot be listed.
        """
        relative = PurePosixPath(name)
        reason = unsafe(name) or (None if relative.name else f"{name!r} is no file name")
        if reason is not None:
            raise DatasetError(f"{place}: image {reason}")
        path = self._root / relative
        if path.parent not in self._listed:
            self._listed[path.parent] = self._list(place, path.parent)
        linked = self._listed[path.parent].get(path.name)
        if linked is None or (linked and not self._leads_to_file(place, path)):
            return None
        return path

    def spell(self, name: str) -> str:
        """The spelling of a name directly in the folder, where only upper and lower case differ.

        The name itself where it is there, or where none or several are like it.
        """
        if self._spellings is None:
            names = self._listed[self._root] = self._list(str(self._root), self._root)
            self._spellings = {}
            for known in sorted(names):
                self._spellings.setdefault(known.casefold(), []).append(known)
        alike = self._spellings.get(name.casefold(), [])
        return alike[0] if len(alike) == 1 else name

    def refuse_outside(self, place: str, path: Path) -> None:
        """Raises DatasetError for a path that leads out of the folder by a link.

        place: who names it, for the message.
        """
        if not Path(os.path.realpath(path)).is_relative_to(self._real):
            raise DatasetError(
                f"{place}: {str(path)!r} is a link out of {str(self._root)!r}: put the file itself "
                "there"
            )

    def _list(self, place: str, folder: Path) -> dict[str, bool]:
        """The names in a folder that may be files, and whether they are links."""
        try:
            self.refuse_outside(place, folder)
            with os.scandir(folder) as entries:
                return {
                    entry.name: entry.is_symlink()
                    for entry in entries
                    if entry.is_symlink() or entry.is_file(follow_symlinks=False)
                }
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise DatasetError(
                f"{place}: folder {str(folder)!r} cannot be read: {error.strerror}"
            ) from error

    def _leads_to_file(self, place: str, link: Path) -> bool:
        self.refuse_outside(place, link)
        return link.is_file()
