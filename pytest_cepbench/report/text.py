"""Plain text: the failure message of a case and the summary of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_cepbench.report.result import CaseResult


def printable(text: str, most: int = 200) -> str:
    """Untrusted text on one line: no control characters, which terminals obey, and not too long."""
    clean = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
    return clean if len(clean) <= most else clean[: most - 3] + "..."


def number(value: float | None, *, signed: bool = False) -> str:
    """Four decimals, or a dash."""
    if value is None:
        return "-"
    return f"{value:+.4f}" if signed else f"{value:.4f}"


def explain(result: CaseResult) -> str:
    """Why a case does not pass, and what to do next."""
    case = f"{result.suite}, {printable(result.part)}, {result.label}"
    lines = [f"{result.verdict}: {case} ({result.presentation.meaning})"]
    if result.value is not None:
        lines += ["", *_numbers(result)]
    for reason in result.reasons:
        lines.append(f"  {printable(reason, 500)}" if "\n" not in reason else _indented(reason))
    if result.chains:
        lines += [
            "",
            f"  {'samples that lost most':40} {'baseline':>10} {'now':>10} {'change':>10}",
        ]
        for chain in result.chains:
            change = None if chain.baseline is None else chain.score - chain.baseline
            said = chain.failure or chain.remark
            note = f"  {printable(said, 60)}" if said else ""
            lines.append(
                f"  {printable(chain.sample, 40):40} {number(chain.baseline):>10} "
                f"{number(chain.score):>10} {number(change, signed=True):>10}{note}"
            )
    if result.failures:
        counts = ", ".join(f"{count} x {kind}" for kind, count in sorted(result.failures.items()))
        lines += ["", f"  failed chains: {counts}"]
    lines += ["", f"  next: {result.presentation.next_step}"]
    return "\n".join(lines)


def _numbers(result: CaseResult) -> Iterator[str]:
    better = "higher is better" if result.higher_is_better else "lower is better"
    yield f"  {'baseline':12} {number(result.baseline):>10}"
    yield f"  {'now':12} {number(result.value):>10}   {better}, n = {result.n}"
    if result.difference is not None:
        sign = "" if result.higher_is_better else "   (turned: positive is better)"
        yield f"  {'difference':12} {number(result.difference, signed=True):>10}{sign}"
        yield f"  {'tolerance':12} {number(-result.tolerance, signed=True):>10}"
    if result.curve:
        yield f"  {'course':12} " + "  ".join(f"{value:.4f}" for value in result.curve)
    for note in result.notes:
        yield f"  {printable(note, 500)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {printable(line, 500)}" for line in text.splitlines())


def summary_table(results: Sequence[CaseResult]) -> list[tuple[str, str]]:
    """(line, color) for every case, below a header whose color is "bold"."""
    width = max(len(_name(result)) for result in results)
    head = (
        f"{'verdict':13} {'case':{width}} {'now':>9} {'baseline':>9} {'change':>9} "
        f"{'tolerance':>9} {'n':>6}"
    )
    rows = [(head, "bold")]
    for result in results:
        row = (
            f"{result.word:13} {_name(result):{width}} {number(result.value):>9} "
            f"{number(result.baseline):>9} {number(result.difference, signed=True):>9} "
            f"{number(result.tolerance):>9} {result.n:>6}"
        )
        rows.append((row, "green" if result.passes else result.presentation.color))
    return rows


def effort_line(results: Sequence[CaseResult]) -> str:
    """What the run took, in one sentence."""
    loads = sum(result.effort.loads for result in results)
    inputs = sum(result.effort.inputs for result in results)
    hits = sum(result.effort.hits for result in results)
    inside = sum(result.effort.model_seconds for result in results)
    return (
        f"{loads} model loads, {inputs} model inputs ({inside:.1f} s in models), "
        f"{hits} results from the store"
    )


def _name(result: CaseResult) -> str:
    return f"{result.suite} {printable(result.part, 40)} {result.label}"
