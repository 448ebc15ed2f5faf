"""Samples and identities of a small data set in every format: what baselines and stores name.

Ids name samples in baselines, and seeds come from them; identities enter baselines; pixels enter
the keys of steps.
"""

from __future__ import annotations

import json
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from huggingface_hub import constants

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.datasets.folder import CATEGORIES
from pytest_cepbench.datasets.opening.answers import RecordedAnswers
from pytest_cepbench.datasets.opening.verdict_files import read_verdicts
from pytest_cepbench.datasets.replay import Replay, open_replay
from pytest_cepbench.datasets.sample import Dataset, GoldStep, Sample, SeedImage
from pytest_cepbench.suites.data import load_data
from tests.datasets.files import (
    coded,
    picture,
    put,
    put_answer,
    put_questions,
    put_table,
    question,
    step,
)
from tests.datasets.sources.hub_stub import REPO, write_cache
from tests.datasets.sources.tables import load, png, suite_of, write_parquet, write_tar
from tests.golden.frozen import assert_frozen

FOLDER = 'loader = "folder"'

ROWS: dict[str, Any] = {
    "key": ["s2", "s0", "s1"],
    "photo": [{"bytes": png(k), "path": f"{k}.png"} for k in range(3)],
    "words": ["two", "zero", "one"],
    "kind": ["b", "a", "b"],
}
"""Rows in another order than that of their ids, in columns that a suite has to name."""

NAMED = f'{FOLDER}\nid = "key"\nimage = "photo"\ntext = "words"\ncategory = "kind"'

PLAIN: dict[str, Any] = {
    "image": [png(k) for k in range(3)],
    "caption": ["zero", "one", "two"],
    "category": [["x", "y"], ["y"], ["x"]],
}
"""Rows without ids, whose columns have the names that are looked for."""

BASE64 = [b64encode(png(k)).decode() for k in range(3)]

LABELS = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}}

CARD = b"""---
configs:
- config_name: photos
  data_files:
  - split: test
    path: data/*
- config_name: others
  data_files: more/*.parquet
---
"""

PAIR = [["filename", "caption"], ["b.c.png", " B\n"], ["a.jpg", "A"]]

LINE: dict[str, Any] = {
    "tag": "counting",
    "include": [{"class": "dog", "count": 2}],
    "exclude": [{"class": "dog", "count": 3}],
    "prompt": "a photo of two dogs",
}

ATOMS = {
    "prompt": "two red cups",
    "atom_count": 3,
    "vqa_list": [["How many cups?", "two"], ["Are the cups red?", "Yes"]],
    "skills": ["count", "attribute"],
}

BATTLE = {
    "id": "b/1",
    "category": "b",
    "verdict": "Tie(B)",
    "question": [{"drawing": "one shape : small red circle top left", "jitter": 3}, {"text": "?"}],
    "first": [{"text": "one"}, {"text": "two", "drawing": "no shapes"}],
    "second": [{"text": "three", "image": "a.png"}],
}

FACT = {"sample": "a.png", "id": "1", "question": "Is it red?", "kind": "color", "answer": "yes"}


