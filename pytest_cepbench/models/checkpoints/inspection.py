"""Inspecting a spec's folder or hub id: a whole model, an adapter of one, or weights alone.

Puts together what the modules beside it find: where the parts of the checkpoint lie, and what is to
be said of it. Only configurations are read.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cepbench.errors import CheckpointError, SpecError, did_you_mean
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.files import names_beside, read_text
from pytest_cepbench.models.checkpoints.checkpoint import (
    INDEXES,
    Checkpoint,
    file_options,
    identify,
    is_sentence_model,
    readable_part,
    replaced_components,
    supplied_components_of,
)
from pytest_cepbench.models.checkpoints.checkpoint_files import (
    PROCESSOR_FILES,
    TOKENIZER_FILES,
    CheckpointPart,
    check_weights,
    has_processor,
    has_tokenizer,
    is_weights,
    list_files,
    preparation_part,
    read_json,
)
from pytest_cepbench.models.checkpoints.format_detection import detect_roles
from pytest_cepbench.models.checkpoints.pipeline_parts import (
    PipelineSource,
    check_parts,
    pipeline_parts,
    pipeline_source,
)
from pytest_cepbench.models.checkpoints.source_options import SourceOptions, source_options
from pytest_cepbench.models.checkpoints.transformers_parts import (
    ADAPTER_CONFIG,
    ADAPTER_FILES,
    adapter_part,
    base_candidates,
    check_adapter,
    check_loose_weights,
    configuration_folders,
    find_loose_weights,
    holds_adapter,
    holds_whole_model,
    read_adapter,
)
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.torch_runtime import require

_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


@dataclass(frozen=True)
class Location:
    """A folder on this machine, and where it came from.

    folder: the folder itself; for a hub id the snapshot's folder in the cache.
    repository: the hub id; empty for a folder.
    revision: the commit on the hub; None for a folder.
    """

    folder: Path
    repository: str = ""
    revision: str | None = None


def locate(target: str, revision: str | None, patterns: Sequence[str], text: str) -> Location:
    """The folder of a path or hub id.

    revision: commit, tag or branch of a hub id. patterns: of the files that are fetched of one.
    text: what the user typed, for people. Raises CheckpointError where there is no such folder or
    repository, SpecError for the revision of a folder.
    """
    folder = Path(target).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise SpecError(
                f"model spec {text!r}: revision is for hub ids, and {folder} is a folder"
            )
        return Location(folder.resolve())
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
    return Location(cached, target, cached.name)


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
        lines = [line.strip() for line in mask_secrets(str(error)).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise CheckpointError(
            f"{repository!r}{at}: there is no folder of this name under {Path.cwd()}, and as a hub "
            f"id it is neither cached in {constants.HF_HUB_CACHE} nor could be fetched "
            f"({reason}).{offline} Check the spelling, or give the path of a folder."
            f"{did_you_mean(Path(repository).name, names_beside(Path(repository), folders=True))}"
        ) from error


_STEP = re.compile(r"checkpoint-(\d+)")
"""The folders of transformers' Trainer and of the scripts that follow it."""

_MOST_NAME = 4096  # bytes of a file `latest`

_MOST_LEVELS = 4  # latest -> checkpoint-500 -> model, and one to spare


def find_checkpoint(
    folder: Path, is_checkpoint: Callable[[Path], bool]
) -> tuple[Path, tuple[str, ...]]:
    """The folder of the checkpoint that a run's folder holds, and what is to be said about it.

    Taken in this order: what `latest` links to or names, `model/`, the only `checkpoint-N/`. A
    folder that is a checkpoint, and one that shows none of these, is returned as it is.

    is_checkpoint: whether a folder is to be read as it is. Raises CheckpointError where several
    `checkpoint-N/` are there, with the newest.
    """
    place = folder
    for _ in range(_MOST_LEVELS):
        if is_checkpoint(place) or (below := _below(place)) is None:
            break
        place = below
    if place == folder:
        return folder, ()
    return place, (f"checkpoint read from {place}",)


