"""What a baseline remembers of a model, which is the keys of its steps; progress over steps."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains import steps as module
from pytest_cepbench.chains.steps import Progress, recall, remember
from pytest_cepbench.errors import BaselineError
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.store import Store
from tests.chains.roles import SmallDescriber, bound

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)

STEP = {"role": "describer", "adapter": "a/1", "fingerprint": "f", "params": {}, "seeded": True}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store; nothing is written to it."""
    with Store(tmp_path_factory.mktemp("kept") / "store") as opened:
        yield opened


@pytest.mark.slow
@given(
    role=st.sampled_from(["describer", "generator"]),
    params=st.dictionaries(st.text(), PLAIN, max_size=4),
    fingerprint=st.text(),
    seeded=st.booleans(),
)
def test_keys_survive(
    kept: Store, role: RoleName, params: dict[str, Any], fingerprint: str, seeded: bool
) -> None:
    """Whatever the parameters are, a recalled model has the keys of the one that was remembered."""
    model = bound(role, SmallDescriber(), params=params, fingerprint=fingerprint, seeded=seeded)
    (absent,) = recall(remember(model))
    runners = RoleRunner(model, kept), RoleRunner(absent, kept)
    asked = ("prompt", 7, "image", "digest")
    assert runners[0].key(*asked) == runners[1].key(*asked)
    assert remember(absent) == remember(model)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "names no role"),
        ("3", "Expected `object`"),
        (json.dumps([STEP, STEP]), "names describer, describer"),
        (json.dumps(STEP | {"role": "painter"}), "painter"),
        (json.dumps(STEP | {"more": 1}), "unknown field `more`"),
        (json.dumps({k: v for k, v in STEP.items() if k != "adapter"}), "`adapter`"),
        (json.dumps(STEP | {"seeded": "yes"}), "Expected `bool`"),
        (json.dumps(STEP | {"params": {"top_p": math.inf}}), "Out of range float values"),
    ],
)
def test_what_was_not_remembered_is_refused(text: str, says: str) -> None:
    """With the field that is wrong."""
    with pytest.raises(BaselineError, match=r"model\.step") as caught:
        recall(text)
    assert says in str(caught.value)


def test_the_rate_is_that_of_the_case_and_of_the_last_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From its begin on; the rest at that rate is what is left. A model that is slower than the
    one before, or than the store, shows soon.
    """
    clock = [50.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    progress = Progress()
    unknown = [progress.rate, progress.left]
    progress.begin("case", 1, 20)
    progress.add(0)  # no time has passed, nothing is done
    assert [*unknown, progress.rate] == [None] * 3
    clock[0] += 4
    progress.add(8)

    assert (progress.rate, progress.left) == (2.0, 6.0)
    assert Progress(parts=[progress, Progress(), progress]).rate == 4.0
    assert Progress(parts=[Progress()]).rate is None
    progress.add(22)
    assert progress.left == 0.0

    progress = Progress()
    progress.begin("case", 1, 1000)
    for steps, seconds in ((600, 1), (1, 59), (1, 1)):
        clock[0] += seconds
        progress.add(steps)
    assert progress.rate == pytest.approx(2 / 60)
    clock[0] += 1
    progress.add(1)
    assert progress.rate == pytest.approx(1.0)  # what is more than a minute old is left out
    clock[0] += 600
    progress.add(6)
    assert progress.rate == pytest.approx(6 / 600)
