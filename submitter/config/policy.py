"""The policy of a site for pods, checked before anything of a job is written.

It checks the cluster's description of a pod, and that the script was made from just that, as far as
``evidence.py`` can tell. It is no defence against the cluster itself, whose script runs here
whatever it does: for that, use the batch system's own rules, or another user.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Optional

from submitter.common.errors import Forbidden
from submitter.config import runtime_options
from submitter.config.evidence import find_undeclared, is_below
from submitter.config.settings import Policy, Pool
from templates.common.errors import one_line
from templates.common.names import matches_any
from templates.common.quantity import byte_count, cpu_milli
from templates.job.model import Job
from templates.resolve.images import path_of, spellings
from templates.site.build_config import ON_THE_NODE

FLAGS = "flags"  # the annotation whose value is options of the batch system's submit command

# Options of sbatch that are the beginning of others: they are no abbreviation of those.
_FULL_NAMES = frozenset(
    f"--{name}" for name in "bb container export extra gpus gres mem ntasks time wait".split()
)
# Short options of sbatch that others may follow in the same word.
_WITHOUT_VALUE = frozenset("hHIkOQsuvVW")


def check(job: Job, pool: Pool) -> None:
    """Raise ``Forbidden`` with the first rule of the pool that the job breaks."""
    if not job.images:
        raise Forbidden(
            "it does not say which images, annotations and options its script was made with:"
            " the plugin is older than this site's submitter and has to be upgraded first"
        )
    undeclared = find_undeclared(job, pool.build.volumes)
    if undeclared:
        raise Forbidden(f"its script has {one_line(undeclared, 200)}, which it does not declare")
    _raise_first(_violations(job, pool))


def check_amounts(job: Job, policy: Policy) -> None:
    """Raise ``Forbidden`` with the first limit that the job exceeds."""
    _raise_first(_amount_violations(job, policy))


def _raise_first(violations: Iterable[tuple[str, str]]) -> None:
    for rule, subject in violations:
        raise Forbidden(f"{rule} of this pool does not allow {one_line(subject, 240)}")


def _violations(job: Job, pool: Pool) -> Iterator[tuple[str, str]]:
    policy = pool.policy
    if policy.namespaces is not None and not matches_any(job.namespace, policy.namespaces):
        yield "policy.namespaces", f"pods of namespace {job.namespace}"
    if not matches_any(job.runtime, policy.runtimes):
        yield "policy.runtimes", f"scripts for runtime {job.runtime}"
    yield from _image_violations(job, pool)
    yield from _annotation_violations(job, pool)
    for path in _host_paths(job, policy):
        if not is_below(path, policy.host_paths or ()):
            yield "policy.host_paths", path or "an empty path"
    if not policy.privileged:
        yield from _right_violations(job, policy)
    yield from _amount_violations(job, policy)


def _host_paths(job: Job, policy: Policy) -> Iterable[str]:
    if "/" in (policy.host_paths or ()):
        return job.host_paths  # an option may name any path, in whatever way
    named = runtime_options.host_paths(job.options, policy.runtime_options)
    return (*job.host_paths, *named)


def _right_violations(job: Job, policy: Policy) -> Iterator[tuple[str, str]]:
    if job.privileged:
        yield "policy.privileged", "privileged containers and added capabilities"
    for option in runtime_options.not_allowed(job.options, policy.runtime_options):
        yield (
            "policy.privileged",
            f"the option {one_line(option.partition('=')[0], 60)} in singularity-options:"
            " policy.runtime_options has those that need no such rights",
        )


# --- images ---------------------------------------------------------------------------------------


def _image_violations(job: Job, pool: Pool) -> Iterator[tuple[str, str]]:
    policy, site = pool.policy, pool.build.images
    places = (*(policy.host_paths or ()), site.directory, site.unpacked, site.root, site.prefix)
    for image in job.images:
        path = path_of(image) if job.runtime != "host" else ""
        if path:
            if not _is_path_allowed(image, path, policy.images, places):
                hint = "a path of the site, which an item besides * has to name, or host_paths"
                yield "policy.images", f"{one_line(image, 100)}: {hint}"
        elif not any(matches_any(name, policy.images) for name in spellings(image)):
            yield "policy.images", image or "a container without an image"
        elif ".." in image.split("/") and "*" not in policy.images:
            yield "policy.images", image


def _is_path_allowed(image: str, path: str, patterns: Iterable[str], places: Iterable[str]) -> bool:
    """Return whether a file or directory of the site may be an image: it shows all that it has."""
    named = [pattern for pattern in patterns if pattern != "*"]
    if matches_any(image, named) and ".." not in path.split("/"):
        return True
    return "*" in patterns and is_below(path, [place for place in places if place[:1] == "/"])


# --- annotations and flags ------------------------------------------------------------------------


def _annotation_violations(job: Job, pool: Pool) -> Iterator[tuple[str, str]]:
    policy, rules = pool.policy, pool.build.rules
    for key in (*job.used_annotations, *job.annotations):
        name = key.rpartition("/")[2]
        names = (key, name)
        if name in ON_THE_NODE and name not in rules.annotations:
            yield "build.rules.annotations", f"the annotation {name}, which it does not name"
        if not any(matches_any(one, policy.annotations) for one in names):
            yield "policy.annotations", f"the annotation {name}"
        if any(matches_any(one, policy.forbidden_annotations) for one in names):
            yield "policy.forbidden_annotations", f"the annotation {name}"
        if name == FLAGS and policy.forbidden_flags:
            yield from _flag_violations(job.annotations.get(key, ""), policy.forbidden_flags)


def _flag_violations(value: str, forbidden: Iterable[str]) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(value)
    except ValueError:
        yield "policy.forbidden_flags", "flags that cannot be split into words"
        return
    for word in words:
        for flag in forbidden:
            if _is_flag(word, flag):
                yield "policy.forbidden_flags", f"the flag {flag} ({word})"


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


# --- amounts --------------------------------------------------------------------------------------


def _amount_violations(job: Job, policy: Policy) -> Iterator[tuple[str, str]]:
    gpus = sum(job.gpus.values())
    if policy.cpu is not None and job.cpu_milli > cpu_milli(policy.cpu):
        yield "policy.cpu", f"{job.cpu_milli / 1000:g} cores: the most is {policy.cpu}"
    if policy.memory is not None and job.memory_bytes > byte_count(policy.memory):
        yield "policy.memory", f"{job.memory_bytes} bytes: the most is {policy.memory}"
    if _exceeds(gpus, policy.gpus):
        yield "policy.gpus", f"{gpus} GPUs: the most is {policy.gpus}"
    if _exceeds(job.wall_time_s or 0, policy.wall_time_s):
        yield "policy.wall_time_s", f"{job.wall_time_s} s: the most is {policy.wall_time_s}"


def _exceeds(amount: int, most: Optional[int]) -> bool:
    return most is not None and amount > most
