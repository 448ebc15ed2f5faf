"""One verdict of several encoders, and the error that each of them may make for it.

Let k encoders judge the same chains, m of them be needed for a regression, and alpha be the error
of the case. Each encoder's lower bound is at alpha, its upper bound at alpha / (k - m + 1).

- `held` where all exclude their tolerated drop. If one encoder's score has truly dropped by its
  tolerance, that one's lower bound errs with probability at most alpha, and so does the verdict: an
  intersection-union test needs no division (Berger 1982).
- `regressed` where at least m say so. Suppose that fewer than m scores have truly dropped, r of
  them. Then at least m - r of the other k - r err at once; their number has a mean of at most
  (k - r) alpha / (k - m + 1), so by Markov's inequality the probability is at most
  (k - r) / (m - r) alpha / (k - m + 1), which grows with r to alpha at r = m - 1. So the case
  errs at most at alpha, whatever the encoders have to do with each other: the test of a partial
  conjunction (Benjamini and Heller 2008). For m = k that is alpha itself, for m = 1 Bonferroni's.

Upper bounds at alpha itself would not do: two of three err at once with probability up to 1.5 alpha
where none has dropped, and up to 2 alpha where one encoder alone has, which is what a second
encoder is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cepbench.gate.verdict import Verdict

_NO_COMPARISON = (Verdict.ERROR, Verdict.INCOMPLETE, Verdict.INCOMPARABLE, Verdict.NO_BASELINE)

_GOOD = (Verdict.HELD, Verdict.IMPROVED)


def upper_share(needed: int, encoders: int) -> float:
    """Part of a case's alpha that each encoder's upper bound has.

    needed: m, the encoders that must say so, 1 to k.
    encoders: k.
    Returns 1 / (k - m + 1), in (0, 1].
    Raises ValueError for other numbers.
    """
    if not 1 <= needed <= encoders:
        msg = f"expected 1 to {encoders} of {encoders} encoders to be needed, got {needed}"
        raise ValueError(msg)
    return 1 / (encoders - needed + 1)


def agreed_verdict(verdicts: Sequence[Verdict], needed: int) -> Verdict:
    """What encoders say together.

    verdicts: of each encoder, at the levels above; at least one.
    needed: as in `upper_share`.
    Returns the first verdict without a comparison, where there is one: no majority makes up for
    what was not compared. Else `regressed` where enough say so, `improved` and `held` where all do
    (one that improved holds too), and `inconclusive` where none of these.
    Raises ValueError as `upper_share` does.
    """
    upper_share(needed, len(verdicts))
    for verdict in verdicts:
        if verdict in _NO_COMPARISON:
            return verdict
    if sum(verdict is Verdict.REGRESSED for verdict in verdicts) >= needed:
        return Verdict.REGRESSED
    if all(verdict is Verdict.IMPROVED for verdict in verdicts):
        return Verdict.IMPROVED
    return Verdict.HELD if all(v in _GOOD for v in verdicts) else Verdict.INCONCLUSIVE