def _below(folder: Path) -> Path | None:
    """The folder one level down, None where none is meant."""
    latest = folder / "latest"
    if latest.is_dir():
        return latest.resolve()
    if latest.is_file():
        return _named(latest)
    if (folder / "model").is_dir() and not _has_model_of_its_own(folder):
        return folder / "model"
    steps = {int(match[1]): path for path in folder.iterdir() if (match := _step(path))}
    if not steps:
        return None
    newest = steps[max(steps)]
    if len(steps) > 1:
        listed = ", ".join(steps[number].name for number in sorted(steps)[-8:])
        raise CheckpointError(
            f"{folder} holds {len(steps)} checkpoints ({listed}): give one of them. The newest is "
            f"{newest}{_best(newest)}"
        )
    return newest


def _has_model_of_its_own(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", "model_index.json"))


def _step(path: Path) -> re.Match[str] | None:
    return _STEP.fullmatch(path.name) if path.is_dir() else None


def _named(latest: Path) -> Path:
    """The folder beside a text file `latest` that it names, as DeepSpeed writes it."""
    try:
        name = read_text(latest, _MOST_NAME).strip()
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{latest}: not readable as the name of a folder ({error})"
        ) from error
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise CheckpointError(
            f"{latest}: expected the name of a folder beside it, found {name[:80]!r}"
        )
    if not (latest.parent / name).is_dir():
        raise CheckpointError(
            f"{latest} names {name!r}, and there is no such folder beside it. Give the checkpoint"
        )
    return latest.parent / name


def _best(checkpoint: Path) -> str:
    """A hint at the run's best checkpoint, where its newest one says which that is."""
    state = checkpoint / "trainer_state.json"
    if not state.is_file():
        return ""
    try:
        best = read_json(state).get("best_model_checkpoint")
    except CheckpointError:
        return ""
    return f", and the trainer calls {Path(str(best)).name} the best" if best else ""


_CONFIGURATIONS = (*INDEXES, ADAPTER_CONFIG)
"""The files that are fetched of a hub id, to see what it is."""


def inspect_checkpoint(spec: ModelSpec) -> Checkpoint:
    """Say what a spec's folder or hub id holds, from its configuration alone.

    Of a hub id only the configuration is fetched: a model that cannot play the role asked for costs
    no download of weights; `complete_checkpoint` brings those. Raises CheckpointError when there is
    no such folder or repository, or it holds no checkpoint, SpecError for parameters that it has no
    use for.
    """
    options, source = source_options(spec), pipeline_source(spec)
    target, revision = source.spec.target, spec.params.get("revision") or None
    location = locate(target, revision, _CONFIGURATIONS, spec.text)
    folder, remarks = find_checkpoint(location.folder, _is_readable)
    location = replace(location, folder=folder)
    if target != spec.target:
        checkpoint = _pipeline(spec, location, source)
    elif holds_adapter(folder):
        checkpoint = _with_base(spec, location, options)
    elif (weights := find_loose_weights(folder)) is not None:
        checkpoint = _with_configuration(spec, folder, weights, options)
    else:
        checkpoint = _whole(location)
        if checkpoint.kind == "diffusers":
            checkpoint = _pipeline(spec, location, source)
        elif options.base is not None:
            raise SpecError(
                f"model spec {spec.text!r}: base is for adapters and for weights without a "
                f"configuration, and {folder} is a whole model ({checkpoint.what})"
            )
    checkpoint = replace(checkpoint, remarks=(*remarks, *checkpoint.remarks))
    return _with_preparation(spec, _with_adapters(spec, checkpoint, options), options)


def _is_readable(folder: Path) -> bool:
    """Whether a folder is to be read as it is: a checkpoint, an adapter or a state of weights."""
    if holds_adapter(folder) or find_loose_weights(folder) is not None:
        return True
    if any((folder / name).is_file() for name in INDEXES if name != "config.json"):
        return True
    # A run's root often has the configuration that all of its checkpoints share.
    configured = (folder / "config.json").is_file()
    return configured and (holds_whole_model(folder) or not any(folder.glob("checkpoint-*")))


def _whole(location: Location) -> Checkpoint:
    """A location as a checkpoint that has everything in it."""
    folder = location.folder
    kind, config = identify(folder)
    match = detect_roles(kind, config)
    return Checkpoint(
        folder, kind, match.what, match.roles, config, location.revision, match.because,
        repository=location.repository,
    )  # fmt: skip


