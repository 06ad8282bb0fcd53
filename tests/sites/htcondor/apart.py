"""Fixtures of submitters at a site whose machines see nothing of their files.

What jobs do is seen in a folder that all machines of the site have; the pool is not in it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sites.htcondor.site import RunningSite
from tests.unit.submitter import at_a_site
from tests.unit.submitter.at_a_site import *  # noqa: F403 - those of any site
from tests.unit.submitter.at_a_site import own_folder

__all__ = at_a_site.__all__


@pytest.fixture
def tmp_path(site: RunningSite) -> Path:
    """A folder that jobs can write into, too."""
    return own_folder(site.directory / "witness")


@pytest.fixture
def home(site: RunningSite) -> Path:
    """Where the pool is: in a folder that only the submitter's machine has."""
    return own_folder(site.home)
