"""The language of submit descriptions: how what others have written goes into one.

A description is one command per line. condor_submit replaces ``$(...)`` in every value, HTCondor
itself replaces ``$$(...)`` in every attribute of a job when that is matched, and holds a job in
which it cannot. So a dollar is written as a macro, and two of them in a row are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from submitter.common.errors import Forbidden

LONGEST = 10_000  # of a value
# Commands that make the job what it is: neither a site nor a pod can change them.
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


def lines(commands: Mapping[str, str]) -> str:
    """A whole description of one job; ``Forbidden`` for a value that no line can hold."""
    written = [f"{name} = {_checked(value, name)}" for name, value in commands.items()]
    return "\n".join([*written, "queue", ""])


def _checked(value: str, name: str) -> str:
    mistake = _mistake(value)
    if mistake:
        raise Forbidden(f"{name}: {mistake}")
    return value


def _mistake(value: str) -> str:
    if not value.isprintable():
        return "holds a character that cannot be printed"
    if value.rstrip().endswith("\\"):
        return "ends in a backslash, which would join it with the next line"
    if len(value) > LONGEST:
        return f"is longer than {LONGEST} characters"
    return ""


def plain(text: str) -> str:
    """Text of which nothing is replaced; ``Forbidden`` where HTCondor would do so all the same."""
    if "$$" in text:
        raise Forbidden("two dollars in a row mean something to HTCondor, and cannot be had")
    return text.replace("$", "$(DOLLAR)")


def string(text: str) -> str:
    """Text as a value of an attribute. A backslash means nothing there but before a quote."""
    if not text.isprintable():
        raise Forbidden("holds a character that cannot be printed")
    if '\\"' in text or text.endswith("\\"):
        raise Forbidden("a backslash before a quote, or at the end, cannot be had")
    escaped = text.replace('"', '\\"')
    return f'"{plain(escaped)}"'


def arguments(words: Iterable[str]) -> str:
    """Words as the job's program gets them: macros in them have been taken care of before."""
    quoted = ["'" + word.replace("'", "''").replace('"', '""') + "'" for word in words]
    return '"' + " ".join(quoted) + '"'


def expression_mistake(text: str) -> str:
    """What is wrong with an expression that is to stand in parentheses; empty if nothing is.

    It could leave the parentheses, begin a comment, or have macros replaced in it.
    """
    mistake = _mistake(text)
    if mistake or not text.strip():
        return mistake or "is empty"
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


def expression(text: str, where: str) -> str:
    """An expression that can be put together with others; ``Forbidden`` if it cannot."""
    mistake = expression_mistake(text)
    if mistake:
        raise Forbidden(f"{where}: {mistake}")
    return f"({text.strip()})"
