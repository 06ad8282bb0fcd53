"""The jinja2 environment: a template's values are quoted, unless it says ``|raw``."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import jinja2

from templates.common.errors import InterlinkNatsError
from templates.common.quoting import quote


class _Raw(str):
    """Text that goes into the script unquoted."""


def _quote(value: Any) -> str:
    """Quote the value of a ``{{ }}``; raise if it is undefined."""
    if isinstance(value, _Raw) or type(value) is int:
        return str(value)
    if type(value) is str:
        return quote(value)
    raise InterlinkNatsError(f"a template substitutes a {type(value).__name__}")


def _raw(value: object) -> _Raw:
    if isinstance(value, jinja2.Undefined):
        raise InterlinkNatsError("a template substitutes what is not defined")
    return _Raw(value)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("templates.script", "bash"),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        comment_start_string="<#",  # bash has its own use for {#
        comment_end_string="#>",
        autoescape=False,  # shell, not HTML: finalize quotes
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters["raw"] = _raw
    return environment


@cache
def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


def render(template: str, /, **facts: Any) -> str:
    """Fill in the template of that name."""
    return _template(template).render(facts)
