"""People in the place of models: their votes as verdicts, their descriptions as texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.binding import detect
from pytest_cepbench.models.people import HumanDescriber, HumanJudge
from pytest_cepbench.models.protocols import Battle, Piece, Reply
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.ratings.folder import Ratings
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import Item, Part, Vote
from pytest_cepbench.studies.rated_items import RatedItems
from tests.models.binding import bind_text
from tests.ratings.studies import cast, picture, side_vote, write_rated


def verdicts(ratings: Ratings, *battles: Battle, query: str = "") -> list[Winner | Reply]:
    """What the study's people say of battles."""
    judge = bind_text(f"human:{ratings.path}{query}", "judge").load()
    assert isinstance(judge, HumanJudge)
    return judge.judge(battles, [0] * len(battles))


def pair_study(folder: Path, count: int = 3) -> Ratings:
    """Questions with two answers each, a picture and a text, for three people."""
    rated = RatedItems("pair", "toy")
    for number in range(count):
        red, blue = picture(number, 0), picture(number, 2)
        rated.images |= {image.digest: image for image in (red, blue)}
        question = [Part(text=f"question {number}")]
        options = [
            [Part(text=name), Part(image=image.digest)]
            for name, image in (("red", red), ("blue", blue))
        ]
        rated.items.append(make_item("pair", question, options))
    return write_rated(folder, rated, ("ada", "bob", "cyd"))


def battle(number: int, *, swapped: bool = False) -> Battle:
    """The battle of a question, as a suite shows it to a judge."""
    answers: list[list[Piece]] = [
        ["red", picture(number, 0).to_pil()],
        ["blue", picture(number, 2).to_pil()],
    ]
    first, second = answers[::-1] if swapped else answers
    return Battle([f"question {number}"], first, second)


def items_of(ratings: Ratings) -> list[Item]:
    """The items in the order of their questions."""
    return sorted(ratings.items.values(), key=lambda item: str(item.question[0].text))


@pytest.mark.parametrize(
    ("rule", "votes", "verdict", "turned"),
    [
        ("majority", ("A", "A", "Tie(B)"), "A", "B"),
        ("majority", ("B", "Tie(A)", "B"), "B", "A"),
        ("majority", ("A", "B", "Tie(B)"), "Tie(B)", "Tie(A)"),
        ("majority", ("Tie(A)", "Tie(A)", "B"), "Tie(A)", "Tie(B)"),
        ("shares", ("B", "B", "A", "Tie(A)"), "B", "A"),
    ],
)
def test_votes_make_a_verdict_in_both_orders(
    tmp_path: Path, rule: str, votes: tuple[str, ...], verdict: str, turned: str
) -> None:
    """More than half of the votes make a winner, all else is a tie that leans as more do; with
    votes=shares the most frequent verdict counts, also without a majority.
    """
    ratings = pair_study(tmp_path / "study")
    for name, pressed in zip(("ada", "bob", "cyd", "dan"), votes, strict=False):
        cast(ratings, side_vote(items_of(ratings)[0], name, pressed))
    battles = battle(0), battle(0, swapped=True)
    assert verdicts(ratings, *battles, query=f"?votes={rule}") == [verdict, turned]
    assert rule == "shares" or verdicts(ratings, *battles) == [verdict, turned]


