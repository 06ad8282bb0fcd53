"""The syntax of submit descriptions: quoting and checks of values that others have written.

A description is one command per line. condor_submit replaces ``$(...)`` in every value, HTCondor
itself replaces ``$$(...)`` in every attribute of a job when that is matched, and holds a job in
which it cannot. So a dollar is written as a macro, and two in a row are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from submitter.common.errors import Forbidden

LONGEST = 10_000  # of a value
# Commands that neither a site nor a pod can change, and why.
NEVER: Mapping[str, str] = {
    "arguments": "the pod's script is what runs",
    "executable": "the pod's script is what runs",
    "initialdir": "the job's directory is where it runs",
    "input": "a pod reads nothing",
    "leave_in_queue": "an ended job has to be seen",
    "output": "the submitter reads it",
    "error": "the submitter reads it",
    "queue": "a pod is one job",
    "periodic_release": "the option releases is for that",
    "job_max_vacate_time": "it follows from the pod's grace period",
    "kill_sig": "the script expects TERM",
    "should_transfer_files": "the pool's directory is shared, or it is not",
    "transfer_executable": "the pod's script is what runs",
    "universe": "pods are jobs of the vanilla universe",
}
_PART = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<name>'(?:[^'\\]|\\.)*')|(?P<open>[(\[{])"""
    r"""|(?P<close>[)\]}])|(?P<bad>//|/\*|["'$;\\])|.""",
    re.DOTALL,
)
_PAIRS = {")": "(", "]": "[", "}": "{"}


def format_commands(commands: Mapping[str, str]) -> str:
    """Return the description of one job; raise ``Forbidden`` for a value that no line can hold."""
    written = [f"{name} = {_check(value, name)}" for name, value in commands.items()]
    return "\n".join([*written, "queue", ""])


def _check(value: str, name: str) -> str:
    error = _find_error(value)
    if error:
        raise Forbidden(f"{name}: {error}")
    return value


def _find_error(value: str) -> str:
    if not value.isprintable():
        return "holds a character that cannot be printed"
    if value.rstrip().endswith("\\"):
        return "ends in a backslash, which would join it with the next line"
    if len(value) > LONGEST:
        return f"is longer than {LONGEST} characters"
    return ""


def escape_macros(text: str) -> str:
    """Escape the macros in a text; raise ``Forbidden`` for one that cannot be escaped."""
    if "$$" in text:
        raise Forbidden("two dollars in a row mean something to HTCondor, and cannot be had")
    return text.replace("$", "$(DOLLAR)")


def quote_string(text: str) -> str:
    """Quote a text as the value of an attribute, where a backslash escapes only a quote."""
    if not text.isprintable():
        raise Forbidden("holds a character that cannot be printed")
    if '\\"' in text or text.endswith("\\"):
        raise Forbidden("a backslash before a quote, or at the end, cannot be had")
    escaped = text.replace('"', '\\"')
    return f'"{escape_macros(escaped)}"'


def format_arguments(values: Iterable[str]) -> str:
    """Quote arguments for the job's program; their macros have to be escaped before."""
    quoted = ["'" + value.replace("'", "''").replace('"', '""') + "'" for value in values]
    return '"' + " ".join(quoted) + '"'


def find_expression_error(text: str) -> str:
    """Return what is wrong with an expression to be put in parentheses; empty if nothing is.

    It could leave the parentheses, begin a comment, or contain macros.
    """
    error = _find_error(text)
    if error or not text.strip():
        return error or "is empty"
    opened: list[str] = []
    for part in _PART.finditer(text):
        if part["bad"]:
            return f"{part['bad']} cannot be used there"
        if (part["text"] or part["name"] or "").find("$") >= 0:
            return "$ cannot be used there"
        if part["open"]:
            opened.append(part["open"])
        elif part["close"] and (not opened or opened.pop() != _PAIRS[part["close"]]):
            return f"{part['close']} closes what was not opened"
    return f"{opened[-1]} is not closed" if opened else ""


def parenthesize(text: str, field: str) -> str:
    """Return an expression to combine with others; raise ``Forbidden`` if it is not safe."""
    error = find_expression_error(text)
    if error:
        raise Forbidden(f"{field}: {error}")
    return f"({text.strip()})"
