"""Inspecting a spec's folder or hub id: a whole model, an adapter of one, or weights alone.

Puts together what the modules beside it find: where the parts of the checkpoint lie, and what is to
be said of it. Only configurations are read. A hub id's files are fetched into huggingface_hub's
cache; with HF_HUB_OFFLINE=1, or without a network, what the cache holds is used.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import CheckpointError, did_you_mean, error_line
from pytest_cepbench.files import expand_user, names_beside, read_text
from pytest_cepbench.models.checkpoints.checkpoint import (
    PROCESSOR_FILES,
    TOKENIZER_FILES,
    Checkpoint,
    CheckpointPart,
    has_processor,
    has_tokenizer,
    preparation_part,
)
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    ADAPTER_CONFIG,
    check_links,
    check_weights,
    component_names,
    holds_adapter,
    is_weights,
    list_files,
)
from pytest_cepbench.models.checkpoints.format_detection import (
    INDEXES,
    detect_model,
    holds_model,
    identify,
)
from pytest_cepbench.models.checkpoints.parameters import SourceOptions, source_options
from pytest_cepbench.models.checkpoints.peft_adapters import (
    ADAPTER_FILES,
    adapter_files,
    check_adapter,
    read_adapter,
)
from pytest_cepbench.models.checkpoints.pipeline_parts import (
    check_parts,
    pipeline_parts,
    pipeline_source,
)
from pytest_cepbench.models.checkpoints.saved_states import check_loose_weights, find_loose_weights
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.torch_runtime import require

_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


def locate(
    spec: ModelSpec, target: str, revision: str | None, patterns: Sequence[str]
) -> tuple[Path, str | None]:
    """The folder of a path or hub id (its snapshot in the cache), and the commit on the hub.

    spec: that names it. revision: commit, tag or branch of a hub id. patterns: of the files that
    are fetched of one. Raises CheckpointError where there is no such folder or
    repository, SpecError for the revision of a folder.
    """
    folder = expand_user(target)
    if folder.is_dir():
        if revision is not None:
            raise spec.error(f"revision is for hub ids, and {folder} is a folder")
        return folder.resolve(), None
    if folder.exists():
        raise CheckpointError(
            f"{folder} is a file: give the folder that save_pretrained wrote, or unicom:PATH for "
            "Unicom's weights"
        )
    if _HUB_ID.fullmatch(target) is None:
        hint = did_you_mean(folder.name, names_beside(folder, folders=True))
        raise CheckpointError(
            f"{folder}: no such folder (and not of the form of a hub id, org/name).{hint}"
        )
    cached = snapshot(target, revision, patterns)
    return cached, cached.name


def snapshot(repository: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """The cache folder of a repository's snapshot with the files that fit the patterns.

    Raises CheckpointError where it is neither cached nor can be fetched.
    """
    require("huggingface_hub")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))
    # The hub's errors are OSErrors, those of the network are its HTTP client's, a bad id a
    # ValueError.
    except (OSError, HFValidationError) as error:
        at = f" at revision {revision!r}" if revision else ""
        offline = (
            " HF_HUB_OFFLINE is set, so the hub was not asked." if constants.HF_HUB_OFFLINE else ""
        )
        raise CheckpointError(
            f"{repository!r}{at}: there is no folder of this name under {Path.cwd()}, and as a hub "
            f"id it is neither cached in {constants.HF_HUB_CACHE} nor could be fetched "
            f"({error_line(error)}).{offline} Check the spelling, or give the path of a folder."
            f"{did_you_mean(Path(repository).name, names_beside(Path(repository), folders=True))}"
        ) from error


_STEP = re.compile(r"checkpoint-(\d+)")
"""The folders of transformers' Trainer and of the scripts that follow it."""


