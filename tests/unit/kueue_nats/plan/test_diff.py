"""What the API server adds is no difference; what somebody has changed is one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueue_nats.plan.diff import is_superset

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=JSON)
def test_everything_says_itself(value: Any) -> None:
    assert is_superset(value, value)


@given(value=st.dictionaries(st.text(max_size=5), JSON), more=st.dictionaries(st.text(), JSON))
def test_what_was_added_does_not_matter(value: dict[str, Any], more: dict[str, Any]) -> None:
    assert is_superset({**more, **value}, value)


@pytest.mark.parametrize(
    ("actual", "wanted", "same"),
    [
        ({"nominalQuota": "1"}, {"nominalQuota": "1000m"}, True),
        ({"nominalQuota": 1}, {"nominalQuota": "1"}, True),
        ({"borrowingLimit": "1Gi"}, {"borrowingLimit": "1024Mi"}, True),
        ({"lendingLimit": "1k"}, {"lendingLimit": "1000"}, True),
        ({"weight": "500m"}, {"weight": "0.5"}, True),
        ({"nominalQuota": "1"}, {"nominalQuota": "2"}, False),
        ({"nominalQuota": "1"}, {"nominalQuota": "1", "borrowingLimit": "0"}, False),
        ({"nominalQuota": None}, {"nominalQuota": "0"}, False),
        ({"nominalQuota": "many"}, {"nominalQuota": "0"}, False),
        # Other fields are texts, and stay so.
        ({"value": "1"}, {"value": "1000m"}, False),
        ({"flavors": [{"name": "a"}, {"name": "b"}]}, {"flavors": [{"name": "a"}]}, False),
        ({"flavors": [{"name": "b"}, {"name": "a"}]}, {"flavors": [{"name": "a"}] * 2}, False),
        ({"flavors": [{"name": "a", "x": 1}]}, {"flavors": [{"name": "a"}]}, True),
        ({}, {"resourceGroups": []}, True),
        ({"resourceGroups": [{"flavors": []}]}, {"resourceGroups": []}, False),
        ({"taint": {"key": "k"}}, {"taint": {"key": "k", "value": ""}}, True),
        ({"taint": {"key": "k", "value": "v"}}, {"taint": {"key": "k", "value": ""}}, False),
        ({}, {"namespaceSelector": {}}, False),
        ({"namespaceSelector": {"matchLabels": {}}}, {"namespaceSelector": {}}, True),
        (None, {"spec": {"a": 1}}, False),
        ([], {"a": 1}, False),
        ({"a": "x"}, {"a": ["x"]}, False),
    ],
)
def test_examples(actual: Any, wanted: Any, same: bool) -> None:
    assert is_superset(actual, wanted) is same
