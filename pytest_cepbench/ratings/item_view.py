"""What a page shows of an item: texts, opaque names of images, and nothing of where it comes from.

All texts are escaped by the templates and `visible`; markup of models stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import Any

import jinja2
from markupsafe import Markup

from pytest_cepbench.artifacts.answer import cut_into_steps
from pytest_cepbench.escapes import visible
from pytest_cepbench.ratings.answer_form import MOST_WORDS
from pytest_cepbench.ratings.live_study import Shown
from pytest_cepbench.ratings.records import Part, Study, Task, option_name

_PACKAGE = "pytest_cepbench.ratings"

VERDICTS: dict[Task, tuple[tuple[str, str], ...]] = {
    "pair": (
        ("A", "A is better"),
        ("Tie(A)", "Tie, A slightly"),
        ("Tie(B)", "Tie, B slightly"),
        ("B", "B is better"),
    ),
    "caption": (
        ("C1", "Caption 1 is better"),
        ("B", "Comparable"),
        ("C2", "Caption 2 is better"),
    ),
}
"""Task -> verdicts and what their buttons say, in the order of their keys 1, 2, ..."""


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE, "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_displayed,
    )
    environment.globals["most_words"] = MOST_WORDS
    return environment


def render(template: str, **values: Any) -> str:
    """A page or a part of one, from a template of `ratings/pages`."""
    return _environment().get_template(template).render(**values)


def page_file(name: str) -> str:
    """A style or a script of the pages."""
    return resources.files(_PACKAGE).joinpath(f"pages/{name}").read_text(encoding="utf-8")


def render_item(shown: Shown, study: Study, image_name: Callable[[str], str]) -> str:
    """What is shown of an item, with the controls of its task.

    image_name: the opaque name of an image.
    """

    def pieces(parts: Sequence[Part]) -> list[dict[str, str]]:
        """Texts and images in reading order."""
        return [
            {"text": part.text} if part.text is not None else {"image": image_name(str(part.image))}
            for part in parts
        ]

    def steps(parts: Sequence[Part]) -> list[dict[str, str]]:
        """Steps of a text and its image; a sequence of both is cut after each image."""
        texts_and_parts = [part.text if part.text is not None else part for part in parts]
        return [
            {"text": text, "image": "" if part is None else image_name(str(part.image))}
            for text, part in cut_into_steps(texts_and_parts)
        ]

    item = shown.item
    options = [item.options[place] for place in _places(shown)]
    offered = [option_name(option) for option in item.options]
    return render(
        "item.html.jinja",
        task=study.kind,
        question=pieces(item.question),
        options=[steps(option.parts) for option in options],
        rows=list(zip_longest(*(steps(option.parts) for option in options))),
        verdicts=VERDICTS.get(study.kind, ()),
        names=offered,
        # Items whose answer is known may be of another world than the closed list.
        others=[] if item.known else [name for name in study.names if name not in offered],
        practice=shown.kind == "practice",
    )


def _places(shown: Shown) -> Sequence[int]:
    """Numbers of the options, in the order of the page."""
    if not shown.order:
        return range(len(shown.item.options))
    sides = {"first": 0, "second": 1}
    return [sides[side] if isinstance(side, str) else side for side in shown.order]


def image_names(html: str) -> list[str]:
    """Opaque names of the images of a part of a page."""
    return re.findall(r'src="image/([0-9a-f]{32})"', html)


def _displayed(value: object) -> object:
    """Any text of the page with nothing hidden in it."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value.replace("\r\n", "\n"))
    return value