def find_checkpoint(folder: Path, is_checkpoint: Callable[[Path], bool]) -> Path:
    """The folder of the checkpoint that a run's folder holds.

    Trainers leave `checkpoint-500/`, a link or a file `latest`, or the model in `model/`. Taken in
    this order: what `latest` links to or names, `model/`, the only `checkpoint-N/`. A folder that
    is a checkpoint, and one that shows none of these, is returned as it is.

    is_checkpoint: whether a folder is to be read as it is. Raises CheckpointError where several
    `checkpoint-N/` are there, with the newest.
    """
    for _ in range(4):  # latest -> checkpoint-500 -> model, and one to spare
        if is_checkpoint(folder):
            break
        latest = folder / "latest"
        own = any((folder / name).is_file() for name in ("config.json", "model_index.json"))
        if latest.is_dir():
            folder = latest.resolve()
        elif latest.is_file():  # with the name of a folder beside it, as DeepSpeed writes it
            try:
                name = read_text(latest, 255).strip()
            except (OSError, ValueError):
                name = ""
            if name in ("", ".", "..") or {"/", "\0"} & set(name) or not (folder / name).is_dir():
                raise CheckpointError(
                    f"{latest}: expected the name of a folder beside it, found {name!r}. Give the "
                    "checkpoint"
                )
            folder = folder / name
        elif (folder / "model").is_dir() and not own:
            folder = folder / "model"
        else:
            found = ((_STEP.fullmatch(path.name), path) for path in folder.iterdir())
            steps = {int(match[1]): path for match, path in found if match and path.is_dir()}
            if len(steps) > 1:
                listed = ", ".join(steps[number].name for number in sorted(steps)[-8:])
                raise CheckpointError(
                    f"{folder} holds {len(steps)} checkpoints ({listed}): give one of them. The "
                    f"newest is {steps[max(steps)]}"
                )
            if not steps:
                break
            (folder,) = steps.values()
    return folder


_CONFIGURATIONS = (*INDEXES, ADAPTER_CONFIG)
"""The files that are fetched of a hub id, to see what it is."""


def inspect_checkpoint(spec: ModelSpec) -> Checkpoint:
    """Say what a spec's folder or hub id holds, from its configuration alone.

    Of a hub id only the configuration is fetched: a model that cannot play the role asked for costs
    no download of weights; `complete_checkpoint` brings those. Raises CheckpointError when there is
    no such folder or repository, or it holds no checkpoint, SpecError for parameters that it has no
    use for.
    """
    options = source_options(spec)
    target, places, taken = pipeline_source(spec, options)
    found, commit = locate(spec, target, options.revision, _CONFIGURATIONS)
    folder = find_checkpoint(found, _is_readable)
    remarks = [] if folder == found else [f"checkpoint read from {folder}"]
    adapters: list[tuple[str, Path, str | None, float]] = []
    weights: CheckpointPart | None = None
    if target == spec.target and holds_adapter(folder):
        adapters.append((target, folder, commit, 1.0))
        target, folder, commit, other = _base_of(spec, folder, options)
        remarks += other
    elif target == spec.target and not holds_model(folder):
        weights = find_loose_weights(folder)
    if weights is not None:
        remarks.append(f"weights read from {weights.path}")
        whole = folder
        target, folder, commit = _configuration_of(spec, weights, folder, options.base)
        if folder != whole:
            remarks[-1] += f", configuration from {folder}"
    kind, config = identify(folder)
    detected = detect_model(kind, config)
    checkpoint = Checkpoint(
        **vars(detected),
        path=folder,
        kind=kind,
        config=config,
        revision=commit,
        options=options,
        repository="" if commit is None else target,
    )
    parts: list[CheckpointPart] = []
    if weights is not None:
        if kind != "transformers":
            raise CheckpointError(
                f"{weights.path}: weights without a configuration are read for models of "
                f"transformers, and {folder} is a {detected.what} ({kind})"
            )
        parts.append(weights)
    elif not adapters and kind == "diffusers":
        parts += pipeline_parts(spec, checkpoint, target, places, snapshot)
        remarks += taken
    elif not adapters and target != spec.target:
        raise CheckpointError(
            f"{spec.target}: belongs to a pipeline of diffusers, and {folder} is a "
            f"{detected.what}: give a folder with model_index.json"
        )
    elif not adapters and options.base is not None:
        raise spec.error(
            "base is for adapters and for weights without a configuration, and "
            f"{folder} is a whole model ({detected.what})"
        )
    for name, factor in options.weighted:
        place, commit = locate(spec, name, None, (ADAPTER_CONFIG,))
        adapters.append((name, find_checkpoint(place, holds_adapter), commit, factor))
    _add_adapters(spec, checkpoint, adapters, parts, remarks)
    parts += _text_tower(spec, checkpoint)
    checkpoint = replace(checkpoint, parts=tuple(parts))
    named = _named_preparation(spec, checkpoint)
    beside = None if options.processor else _preparation_beside(checkpoint)
    if beside is not None:
        remarks.append(f"{beside.name} read from {beside.path}")
        named.append(beside)
    return replace(checkpoint, parts=(*parts, *named), remarks=tuple(remarks))


