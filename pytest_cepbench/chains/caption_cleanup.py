"""What is done to a description before it is drawn, where a suite asks for it."""

from __future__ import annotations

from dataclasses import dataclass

_CLEANED = "cleaned as by MMGenBench's code"
"""What baselines say of cleaned descriptions; another text makes them incomparable. It was "cleaned"
when curly and single quotes and other tokens were taken off as well."""


@dataclass(frozen=True)
class CaptionRules:
    """The caption rules of a suite.

    clean: take off what MMGenBench's released code takes off, in its order and each once: a final
    `</s>`; every `<|im_end|>` of a text that ends with one; straight double quotes at both ends; line
    ends at the end; spaces at both ends. Single and curly quotes stay, and tokens of other chat models,
    which their tokenizers leave out. A text that ends with a quotation (`a sign reading "STOP"`) loses
    its last quote there as well.
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
        parts = [_CLEANED] if self.clean else []
        if self.max_words is not None:
            parts.append(f"at most {self.max_words} words")
        return ", ".join(parts) or "as they are"


AS_THEY_ARE = CaptionRules()


def _clean(text: str) -> str:
    text = text.removesuffix("</s>")
    if text.endswith("<|im_end|>"):
        text = text.replace("<|im_end|>", "")
    return text.strip('"').rstrip("\n").strip(" ")
