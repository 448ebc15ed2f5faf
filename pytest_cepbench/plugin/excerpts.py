"""The chains of the samples that lost most, as reports show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pytest_cepbench.chains import Chain
from pytest_cepbench.errors import ImageError
from pytest_cepbench.gate.compare import Loser
from pytest_cepbench.report import ChainShown, LinkShown
from pytest_cepbench.store import Store
from pytest_cepbench.suites import Case, SuiteRun

_CHAINS_SHOWN = 3


def show_chains(
    run: SuiteRun, case: Case, losers: Sequence[Loser], store: Store
) -> list[ChainShown]:
    """The chains of the samples that lost most, their first images put where the report finds them."""
    found: list[ChainShown] = []
    for loser in losers:
        shown = run.show(case, loser.sample)
        if shown is None:
            continue
        chain = shown.chain
        pictures = len(found) < _CHAINS_SHOWN
        failure = shown.failure or chain.failure
        at = chain.failed_at if shown.failure is None else shown.failed_at
        where = "" if at is None else f" at generation {at}"
        stopped = f"{failure.kind}{where}: {failure.detail}" if failure else None
        found.append(
            ChainShown(
                sample=loser.sample,
                score=loser.candidate,
                baseline=loser.baseline,
                links=_links(chain, shown.marks, store) if pictures else [],
                failure=stopped,
                remark=shown.remark,
            )
        )
    return found


def _links(chain: Chain, marks: Mapping[int, float], store: Store) -> list[LinkShown]:
    links = []
    for generation, link in enumerate(chain.links):
        if link.source is not None and not store.image_path(link.digest).exists():
            with suppress(ImageError):  # changed since it was measured: the report goes without it
                store.put_image(link.source.load())
        is_image = link.kind == "image" and link.recorded
        links.append(
            LinkShown(
                text=link.text if link.recorded else f"({link.kind} not recorded)",
                image=link.digest if is_image else None,
                similarity=marks.get(generation),
            )
        )
    return links
