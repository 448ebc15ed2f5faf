"""The parts of `benchmarks.accelerator`."""
