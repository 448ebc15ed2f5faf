"""The gate's process by a rule, in hundredths of a second, for tests of everything around it.

python rule_gate.py -m pytest ...                      judge a checkpoint of `folder_model`
python rule_gate.py -m pytest_cepbench.cli accept ...  accept a report

The value is the share of objects that the checkpoint does not miss. A drop by more than 0.1 is a
regression, one by more than 0.05 undecided. `test_gate_run.py` has it done by real ones too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def judge(options: dict[str, str]) -> int:
    """The exit code of a run of pytest, which prints what it was given and leaves a report."""
    lines = [*sys.argv[3:], *(f"{name}={value}" for name, value in os.environ.items()), ""]
    sys.stdout.write("\n".join(lines))
    sys.stdout.flush()
    weights = json.loads(Path(options["--model"], "weights.json").read_text())
    if "overwrite" in weights:  # as a training that saves the next step into the same file
        path = Path(weights["overwrite"], "weights.json")
        path.write_text('{"miss": 1.0}'.ljust(path.stat().st_size))
    if "wait" in weights:  # until the named pipe has a writer
        Path(weights["wait"]).read_bytes()
    accepted, value = Path(options["--cep-baselines"], "gc.toml"), weights["miss"]
    value = 1 - value
    first = "--snapshot-update" in options
    compared = accepted.exists() and not first
    baseline = json.loads(accepted.read_text()) if compared else None
    difference = None if baseline is None else value - baseline
    drop = -(difference or 0.0)
    verdict = "regressed" if drop > 0.1 else "inconclusive" if drop > 0.05 else "held"
    verdict = verdict if compared else "no-baseline"
    strict = os.environ.get("CEPBENCH_INCONCLUSIVE") == "fail" and verdict == "inconclusive"
    failed = strict or verdict == "regressed" or (verdict == "no-baseline" and not first)
    if first:
        accepted.parent.mkdir(parents=True, exist_ok=True)
        accepted.write_text(json.dumps(value))
    case = {
        "suite": "instrument", "part": "overall", "metric": "gc", "label": "GC@3",
        "primary": True, "accepted": first,
        "measurement": {"higher_is_better": True, "value": value},
        "judgement": {
            "verdict": verdict, "baseline_value": baseline, "difference": difference,
            "low": None, "high": None,
        },
    }  # fmt: skip
    report = Path(options["--cep-report"])
    report.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema": 2, "verdict": "failed" if failed else "passed", "cases": [case]}
    report.write_text(json.dumps({**document, "refused": weights.get("refused", False)}))
    report.with_suffix(".html").write_text("")
    return int(weights.get("code", failed))


def accept(report: str, options: dict[str, str]) -> int:
    """The exit code of `cepbench accept`."""
    document = json.loads(Path(report).read_text())
    if document["refused"]:
        return 1
    new = Path(options["--baselines"], ".new")
    new.write_text(json.dumps(document["cases"][0]["measurement"]["value"]))
    new.replace(new.with_name("gc.toml"))
    return 0


if __name__ == "__main__":
    given = {name: value for name, _, value in (each.partition("=") for each in sys.argv[3:])}
    sys.exit(judge(given) if sys.argv[2] == "pytest" else accept(sys.argv[4], given))