def test_missing_votes_are_failures_and_others_make_the_fingerprint(tmp_path: Path) -> None:
    """A battle that nobody judged, one that the study does not have, one that was skipped. Another
    vote is another judge; a cut line and a vote that changes nothing are not.
    """
    ratings = pair_study(tmp_path / "study")
    first, second, third = items_of(ratings)
    cast(ratings, side_vote(first, "ada", "A"))
    cast(ratings, Vote(task="pair", item=second.item, annotator="ada", skip="cannot tell"))
    path = ratings.path
    nobody = Failure("unanswered", f"nobody has judged this battle in {path} yet")
    unknown = Failure("unanswered", f"{path} does not have this battle")
    given = verdicts(ratings, *map(battle, (0, 1, 2, 7)))
    assert given == ["A", *(Reply(own, passing=True) for own in (nobody, nobody, unknown))]

    spec = f"human:{path}"
    before = bind_text(spec, "judge")
    with ratings.vote_path("ada").open("ab") as file:
        file.write(b'{"v":1,"task":"pair","item":"' + first.item.encode())
    cut = bind_text(spec, "judge")
    cast(ratings, side_vote(third, "bob", "B"))
    after = bind_text(spec, "judge")

    assert cut.fingerprint == before.fingerprint != after.fingerprint
    assert any("cannot be read" in remark for remark in cut.remarks)
    assert before.named_in_baselines == after.named_in_baselines == "people"


def test_one_annotator_alone(tmp_path: Path) -> None:
    """With annotator=NAME the votes of others do not count; an unknown one is a mistake. Ten
    battles on which two agree and one says the contrary: who counts is said, with why.
    """
    ratings = pair_study(tmp_path / "study", 10)
    for number, item in enumerate(items_of(ratings)):
        right, wrong = ("A", "B") if number % 2 else ("B", "A")
        for name, verdict in (("ada", right), ("bob", right), ("cyd", wrong)):
            cast(ratings, side_vote(item, name, verdict))
    spec = f"human:{ratings.path}"
    assert verdicts(ratings, battle(0), battle(1)) == ["B", "A"]
    assert verdicts(ratings, battle(0), battle(1), query="?annotator=cyd") == ["A", "B"]
    with pytest.raises(CheckpointError, match="annotator 'bbo'"):
        bind_text(f"{spec}?annotator=bbo", "judge")
    remarks = bind_text(spec, "judge").remarks
    assert any(line.startswith("cyd counts, and agrees with nobody") for line in remarks)
    alone = bind_text(f"{spec}?annotator=ada", "judge").remarks
    assert not any("counts" in line for line in alone)


def test_descriptions_are_found_by_image(tmp_path: Path) -> None:
    """A describer says of an image what a person wrote of it, and nothing of others."""
    rated = RatedItems("describe", "toy")
    for number in range(3):
        image = picture(number)
        rated.images[image.digest] = image
        rated.add(f"sample-{number}", [Part(image=image.digest)], [])
    ratings = write_rated(tmp_path / "study", rated)
    for number, name in ((0, "ada"), (1, "ada"), (1, "bob")):
        item = next(i for i in ratings.items if rated.items[number].item == i)
        text = f"{name} saw {number}"
        cast(ratings, Vote(task="describe", item=item, annotator=name, text=text, words=3))
    describer = bind_text(f"human:{ratings.path}", "describer").load()

    assert isinstance(describer, HumanDescriber)
    images = [picture(number).to_pil() for number in range(3)]
    first, second, third = describer.describe(images, "describe", [0] * 3)
    assert first == "ada saw 0"
    assert second in ("ada saw 1", "bob saw 1")
    assert isinstance(third, Reply)
    assert isinstance(third.value, Failure)
    assert third.value.kind == "unanswered"
    assert f"{ratings.path} has no description of this image: people" in third.value.detail
    assert detect(parse_spec(f"human:{ratings.path}")).roles == ("describer",)


def test_ratings_that_cannot_play_a_role(tmp_path: Path) -> None:
    """Of another kind, in no folder, with another rule."""
    ratings = pair_study(tmp_path / "study")
    spec = f"human:{ratings.path}"
    with pytest.raises(RoleError, match=r"cannot play describer: .* of the kind 'pair'"):
        bind_text(spec, "describer")
    with pytest.raises(CheckpointError, match=r"is no ratings folder: it has no study\.json"):
        bind_text(f"human:{tmp_path}", "judge")
    with pytest.raises(SpecError, match="votes must be majority or shares, got 'majorty'"):
        bind_text(f"{spec}?votes=majorty", "judge")
    with pytest.raises(SpecError, match="name a ratings folder"):
        bind_text("human:", "judge")