def _pipeline(spec: ModelSpec, location: Location, source: PipelineSource) -> Checkpoint:
    """A pipeline with what takes the place of its parts, and what is added to them."""
    checkpoint = _whole(location)
    if checkpoint.kind != "diffusers":
        raise CheckpointError(
            f"{spec.target}: belongs to a pipeline of diffusers, and {location.folder} is a "
            f"{checkpoint.what}: give a folder with model_index.json"
        )
    config, files = checkpoint.config, file_options(spec)
    parts = pipeline_parts(source, location.folder, config, files, snapshot)
    return replace(checkpoint, parts=parts, remarks=source.remarks)


def _with_base(spec: ModelSpec, location: Location, options: SourceOptions) -> Checkpoint:
    """The base of an adapter, with the adapter as a part."""
    folder = location.folder
    if options.adapters is not None:
        raise SpecError(
            f"model spec {spec.text!r}: {folder} is an adapter itself. Give the base "
            "model, and all of its adapters in adapters="
        )
    if any(path.name.startswith("model") and is_weights(path.name) for path in folder.iterdir()):
        raise CheckpointError(
            f"{folder} holds the weights of a whole model and a PEFT adapter ({ADAPTER_CONFIG}), "
            "and nothing says which is meant: give each a folder of its own"
        )
    location = _fetch_adapter(location)
    base = _base_of(spec, folder, options)
    return _adapted(spec, base, [(location, 1.0)], options)


def _fetch_adapter(location: Location) -> Location:
    """An adapter's location with all of its files there: they are small."""
    if location.revision is not None:
        patterns = (*ADAPTER_FILES, *PROCESSOR_FILES, *TOKENIZER_FILES)
        snapshot(location.repository, location.revision, patterns)
    return location


def _base_of(spec: ModelSpec, folder: Path, options: SourceOptions) -> Checkpoint:
    """The checkpoint that an adapter's folder, or the spec, names as its base."""
    config = read_adapter(folder)
    if options.base is not None:
        trained_on = str(config.get("base_model_name_or_path") or "")
        revision = config.get("revision") if options.base == trained_on else None
        if Path(options.base).expanduser().is_dir():
            revision = None
        location = locate(options.base, revision and str(revision), _CONFIGURATIONS, spec.text)
        base = _whole_base(spec, location, folder)
        if trained_on and Path(trained_on).name != Path(options.base).name:
            remark = f"the adapter was trained on {trained_on!r}, and is applied to {options.base}"
            base = replace(base, remarks=(remark,))
        return base
    candidates, name = base_candidates(folder, config)
    here = next((path for path in candidates if path.is_dir()), None)
    if here is not None:
        return _whole_base(spec, Location(here.resolve()), folder)
    revision = config.get("revision")
    try:
        location = locate(name, revision and str(revision), _CONFIGURATIONS, spec.text)
    except CheckpointError as error:
        at = f" at revision {revision!r}" if revision else ""
        raise CheckpointError(
            f"{folder}: a PEFT adapter whose base model {name!r}{at} is neither a folder on this "
            "machine nor in the hub's cache. Say where it is: base=FOLDER in the model's spec"
        ) from error
    return _whole_base(spec, location, folder)


def _whole_base(spec: ModelSpec, location: Location, adapter: Path) -> Checkpoint:
    if holds_adapter(location.folder):
        raise CheckpointError(
            f"{adapter}: its base {location.folder} is an adapter too. Merge that one into its own "
            f"base and give the result as base=FOLDER (model spec {spec.text!r})"
        )
    return _whole(location)


