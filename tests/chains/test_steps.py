"""What a baseline remembers of a model: the keys of its steps, and nothing to load."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains import RoleRunner
from pytest_cepbench.chains.steps import recall, remember
from pytest_cepbench.errors import BaselineError, NotInStoreError
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
    "change",
    [{"fingerprint": "other"}, {"adapter": "b/1"}, {"params": {"n": 1}}, {"seeded": True}],
    ids=str,
)
def test_every_part_counts(kept: Store, change: dict[str, Any]) -> None:
    """Another model has other words and other keys, whichever part differs."""
    model, other = (
        bound("describer", SmallDescriber()),
        bound("describer", SmallDescriber(), **change),
    )
    assert remember(model) != remember(other)
    keys = {RoleRunner(each, kept).key("p", 7, "image", "d") for each in (model, other)}
    assert len(keys) == 2


def test_a_remembered_model_cannot_be_loaded() -> None:
    """Asking for it says what to do."""
    (absent,) = recall(json.dumps(STEP))
    with pytest.raises(NotInStoreError, match="measure its model once with this one"):
        absent.load()


def test_both_roles_of_a_unified_model_can_be_remembered() -> None:
    """In a list; each role is recalled."""
    text = json.dumps([STEP, STEP | {"role": "generator"}])
    assert [item.role for item in recall(text)] == ["describer", "generator"]


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
    ],
)
def test_what_was_not_remembered_is_refused(text: str, says: str) -> None:
    """With the field that is wrong."""
    with pytest.raises(BaselineError, match=r"model\.step") as caught:
        recall(text)
    assert says in str(caught.value)
