"""A run as an event file of TensorBoard: scalars and texts, without TensorFlow and torch."""

from __future__ import annotations

import time
from pathlib import Path

from pytest_cepbench.report.exports.exported_run import ExportedRun, tracked_values


def export(run: ExportedRun, path: Path) -> list[Path]:
    """Write an event file into the folder; see `report.exports.Export`."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    path.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(path))
    try:
        for name, value in tracked_values(run).items():
            if isinstance(value, str):
                # As torch's SummaryWriter names and stores a text.
                entry = Summary.Value(
                    tag=f"{name}/text_summary",
                    metadata=create_summary_metadata(display_name="", description=""),
                    tensor=make_tensor_proto([value.encode("utf-8", "replace")]),
                )
            else:
                entry = Summary.Value(tag=name, simple_value=value)
            writer.add_event(
                Event(wall_time=time.time(), step=run.step, summary=Summary(value=[entry]))
            )
    finally:
        writer.close()
    return [path]
