"""`python:` models: found, called with their parameters, and held to the role's Protocol."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from pytest_cepbench.errors import IdentityError, RoleError, SpecError
from pytest_cepbench.models.binding import BoundRole, detect
from pytest_cepbench.models.protocols import UNIFIED_ROLES, Describer, RoleName
from pytest_cepbench.models.python_model import make_model, source_of
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import bind_text

MODULE = """
class Captioner:
    fingerprint = "captioner-1"

    def __init__(self, word="a picture", **options):
        self.word = word
        self.params = {"word": word}
        for name, value in options.items():
            setattr(self, name, eval(value))

    def describe(self, images, prompt, seeds):
        return [f"{self.word} {image.width} {prompt}" for image in images]

class Embedder:
    fingerprint = "embedder-1"

    def encode_images(self, images):
        return None

class Unified(Captioner):
    def generate(self, texts, seeds):
        return None

class FullEmbedder(Embedder):
    def encode_texts(self, texts):
        return None

class Hearer(FullEmbedder):
    def encode_sounds(self, sounds):
        return None

class Finder:
    fingerprint = "finder-1"
    queries = "classes"

    def detect(self, images, queries):
        return None

class FreeFinder:
    fingerprint = "finder-2"
    detect = Finder.detect

class WrongFinder(Finder):
    queries = "sentences"

class Anonymous(Captioner):
    fingerprint = None

class Overtaken(Captioner):
    files = ["weights"]

    @property
    def fingerprint(self):
        with open("weights", "r+") as file:
            digest = file.read()
            file.write(" of the next step")
        return digest

def raising(attribute):
    def read(self):
        raise OSError("the disk of the weights is gone")

    return type("Raising", (Captioner,), {attribute: property(read)})()

ready = Captioner("made")
number = 3

def broken():
    raise RuntimeError("no weights at /data")
"""


@pytest.fixture(autouse=True)
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's module in the current folder, which is not on sys.path."""
    (tmp_path / "mymodels.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "mybroken.py").write_text("import no_such_library", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    make_model.cache_clear()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("mymodels", "mybroken", "own"):
            del sys.modules[name]


def bound_as(target: str, role: RoleName = "describer") -> BoundRole:
    """An attribute of the user's module, bound."""
    return bind_text(f"python:mymodels:{target}", role)


def test_a_factory_is_called_with_the_parameters() -> None:
    """The factory must get the spec's parameters, and they must enter the identity."""
    bound = bound_as("Captioner?word=look")
    model = bound.load()
    assert isinstance(model, Describer)
    assert model.describe([Image.new("RGB", (5, 4))], "now", [0]) == ["look 5 now"]
    assert bound.fingerprint == "captioner-1"
    assert bound.params == {"spec": {"word": "look"}, "model": {"word": "look"}}
    assert (bound.seeded, bound.resources.batch_size, bound.what) == (True, 8, "mymodels:Captioner")
    assert bound_as("ready").load() is bound_as("ready").load()
    own = bound_as("Captioner?seeded=False&batch_size=3&what='my captioner'")
    assert (own.seeded, own.resources.batch_size, own.what) == (False, 3, "my captioner")
    assert bound_as("FullEmbedder", "encoder").seeded is False
    # Baselines know a model by the beginning of its fingerprint, also of a long name.
    long = "Captioner?fingerprint='my-captioner-version-3"
    first, second = (bound_as(f"{long} {weights}'") for weights in ("c0ffee", "decade"))
    assert first.short_fingerprint != second.short_fingerprint


def test_roles_of_one_object_share_it() -> None:
    """An object that describes and draws is one model, which is made, loaded and moved once."""
    assert bound_as("Captioner?word=again").load() is not bound_as("Captioner?word=a").load()
    spec = parse_spec("python:mymodels:Unified?word=a")
    roles = [bind_text(spec.text, role) for role in UNIFIED_ROLES]

    assert detect(spec).unified
    assert roles[0].resources.shares == roles[1].resources.shares != ""
    assert roles[0].load() is roles[1].load()


def test_a_detector_says_what_it_may_be_asked() -> None:
    """Free text unless its attribute says that it knows a fixed set; suites ask accordingly."""
    bound = bound_as("Finder", "detector")
    assert bound.params == {"spec": {}, "model": {}, "queries": "classes"}
    assert bound.seeded is False
    assert bound_as("FreeFinder", "detector").params["queries"] == "free-text"
    with pytest.raises(SpecError, match=r"Invalid enum value 'sentences'.*queries"):
        bound_as("WrongFinder", "detector")


@pytest.mark.parametrize(
    ("target", "role", "missing"),
    [
        (
            "Captioner",
            "generator",
            r"can play describer; a generator needs .* generate\(texts, seeds\)",
        ),
        ("Embedder", "encoder", r"no role; a encoder|encode_texts\(texts\)"),
        ("Captioner", "detector", r"a detector needs .* detect\(images, queries\)"),
    ],
)
def test_a_missing_method_is_named(target: str, role: RoleName, missing: str) -> None:
    """An object that is not the role must be refused, naming the methods to write."""
    with pytest.raises(RoleError, match=missing):
        bound_as(target, role)


def test_files_that_change_behind_the_models_own_digest_are_noticed(tmp_path: Path) -> None:
    """A trainer may write while they are hashed, and the weights are loaded at the first call."""
    (tmp_path / "weights").write_text("one")
    bound = bound_as("Overtaken")
    assert bound.fingerprint == "one"
    with pytest.raises(IdentityError, match="written again: weights"):
        bound.load()


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("python:mymodels", "expected python:package.module:factory"),
        ("python:no_such_module:f", "No module named 'no_such_module'"),
        ("python:mybroken:f", "No module named 'no_such_library'"),
        ("python:mymodels:Capt", r"mymodels has no 'Capt'; it has .*Captioner"),
        ("python:mymodels:broken", "the factory raised RuntimeError: no weights at /data"),
        ("python:mymodels:broken?x=1", "unexpected keyword argument 'x'"),
        ("python:mymodels:number", "is a int; expected a factory"),
        ("python:mymodels:ready?word=x", "takes no parameters"),
        ("python:mymodels:Captioner?batch_size=0", "`int` >= 1 - at `..batch_size`"),
        (
            "python:mymodels:Captioner?batch_size='8'",
            "Expected `int`, got `str` - at `..batch_size`",
        ),
        ("python:mymodels:Captioner?params={1:{2}}", "built-in types"),
        ("python:mymodels:Captioner?files=5", r"Captioner\.files must be the paths of the files"),
        ("python:mymodels:Captioner?files='w.pt'", "in a list; in 'w.pt' '.*w' is no file"),
        ("python:mymodels:Captioner?files=['/']", "in a list; in .* '/' is no file"),
        ("python:mymodels:Captioner?reads='sound'", "got `str` - at `..reads`"),
        ("python:mymodels:Captioner?reads={'smell'}", "Invalid enum value 'smell' - at `..reads"),
        ("python:mymodels:Unified?makes='text'", "Invalid enum value 'text' - at `..makes`"),
        ("python:mymodels:Anonymous", "stored answers of other weights"),
        # A property that raises: its own words, with the attribute's name.
        *(
            (
                f"python:mymodels:raising?attribute={name}",
                rf"Raising\.{name} raised OSError: the disk of the",
            )
            for name in ("fingerprint", "batch_size", "files", "device")
        ),
    ],
)
def test_faults_are_explained(target: str, match: str) -> None:
    """Whatever is wrong in the user's module must be said in one message with its cause."""
    with pytest.raises(SpecError, match=match):
        bind_text(target, "describer")


