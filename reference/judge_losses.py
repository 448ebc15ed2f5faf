"""What the judge is taught by: the four losses of IntJudge in small, and those of helpers.

The paper (OpenING, 4.3 and B.2, Eq. 8 to 11) has four: the cross entropy of the verdict, a
contrastive loss between the images and texts of a step, a squared error between what the language
model makes of an image and what the tower made of it, and a ranking loss of the two answers. What
is embedded and scored, and the weights, are our own. Helpers are linear maps that must tell from
hidden states what is known of a scene, an object or a step; none of them is kept after training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from judge_rows import CELL_KINDS, IGNORED, STEP_FIGURES, Rows

_TEMPERATURE = 0.1  # of the contrastive loss
_TRUTHS = 8  # the total and the seven criteria
_SCALE = 10.0  # scores per unit of truth


@dataclass(frozen=True)
class LossWeights:
    """How much each loss counts.

    verdict: cross entropy of the verdict's token (CE).
    contrast: texts and images of one step against those of others (CT).
    features: squared error of the tower's features, told from the language model's (MSE).
    ranking: logistic loss of the difference of both answers' scores (PR).
    helpers: of cells, objects, steps and truths.
    order: squared sum of both orders' log odds, which a judge without a side has at zero.
    """

    verdict: float = 1.0
    contrast: float = 0.0
    features: float = 0.0
    ranking: float = 0.5
    helpers: float = 1.0
    order: float = 0.05


class Read(NamedTuple):
    """What the model made of rows.

    seen: (images, 9, width) of the tower.
    layers: hidden states (n, length, width) after each layer, the embeddings first.
    last: the same after the last layer's norm.
    """

    seen: torch.Tensor
    layers: tuple[torch.Tensor, ...]
    last: torch.Tensor


class JudgeHeads(torch.nn.Module):
    """The linear maps that losses need, left behind after training.

    width: of the model. layers: of its language model.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        # What is needed to tell whether an object is right has to be known a layer before.
        self._early, self._due = max(1, layers // 4), max(1, layers - 3)
        self._middle = max(1, layers - 2)
        self.look = torch.nn.Linear(width, sum(CELL_KINDS[:3]))
        self.cell = torch.nn.Linear(width, sum(CELL_KINDS))
        self.due = torch.nn.Linear(width, sum(CELL_KINDS[:3]))
        self.right = torch.nn.Linear(width, 1)
        self.step = torch.nn.Linear(width, STEP_FIGURES)
        self.score = torch.nn.Linear(width, 1)
        self.truth = torch.nn.Linear(width, _TRUTHS)
        self.text_side = torch.nn.Linear(width, width)
        self.image_side = torch.nn.Linear(width, width)
        self.features = torch.nn.Linear(width, width)

    def look_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """Shape, color and size of each cell, off the tower; where it is, the tower cannot tell."""
        return _kinds_loss(self.look(read.seen), rows.looks[..., :3], CELL_KINDS[:3])

    def cell_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """The same and the cell's own place, off an early layer of the language model."""
        taken = rows.slots >= 0
        labels = rows.looks.flatten(0, 1)[rows.slots[taken]]
        return _kinds_loss(self.cell(_even(read.layers[self._early][taken])), labels, CELL_KINDS)

    def due_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """What should be in each cell that an answer tells of or shows, whatever it has there."""
        known = rows.due[..., 0] != IGNORED
        told = self.due(_even(read.layers[self._due][known]))
        return _kinds_loss(told, rows.due[known], CELL_KINDS[:3])

    def right_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """Whether each object that is told or shown is right, off a later layer."""
        known = rows.right != IGNORED
        told = self.right(_even(read.layers[self._middle][known])).squeeze(-1).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(told, rows.right[known].float())

    def step_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """How far each step's text and image are right, and belong together."""
        told = self.step(_even(read.layers[-2][rows.steps[:, 0], rows.steps[:, 1]])).float()
        return torch.nn.functional.mse_loss(told, rows.figures)

    def truth_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """The truth of each answer and of its criteria, at its last token."""
        told = self.truth(_at_ends(read, rows)).float()
        known = ~rows.truths.isnan()
        if not known.any():
            return told.sum() * 0.0
        return torch.nn.functional.mse_loss(told[known], rows.truths[known])

    def scores(self, read: Read, rows: Rows) -> torch.Tensor:
        """(n, 2) scores of both answers, in no unit."""
        scores: torch.Tensor = self.score(_at_ends(read, rows)).squeeze(-1).float() * _SCALE
        return scores

    def contrast_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """Each step's text finds its own image among those of the batch, and the other way."""
        texts, images = _step_means(read.last, rows)
        if len(texts) < 2:
            return read.last.sum() * 0.0
        texts = torch.nn.functional.normalize(self.text_side(texts).float(), dim=-1)
        images = torch.nn.functional.normalize(self.image_side(images).float(), dim=-1)
        alike = texts @ images.T / _TEMPERATURE
        own = torch.arange(len(texts), device=alike.device)
        both = torch.nn.functional.cross_entropy(alike, own) + torch.nn.functional.cross_entropy(
            alike.T, own
        )
        return both / 2

    def features_loss(self, read: Read, rows: Rows) -> torch.Tensor:
        """What the tower saw, told from the language model's state at the image's tokens."""
        taken = rows.slots >= 0
        told = self.features(read.last[taken]).float()
        return torch.nn.functional.mse_loss(
            told, read.seen.flatten(0, 1)[rows.slots[taken]].detach().float()
        )


def ranking_loss(scores: torch.Tensor, lead: torch.Tensor) -> torch.Tensor:
    """Mean -log sigmoid(s+ - s-) over the pairs that have a winner.

    scores: (n, 2). lead: (n,) positive where the first answer is the better one, 0 for neither.
    """
    decided = lead != 0
    apart = (scores[:, 0] - scores[:, 1]) * lead.sign()
    return (
        torch.nn.functional.softplus(-apart[decided]).mean()
        if decided.any()
        else scores.sum() * 0.0
    )


def order_loss(log_odds: torch.Tensor) -> torch.Tensor:
    """Mean squared sum of the log odds of the first answer shown, of both orders of each pair.

    log_odds: (2 m,), both orders of a pair one after the other.
    """
    return (log_odds[0::2] + log_odds[1::2]).square().mean()


def _even(hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states of one size: it grows from layer to layer, and heads would feel that."""
    return torch.nn.functional.layer_norm(hidden, hidden.shape[-1:])


def _at_ends(read: Read, rows: Rows) -> torch.Tensor:
    """(n, 2, width) hidden states at the last token of either answer."""
    width = read.last.shape[-1]
    return read.last.gather(1, rows.ends[..., None].expand(-1, -1, width))


def _kinds_loss(told: torch.Tensor, labels: torch.Tensor, kinds: tuple[int, ...]) -> torch.Tensor:
    parts = told.float().split(kinds, dim=-1)
    losses = [
        torch.nn.functional.cross_entropy(part.flatten(0, -2), labels[..., column].flatten())
        for column, part in enumerate(parts)
    ]
    return torch.stack(losses).sum()


def _step_means(hidden: torch.Tensor, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """(m, width) means over the text and over the image of each step that has both.

    Of the rows of one order only: the other shows the same steps.
    """
    texts, images = [], []
    for row in range(0, len(hidden), 2):
        numbers, boundary = rows.parts[row], rows.ends[row, 0]
        later = torch.arange(len(numbers), device=numbers.device) > boundary
        for side in (~later, later):
            for number in range(1, 1 + int(numbers[side].max())):
                own = (numbers == number) & side
                image = own & (rows.slots[row] >= 0)
                text = own & (rows.slots[row] < 0)
                if image.any() and text.sum() > 2:
                    texts.append(hidden[row][text].mean(0))
                    images.append(hidden[row][image].mean(0))
    empty = hidden.new_zeros((0, hidden.shape[-1]))
    return (torch.stack(texts), torch.stack(images)) if texts else (empty, empty)
