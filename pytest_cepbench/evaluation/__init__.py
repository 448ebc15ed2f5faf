"""Evaluation of a run's cases in one process: settings, suites, models, verdicts; without pytest.

The plugin, xdist's workers and `gate_checkpoint` all evaluate cases with it.
"""