def _text_tower(spec: ModelSpec, checkpoint: Checkpoint) -> list[CheckpointPart]:
    """The configuration by which open_clip builds a text tower of transformers.

    The weights are the checkpoint's, but activations and epsilons are said elsewhere: in a folder,
    or on the hub. No fingerprint would cover a change there.
    """
    towers = checkpoint.config.get("model_cfg") if checkpoint.kind == "open_clip" else None
    if not (name := ((towers or {}).get("text_cfg") or {}).get("hf_model_name")):
        return []
    folder, commit = locate(spec, str(name), None, ("config.json",))
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{checkpoint.path}: open_clip builds its text tower by {name!r} (hf_model_name in "
            f"open_clip_config.json), and there is no {folder / 'config.json'}"
        )
    return [CheckpointPart("hf_model_name", folder, lambda _: ["config.json"], revision=commit)]


def _is_readable(folder: Path) -> bool:
    """Whether a folder is to be read as it is: a checkpoint, an adapter or a state of weights."""
    if holds_adapter(folder) or holds_model(folder) or find_loose_weights(folder) is not None:
        return True
    # A run's root often has the configuration that all of its checkpoints share.
    return (folder / "config.json").is_file() and not any(folder.glob("checkpoint-*"))


def _base_of(
    spec: ModelSpec, folder: Path, options: SourceOptions
) -> tuple[str, Path, str | None, list[str]]:
    """The base of an adapter, which its folder or the spec names: name, folder, commit, remarks."""
    if options.adapters is not None:
        raise spec.error(
            f"{folder} is an adapter itself. Give the base model, and all of its adapters in "
            "adapters="
        )
    if any(path.name.startswith("model") and is_weights(path.name) for path in folder.iterdir()):
        raise CheckpointError(
            f"{folder} holds the weights of a whole model and a PEFT adapter ({ADAPTER_CONFIG}), "
            "and nothing says which is meant: give each a folder of its own"
        )
    config = read_adapter(folder)
    revision = str(config["revision"]) if config.get("revision") else None
    trained_on = str(config.get("base_model_name_or_path") or "")
    name, remarks = options.base or trained_on, []
    if not name or "\0" in name:
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG} names no base model (base_model_name_or_path): add "
            "base=FOLDER to the model's spec"
        )
    near = [expand_user(name)]
    if options.base is None:
        # A relative path counts from the working folder, as PEFT takes it, else from the adapter's.
        near.append(folder / name)
    here = next(filter(Path.is_dir, near), None)
    if options.base is not None:
        revision = revision if name == trained_on else None
        if trained_on and Path(trained_on).name != Path(name).name:
            remarks = [f"the adapter was trained on {trained_on!r}, and is applied to {name}"]
    try:
        base, commit = (
            locate(spec, name, revision, _CONFIGURATIONS)
            if here is None
            else (here.resolve(), None)
        )
    except CheckpointError as error:
        if options.base is not None:
            raise
        at = f" at revision {revision!r}" if revision else ""
        raise CheckpointError(
            f"{folder}: a PEFT adapter whose base model {name!r}{at} is neither a folder on this "
            "machine nor in the hub's cache. Say where it is: base=FOLDER in the model's spec"
        ) from error
    if holds_adapter(base):
        raise CheckpointError(
            f"{folder}: its base {base} is an adapter too. Merge that one into its own base and "
            f"give the result as base=FOLDER (model spec {spec.text!r})"
        )
    return name, base, commit, remarks


