"""The words of GenEval's prompts: 80 classes of objects, small numbers, articles and plurals."""

from __future__ import annotations

OBJECTS = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat",
    "traffic light", "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog",
    "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella",
    "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball", "kite",
    "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich",
    "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "computer mouse",
    "tv remote", "computer keyboard", "cell phone", "microwave", "oven", "toaster", "sink",
    "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
"""COCO's 80 classes in COCO's order; GenEval says computer mouse, tv remote, computer keyboard."""

COLORABLE = tuple(name for name in OBJECTS if name != "person")
"""The classes that prompts give a color to."""

NUMBERS = {2: "two", 3: "three", 4: "four"}
"""How many objects the counting task asks for."""


def with_article(words: str) -> str:
    """The words with "a" or "an" before them, by the first letter."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def plural(name: str) -> str:
    """GenEval's plural: "es" after an s, "s" otherwise, so "buses" but also "benchs", "knifes"."""
    return f"{name}es" if name.endswith("s") else f"{name}s"
