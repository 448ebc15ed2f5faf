"""The texts that people read before they begin, and who agreed to them.

`consent.md` and `instructions.md` of a ratings folder are the organizer's to edit, in Markdown.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.files import digest_text, read_text, write_small
from pytest_cepbench.ratings.folder import LineFile
from pytest_cepbench.ratings.records import Task

CONSENT, INSTRUCTIONS = "consent.md", "instructions.md"

CONSENTS = "consents.jsonl"

_DEFAULT_CONSENT = """\
# Before you begin

You compare and describe what computer models have made. Your answers are used to measure these
models, and to check automatic judges of them.

- What is kept: your answers, those that you take back among them; when you gave each one and how
  long it took; your notes, and your reasons for skipping; whether you pasted a description; the
  size of your browser window; the name under which you were invited; and when you agreed to this
  text. Nothing else about you is kept.
- Who sees it: everybody who can read the files of this project. Your name stands in them, and it
  need not be your own: you can ask for an address under another one.
- Some items have a known answer, and some come twice. They look like all others, and show how
  careful and how steady answers are.
- Taking part is voluntary. You can stop at any time without a reason, and you can ask for your
  answers to be deleted. Copies that others have made of the files by then may remain.
- Some items may be broken or unpleasant. You can skip any of them.
"""

_KEYS = """
Keys: see the buttons, or press **?** at any time. **u** takes your last answer back, **s** skips
an item, and the **space bar** enlarges the images. You can close the page whenever you like: it
goes on where you stopped.
"""

_INSTRUCTIONS: dict[Task, str] = {
    "pair": """\
# Which answer is better?

You see a question and two answers of texts and images. Decide which one is better as a whole. Look
at these, the first being the most important:

1. Is the answer correct, and are its steps complete?
2. Do the images fit the texts beside them?
3. Do the images fit each other, as one style and one story?
4. Are the images good: no blur, no broken parts?
5. Are the texts clear?
6. Is nothing in them harmful?
7. Is it long enough, and no longer than it has to be?

If one is clearly better, say so. If they are about equal, choose the tie that leans to the one you
would rather have.
""",
    "caption": """\
# Which caption fits the image better?

You see an image and two captions. Choose the caption that says more of what can be seen, and less
that cannot. A wrong object, color, number or place weighs more than a detail that is left out. If
neither is better, choose **comparable**.
""",
    "grades": """\
# How good is each of these?

You see a question and several outputs. Give each one a grade:

- **Good**: it fits the question, with at most small faults.
- **Medium**: the main thing is right, and something is wrong or missing.
- **Poor**: the main thing is wrong, or it cannot be used.

Then rank all of them, 1 being the best. Equal ranks are allowed.
""",
    "describe": """\
# Describe the image

Write in your own words what the image shows, so that somebody could draw it again without having
seen it: things, their number, colors, places, and the style. Write less than 500 words. Do not
copy a text from elsewhere, and do not ask a model.
""",
    "verify": """\
# Which of these fit the image?

You see an image and names. Tick each name that fits what the image shows. If a name that would fit
is among the other names, tick it there.
""",
}


class Consent(msgspec.Struct, frozen=True):
    """One person's consent. text: digest of the text that was agreed to. at: time in ISO 8601."""

    v: int
    annotator: str
    text: str
    at: str


def write_texts(folder: Path, task: Task) -> None:
    """Write the texts of a task into a ratings folder, where there are none. Raises WriteError."""
    instructions = _INSTRUCTIONS[task] + _KEYS
    for name, text in ((CONSENT, _DEFAULT_CONSENT), (INSTRUCTIONS, instructions)):
        try:
            if not (folder / name).exists():
                write_small(folder / name, text)
        except OSError as error:
            raise WriteError(
                f"{folder / name} could not be written: {error.strerror or error}"
            ) from error


@dataclass
class Consents:
    """Who agreed to the texts of a study, in the file `consents.jsonl`; lines are only added.

    Raises DatasetError for a text or a file that cannot be read.
    """

    folder: Path

    def __post_init__(self) -> None:
        self.consent = _text(self.folder / CONSENT)
        self.instructions = _text(self.folder / INSTRUCTIONS)
        self._digest = digest_text(self.consent)
        path = self.folder / CONSENTS
        self._agreed: set[str] = set()
        for line in _text(path).splitlines():
            try:
                record = msgspec.json.decode(line, type=Consent)
            except (msgspec.MsgspecError, RecursionError):
                continue  # cut off in a crash: the person is asked again
            if record.text == self._digest:
                self._agreed.add(record.annotator)

    def __contains__(self, annotator: str) -> bool:
        return annotator in self._agreed

    def agree(self, annotator: str) -> None:
        """Keep that a person agrees to the text as it is now. Raises WriteError."""
        if annotator in self._agreed:
            return
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with closing(LineFile(self.folder / CONSENTS)) as file:
            file.append(msgspec.json.encode(Consent(1, annotator, self._digest, at)) + b"\n")
        self._agreed.add(annotator)


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
