"""What the judge of reference/ is worth: agreement, order effect, calibration, and its use.

    OMP_NUM_THREADS=1 python benchmarks/trained_judge.py runs/judge/judge           # ten minutes
    OMP_NUM_THREADS=1 python benchmarks/trained_judge.py runs/judge/judge --battles 100

The checkpoint judges as any local judge does, by the likelihood of its verdicts, on questions that
neither training nor a suite has. Unseen are battles in which both answers have kinds of faults that
training never showed. Prints Markdown; --write puts it into benchmarks/results/trained-judge.md,
with the numbers as JSON beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "reference")]  # run by its path, and as its scripts are run

import battles as drawn  # noqa: E402
from lessons import draw_lesson  # noqa: E402

from pytest_cepbench.artifacts import ImageArtifact  # noqa: E402
from pytest_cepbench.artifacts.outcome import (  # noqa: E402
    WINNERS,
    VerdictProbabilities,
)
from pytest_cepbench.datasets.shapes.arena import TASKS, AnswerDegradation  # noqa: E402
from pytest_cepbench.metrics.battles import JudgedBattle  # noqa: E402
from pytest_cepbench.metrics.judge_agreement import Share, share  # noqa: E402
from pytest_cepbench.metrics.judge_card import judge_card  # noqa: E402
from pytest_cepbench.models.binding import BindContext, bind  # noqa: E402
from pytest_cepbench.models.protocols import Battle, Judge, Piece, Reply  # noqa: E402
from pytest_cepbench.models.spec import parse_spec  # noqa: E402

PAGE = _ROOT / "benchmarks" / "results" / "trained-judge.md"

MODELS = {
    "exact": {},
    "misses": {"miss": 0.2},
    "recolors": {"recolor": 0.3},
    "silent": {"no_text": 0.5},
    "resizes": {"resize": 0.4},
    "stops": {"stop": 0.3},
    "swaps": {"swap": 0.4},
    "blind": {"no_image": 0.5},
}
"""Eight models of the embedded world; the last two have faults that training never showed."""

ENOUGH_AGREEMENT, MOST_ORDER = 0.80, 0.1
"""What a judge must show to be shipped: FDT agreement on unseen faults, order effect in logits."""

_SEED = 4172
_TOGETHER = 32
_EDGES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 1.0)
_LABELS, _TRIALS, _ALPHA = 50, 1000, 0.05
_LABELLED = "misses"


@dataclass(frozen=True)
class Judged:
    """A battle with the judge's probabilities in both orders.

    models: who fought.
    given: of the four verdicts, the first answer shown first, and shown second.
    """

    battle: drawn.Battle
    models: tuple[str, str]
    question: str
    given: tuple[VerdictProbabilities, VerdictProbabilities]

    @property
    def log_odds(self) -> tuple[float, float]:
        """Of the answer that was shown first, in both orders."""
        a, b = (_log_odds(probabilities) for probabilities in self.given)
        return a, b

    @property
    def first_wins(self) -> bool:
        """Of the truth."""
        return self.battle.place < 2


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--battles", type=int, default=1000, help="of each kind, in both orders")
    parser.add_argument("--questions", type=int, default=40, help="that all eight models answer")
    parser.add_argument("--write", action="store_true", help="into benchmarks/results")
    options = parser.parse_args()
    begun = time.monotonic()
    context = BindContext(lambda path: sha256(path.read_bytes()).hexdigest(), threads=1)
    judge = bind(parse_spec(str(options.checkpoint)), "judge", context).load()
    assert isinstance(judge, Judge)
    rng = np.random.default_rng(_SEED)
    groups = {
        name: judge_all(judge, _draw(rng, options.battles, faults))
        for name, faults in (("seen", drawn.SEEN_FAULTS), ("unseen", drawn.UNSEEN_FAULTS))
    }
    kinds = {
        fault: judge_all(judge, _draw(rng, max(1, options.battles // 5), (fault,)))
        for fault in (*drawn.SEEN_FAULTS, *drawn.UNSEEN_FAULTS)
    }
    known = judge_all(judge, _known_battles(rng, options.questions))
    figures: dict[str, Any] = {
        "groups": {name: agreement_figures(own) for name, own in groups.items()},
        "faults": {name: agreement_figures(own) for name, own in kinds.items()},
        "psychometric": psychometric(groups["unseen"]),
        "calibration": calibration([*groups["seen"], *groups["unseen"]]),
        "models": model_figures(known),
        "prediction_powered": label_figures(known, rng),
    }
    seen, unseen = (figures["groups"][name]["forced"]["value"] for name in ("seen", "unseen"))
    figures["harmonic_mean"] = 2 * seen * unseen / (seen + unseen) if seen + unseen else 0.0
    order = max(abs(own["order_logit"]) for own in figures["groups"].values())
    figures["ships"] = bool(unseen > ENOUGH_AGREEMENT and order < MOST_ORDER)
    figures["seconds"] = round(time.monotonic() - begun)
    page = to_page(figures)
    print(page)
    if options.write:
        PAGE.write_text(page, encoding="utf-8")
        text = json.dumps(figures, indent=1)
        PAGE.with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")


def judge_all(judge: Judge, battles: Iterable[tuple[drawn.Battle, str, str, str]]) -> list[Judged]:
    """The judge's probabilities on battles, each in both orders."""
    asked = list(battles)
    judged = []
    for start in range(0, len(asked), _TOGETHER):
        part = asked[start : start + _TOGETHER]
        shown = [order for battle, *_ in part for order in _orders(battle)]
        replies = judge.judge(shown, [0] * len(shown))
        given = [_probabilities(reply) for reply in replies]
        for number, (battle, question, first, second) in enumerate(part):
            both = given[2 * number], given[2 * number + 1]
            judged.append(Judged(battle, (first, second), question, both))
    return judged


