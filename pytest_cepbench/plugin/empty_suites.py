"""Suites of the run that gave no case, or lost some: each has one test in their place, skipped.

A test module that is skipped, renamed or ignored takes its suite along without a word, and a run of
the others would pass; so does a test function that is no longer one, with its cases. What modules
would have gated is read from their source. The test in its place goes through `-k`, `-m` and
`--deselect` as the cases would, and the ledger counts it.
Little is imported until there is such a suite: this looks through every run of pytest.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from os.path import normpath
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_cepbench.errors import few_of
from pytest_cepbench.models import ROLE_NAMES
from pytest_cepbench.plugin.cases import (
    FIXTURES,
    MISTAKE,
    SUITE_FILE,
    is_case,
    mentions,
    stands_for,
    walk,
    would_have_cases,
)
from pytest_cepbench.plugin.hooks import RUN, run_of

_MODELS = {f"cep_{role}" for role in ROLE_NAMES}

_NO_TESTS = (".*", "node_modules", "site-packages")

_KEYS = {"name", "version", "data", "prompts", "metrics"}
"""What every suite file has; other tools have files of this name too."""


class EmptySuite(pytest.Item):
    """Stands for the cases that a suite did not give: it is skipped. reason: why."""

    fixturenames = ("cep_case",)  # by which the plugin knows a case
    stands_for = "suite"
    reason = ""

    def setup(self) -> None:
        """Skip it; not by a mark, which needs a plugin of pytest's."""
        raise pytest.skip.Exception(self.reason, _use_item_location=True)

    def runtest(self) -> None:
        """Not called."""

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the cases would have come from."""
        return self.path, 0, self.nodeid


class _Module(pytest.File):
    """The test module that has the cases, which is not imported."""

    def collect(self) -> list[pytest.Item]:
        """Nothing."""
        return []


class _Wanted(NamedTuple):
    """What the source of a test module gates.

    tests: functions that take a case of the suite -> names of their marks.
    helpers: of these, fixtures and those that other code of the module names.
    name: of the suite, where none of the tests in its folder gates it.
    """

    module: Path
    suite: Path
    tests: Mapping[str, frozenset[str]] = {}
    helpers: Collection[str] = ()
    name: str = ""


class EmptySuites:
    """Finds them, in each process that collects. failed: reports on what could not be collected."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: list[pytest.CollectReport] = []
        self._skipped: dict[Path, str] = {}
        self._failed: set[Path] = set()
        self._deselected: set[int] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Mark the report on a module whose suite is written wrongly, for the exit code."""
        report = yield
        call = getattr(report, "call", None)
        raised = None if call is None or call.excinfo is None else call.excinfo.value
        if isinstance(raised, pytest.Collector.CollectError):
            from pytest_cepbench.errors import SpecError, SuiteError

            setattr(report, MISTAKE, isinstance(raised.__cause__, SpecError | SuiteError))
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what was skipped as a whole, or failed: a module, or the folder of a conftest.py."""
        path = self.config.rootpath / report.nodeid.partition("::")[0]
        if report.failed:
            self._failed.add(path)
            if RUN not in self.config.stash:  # it hears of these when it begins
                self.failed.append(report)
                if would_have_cases(path):
                    run_of(self.config)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            self._skipped[path] = reason.removeprefix("Skipped: ")

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note what was left out aloud: by an option of pytest's, or a plugin that says so."""
        self._deselected.update(map(id, items))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        """Put a test in the place of each suite that gave none, and of cases that hooks drop."""
        items.extend(list(self._empty(session, items)))
        cases = [item for item in items if is_case(item)]
        result = yield
        kept = {*map(id, items), *self._deselected}
        ids = {item.nodeid for item in items} if cases else ()
        lost = [item for item in cases if id(item) not in kept and item.nodeid not in ids]
        # What -k and -m, or --deselect, leave out was not asked for in the first place.
        for name in ("mark", "main"):
            plugin = self.config.pluginmanager.get_plugin(name)
            if lost and plugin is not None:
                plugin.pytest_collection_modifyitems(items=lost, config=self.config)
        by_suite: dict[tuple[Path, Path], list[str]] = {}
        for item in lost:
            if isinstance(item, EmptySuite):
                items.append(item)
            elif stands_for(item) == "case":
                by_suite.setdefault((item.path, _suite_of(item)), []).append(item.name)
        for (module, suite), names in by_suite.items():
            why = (
                f"lost {len(names)} of its cases to a hook that left them out without "
                f"pytest_deselected: {few_of(names, 3)}"
            )
            items.append(self._stand_in(session, _Wanted(module, suite), why))
        return result

    def _empty(self, session: pytest.Session, items: Sequence[pytest.Item]) -> Iterator[EmptySuite]:
        cases = [item for item in items if is_case(item)]
        given = {(item.path, _suite_of(item)) for item in cases}
        suites = {suite for _, suite in given}
        in_use = set()  # folders with a case, or a test that takes a model of its suite
        for item in items:
            if is_case(item) or not _MODELS.isdisjoint(getattr(item, "fixturenames", ())):
                in_use.add(item.path.parent)
        gating = []
        missed = set()  # suites of which some test is said to be missing
        for wanted in self._wanted(session):
            if (wanted.module, wanted.suite) in given:
                gating.append(wanted)
                continue
            if wanted.module not in self._skipped and wanted.suite in suites:
                continue  # another module gates it, and this one may be of helpers
            used = wanted.module.parent in in_use or wanted.suite.name != SUITE_FILE
            beside = not wanted.tests and used
            if beside and not self._is_accepted(wanted.name):
                continue  # a draft beside tests of other suites, or a suite for its models alone
            if not self._failed.isdisjoint({wanted.module, *wanted.module.parents}):
                continue  # an error of collection, which fails the run
            suites.add(wanted.suite)
            missed.add(wanted.suite)
            places, module = (wanted.module, *wanted.module.parents), self._shown(wanted.module)
            place = next((path for path in places if path in self._skipped), None)
            if place is not None:
                why = f"{self._shown(place)} was skipped at collection: {self._skipped[place]}"
            elif wanted.tests:
                why = f"pytest collected no test of {module} that gates it"
            elif beside:
                why = "no test beside it gates its accepted baselines: restore it, or delete them"
            else:
                why = f"{module} beside it has no test that takes cep_case"
            yield self._stand_in(session, wanted, f"gave no case: {why}")
        if not cases:
            return
        from pytest_cepbench.plugin.records import case_name

        gated = set(map(case_name, cases))
        collected: dict[Path, set[str]] = {}
        for item in cases:
            collected.setdefault(item.path, set()).add(getattr(item, "originalname", item.name))
        for wanted in [*gating, *(_Wanted(*each) for each in sorted(given))]:
            known = {*collected[wanted.module], *wanted.helpers}
            gone = {name: marks for name, marks in wanted.tests.items() if name not in known}
            # First what a source says, then what none does.
            if gone or not (wanted.tests or wanted.suite in missed):
                for stand_in in self._lost(session, gated, collected, wanted._replace(tests=gone)):
                    missed.add(wanted.suite)
                    yield stand_in

    def _is_accepted(self, name: str) -> bool:
        # With --lf, pytest leaves tests out of a module and says nothing.
        if self.config.getoption("lf", default=False):
            return False
        folders = run_of(self.config).evaluator().settings.baselines.glob("*/")
        return any(folder.name == name and any(folder.glob("*.toml")) for folder in folders)

    def _lost(
        self,
        session: pytest.Session,
        gated: Collection[str | None],
        collected: Collection[Path],
        wanted: _Wanted,
    ) -> Iterator[EmptySuite]:
        """A test for accepted cases of a suite that no test has.

        gated, collected: names of the cases that tests have, and the modules of these.
        wanted: with the functions that had them and are no tests; with none where they are gone,
            and then the cases that can fail a run count.
        """
        # With --lf, pytest leaves tests out of a module and says nothing.
        if self.config.getoption("lf", default=False):
            return
        from pytest_cepbench.errors import CepError
        from pytest_cepbench.gate.baseline import baseline_path
        from pytest_cepbench.suites.gate_config import is_primary

        evaluator = run_of(self.config).evaluator()
        try:
            prepared = evaluator.suites.get(wanted.suite)
        except CepError:  # of which its tests tell
            return
        root = evaluator.settings.baselines
        lost = [
            case.id
            for case in prepared.cases
            if str(case.key) not in gated
            and (wanted.tests or is_primary(prepared.suite, case.key))
            and baseline_path(root, case.key).exists()
        ]
        modules = self._modules_naming(session, wanted.suite) if lost and not wanted.tests else ()
        if lost and modules is not None:
            why = "no test gates them: restore it, or delete their baselines"
            if silent := {*modules}.difference(collected):
                why += f". pytest collected no test of {few_of(map(self._shown, silent), 3)}"
            if wanted.tests:
                why = (
                    f"pytest does not collect {few_of(wanted.tests, 3)} of "
                    f"{self._shown(wanted.module)} as a test. Name it so, or delete the function"
                )
            why = f"lost {len(lost)} accepted cases ({few_of(lost, 3)}): {why}"
            yield self._stand_in(session, wanted, why, lost)

    def _stand_in(
        self, session: pytest.Session, wanted: _Wanted, why: str, lost: Sequence[str] = ()
    ) -> EmptySuite:
        """A test in the place of a suite. lost: ids of the cases, where it lost some of them."""
        from pytest_cepbench.errors import CepError, DataAbsentError, SuiteNotApplicableError
        from pytest_cepbench.escapes import visible

        module = _Module.from_parent(session, path=wanted.module)
        item: EmptySuite = EmptySuite.from_parent(module, name=wanted.suite.name)
        item.add_marker("cep")
        registered = {line.split(":")[0].split("(")[0] for line in self.config.getini("markers")}
        for mark in registered.intersection(*wanted.tests.values()) if wanted.tests else ():
            item.add_marker(mark)
        reason = f"suite {self._shown(wanted.suite)} {why}"
        try:
            loaded = run_of(self.config).evaluator().suites.get(wanted.suite)
        except (DataAbsentError, SuiteNotApplicableError) as error:
            reason, item.stands_for = str(error), "nothing"
        except CepError as error:
            reason += f" ({error})"
        except Exception as error:  # noqa: BLE001 - of a loader, and a reason is there already
            reason += f" ({type(error).__name__}: {error})"
        else:
            # By which -k selects the cases.
            cases = lost or [case.id for case in (*loaded.cases, loaded.pooled) if case is not None]
            item.extra_keyword_matches.update(
                f"{test}[{case}]" for test in wanted.tests or ("",) for case in cases
            )
        item.reason = visible(reason)
        return item

    def _modules_naming(self, session: pytest.Session, suite: Path) -> list[Path] | None:
        """Modules of the run that may gate a suite; None where tests may that the engineer left
        out, or that failed to import, or whose marks compute which cases they have.
        """
        option = self.config.getoption
        if self._failed or option("ignore") or option("ignore_glob") or option("pyargs"):
            return None
        naming = []
        whole = session._initialpaths - self._narrowed  # noqa: SLF001
        entered = {folder for path in whole for folder, _ in walk(self.config, path)}
        for root in (self.config.rootpath, suite.parent):
            for folder, names in walk(self.config, root, _NO_TESTS):
                for module in (folder / name for name in names if name.endswith(".py")):
                    near = folder == suite.parent or mentions(module, [suite.name])
                    # Without a suite beside it, its mark may have the name from elsewhere.
                    if not (near or SUITE_FILE not in names) or not mentions(module, FIXTURES):
                        continue
                    taken = module in whole or (folder in entered and module not in self._narrowed)
                    if not taken or _computes_cases(module):
                        return None
                    if near and module.name != "conftest.py":
                        naming.append(module)
        return naming

    @property
    def _narrowed(self) -> set[Path]:
        """Modules of which arguments choose tests."""
        return {
            Path(normpath(self.config.invocation_params.dir / argument.partition("::")[0]))
            for argument in self.config.args
            if "::" in argument
        }

    def _shown(self, path: Path) -> str:
        root = self.config.rootpath
        return str(path.relative_to(root) if path.is_relative_to(root) else path)

    # -- what the source says ----------------------------------------------------------------------

    def _wanted(self, session: pytest.Session) -> Iterator[_Wanted]:
        """What test modules below the arguments would gate, whether they were collected or not."""
        narrowed = self._narrowed
        patterns = self.config.getini("python_files")
        # The arguments as pytest resolved them; no public call lists these.
        for path in sorted(session._initialpaths):  # noqa: SLF001
            if not path.is_dir() and path not in narrowed and path.suffix == ".py":
                yield from _gated_by(path)
            for folder, names in walk(self.config, path) if path.is_dir() else ():
                modules = [folder / name for name in names if name.endswith(".py")]
                read = modules
                if not any(name.endswith(".toml") for name in names):  # reading all takes time
                    read = [module for module in modules if module in self._skipped]
                wanted = [each for module in read for each in _gated_by(module)]
                yield from wanted
                tests = [m for m in read if any(fnmatch(m.name, p) for p in patterns)]
                for name in names if tests else ():
                    # Marks name files of other names, so there is one where tests gate something.
                    if name == SUITE_FILE or (wanted and name.endswith(".toml")):
                        suite = (folder / name).resolve()
                        if all(each.suite != suite for each in wanted):
                            yield from _ungated(tests[0], suite)


