"""Check that one run knew one model by one name: results of two must not meet in one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pytest_cepbench.report.result import CaseResult

_CHANGED = "It changed during the run: gate it when the trainer has finished, or a copy of it"

_SET_OTHERWISE = "Workers set it differently: say dtype= and device= in its spec"


def two_identities(
    results: Iterable[CaseResult], names: Callable[[Iterable[str]], str]
) -> Iterator[str]:
    """A sentence for each model of a suite that was not the same one in all of its cases.

    names: of tests, as one text.
    """
    models: dict[tuple[str, str, str], dict[tuple[str, str], list[str]]] = {}
    for result in results:
        for model in result.models:
            identities = models.setdefault((result.suite, model.seat, model.spec), {})
            identities.setdefault((model.fingerprint, model.identity), []).append(result.nodeid)
    for (suite, seat, spec), identities in models.items():
        if len(identities) > 1:
            lines = (f"{line} in {names(tests)}" for (_, line), tests in identities.items())
            fingerprints = {fingerprint for fingerprint, _ in identities}
            yield (
                f"the {seat} {spec} of suite {suite} was not the same model in all cases: "
                f"{'; '.join(lines)}. {_CHANGED if len(fingerprints) > 1 else _SET_OTHERWISE}"
            )
