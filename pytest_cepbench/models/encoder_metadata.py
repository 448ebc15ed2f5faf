"""What is known of an encoder from its spec alone, before anything is bound."""

from __future__ import annotations

from pytest_cepbench.models.spec import parse_spec


def features_name(text: str) -> str:
    """A short name of an encoder's features, for labels: "Inception", "clip-vit-base-patch32".

    Raises SpecError for a malformed spec.
    """
    spec = parse_spec(text)
    if spec.scheme == "cleanfid":
        return "Inception"
    last = spec.target.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    if spec.scheme == "unicom":  # a file, where others are folders and ids
        last = last.removesuffix(".pt").removesuffix(".safetensors")
    return last or spec.scheme


def weights_are_here(text: str) -> bool:
    """Whether an encoder can be used without its user doing something first.

    False only for clean-fid's Inception without its weights, which are given out by a site of their
    own; what libraries fetch or a folder lacks shows at binding. Raises SpecError.
    """
    spec = parse_spec(text)
    if spec.scheme != "cleanfid":
        return True
    from pytest_cepbench.models.encoders.inception_encoder import inception_weights

    return inception_weights(spec) is not None