def _suite_of(item: pytest.Item) -> Path:
    from pytest_cepbench.plugin.collection import mark_of

    return mark_of(item).suite_file(item.path)


def _ungated(module: Path, suite: Path) -> Iterator[_Wanted]:
    """A TOML file that no test beside it gates, where it is a suite of ours."""
    from pytest_cepbench.files import MOST_TEXT, parse_toml, read_regular

    with suppress(OSError, ValueError):
        keys = parse_toml(read_regular(suite, MOST_TEXT))
        if keys.keys() >= _KEYS:
            yield _Wanted(module, suite, name=str(keys["name"]))


def _gated_by(module: Path) -> Iterator[_Wanted]:
    """The suites that are there and that the tests of a module gate, by its source."""
    from pytest_cepbench.files import MOST_TEXT, read_regular

    if module.name == "conftest.py" or not mentions(module, FIXTURES):
        return
    try:
        tree = ast.parse(read_regular(module, MOST_TEXT))
        tests = list(_tests_in(tree, SUITE_FILE, frozenset()))
    except (OSError, ValueError, SyntaxError, RecursionError):  # pytest has its own word for it
        return
    named = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree)}
    helpers = named | {test for test, _, marks in tests if "fixture" in marks}
    for name in dict.fromkeys(suite for _, suite, _ in tests):
        path = (module.parent / name).resolve()
        own: dict[str, frozenset[str]] = {}
        for test, suite, marks in tests:
            if suite == name:
                own[test] = own.get(test, marks) & marks
        if path.is_file():
            yield _Wanted(module, path, own, helpers)