def _configuration_of(
    spec: ModelSpec, weights: CheckpointPart, folder: Path, base: str | None
) -> tuple[str, Path, str | None]:
    """Where the configuration of weights without a model lies: name, folder, commit."""
    # The likeliest first: with the weights, or above.
    places = [weights.path, folder, folder.parent, folder.parent.parent]
    places = [place for place in places if (place / "config.json").is_file()]
    if base is not None and folder not in places:
        return base, *locate(spec, base, None, _CONFIGURATIONS)
    if not places:
        raise CheckpointError(
            f"{weights.path}: weights without a configuration, which is neither there nor in the "
            "folders above. Name the model that was trained: base=FOLDER in the model's spec"
        )
    return "", places[0], None


def _add_adapters(
    spec: ModelSpec,
    base: Checkpoint,
    adapters: Sequence[tuple[str, Path, str | None, float]],
    parts: list[CheckpointPart],
    remarks: list[str],
) -> None:
    """Add adapters to a base's parts and remarks. adapters: name, folder, commit and factor."""
    asked, quantized = base.options.merge, bool(base.quantization)
    if adapters and base.kind != "transformers":
        raise CheckpointError(
            f"model spec {spec.text!r}: a PEFT adapter is applied to a model of transformers, and "
            f"{base.path} is a {base.what} ({base.kind})"
        )
    if asked is not None and not adapters:
        raise spec.error(f"merge is for adapters, and {base.path} has none")
    if asked and quantized:
        raise spec.error(
            f"merge=true, and {base.path} is quantized: what is merged "
            "would be rounded to its few bits. Leave it out, and the adapter works beside it"
        )
    merge = not quantized if asked is None else asked
    for name, folder, commit, factor in adapters:
        if commit is not None:  # of a hub id all files are fetched: they are small
            snapshot(name, commit, (*ADAPTER_FILES, *PROCESSOR_FILES, *TOKENIZER_FILES))
        settings: dict[str, Any] = {} if factor == 1 else {"factor": factor}
        settings |= {} if merge else {"merge": False}
        parts.append(
            CheckpointPart("adapter", folder, adapter_files, revision=commit, settings=settings)
        )
        method = read_adapter(folder)["peft_type"]
        times = "" if factor == 1 else f" times {factor:g}"
        how = "merged into" if merge else "applied beside"
        because = ", which is quantized" if quantized else ""
        remarks.append(f"adapter {folder.name} ({method}){times} {how} {base.path}{because}")


def _named_preparation(spec: ModelSpec, checkpoint: Checkpoint) -> list[CheckpointPart]:
    """The processor and the tokenizer that the spec names."""
    parts = []
    for name in ("processor", "tokenizer"):
        if (target := getattr(checkpoint.options, name)) is None:
            continue
        if checkpoint.kind != "transformers":
            raise spec.error(
                f"{name} is for models of transformers, and "
                f"{checkpoint.path} is a {checkpoint.what} ({checkpoint.kind})"
            )
        images = name == "processor"
        patterns = (*(PROCESSOR_FILES if images else ()), *TOKENIZER_FILES)
        folder, revision = locate(spec, target, None, patterns)
        if not (has_processor(folder) if images else has_tokenizer(folder)):
            raise CheckpointError(
                f"model spec {spec.text!r}: {name}={target}: {folder} holds no {name}"
            )
        parts.append(preparation_part(folder, images=images, texts=True, revision=revision))
    return parts


