"""Tables as the published data sets: which columns they have, and what their rows stand for.

A loader of this module reads out of Parquet, Arrow or tar shards what the loader of the same name
in `suites.data` reads from files, and gives samples of the same ids, categories and contents.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.datasets import folder, mme, mmgenbench, nocaps_docci
from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.sources.file_names import SUFFIXES, some_of
from pytest_cepbench.datasets.sources.table import Row
from pytest_cepbench.datasets.table_reader import TableReader
from pytest_cepbench.errors import DatasetError, unknown_name


@dataclass(frozen=True)
class TableLoader:
    """A loader of tables.

    load: makes a data set of a `TableReader` and options.
    own_files: suffixes of the files that the loader of the same name reads by itself; a folder that
    holds one is no folder of tables.
    """

    load: Callable[..., Dataset]
    own_files: frozenset[str]


def load_folder_table(reader: TableReader, *, captions: bool = False) -> Dataset:
    """The images of any table, each named by its column of ids, else by the number of its row.

    captions: read the column of texts too, as where the suite names one.
    """
    text = reader.texts() if captions or reader.columns.text is not None else None
    ids = reader.ids()
    samples, _ = reader.samples(
        id_column=ids,
        make_id=_counted_id if ids is None else _plain_id,
        category_column=reader.categories(),
        category=folder.ROOT_CATEGORY,
        text_column=text,
        image_column=reader.image,
    )
    return reader.dataset("folder", {"loader": "folder", "version": folder.VERSION}, samples)


def load_mme_table(reader: TableReader) -> Dataset:
    """MME's images as the hub has them: columns question_id, image and category.

    Two questions are asked about every image; both have its name as their id, and are one sample.
    Raises DatasetError for categories that are missing or unknown.
    """
    ids = reader.required_ids("question_id", "the names of images")
    category = reader.named("category", ("category",), "categories")

    def make_id(row: Row, value: Any, label: Any) -> str:
        if label not in mme.CATEGORIES:
            reader.refuse(
                row, category, unknown_name("category of MME", str(label), mme.CATEGORIES)
            )
        name = _plain_id(row, value, label)
        return name if name.startswith(f"{label}/") else f"{label}/{name}"

    samples, categories = reader.samples(
        id_column=ids,
        make_id=make_id,
        category_column=category,
        category="",
        image_column=reader.image,
        repeated=True,
    )
    missing = [name for name in mme.CATEGORIES if name not in categories]
    if missing:
        raise DatasetError(
            f"{reader.table.name} has no images for {len(missing)} of the {len(mme.CATEGORIES)} "
            f"MME categories: {', '.join(missing)}"
        )
    return reader.dataset("mme", {"loader": "mme", "version": mme.VERSION}, samples)


def load_mmgenbench_table(
    reader: TableReader, *, labels: str | None = None, file: str | None = None
) -> Dataset:
    """MMGenBench's images by their column index; patterns by a column, or by the label index.

    labels: name of the label index among the files of the data set. Where the table has a column
    of patterns (patterns, category), that counts in its place.
    file: of the TSV, which a table stands for.
    """
    del file
    ids = reader.required_ids("index", "the images' indices")
    patterns = reader.categories(("patterns", "pattern", "category"))
    label_file = None if patterns is not None or labels is None else reader.side_file(labels)
    index = {} if label_file is None else mmgenbench.read_patterns(label_file)
    unseen = set(index)

    def make_id(row: Row, value: Any, _: Any) -> str:
        text = str(value).strip()
        if not mmgenbench.is_index(text):
            reader.refuse(row, ids, f"a whole number is expected, got {text[:80]!r}")
        return mmgenbench.sample_id(int(text))

    def categories_of(name: str) -> tuple[str, ...]:
        unseen.discard(int(name))
        return tuple(index.get(int(name), ()))

    labelled = patterns is not None or label_file is not None
    samples, _ = reader.samples(
        id_column=ids,
        make_id=make_id,
        category_column=patterns,
        category=mmgenbench.UNLABELLED if labelled else folder.ROOT_CATEGORY,
        categories_of=categories_of,
        image_column=reader.image,
    )
    if unseen:
        raise DatasetError(
            f"{label_file}: no row of {reader.table.name} has index {some_of(map(str, unseen))}"
        )
    identity = {"loader": "mmgenbench", "version": mmgenbench.VERSION, "labels": labelled}
    return reader.dataset("mmgenbench", identity, samples)


def load_pairs_table(reader: TableReader, *, category: str = "nd400") -> Dataset:
    """Pairs of image and caption, as NoCaps, DOCCI and Nocaps+Docci400 lie in tables.

    The categories are the column source, where there is one, else `category`. Of a list of captions
    the first counts. Captions lose the white space around them.
    """
    ids = reader.ids(("image_id", "example_id", "id", "filename", "file_name", "__key__"))
    samples, _ = reader.samples(
        id_column=ids,
        make_id=_counted_id if ids is None else _plain_id,
        category_column=reader.categories(("source",)),
        category=category,
        text_column=reader.texts(
            ("caption", "captions", "description", "annotations_captions", "text", "txt")
        ),
        image_column=reader.image,
    )
    return reader.dataset("sdp", {"loader": "sdp", "version": nocaps_docci.VERSION}, samples)


def _plain_id(_row: Row, value: Any, _label: Any) -> str:
    """A text as it is, normalized as file names are; a number in digits."""
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else str(value)


def _counted_id(row: Row, *_: Any) -> str:
    """The number of the row, in as many digits that texts sort as numbers do."""
    return f"{row.position:09}"


TABLE_LOADERS: Mapping[str, TableLoader] = {
    "folder": TableLoader(load_folder_table, SUFFIXES),
    "mme": TableLoader(load_mme_table, SUFFIXES),
    "mmgenbench": TableLoader(load_mmgenbench_table, frozenset({".tsv"})),
    "sdp": TableLoader(load_pairs_table, SUFFIXES | {".csv", ".jsonl", ".jsonlines", ".json"}),
}
"""The loaders that read tables too, by the names that suites use."""