def agreement_figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """Agreement with the truth in three readings, and the order effect, over both orders."""
    forced, three, decided, odds, questions, between = [], [], [], [], [], []
    for number, own in enumerate(judged):
        for mirrored, probabilities in enumerate(own.given):
            place = WINNERS.index(probabilities.winner)
            place = 3 - place if mirrored else place
            truth = own.battle.place
            questions.append(str(number))
            forced.append((place < 2) == (truth < 2))
            three.append(_outcome(place) == _outcome(truth))
            if _outcome(place) != "tie" != _outcome(truth):
                decided.append((place < 2) == (truth < 2))
                between.append(str(number))
        odds.append(sum(own.log_odds) / 2)
    order = _card(judged).order
    return {
        "battles": len(judged),
        "forced": _share(share(forced, questions)),
        "three_way": _share(share(three, questions)),
        "without_ties": _share(share(decided, between)),
        # The card's own: of the verdicts, by the ordered logit of all of them.
        "order_logit": order.logit if order else float("nan"),
        "order_error": order.error if order else float("nan"),
        "mean_log_odds": fmean(odds),
        "mean_log_odds_error": float(np.std(odds) / np.sqrt(len(odds))),
    }


def psychometric(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Agreement, ties forced, by the difference of truth."""
    rows = []
    for low, high in pairwise(_EDGES):
        own = [one for one in judged if low < abs(one.battle.apart) <= high]
        right = [
            (odds > 0) == (one.first_wins != mirrored)
            for one in own
            for mirrored, odds in enumerate(one.log_odds)
        ]
        questions = [str(number) for number in range(len(own)) for _ in range(2)]
        agreed = _share(share(right, questions))
        rows.append({"from": low, "to": high, "battles": len(own)} | agreed)
    return rows


def calibration(judged: Sequence[Judged]) -> dict[str, Any]:
    """How often the answer shown first is the better one, by how likely the judge holds that."""
    likely = np.array([_first_share(given) for one in judged for given in one.given])
    better = np.array([one.first_wins != bool(m) for one in judged for m in range(2)], float)
    bins = np.minimum((likely * 10).astype(int), 9)
    rows = [
        {
            "from": number / 10,
            "verdicts": int((bins == number).sum()),
            "said": float(likely[bins == number].mean()),
            "true": float(better[bins == number].mean()),
        }
        for number in range(10)
        if (bins == number).any()
    ]
    gap = sum(row["verdicts"] * abs(row["said"] - row["true"]) for row in rows) / len(likely)
    return {"brier": float(np.mean((likely - better) ** 2)), "error": gap, "rows": rows}


def model_figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """Win rates of the eight models by the judge and by the truth; slope and bias of the card."""
    card = _card(judged)
    rows = [{"model": m.model, "truth": m.people, "judge": m.judge} for m in card.models]
    return {"battles": len(judged), "rows": rows, "slope": card.slope, "bias_rms": card.bias_rms}


def label_figures(judged: Sequence[Judged], rng: np.random.Generator) -> dict[str, Any]:
    """How often an interval from 50 true labels and all verdicts covers the true win rate.

    Power-tuned prediction-powered inference of a mean (Angelopoulos, Duchi and Zrnic 2023, section
    6), for a model against all others that neither always wins nor always loses; beside it labels
    alone.
    """
    own = [one for one in judged if _LABELLED in one.models]
    truth = np.array(
        [_score(one.battle.place, own_first=one.models[0] == _LABELLED) for one in own]
    )
    told = np.array(
        [
            fmean((_soft(one.given[0]), 1 - _soft(one.given[1])))
            if one.models[0] == _LABELLED
            else fmean((1 - _soft(one.given[0]), _soft(one.given[1])))
            for one in own
        ]
    )
    covered, plain, widths = [], [], []
    for _ in range(_TRIALS):
        # Of a larger world: battles are drawn anew, and so are those that have a label.
        world = rng.integers(len(own), size=len(own))
        labelled, rest = world[:_LABELS], world[_LABELS:]
        mean, error = powered_mean(truth[labelled], told[labelled], told[rest])
        alone = truth[labelled].mean(), truth[labelled].std(ddof=1) / np.sqrt(_LABELS)
        covered.append(abs(mean - truth.mean()) <= 1.96 * error)
        plain.append(abs(alone[0] - truth.mean()) <= 1.96 * alone[1])
        widths.append(error / alone[1])
    return {
        "battles": len(own),
        "labels": _LABELS,
        "nominal": 1 - _ALPHA,
        "coverage": fmean(covered),
        "coverage_of_labels_alone": fmean(plain),
        "width_share": fmean(widths),
    }


def powered_mean(
    labels: npt.NDArray[np.float64],
    told: npt.NDArray[np.float64],
    unlabelled: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """Prediction-powered mean and its standard error, with the weight that makes it smallest.

    labels, told: true scores and the judge's on the same battles.
    unlabelled: the judge's on others.
    """
    n, others = len(labels), len(unlabelled)
    spread = np.var(np.concatenate([told, unlabelled]), ddof=1)
    shared = np.cov(labels, told, ddof=1)[0, 1]
    weight = shared / ((1 + n / others) * spread) if spread else 0.0
    mean = labels.mean() + weight * (unlabelled.mean() - told.mean())
    residual = np.var(labels - weight * told, ddof=1)
    error = np.sqrt(residual / n + weight**2 * np.var(unlabelled, ddof=1) / others)
    return float(mean), float(error)


def to_page(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "# The trained judge",
        "",
        "Made by `python benchmarks/trained_judge.py CHECKPOINT --write`; the numbers are in",
        "`trained-judge.json`. Agreement is with the truth, over both orders of every battle, with",
        "95 % Wilson intervals. Unseen: both answers have kinds of faults that training never",
        "showed.",
        "",
        "| battles | n | ties forced | three outcomes | without ties | order effect, logits |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_group_row(name, own) for name, own in figures["groups"].items()]
    shipped = "both are met" if figures["ships"] else "they are not both met"
    lines += [
        "",
        f"Harmonic mean of seen and unseen, ties forced: {figures['harmonic_mean']:.3f}. The bars",
        f"for shipping are {ENOUGH_AGREEMENT:.0%} on unseen faults and an order effect below",
        f"{MOST_ORDER} logits: {shipped}.",
        "",
        "## By kind of fault",
        "",
        "| fault | n | ties forced | three outcomes | without ties | order effect, logits |",
        "|---|---|---|---|---|---|",
        *[_group_row(name, own) for name, own in figures["faults"].items()],
        "",
        "## By difference of truth, unseen faults",
        "",
        "| difference | n | ties forced |",
        "|---|---|---|",
    ]
    lines += [
        f"| {row['from']:.2f} to {row['to']:.2f} | {row['battles']} | {_percent(row)} |"
        for row in figures["psychometric"]
    ]
    told = figures["calibration"]
    lines += [
        "",
        "## Calibration",
        "",
        f"Brier score {told['brier']:.3f}, expected calibration error {told['error']:.3f}: how",
        "likely the judge holds the answer shown first to be the better one, and how often it is.",
        "",
        "| verdicts | said | true |",
        "|---|---|---|",
        *[f"| {row['verdicts']} | {row['said']:.2f} | {row['true']:.2f} |" for row in told["rows"]],
        "",
        "## Eight known models",
        "",
        f"Win rates, ties one half, over {figures['models']['battles']} battles. Slope of the",
        f"judge's on the true ones {figures['models']['slope']:.2f}, bias (root mean square)",
        f"{figures['models']['bias_rms']:.3f}.",
        "",
        "| model | truth | judge |",
        "|---|---|---|",
    ]
    lines += [
        f"| {row['model']} | {row['truth']:.3f} | {row['judge']:.3f} |"
        for row in figures["models"]["rows"]
    ]
    labels = figures["prediction_powered"]
    lines += [
        "",
        "## With a few labels",
        "",
        f"Prediction-powered 95 % intervals of the win rate of `{_LABELLED}`, from",
        f"{labels['labels']} true labels and {labels['battles']} verdicts,",
        f"cover it in {labels['coverage']:.1%} of {_TRIALS:,} draws",
        f"(labels alone: {labels['coverage_of_labels_alone']:.1%}), at",
        f"{labels['width_share']:.2f} of the width of labels alone.",
        "",
    ]
    return "\n".join(lines)


def _group_row(name: str, own: dict[str, Any]) -> str:
    cells = [_percent(own[reading]) for reading in ("forced", "three_way", "without_ties")]
    order = f"{own['order_logit']:+.3f} ± {1.96 * own['order_error']:.3f}"
    return f"| {name} | {own['battles']} | {' | '.join(cells)} | {order} |"


def _percent(own: dict[str, Any]) -> str:
    if own["value"] is None:
        return ""
    return f"{100 * own['value']:.1f} ({100 * own['low']:.1f} to {100 * own['high']:.1f})"


def _share(own: Share) -> dict[str, Any]:
    return {"value": own.value, "low": own.low, "high": own.high, "verdicts": own.total}


def _draw(
    rng: np.random.Generator, number: int, faults: Sequence[str]
) -> list[tuple[drawn.Battle, str, str, str]]:
    """Battles of two nameless models; which of them is first is drawn, too."""
    found = drawn.draw_battles(rng, number, faults, reference_share=0.0)
    names = [("a", "b") if rng.random() < 0.5 else ("b", "a") for _ in found]
    return [(battle, f"q{n}", *names[n]) for n, battle in enumerate(found)]


def _known_battles(
    rng: np.random.Generator, questions: int
) -> Iterable[tuple[drawn.Battle, str, str, str]]:
    """All pairs of the eight models on so many questions, but those of equal truth."""
    for number in range(questions):
        task = TASKS[number % len(TASKS)]
        lesson = draw_lesson(rng, task)
        while not lesson.is_new:
            lesson = draw_lesson(rng, task)
        question = drawn.question_of(lesson, int(rng.integers(0, 2**62)))
        answers = {
            name: drawn.draw_answer(lesson, AnswerDegradation(**knobs), int(rng.integers(0, 2**62)))
            for name, knobs in MODELS.items()
        }
        for one, other in combinations(MODELS, 2):
            first, second = (one, other) if rng.random() < 0.5 else (other, one)
            own, opposing = answers[first], answers[second]
            if own is None or opposing is None or own.truth is None or opposing.truth is None:
                continue
            lead = round(own.truth.total - opposing.truth.total, 9)
            if lead:
                place = drawn.verdict_place(lead)
                battle = drawn.Battle(question, own, opposing, place, "arena")
                yield battle, f"q{number}", first, second


def _card(judged: Sequence[Judged]) -> Any:
    """The judge's card on these battles, verdicts in both orders."""
    people, given = [], []
    for number, own in enumerate(judged):
        first, second = own.models
        # One question each where models have no name: they fight once on it.
        question = own.question if own.models != ("a", "b") else f"{own.question}-{number}"
        people.append(JudgedBattle(question, first, second, WINNERS[own.battle.place]))
        given.append(JudgedBattle(question, first, second, own.given[0].winner))
        given.append(JudgedBattle(question, second, first, own.given[1].winner))
    return judge_card(given, people)


def _orders(battle: drawn.Battle) -> tuple[Battle, Battle]:
    question = _pieces(battle.question)
    first, second = (_answer(side) for side in (battle.first, battle.second))
    return Battle(question, first, second), Battle(question, second, first)


def _pieces(pieces: Iterable[str | ImageArtifact]) -> list[Piece]:
    return [piece if isinstance(piece, str) else piece.to_pil() for piece in pieces]


def _answer(answered: drawn.Answered) -> list[Piece]:
    pieces: list[str | ImageArtifact] = []
    for text, image in answered.steps:
        pieces += [text] if text else []
        pieces += [] if image is None else [image]
    return _pieces(pieces)


def _probabilities(reply: Any) -> VerdictProbabilities:
    assert isinstance(reply, Reply)
    probabilities = VerdictProbabilities.from_provenance(reply.provenance)
    assert probabilities is not None, reply
    return probabilities


def _first_share(given: VerdictProbabilities) -> float:
    return given.values[0] + given.values[1]


def _soft(given: VerdictProbabilities) -> float:
    return given.soft_score


def _log_odds(given: VerdictProbabilities) -> float:
    first = min(max(_first_share(given), 1e-6), 1 - 1e-6)
    return float(np.log(first / (1 - first)))


def _outcome(place: int) -> str:
    return ("first", "tie", "tie", "second")[place]


def _score(place: int, *, own_first: bool) -> float:
    first = (1.0, 0.5, 0.5, 0.0)[place]
    return first if own_first else 1 - first


if __name__ == "__main__":
    main()
