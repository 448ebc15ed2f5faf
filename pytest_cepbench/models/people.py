"""People in the place of models: `human:ratings/NAME`, whose answers lie in a ratings folder.

human:ratings/may                      a judge (or, of descriptions, a describer)
human:ratings/may?votes=shares         a judge by the most frequent vote
human:ratings/may?annotator=ada        one person alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_json, digest_text
from pytest_cepbench.artifacts.outcome import Winner
from pytest_cepbench.errors import CheckpointError, DatasetError, RoleError
from pytest_cepbench.models.binding import BindContext, BoundRole, DetectedModel, Resources
from pytest_cepbench.models.protocols import Battle, Model, Piece, Reply, RoleName
from pytest_cepbench.models.spec import Bounds, ModelSpec, parse_params
from pytest_cepbench.ratings.folder import Ratings, read_ratings, read_votes
from pytest_cepbench.ratings.records import Part, Task, option_digest
from pytest_cepbench.ratings.summary import doubtful_annotators
from pytest_cepbench.ratings.votes import (
    BattleVotes,
    Rule,
    battle_votes,
    check_annotators,
    mirrored,
)

ADAPTER = "human/1"

_ROLES: Mapping[Task, RoleName] = {"pair": "judge", "describe": "describer"}
"""What the answers of a kind of study can play."""


@dataclass(frozen=True)
class PeopleParams:
    """Parameters of people's answers.

    votes: how the votes of several annotators become one verdict, see `Rule`; of judges.
    annotator: whose answers alone count; None for everybody's.
    """

    votes: Annotated[str, Bounds(choices=get_args(Rule))] = "majority"
    annotator: str | None = None


@dataclass(frozen=True)
class HumanJudge:
    """Gives the verdict that people gave on the same question and answers.

    battles: question, first and second answer by their digests -> the votes.
    asked: of every battle of the study, judged or not.
    rule: of the votes. name: of the folder.
    """

    battles: Mapping[tuple[str, str, str], BattleVotes]
    asked: frozenset[tuple[str, str, str]]
    rule: Rule
    name: str

    def judge(
        self,
        battles: Sequence[Battle],
        seeds: Sequence[int],  # noqa: ARG002 - the Protocol's; people have voted already
    ) -> list[Winner | Reply]:
        """A verdict on each battle, in whichever order; a failure for one without a vote."""
        return [self._single(battle) for battle in battles]

    def _single(self, battle: Battle) -> Winner | Reply:
        # Digests as records name an option of the same parts.
        def digest_of(pieces: Sequence[Piece]) -> str:
            images = [p if isinstance(p, str) else ImageArtifact.from_pil(p) for p in pieces]
            return option_digest(
                [Part(text=p) if isinstance(p, str) else Part(image=p.digest) for p in images]
            )

        question, first, second = map(digest_of, (battle.question, battle.first, battle.second))
        key = (question, first, second)
        turned = key not in self.battles and key not in self.asked
        key = (question, second, first) if turned else key
        votes = self.battles.get(key)
        if votes is None and key in self.asked:
            return _unanswered(f"nobody has judged this battle in {self.name} yet")
        if votes is None:
            return _unanswered(f"{self.name} does not have this battle")
        winner = votes.verdict(self.rule)
        return mirrored(winner) if turned else winner


@dataclass(frozen=True)
class HumanDescriber:
    """Gives the description that a person wrote of the same image.

    texts: digest of an image -> its description. name: of the folder.
    """

    texts: Mapping[str, str]
    name: str

    def describe(
        self,
        images: Sequence[Image.Image],
        prompt: str,  # noqa: ARG002 - people read the one of the study
        seeds: Sequence[int],  # noqa: ARG002 - the Protocol's
    ) -> list[str | Reply]:
        """The description of each image; a failure for one that nobody described."""
        digests = [ImageArtifact.from_pil(image).digest for image in images]
        missing = _unanswered(
            f"{self.name} has no description of this image: people describe the images that chains "
            "start with, each of the study"
        )
        return [self.texts.get(digest, missing) for digest in digests]


def _unanswered(detail: str) -> Reply:
    """A failure that is counted and not stored: the next run may find an answer."""
    return Reply(Failure("unanswered", detail), passing=True)


def _read(spec: ModelSpec) -> Ratings:
    """The study. Raises SpecError where the spec names none, CheckpointError as `read_ratings`."""
    if not spec.target:
        raise spec.error("name a ratings folder, as in human:ratings/NAME")
    try:
        return read_ratings(Path(spec.target))
    except DatasetError as error:
        raise CheckpointError(f"{spec.text}: {error}") from error


def detect(spec: ModelSpec) -> DetectedModel:
    """What the answers of a ratings folder can play; raises as `_read`."""
    kind = _read(spec).study.kind
    roles = (_ROLES[kind],) if kind in _ROLES else ()
    because = f"holds ratings of the kind {kind!r}"
    return DetectedModel("people's answers", roles, because)


def bind(spec: ModelSpec, role: RoleName, _: BindContext) -> BoundRole:
    """People in one role; the votes are read here, so that one run has one state of them.

    Raises RoleError for ratings of another kind, SpecError for wrong parameters, CheckpointError
    for a folder that cannot be used.
    """
    params = parse_params(spec, PeopleParams, "people's answers")
    ratings = _read(spec)
    if _ROLES.get(ratings.study.kind) != role:
        raise RoleError(
            f"{spec.text!r} cannot play {role}: it holds ratings of the kind "
            f"{ratings.study.kind!r}, and {role}s are of the kind "
            f"{next((kind for kind, played in _ROLES.items() if played == role), 'none')!r}"
        )
    annotators = [] if params.annotator is None else [params.annotator]
    chosen = {"annotator": params.annotator} if params.annotator else {}
    try:
        votes = read_votes(ratings)
        if role == "judge":
            rule: Rule = "shares" if params.votes == "shares" else "majority"
            judged = battle_votes(ratings, votes, annotators)

            def key_of(digest: str) -> tuple[str, str, str]:
                item = ratings.items[digest]
                first, second = item.options
                return option_digest(item.question), first.option, second.option

            battles = {key_of(digest): own for digest, own in judged.items()}
            asked = frozenset(map(key_of, ratings.asked))
            model: Model = HumanJudge(battles, asked, rule, spec.target)
            counted: Mapping[str, object] = {
                "votes": {digest: dict(own.winners) for digest, own in judged.items()}
            }
            people = len({name for own in judged.values() for name in own.winners})
            remarks = [f"{len(judged)} battles judged by {people} people"]
            remarks += (
                f"{name} counts, and {why}: annotator=NAME takes one person's verdicts alone"
                for name, why in doubtful_annotators(ratings, votes).items()
                if not annotators or name in annotators
            )
            chosen = {"votes": rule, **chosen}
        else:
            check_annotators(ratings, annotators)
            by_image: dict[str, dict[str, str]] = {}
            for vote in votes.answers():
                item = ratings.items[vote.item]
                images = [part.image for part in item.question if part.image is not None]
                counts = not annotators or vote.annotator in annotators
                if item.kind == "item" and len(images) == 1 and counts:
                    by_image.setdefault(images[0], {})[vote.annotator] = vote.text or ""
            # Of several people who described an image one by digest, so that the images are spread
            # over the people.
            texts = {
                image: min(own.items(), key=lambda pair: digest_text(f"{image} {pair[0]}"))[1]
                for image, own in by_image.items()
            }
            model = HumanDescriber(texts, spec.target)
            counted = {"texts": texts}
            remarks = [f"{len(texts)} images described by people"]
    except DatasetError as error:
        raise CheckpointError(f"{spec.text}: {error}") from error
    return BoundRole(
        role=role,
        spec=spec.text,
        what="people's votes" if role == "judge" else "people's descriptions",
        fingerprint=digest_json(counted),  # of the answers that count
        adapter=ADAPTER,
        load=lambda: model,
        params=chosen,
        resources=Resources(64, lasting=True),
        remarks=(*remarks, *votes.remarks),
        # Accepted answers score one half against themselves whoever votes, and every candidate has
        # battles of its own, so that a baseline outlives the votes of one study.
        named_in_baselines="people" if role == "judge" else "",
    )
