"""The fingerprint of a checkpoint: one digest over every file that can change what it answers.

What is hashed: the bytes of the weights, of all configurations (model, generation, scheduler), of
tokenizers, processors and chat templates, each under its path in the checkpoint. A path matters
because loaders find files by name; the bytes matter because names and dates say nothing: two
checkpoints of one run have the same names, and a copy has other dates.

What is not: READMEs and licences, trainer and optimizer states, pictures, and weights that loading
passes over (pickled twins of safetensors, a pipeline's single-file weights, other variants). They
change without changing an answer, and each would make stored results look stale.

Rather too much than too little: a configuration file that some loaders ignore is hashed all the
same. The cost of hashing it is one more computation; the cost of missing one is a wrong number.
Library versions are left out on purpose: they are provenance, kept beside results.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_cepbench.artifacts import digest_json
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint_files import list_files, readable_files
from pytest_cepbench.models.checkpoints.integrity import Checkpoint

_VERSION = 1


def fingerprint(
    checkpoint: Checkpoint,
    hash_file: Callable[[Path], str],
    *,
    variant: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> str:
    """Digest (64 hexadecimal digits) of everything that loading the checkpoint can read.

    hash_file: SHA-256 of a file's bytes, hexadecimal. The flags are those the model will be loaded
    with: pickled weights count where they are allowed, Python files where they are run.
    Raises CheckpointError for a checkpoint whose code would come from another repository.
    """
    if trust_remote_code:
        _refuse_foreign_code(checkpoint)
    names = readable_files(
        list_files(checkpoint.path),
        checkpoint.kind,
        checkpoint.config,
        variant=variant,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    files = [[name, hash_file(checkpoint.path / name)] for name in names]
    return digest_json({"version": _VERSION, "kind": checkpoint.kind, "files": files})


def _refuse_foreign_code(checkpoint: Checkpoint) -> None:
    references = checkpoint.config.get("auto_map") or {}
    for reference in references.values():
        for name in reference if isinstance(reference, list) else [reference]:
            repository, separator, target = str(name).partition("--")
            if separator:
                msg = (
                    f"{checkpoint.path}: its code lies in another repository ({repository}), so no "
                    f"fingerprint can vouch for it. Copy the Python files beside the weights and "
                    f'shorten the entry in auto_map to "{target}"'
                )
                raise CheckpointError(msg)