def _adapted(
    spec: ModelSpec,
    base: Checkpoint,
    adapters: Sequence[tuple[Location, float]],
    options: SourceOptions,
) -> Checkpoint:
    """A base with adapters as its parts.

    adapters: where each lies, and its factor.
    """
    if base.kind != "transformers":
        raise CheckpointError(
            f"model spec {spec.text!r}: a PEFT adapter is applied to a model of transformers, and "
            f"{base.path} is a {base.what} ({base.kind})"
        )
    quantized = bool(base.quantization)
    if quantized and options.merge:
        raise SpecError(
            f"model spec {spec.text!r}: merge=true, and {base.path} is quantized: what is merged "
            "would be rounded to its few bits. Leave it out, and the adapter works beside it"
        )
    merge = not quantized if options.merge is None else options.merge
    parts, remarks = list(base.parts), list(base.remarks)
    for location, factor in adapters:
        folder = location.folder
        parts.append(adapter_part(folder, factor=factor, merge=merge, revision=location.revision))
        kind = read_adapter(folder)["peft_type"]
        times = "" if factor == 1 else f" times {factor:g}"
        how = "merged into" if merge else "applied beside"
        because = ", which is quantized" if quantized else ""
        remarks.append(f"adapter {folder.name} ({kind}){times} {how} {base.path}{because}")
    return replace(base, parts=tuple(parts), remarks=tuple(remarks))


def _with_adapters(spec: ModelSpec, checkpoint: Checkpoint, options: SourceOptions) -> Checkpoint:
    """The checkpoint with those of `adapters`, applied together."""
    if options.adapters is None:
        if options.merge is not None and not checkpoint.adapters:
            raise SpecError(
                f"model spec {spec.text!r}: merge is for adapters, and {checkpoint.path} has none"
            )
        return checkpoint
    adapters = []
    for name, factor in options.weighted:
        location = locate(name, None, (ADAPTER_CONFIG,), spec.text)
        folder, _ = find_checkpoint(location.folder, holds_adapter)
        adapters.append((_fetch_adapter(replace(location, folder=folder)), factor))
    return _adapted(spec, checkpoint, adapters, options)


def _with_configuration(
    spec: ModelSpec, folder: Path, weights: CheckpointPart, options: SourceOptions
) -> Checkpoint:
    """Weights without a model around them, with a configuration from where there is one."""
    places = configuration_folders(folder, weights)
    if options.base is not None and folder not in places:
        location = locate(options.base, None, _CONFIGURATIONS, spec.text)
    elif places:
        location = Location(places[0])
    else:
        raise CheckpointError(
            f"{weights.path}: weights without a configuration, which is neither there nor in the "
            "folders above. Name the model that was trained: base=FOLDER in the model's spec"
        )
    model = _whole(location)
    if model.kind != "transformers":
        raise CheckpointError(
            f"{weights.path}: weights without a configuration are read for models of transformers, "
            f"and {location.folder} is a {model.what} ({model.kind})"
        )
    remark = f"weights read from {weights.path}"
    if location.folder != folder:
        remark += f", configuration from {location.folder}"
    return replace(model, parts=(weights,), remarks=(remark,))


def _with_preparation(
    spec: ModelSpec, checkpoint: Checkpoint, options: SourceOptions
) -> Checkpoint:
    """The checkpoint with a processor and a tokenizer that lie elsewhere."""
    for name, target in (("processor", options.processor), ("tokenizer", options.tokenizer)):
        if target is None:
            continue
        if checkpoint.kind != "transformers":
            raise SpecError(
                f"model spec {spec.text!r}: {name} is for models of transformers, and "
                f"{checkpoint.path} is a {checkpoint.what} ({checkpoint.kind})"
            )
        checkpoint = _add_preparation(spec, checkpoint, name, target)
    if options.processor is None and checkpoint.kind == "transformers":
        checkpoint = _add_found_preparation(checkpoint, tokenizer=options.tokenizer is None)
    return checkpoint


def _add_preparation(spec: ModelSpec, checkpoint: Checkpoint, name: str, target: str) -> Checkpoint:
    """With the processor or tokenizer of the folder or hub id that the spec names."""
    images = name == "processor"
    patterns = (*(PROCESSOR_FILES if images else ()), *TOKENIZER_FILES)
    location = locate(target, None, patterns, spec.text)
    folder = location.folder
    if not (has_processor(folder) if images else has_tokenizer(folder)):
        raise CheckpointError(
            f"model spec {spec.text!r}: {name}={target}: {folder} holds no {name}"
        )
    part = preparation_part(name, folder, images=images, texts=True, revision=location.revision)
    return replace(checkpoint, parts=(*checkpoint.parts, part))