def _files(root: Path, files: Mapping[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def _lines(*entries: object) -> str:
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def _photos(root: Path) -> Path:
    decomposed = unicodedata.normalize("NFD", "caf\N{LATIN SMALL LETTER E WITH ACUTE}.PNG")
    photos = {"b.png": png(1), "cats/a.jpg": png(2), f"cats/big/{decomposed}": png(3)}
    return _files(root, {**photos, "notes.md": "x", ".hidden.png": png(4)})


def _captioned(root: Path) -> Path:
    return _files(
        root,
        {"a.png": png(1), "a.txt": "\N{BOM} A red cat.\n", "x/b.png": png(2), "x/b.txt": "A dog."},
    )


def _arrow(path: Path, table: pa.Table, *, stream: bool) -> Path:
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def _shards(root: Path) -> Path:
    for shard in range(2):
        name = f"train-0000{shard}-of-00002.parquet"
        write_parquet(root / "data" / name, pa.table({"img": [png(9 * shard + k) for k in (3, 1)]}))
    return root / "data"


def _saved(root: Path) -> Path:
    """As `save_to_disk` leaves it: two splits, the first in two shards beside a stale one."""
    table = pa.table({"id": ["q", "p"], "image": [png(5), png(6)]})
    state = {"_data_files": [{"filename": f"data-0000{k}-of-00002.arrow"} for k in range(2)]}
    _files(
        root,
        {
            "dataset_dict.json": json.dumps({"splits": ["train", "held-out"]}),
            "train/state.json": json.dumps(state),
            "held-out/state.json": json.dumps({"_data_files": [{"filename": "data.arrow"}]}),
        },
    )
    for k in range(2):
        part = table.slice(k, 1)
        _arrow(root / "train" / f"data-0000{k}-of-00002.arrow", part, stream=True)
    _arrow(root / "held-out" / "data.arrow", table, stream=True)
    _arrow(root / "train" / "cache-1.arrow", table, stream=True)
    return root


def _tar(root: Path) -> Path:
    members: dict[str, bytes] = {}
    for k in (2, 0, 1):
        members |= {f"x/{k}.png": png(k), f"x/{k}.txt": b"text %d" % k, f"x/{k}.cls": b"c%d" % k}
    return write_tar(root / "shard-000.tar", members)


def _hub(files: Mapping[str, bytes]) -> str:
    tree = {path: len(data) for path, data in files.items()}
    write_cache(Path(constants.HF_HUB_CACHE), files, tree=tree)
    return f"hf://datasets/{REPO}"


def _hub_table(root: Path) -> str:
    first = write_parquet(root / "1.parquet", pa.table(PLAIN)).read_bytes()
    second = write_parquet(root / "2.parquet", pa.table({"image": [png(7)]})).read_bytes()
    name = "data/test-00000-of-00001.parquet"
    return _hub({"README.md": CARD, name: first, "more/a.parquet": second})


def _hub_tsv(root: Path) -> str:
    _mmgenbench(root)
    return _hub({name: (root / name).read_bytes() for name in ("x.tsv", "labels.json")})


def _mme(root: Path) -> Path:
    for k, category in enumerate(CATEGORIES):
        inner = "images/" if k % 2 else ""
        _files(root, {f"{category}/{inner}{n}.png": png(2 * k + n) for n in range(2)})
    return root


def _mme_table(root: Path) -> Path:
    rows: dict[str, list[Any]] = {"question_id": [], "image": [], "category": []}
    for k, category in enumerate(CATEGORIES):
        for _ in range(2):  # two questions about an image
            rows["question_id"].append(f"{category}/0.png")
            rows["image"].append({"bytes": png(k), "path": None})
            rows["category"].append(category)
    return write_parquet(root / "test-00000-of-00001.parquet", pa.table(rows))


def _mmgenbench(root: Path) -> Path:
    rows = "".join(f"{k}\tq\t{image}\n" for k, image in zip((10, 9, 2), BASE64, strict=True))
    labels = {"Surreal": [10, 2], "Cartoon": [2]}
    return _files(
        root, {"x.tsv": f"index\tquestion\timage\n{rows}", "labels.json": json.dumps(labels)}
    )


def _sdp(root: Path) -> Path:
    put(root, "image-first/gen-0/a.png", "image-first/gen-0/b.c.webp")
    put_table(root / "text-first/gen-0.csv", PAIR)
    return root


def _nd400(root: Path, name: str) -> Path:
    entries = (("docci", "d1"), ("nocaps", 4), ("nocaps", "beef04"))
    listed = (
        _lines(*({"source": s, "image_id": i} for s, i in entries))
        if name.endswith("jsonl")
        else "source,image_id\n" + "".join(f"{s},{i}\n" for s, i in entries)
    )
    images = [{"id": 4, "file_name": "beef00.jpg"}, {"id": 0, "file_name": "beef04.jpg"}]
    captions = [{"id": k, "image_id": i, "caption": f" C{k}. "} for k, i in enumerate((0, 4, 0, 4))]
    docci = {"example_id": "d1", "image_file": "d1.jpg", "description": " A scene.\n"}
    return _files(
        root,
        {
            name: listed,
            "docci/docci_descriptions.jsonlines": _lines(docci),
            "docci/images/d1.jpg": png(1),
            "nocaps/captions.json": json.dumps({"images": images, "annotations": captions}),
            "nocaps/images/beef00.jpg": png(2),
            "nocaps/images/beef04.jpg": png(3),
        },
    )


def _opening(root: Path, split: str) -> Path:
    inputs = [step("0101002", None, "<BEGIN> What?"), step("0101002", "i-1", "This. <image>")]
    return put_questions(root, [question("0101001"), question("0101002", inputs)], split)


def _fact_file(root: Path) -> Path:
    facts = _lines(FACT, {**FACT, "sample": "x/b.png", "depends_on": []})
    return _files(_captioned(root), {"questions.jsonl": facts})


def _geneval(root: Path, *lines: Mapping[str, Any]) -> Path:
    return _files(root, {"metadata.jsonl": _lines(*lines)}) / "metadata.jsonl"


def _table(columns: Mapping[str, Any]) -> Callable[[Path], Path]:
    return lambda root: write_parquet(root / "t.parquet", pa.table(columns))


WITHOUT_IDS = {name: values for name, values in PLAIN.items() if name != "category"}

FORMATS: dict[str, tuple[Callable[[Path], Path | str], str]] = {
    "folder": (_photos, FOLDER),
    "folder with captions": (_captioned, f"{FOLDER}\noptions = {{ captions = true }}"),
    "folder with questions": (_fact_file, f'{FOLDER}\nquestions = "questions.jsonl"'),
    "parquet, columns named": (_table(ROWS), NAMED),
    "parquet, columns found": (_table(PLAIN), FOLDER),
    "parquet with captions": (_table(PLAIN), f"{FOLDER}\noptions = {{ captions = true }}"),
    "parquet, rows counted": (_table(WITHOUT_IDS), FOLDER),
    "parquet, whole numbers as ids": (_table({"id": [10, 9, 2], "img": BASE64}), FOLDER),
    "parquet, base64 and URIs": (
        _table({"file_name": ["b.png", "a.png"],
                "image": [BASE64[0], f"data:image/png;base64,{BASE64[1]}"]}),
        FOLDER,
    ),
    "parquet, the only column of images": (
        _table({"id": ["a", "b"], "scan": [{"bytes": png(k), "path": "x"} for k in range(2)]}),
        FOLDER,
    ),
    "parquet, labels with names": (
        lambda root: write_parquet(
            root / "t.parquet",
            pa.table({"id": ["b", "a"], "image": [png(0), png(1)], "label": [1, 0]})
            .replace_schema_metadata({"huggingface": json.dumps(LABELS)}),
        ),
        FOLDER,
    ),
    "parquet, labels without names": (
        _table({"id": ["b", "a"], "image": [png(0), png(1)], "label": [1, 0]}), FOLDER,
    ),
    "parquet, categories of pandas": (
        lambda root: write_parquet(
            root / "t.parquet",
            pa.table({"id": ["b", "a"], "image": [png(0), png(1)],
                      "category": pa.array(["y", "x"]).dictionary_encode()}),
        ),
        FOLDER,
    ),
    "parquet, lists of captions": (
        _table({**PLAIN, "captions": [["one", "two"], ["three"], ["four"]]}),
        f'{FOLDER}\ntext = "captions"',
    ),
    "parquet in shards": (_shards, FOLDER),
    "arrow stream": (lambda root: _arrow(root / "t.arrow", pa.table(ROWS), stream=True), NAMED),
    "arrow file": (lambda root: _arrow(root / "t.arrow", pa.table(ROWS), stream=False), NAMED),
    "saved to disk, train": (_saved, f'{FOLDER}\nsplit = "train"'),
    "saved to disk, held-out": (_saved, f'{FOLDER}\nsplit = "held-out"'),
    "tar": (_tar, FOLDER),
    "tar, members named": (_tar, f'{FOLDER}\ntext = "txt"\ncategory = "cls"'),
    "hub": (_hub_table, f'{FOLDER}\nconfig = "photos"'),
    "hub, in the location": (lambda root: f"{_hub_table(root)}?config=others", FOLDER),
    "hub, files of a loader": (
        _hub_tsv, 'loader = "mmgenbench"\noptions = { file = "x.tsv", labels = "labels.json" }',
    ),
    "hub, folder of images": (
        lambda _: _hub({"pets/b.png": png(1), "pets/cats/a.png": png(2)}) + "/pets", FOLDER,
    ),
    "mme": (_mme, 'loader = "mme"'),
    "mme in a table": (_mme_table, 'loader = "mme"'),
    "mmgenbench": (_mmgenbench, 'loader = "mmgenbench"'),
    "mmgenbench with labels": (
        _mmgenbench, 'loader = "mmgenbench"\noptions = { labels = "labels.json" }',
    ),
    "sdp": (_sdp, 'loader = "sdp"'),
    "sdp of another category": (_sdp, 'loader = "sdp"\noptions = { category = "pairs" }'),
    "nd400, json lines": (lambda root: _nd400(root, "ids.jsonl"), 'loader = "sdp"'),
    "nd400, csv": (lambda root: _nd400(root, "ids.csv"), 'loader = "sdp"'),
    "geneval": (
        lambda root: _geneval(root, LINE, {**LINE, "prompt": "two dogs"}), 'loader = "geneval"',
    ),
    "geneval, several images": (
        lambda root: _geneval(root, LINE),
        'loader = "geneval"\noptions = { images_per_prompt = 2 }\nquestions = "metadata"',
    ),
    "geneval, detailed captions": (
        lambda root: _geneval(root, {**LINE, "detailed_caption": "Two dogs.", "index": "00007"}),
        'loader = "geneval"\noptions = { captions = "detailed" }',
    ),
    "geneval2": (
        lambda root: _files(root, {"geneval2_data.jsonl": _lines(ATOMS, ATOMS)}),
        'loader = "geneval2"',
    ),
    "geneval2, several images": (
        lambda root: _files(root, {"geneval2_data.jsonl": _lines(ATOMS)}),
        'loader = "geneval2"\noptions = { images_per_prompt = 2 }',
    ),
    "judged battles": (
        lambda root: _files(root, {"battles.jsonl": _lines(BATTLE), "a.png": png(3)}),
        'loader = "judged-battles"',
    ),
    "opening": (lambda root: _opening(root, "test"), 'loader = "opening"'),
    "opening, dev": (
        lambda root: _opening(root, "dev"), 'loader = "opening"\noptions = { split = "dev" }',
    ),
}  # fmt: skip
"""What writes a data set, and how a suite reads it."""

GENERATED = {
    "geneval": "",
    "shapes": "",
    "shapes, options": "options = { samples_per_category = 2, seed = 3 }",
    "shapes, questions": 'questions = "metadata"\noptions = { samples_per_category = 1 }',
    "shapes-tasks": "",
    "shapes-arena": "options = { samples_per_category = 2 }",
}


def test_samples_of_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, categories, texts, pixels and identity; of a part, the samples that are chosen."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    frozen = {}
    for name, (write, data) in FORMATS.items():
        (root := tmp_path / name).mkdir()
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root / "hub"))
        place = write(root)
        dataset = load(root / "suite", place, data)
        part = load(root / "suite", place, data, most=1)
        frozen[name] = _content(dataset) | {"at most 1": [sample.id for sample in part.samples]}
    assert_frozen("data_formats.json", frozen)


