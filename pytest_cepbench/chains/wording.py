"""What is done to a description before it is drawn, where a suite asks for it."""

from __future__ import annotations

from dataclasses import dataclass

_END_TOKENS = ("</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<end_of_turn>", "<eos>")

_QUOTES = "\"'`\u201c\u201d\u2018\u2019"


@dataclass(frozen=True)
class Wording:
    """The caption rules of a suite.

    clean: take off surrounding white space and quotes, and tokens that end a chat model's turn.
    max_words: keep this many words, as separated by spaces; None keeps all.
    Source: MMGenBench's released code does both (70 words); its paper mentions neither.
    """

    clean: bool = False
    max_words: int | None = None

    def apply(self, text: str) -> str:
        """The text as the generator gets it; may be empty where nothing but quotes was said."""
        if self.clean:
            text = _clean(text)
        if self.max_words is not None:
            text = " ".join(text.split(" ")[: self.max_words])
        return text

    def __str__(self) -> str:
        parts = ["cleaned"] if self.clean else []
        if self.max_words is not None:
            parts.append(f"at most {self.max_words} words")
        return ", ".join(parts) or "as they are"


AS_THEY_ARE = Wording()


def _clean(text: str) -> str:
    while True:
        before, text = text, text.strip().strip(_QUOTES)
        for token in _END_TOKENS:
            text = text.removesuffix(token)
        if text == before:
            return text