def _computes_cases(module: Path) -> bool:
    """Whether a module's marks do not spell which categories or metrics they choose."""
    from pytest_cepbench.files import MOST_TEXT, read_regular

    try:
        for node in ast.walk(ast.parse(read_regular(module, MOST_TEXT))):
            if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "cep":
                continue
            for keyword in node.keywords:
                if keyword.arg in (None, "categories", "metrics"):  # None before a mapping
                    ast.literal_eval(keyword.value)
    except (OSError, ValueError, TypeError, SyntaxError, RecursionError):
        return True
    return False


def _tests_in(
    node: ast.AST, suite: str, marks: frozenset[str]
) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Functions that take a case: name, the suite that their marks name, and names of all marks."""
    # Decorators, and what a class or module has as `pytestmark`; the nearest name of a suite wins:
    # marks above a function come after those of its class, so they are seen last.
    own = list(getattr(node, "decorator_list", []))
    for child in getattr(node, "body", []) if isinstance(node, ast.Module | ast.ClassDef) else ():
        if isinstance(child, ast.Assign) and "pytestmark" in map(ast.unparse, child.targets):
            value = child.value
            own += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    for mark in own:
        named = mark.func if isinstance(mark, ast.Call) else mark
        if isinstance(named, ast.Attribute | ast.Name):
            marks |= {name := named.id if isinstance(named, ast.Name) else named.attr}
            keywords = mark.keywords if isinstance(mark, ast.Call) else []
            for keyword in keywords if name == "cep" else ():
                if keyword.arg == "suite" and isinstance(keyword.value, ast.Constant):
                    suite = str(keyword.value.value)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if not {argument.arg for argument in arguments}.isdisjoint(FIXTURES):
            yield node.name, suite, marks
        return
    for child in ast.iter_child_nodes(node):
        yield from _tests_in(child, suite, marks)