def _add_found_preparation(checkpoint: Checkpoint, *, tokenizer: bool) -> Checkpoint:
    """With what lies beside an adapter or in the run's root, where it is not in its own folder.

    Only what loading could not do without is looked for above: a model is never given another
    processor than before.

    tokenizer: whether the spec leaves it open.
    """
    path = checkpoint.path
    for folder in _beside(checkpoint):
        images, texts = has_processor(folder), tokenizer and has_tokenizer(folder)
        if folder != path and (images or texts):
            name = "processor" if images else "tokenizer"
            part = preparation_part(name, folder, images=images, texts=texts)
            return _and_part(checkpoint, part, f"{name} read from {folder}")
    if checkpoint.revision is not None:  # not all of its files may be here yet
        return checkpoint
    images = not has_processor(path)
    texts = tokenizer and not has_tokenizer(path) and (images or "describer" in checkpoint.roles)
    if not (images or texts):
        return checkpoint
    above = path.parent
    if not (has_processor(above) if images else has_tokenizer(above)):
        return checkpoint  # loading says what is missing
    name = "processor" if images else "tokenizer"
    part = preparation_part(name, above, images=images, texts=texts)
    return _and_part(checkpoint, part, f"{name} read from {above}")


def _beside(checkpoint: Checkpoint) -> list[Path]:
    """The folders in which trainers save a processor beside an adapter or a state of weights."""
    weights = checkpoint.weights_part
    states = [] if weights is None else [weights.path, weights.path.parent]
    return [*(part.path for part in checkpoint.adapters), *states]


def _and_part(checkpoint: Checkpoint, part: CheckpointPart, remark: str) -> Checkpoint:
    parts, remarks = (*checkpoint.parts, part), (*checkpoint.remarks, remark)
    return replace(checkpoint, parts=parts, remarks=remarks)


def complete_checkpoint(spec: ModelSpec, checkpoint: Checkpoint) -> None:
    """Fetch a hub checkpoint's files and check the weights of any, those of its parts too.

    Raises CheckpointError for weights that are missing, pickled only (unless the spec says
    allow_pickle=true), cut off or incomplete, and for an adapter inside the folder.
    """
    if checkpoint.revision is not None:
        _fetch_readable(spec, checkpoint, checkpoint.revision)
    modules = checkpoint.config["modules"] if is_sentence_model(checkpoint) else []
    for folder in (checkpoint.path, *(checkpoint.path / module["path"] for module in modules)):
        if holds_adapter(folder):
            raise CheckpointError(_inner_adapter(folder))
    options = file_options(spec)
    for part in checkpoint.adapters:
        check_adapter(part.path, allow_pickle=options.allow_pickle)
    weights = checkpoint.weights_part
    if weights is not None:
        check_loose_weights(weights)
        return
    readable = readable_part(checkpoint, list_files(checkpoint.path), options)
    elsewhere = replaced_components(checkpoint) | supplied_components_of(checkpoint)
    own = {name: value for name, value in checkpoint.config.items() if name not in elsewhere}
    check_weights(checkpoint.path, readable, own, checkpoint.kind)
    if checkpoint.kind == "diffusers":
        check_parts(checkpoint.parts, checkpoint.path, options)


def _fetch_readable(spec: ModelSpec, checkpoint: Checkpoint, commit: str) -> None:
    """Bring what loading reads of a hub id's commit into the cache.

    Without a network nothing is fetched: what is missing shows when the files are checked.
    """
    from huggingface_hub import HfApi

    try:
        names = HfApi().list_repo_files(checkpoint.repository, revision=commit)
    except OSError:  # no network, or the hub's own errors, which are OSErrors
        return
    names = readable_part(checkpoint, names, file_options(spec))
    snapshot(checkpoint.repository, commit, [glob.escape(name) for name in names])


def _inner_adapter(folder: Path) -> str:
    return (
        f"{folder}: a PEFT adapter inside of a checkpoint, which its library would apply by itself "
        "to weights that no fingerprint covers. Merge it (merge_and_unload) and save the whole "
        "model"
    )
