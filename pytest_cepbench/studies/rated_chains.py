"""Items for people to rate of the first hop of chains: captions of an image, images of a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.chains import Chain, Modality
from pytest_cepbench.errors import DatasetError, NotInStoreError
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.store import Store
from pytest_cepbench.studies.rated_items import Draw, Output, RatedItems, RatedRun, require_runs
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.chain_run import ChainRun
from pytest_cepbench.suites.stored_chains import stored_chains

_DECISIVE = ("suite", "samples", "chain", "describe prompt", "generate prompt", "descriptions")
"""Fields of an identity that decide the artifacts of chains, beside the models."""

_Outputs = dict[str, list[tuple[RatedRun, Chain]]]


def chain_grades(
    run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], store: Store, draw: Draw
) -> RatedItems:
    """Items of the kind `grades`: for each start of the suite, what all runs made of a sample.

    Captions of an image are graded as understanding, images of a text as generation (SDP, 3.3). The
    draw is of samples, so that both sections of a sample are there.
    Only what the models under test have made is graded.
    run: of the suite; its own models are neither loaded nor asked. cases: of the suite.
    Raises DatasetError where the suite is not as it was measured, where fewer than two runs are
    given and where nothing is left to rate; what reading chains raises.
    """
    require_runs(runs, 2)
    made = RatedItems("grades", run.suite.name)
    starts = [start for start in run.suite.plans if _made_by_all(runs, start)]
    if not starts:
        raise DatasetError(
            f"the runs test {' and '.join(sorted({rated.tested for rated in runs}))}: outputs of "
            "describers, or of generators, are graded beside one another"
        )
    by_start = {start: _first_hops(run, cases, runs, start) for start in starts}
    able = {
        name
        for outputs in by_start.values()
        for name, own in outputs.items()
        if len(_different(own)) > 1
    }
    every = {name for outputs in by_start.values() for name in outputs}
    left_out = {"have fewer than two different outputs": len(every) - len(able)}
    chosen = made.choose(draw, able, left_out)
    for name in chosen:
        for outputs in by_start.values():
            own = outputs.get(name, [])
            if len(_different(own)) > 1:
                _add(made, name, own, store)
    return made


def caption_pairs(
    run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], store: Store, draw: Draw
) -> RatedItems:
    """Items of the kind `caption`: an image with the captions of two runs.

    Of more than two runs each image gets two, by digest. Equal captions are comparable without a
    vote and left out. Source: MMGenBench, C.4. Raises as `chain_grades`.
    """
    require_runs(runs, 2)
    if "image" not in run.suite.plans:
        raise DatasetError(
            f"suite {run.suite.name!r} has no chains that begin with an image: none has captions"
        )
    if not _made_by_all(runs, "image"):
        raise DatasetError(
            "captions are compared of runs that test a describer, and one of these tests none"
        )
    outputs = _first_hops(run, cases, runs, "image")
    pairs = {name: _two_of(own, name, draw.seed) for name, own in outputs.items() if len(own) > 1}
    able = [name for name, own in pairs.items() if len(_different(own)) > 1]
    left_out = {
        "lack a caption": len(outputs) - len(pairs),
        "have equal captions": len(pairs) - len(able),
    }
    made = RatedItems("caption", run.suite.name)
    for name in made.choose(draw, able, left_out):
        _add(made, name, pairs[name], store)
    return made


def _made_by_all(runs: Sequence[RatedRun], start: Modality) -> bool:
    """Whether the first hop from a start is by the model under test in every run."""
    maker = "describer" if start == "image" else "generator"
    return all(maker in rated.tested.split("+") for rated in runs)


def _first_hops(
    run: ChainRun, cases: Sequence[Case], runs: Sequence[RatedRun], start: Modality
) -> _Outputs:
    """The chains of all samples that reach generation 1, by sample and run.

    Raises DatasetError where the suite changed, NotInStoreError where a run has no chain at all.
    """
    samples = {sample.id: sample for sample in run.dataset.samples}
    outputs: _Outputs = {}
    for rated in runs:
        _refuse_changes(run, cases, rated)
        ids = [name for name in rated.sample_ids if name in samples]
        chains = stored_chains(run, rated.record.model.get("step", "")).chains(start, ids)
        whole = {name: chain for name, chain in chains.items() if chain.has(1)}
        if not whole:
            raise NotInStoreError(
                f"no {start}-first chain of {rated.name!r} is in the store: use the store of that "
                "run (--store)"
            )
        for name, chain in whole.items():
            outputs.setdefault(name, []).append((rated, chain))
    return outputs


def _refuse_changes(run: ChainRun, cases: Sequence[Case], rated: RatedRun) -> None:
    """Raise DatasetError where the suite asks for something else than the run measured."""
    record = rated.record
    if not record.model.get("step"):
        raise DatasetError(
            f"the run of {rated.name!r} read chains that were made elsewhere: no store has them, "
            "and a run that makes its chains is needed"
        )
    case = next((case for case in cases if str(case.key) == record.case), None)
    ids = set(rated.sample_ids)
    samples = [sample for sample in run.dataset.samples if sample.id in ids]
    if case is None or len(samples) < len(ids):
        raise DatasetError(
            f"suite {run.suite.name!r} has other cases or samples than the run of {rated.name!r}"
        )
    identity = run.identity(case, samples)
    changed = [
        name
        for name, value in identity.items()
        if name in _DECISIVE and record.identity.get(name) != value
    ]
    if changed:
        raise DatasetError(
            f"suite {run.suite.name!r} is not as the run of {rated.name!r} measured it: "
            f"{', '.join(changed)} changed since"
        )


def _two_of(
    own: Sequence[tuple[RatedRun, Chain]], sample: str, seed: int
) -> Sequence[tuple[RatedRun, Chain]]:
    pairs = list(combinations(own, 2))
    return pairs[int(digest_text(f"captions {seed} {sample}")[:12], 16) % len(pairs)]


def _different(own: Sequence[tuple[RatedRun, Chain]]) -> Counter[str]:
    return Counter(chain.links[1].digest for _, chain in own)


def _add(made: RatedItems, name: str, own: Sequence[tuple[RatedRun, Chain]], store: Store) -> None:
    question = list(_part(made, own[0][1], 0, store))
    outputs = [Output(rated, tuple(_part(made, chain, 1, store))) for rated, chain in own]
    made.add(name, question, outputs)


def _part(made: RatedItems, chain: Chain, index: int, store: Store) -> Iterator[Part]:
    link = chain.links[index]
    if link.text is not None:
        yield Part(text=link.text)
    else:
        yield made.take_image(link.digest, link.source, store)
