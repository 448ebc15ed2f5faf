"""Gate a checkpoint without pytest: accept a describer, then gate a worse one.

docs/training-loop.md explains `gate_checkpoint` and its result.
"""

from pytest_cepbench import gate_checkpoint

accepted = gate_checkpoint("my-suite", model="python:my_models:describer", snapshot_update=True)
print(f"accepted {len(accepted.changed)} baselines")

result = gate_checkpoint("my-suite", model="python:my_models:describer?color_blind=true")
overall = result["my-suite/overall/gc"]
print(f"{overall.verdict}: {overall.value:.4f}, baseline {overall.judgement.baseline_value:.4f}")
print(f"passed: {result.passed}, exit code {result.exit_code}")