def _preparation_beside(checkpoint: Checkpoint) -> CheckpointPart | None:
    """The processor or tokenizer beside an adapter or weights, or in the folder above.

    Only what loading could not do without is looked for above: a model is never given another
    processor than before.
    """
    if checkpoint.kind != "transformers":
        return None
    path, weights = checkpoint.path, checkpoint.weights_part
    left_open = checkpoint.options.tokenizer is None
    beside = [part.path for part in checkpoint.adapters]
    beside += [] if weights is None else [weights.path, weights.path.parent]
    for folder in beside:
        images, texts = has_processor(folder), left_open and has_tokenizer(folder)
        # A chat template alone goes before the base's too.
        texts |= left_open and (folder / "chat_template.jinja").is_file()
        if folder != path and (images or texts):
            return preparation_part(folder, images=images, texts=texts)
    if checkpoint.revision is not None:  # not all of its files may be here yet
        return None
    speaks = checkpoint.makes == "sound"  # of a text, by its tokenizer alone
    images = not has_processor(path) and not speaks
    reads = images or speaks or "describer" in checkpoint.roles
    texts = left_open and not has_tokenizer(path) and reads
    # Where nothing lies above either, loading says what is missing.
    if has_processor(path.parent) if images else (texts and has_tokenizer(path.parent)):
        return preparation_part(path.parent, images=images, texts=texts)
    return None


def complete_checkpoint(checkpoint: Checkpoint) -> None:
    """Fetch a hub checkpoint's files and check the weights of any, those of its parts too.

    Raises CheckpointError for weights that are missing, pickled only (unless the spec says
    allow_pickle=true), cut off or incomplete, and for an adapter inside the folder.
    """
    if checkpoint.revision is not None:
        from huggingface_hub import HfApi

        # Without a network nothing is fetched: what is missing shows when the files are checked.
        # The hub's own errors are OSErrors too.
        with suppress(OSError):
            names = HfApi().list_repo_files(checkpoint.repository, revision=checkpoint.revision)
            patterns = [glob.escape(name) for name in checkpoint.readable(names)]
            snapshot(checkpoint.repository, checkpoint.revision, patterns)
    inner = [module["path"] for module in checkpoint.config.get("modules", ())]
    inner = component_names(checkpoint.config) if checkpoint.kind == "diffusers" else inner
    replacing = [part.path for part in checkpoint.parts if part.component]
    for folder in (checkpoint.path, *(checkpoint.path / name for name in inner), *replacing):
        if holds_adapter(folder):
            raise CheckpointError(
                f"{folder}: a PEFT adapter inside of a checkpoint, which its library would apply "
                "by itself to weights that no fingerprint covers. Merge it (merge_and_unload) and "
                "save the whole model"
            )
    for part in checkpoint.adapters:
        check_adapter(part.path, allow_pickle=checkpoint.options.allow_pickle)
    readable = checkpoint.readable(list_files(checkpoint.path))
    if checkpoint.weights_part is not None:
        check_links(checkpoint.path, readable)
        check_loose_weights(checkpoint.weights_part)
        return
    elsewhere = {part.component for part in checkpoint.parts if part.component}
    elsewhere |= {name for part in checkpoint.parts for name in part.supplies}
    own = {name: value for name, value in checkpoint.config.items() if name not in elsewhere}
    scaled = checkpoint.kind != "transformers" or checkpoint.quantization is not None
    check_weights(checkpoint.path, readable, own, checkpoint.kind, scaled=scaled)
    if checkpoint.kind == "diffusers":
        check_parts(checkpoint)