LEAVING = {"sys.exit('no GPU')": "SystemExit: no GPU", "pytest.skip('no GPU')": "Skipped: no GPU"}

IN_THE = {
    "module": "import pytest, sys\n{leave}\n",
    "factory": "import pytest, sys\ndef make():\n    {leave}\n",
    "property": "import pytest, sys\nclass make:\n    describe = print\n    @property\n"
    "    def fingerprint(self):\n        {leave}\n",
}


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("where", IN_THE)
def test_code_that_would_end_the_run_is_explained(tmp_path: Path, leave: str, where: str) -> None:
    """Nothing in a user's module ends the process with a code of its own, or skips a test."""
    (tmp_path / "mymodels.py").write_text(IN_THE[where].format(leave=leave))
    with pytest.raises(SpecError, match=f"raised {LEAVING[leave]}"):
        bind_text("python:mymodels:make", "describer")
    sys.modules.pop("mymodels", None)
    if where == "factory":  # the person at the terminal ends a run in the midst of one too
        (tmp_path / "mymodels.py").write_text("def make():\n    raise KeyboardInterrupt\n")
        importlib.invalidate_caches()
        with pytest.raises(KeyboardInterrupt):
            bind_text("python:mymodels:make?", "describer")


@pytest.mark.parametrize(
    ("target", "role", "reads", "makes"),
    [
        ("Captioner?reads={'sound','text'}", "describer", {"sound", "text"}, "image"),
        ("Unified?makes='sound'", "generator", {"image", "text"}, "sound"),
        ("Hearer", "encoder", {"image", "sound", "text"}, "image"),
    ],
)
def test_a_model_says_which_kinds_it_reads_and_makes(
    target: str, role: RoleName, reads: set[str], makes: str
) -> None:
    """Detection and binding say the same: an encoder of sounds by its method."""
    spec = parse_spec(f"python:mymodels:{target}")
    detected, bound = detect(spec), bind_text(spec.text, role)
    assert (detected.reads, detected.makes) == (bound.reads, bound.makes)
    assert (set(bound.reads), str(bound.makes)) == (reads, makes)


FILES = {
    "own/__init__.py": "from own.factory import make\n",
    "own/factory.py": (
        "from functools import partial\n"
        "from own.models import Model\n\n"
        "def make():\n    return Model()\n\n"
        "made = partial(Model)\n"
    ),
    "own/models.py": (
        "from . import colors\n\n"
        "class Model:\n"
        "    fingerprint = 'own/1'\n\n"
        "    def describe(self, images, prompt, seeds): ...\n"
    ),
    "own/colors.py": "RED = 1\n",
}


@pytest.mark.parametrize(
    ("spec", "covered"),
    [
        ("own:make", ["own/__init__.py", "own/factory.py", "own/models.py"]),
        ("own.factory:made", ["own/factory.py", "own/models.py"]),
    ],
)
def test_a_model_is_covered_by_factory_and_class(
    tmp_path: Path, spec: str, covered: list[str]
) -> None:
    """In whichever files these are defined; a package that passes the factory on counts too."""

    def code() -> object:
        return bind_text(f"python:{spec}", "describer").provenance["code"]

    (tmp_path / "own").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = code()
    modules = (name.removesuffix(".py").removesuffix("/__init__") for name in covered)
    assert before == f"{spec} ({source_of(*(name.replace('/', '.') for name in modules))})"
    changed = []
    for name, text in FILES.items():
        (tmp_path / name).write_text(text + "# another comment\n")
        changed += [name] * (code() != before)
        (tmp_path / name).write_text(text)
    assert changed == covered