def test_generated_data_sets(tmp_path: Path) -> None:
    """Identity and a digest of all that the samples are, their pixels but for long ones."""
    frozen = {}
    for name, data in GENERATED.items():
        loader = name.partition(",")[0].partition(" ")[0]
        dataset = load_data(suite_of(tmp_path, f'loader = "{loader}"\n{data}'), {})
        content = _content(dataset, most=20)
        samples = content.pop("samples")
        ids = [sample.id for sample in dataset.samples]
        frozen[name] = content | {
            "first": samples[0], "ids": digest_json(ids), "samples": digest_json(samples),
        }  # fmt: skip
    assert_frozen("data_generated.json", frozen)


def test_chains_and_answers_of_other_tools(tmp_path: Path) -> None:
    """What each layout holds of a sample at each generation, and the identity of its reading."""
    sdp, geneval, genception = (tmp_path / name for name in ("sdp", "gen", "gc"))
    put(sdp, "image-first/gen-2/a.png", "text-first/gen-1/a.webp")
    for place in ("image-first/gen-1.csv", "text-first/gen-2.csv"):
        put_table(sdp / place, PAIR)
    put(geneval, "00000/samples/0000.png", "00001/samples/0000.png", "00001/samples/0001.png")
    put(genception, "a_0.jpg", "a_1.jpg", "cats/results_m/b_0.png")
    put_table(tmp_path / "tsv" / "flux.tsv", [["index", "image"], ["12", coded(5)]])
    rows = [["index", "question", "prediction"], ["12", "Describe.", "twelve"]]
    put_table(tmp_path / "tsv" / "m_MMGenBench-Test.tsv", rows)
    frozen: dict[str, Any] = {}
    ids = ("a.png", "b.c", "00000", "00001-0", "cats/b.png", "000012")
    for name in ("sdp", "gen", "gc", "tsv"):
        replay = open_replay(str(tmp_path / name))
        assert isinstance(replay, Replay)
        held = {
            f"{sample} {start} {generation}": _part(own)
            for sample in ids
            for start in ("image", "text")
            for generation in range(1, 5)
            if (own := replay.artifact(Sample(sample, ("c",)), start, generation)) is not None
        }
        frozen[name] = {"identity": dict(replay.identity), "held": held}
    folder = tmp_path / "SEED-X_output"
    put_answer(folder, "0101001", [{"text": "It ran.", "image": "0101001-o-0.jpg"}])
    (folder / "0101001-o-0.jpg").write_bytes(picture(3))
    put_answer(folder, "0101002", [])
    answers = open_replay(str(folder))
    assert isinstance(answers, RecordedAnswers)
    frozen["opening"] = {"model": answers.model, **_without_size(answers.identity)}
    record = {
        "data_id": "0101001", "model_A": {"id": "0", "name": "Anole"},
        "model_B": {"id": "1", "name": "gill"}, "winner": "Tie(A)",
    }  # fmt: skip
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps([record]))
    frozen["verdicts"] = [
        {name: value for name, value in asdict(battle).items() if name != "errors"}
        for battle in read_verdicts(path)
    ]
    assert_frozen("data_replays.json", frozen)


