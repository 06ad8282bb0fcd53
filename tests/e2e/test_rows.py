"""The rows of docs/pods.md, at a site and on the bed's real node: same manifests, same end.

All of them run side by side: a test waits for the end of its row, and compares.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import SITES
from tests.e2e.places import Places
from tests.e2e.rows import ROWS
from tests.support.kueue_bed import KueueBed


@pytest.fixture(scope="module")
def places(chain: KueueBed) -> Iterator[Places]:
    found = Places(chain, SITES)
    yield found
    found.leave()


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("site", SITES)
def test_a_row_ends_as_on_a_real_node(places: Places, site: str, name: str) -> None:
    places.compare(site, name)
