"""Fixtures of submitters whose pool is at a computing element elsewhere, known by tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sites.htcondor.apart import centre, home, nats, open_umask, start, tmp_path
from tests.sites.htcondor.element import Element, options_of

__all__ = ["centre", "home", "nats", "open_umask", "options", "start", "the_site", "tmp_path"]


@pytest.fixture(scope="session")
def the_site(the_element: Element) -> Element:
    return the_element


@pytest.fixture
def options(home: Path) -> dict[str, Any]:
    """Of every pool here."""
    return options_of(home)