def _without_size(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity without its digest, of which the sizes of image files are a part."""
    return {name: value for name, value in identity.items() if name != "digest"}


def _content(dataset: Dataset, most: int | None = None) -> dict[str, Any]:
    """most: samples whose images are drawn, which takes time; None for all."""
    samples = [_sample(s, draw=most is None or k < most) for k, s in enumerate(dataset.samples)]
    return {
        "name": dataset.name,
        "identity": dict(dataset.identity),
        "notes": len(dataset.notes),
        "samples": samples,
    }


def _sample(sample: Sample, *, draw: bool) -> dict[str, Any]:
    """All fields that are not empty; metadata by its digest."""
    fields = {
        "categories": list(sample.categories),
        "text": sample.text,
        "image": _part(sample.image) if draw and sample.image is not None else None,
        "metadata": digest_json(dict(sample.metadata))[:16] if sample.metadata else None,
        "cluster": sample.cluster,
        "replicate": sample.replicate,
        "question": [_part(piece) for piece in sample.question] if draw else None,
        "gold": [_step(own) for own in sample.gold] if draw else None,
        "answer": [_step(own) for own in sample.answer] if draw else None,
    }
    return {"id": sample.id} | {name: value for name, value in fields.items() if value}


def _step(own: GoldStep) -> list[str | None]:
    return [own.text, None if own.image is None else _part(own.image)]


def _part(piece: str | SeedImage) -> str:
    """A text, or the first digits of an image's digest."""
    return piece if isinstance(piece, str) else f"image {piece.load().digest[:16]}"
