"""The rule that everything put into a script is quoted, unless the template says otherwise."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from templates.common.errors import InterlinkNatsError
from templates.script.jinja import _environment, render


def filled(template: str, **facts: Any) -> str:
    return _environment().from_string(template).render(facts)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", "''"),
        ("two words", "'two words'"),
        ("$(id)", "'$(id)'"),
        ("it's", "'it'\"'\"'s'"),
        ("<&>", "'<&>'"),  # nothing of HTML
        (7, "7"),
        (-7, "-7"),
    ],
)
def test_a_value_is_one_word(value: object, text: str) -> None:
    assert filled("x={{ value }}", value=value) == f"x={text}"


def test_a_template_can_say_that_a_value_goes_in_as_it_is() -> None:
    assert filled("{{ value|raw }}", value="$(id) 'x'") == "$(id) 'x'"


def test_what_templates_say_themselves_is_not_quoted() -> None:
    text = "${#list[@]} {# # <# a comment #>\n{% if yes %}\nof one line\n{% endif %}\n"
    assert filled(text, yes=True) == "${#list[@]} {# # of one line\n"


def test_loops_quote_each_value() -> None:
    assert filled("{% for x in xs %}{{ x }} {% endfor %}", xs=["a b", "c"]) == "'a b' c "


@pytest.mark.parametrize("value", [None, True, 1.5, ["a"], {"a": 1}, b"a"])
def test_what_is_neither_text_nor_a_whole_number_is_a_mistake(value: object) -> None:
    with pytest.raises(InterlinkNatsError) as caught:
        filled("{{ value }}", value=value)
    assert str(caught.value) == f"a template substitutes a {type(value).__name__}"


def test_what_is_not_defined_is_a_mistake() -> None:
    with pytest.raises((InterlinkNatsError, jinja2.UndefinedError)):
        filled("{{ nothing }}")
    with pytest.raises(InterlinkNatsError, match="a template substitutes what is not defined"):
        filled("{{ nothing|raw }}")
    with pytest.raises(jinja2.UndefinedError):
        filled("{% if nothing %}x{% endif %}")


def test_a_part_of_the_script_needs_all_its_facts() -> None:
    with pytest.raises((InterlinkNatsError, jinja2.UndefinedError)):
        render("environment.sh.j2")
    text = render("environment.sh.j2", keep="SLURM_*", odd=False, runtime="host")
    assert "SLURM_*) kept+=" in text
