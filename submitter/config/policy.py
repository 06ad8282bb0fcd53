"""The policy of a site for pods, checked before anything of a job is written.

It checks the cluster's description of a pod. It is no defence against the cluster itself, whose
script runs here whatever it does: for that, use the batch system's own rules, or another user.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Optional

from submitter.common.errors import Forbidden
from submitter.config.settings import Policy
from templates.common.errors import one_line
from templates.common.quantity import byte_count, cpu_milli
from templates.job.model import Job

FLAGS = "flags"  # the annotation whose value is options of the batch system's submit command

# Options of sbatch that are the beginning of others: they are no abbreviation of those.
_FULL_NAMES = frozenset(
    f"--{name}" for name in "bb container export extra gpus gres mem ntasks time wait".split()
)
# Short options of sbatch that others may follow in the same word.
_WITHOUT_VALUE = frozenset("hHIkOQsuvVW")


def check(job: Job, policy: Policy) -> None:
    """Raise ``Forbidden`` with the first rule that the job breaks."""
    for rule, subject in _violations(job, policy):
        raise Forbidden(f"policy.{rule} of this pool does not allow {one_line(subject, 200)}")


def _violations(job: Job, policy: Policy) -> Iterator[tuple[str, str]]:
    if not _matches(job.namespace, policy.namespaces):
        yield "namespaces", f"pods of namespace {job.namespace}"
    if not _matches(job.runtime, policy.runtimes):
        yield "runtimes", f"scripts for runtime {job.runtime}"
    for _, _, image in job.containers:
        if not _matches(image, policy.images) or _leaves_pattern(image, policy.images):
            yield "images", image or "a container without an image"
    yield from _annotation_violations(job, policy)
    for path in job.host_paths:
        if not _is_below(path, policy.host_paths or ()):
            yield "host_paths", path or "an empty path"
    if job.privileged and not policy.privileged:
        yield "privileged", "privileged containers and added capabilities"
    yield from _amount_violations(job, policy)


def _matches(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _leaves_pattern(image: str, patterns: Iterable[str]) -> bool:
    """Return whether an image that is a path leaves by ``..`` what a pattern allows."""
    return "*" not in patterns and ".." in image.split("/")


# --- annotations and flags ------------------------------------------------------------------------


def _annotation_violations(job: Job, policy: Policy) -> Iterator[tuple[str, str]]:
    for key, value in job.annotations.items():
        name = key.rpartition("/")[2]
        names = (key, name)
        if not any(_matches(one, policy.annotations) for one in names):
            yield "annotations", f"the annotation {name}"
        if any(_matches(one, policy.forbidden_annotations) for one in names):
            yield "forbidden_annotations", f"the annotation {name}"
        if name == FLAGS and policy.forbidden_flags:
            yield from _flag_violations(value, policy.forbidden_flags)


def _flag_violations(value: str, forbidden: Iterable[str]) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(value)
    except ValueError:
        yield "forbidden_flags", "flags that cannot be split into words"
        return
    for word in words:
        for flag in forbidden:
            if _is_flag(word, flag):
                yield "forbidden_flags", f"the flag {flag} ({word})"


def _is_flag(word: str, flag: str) -> bool:
    """Return whether a program that takes the flag would see it in the word."""
    if word == flag:
        return True
    if flag.startswith("--"):
        name = word.partition("=")[0]
        # Programs take every beginning of a long option that is unique.
        is_abbreviation = len(name) > 2 and flag.startswith(name) and name not in _FULL_NAMES
        return name == flag or (name.startswith("--") and is_abbreviation)
    if len(flag) != 2 or not flag.startswith("-") or not word.startswith("-"):
        return False
    for letter in word[1:]:
        if letter == flag[1]:
            return not word.startswith("--")
        if letter not in _WITHOUT_VALUE:
            return False
    return False


# --- paths and amounts ----------------------------------------------------------------------------


def _is_below(path: str, allowed: Iterable[str]) -> bool:
    """Return whether a path is one of these or below one, part by part; follow no links."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or ".." in parts or "\0" in path:
        return False
    for root in allowed:
        wanted = [part for part in root.split("/") if part]
        if parts[: len(wanted)] == wanted:
            return True
    return False


def _amount_violations(job: Job, policy: Policy) -> Iterator[tuple[str, str]]:
    gpus = sum(job.gpus.values())
    if policy.cpu is not None and job.cpu_milli > cpu_milli(policy.cpu):
        yield "cpu", f"{job.cpu_milli / 1000:g} cores: the most is {policy.cpu}"
    if policy.memory is not None and job.memory_bytes > byte_count(policy.memory):
        yield "memory", f"{job.memory_bytes} bytes: the most is {policy.memory}"
    if _exceeds(gpus, policy.gpus):
        yield "gpus", f"{gpus} GPUs: the most is {policy.gpus}"
    if _exceeds(job.wall_time_s or 0, policy.wall_time_s):
        yield "wall_time_s", f"{job.wall_time_s} s: the most is {policy.wall_time_s}"


def _exceeds(amount: int, most: Optional[int]) -> bool:
    return most is not None and amount > most
