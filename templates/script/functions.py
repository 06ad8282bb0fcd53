"""The second half of job.sh: the functions that run a pod, chosen by what it needs.

It depends on the site and on the needs alone, so each choice is rendered once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from templates.common.quoting import quote
from templates.script.jinja import render
from templates.site.build_config import BuildConfig

APPTAINER = ("apptainer", "singularity")

# Needs that the templates test for; functions are rendered only for those that a pod has.
NEEDS = (
    *("memory", "sizes", "deadline", "probes", "hooks", "joined", "sidecars", "restarts"),
    *("message_from_logs", "message_paths", "odd", "odd_paths", "hosts", "modules"),
    *("empty_dirs", "memory_dirs", "binds", "pins", "workdirs"),
    *("sub_paths", "nested", "host_paths", "places", "archives", "always", "login"),
    *("container_commands", "mpi", "pre_exec", "tunnel", "header", "footer"),
    *("gpus", "users", "own_network", "pod", "cpus"),  # the last four of podman only
)

_INDENT = re.compile(r"^(?: {4})+", re.MULTILINE)


class SiteFacts(NamedTuple):
    """Settings of a site that the functions depend on."""

    runtime: str
    cgroups: bool
    rerun: bool
    keep: str  # a bash pattern
    path: str  # the rest is bash words
    cache: str
    scratch_dir: str
    shared_scratch: bool
    memory_dir: str
    tmp_dir: str
    attempts: int
    backoff: int
    recheck: int
    stale: int
    renew: int


def site_facts(config: BuildConfig) -> SiteFacts:
    """Return the part of a BuildConfig that the functions depend on."""
    images, scratch = config.images, config.volumes.scratch
    return SiteFacts(
        runtime=config.runtime.name,
        cgroups=config.script.cgroups == "auto",
        rerun=config.script.rerun,
        keep=" | ".join(config.environment.keep),
        path=":".join(map(quote, config.environment.path)),
        cache=quote(images.cache) if images.cache else '"$HOME/.interlink/images"',
        scratch_dir=f'{quote(scratch)}/"$JOB"' if scratch else '"$DIR/scratch"',
        shared_scratch=bool(scratch),
        memory_dir=f'{quote(config.volumes.memory)}/"$JOB"',
        tmp_dir=config.apptainer.tmp_dir,
        attempts=images.pull_attempts,
        backoff=images.pull_backoff_s,
        recheck=images.always_recheck_s,
        stale=images.lock_stale_s,
        renew=max(1, images.lock_stale_s // 4),
    )


@lru_cache(maxsize=256)
def render_functions(site: SiteFacts, needs: frozenset[str]) -> str:
    """Render the functions, and the call that starts them."""
    facts = {
        **site._asdict(),
        **{name: name in needs for name in NEEDS},
        "together": not needs & {"sidecars", "restarts", "footer", "tunnel"},
        # Whether it uses a folder that other users of the node may have, too.
        "common": site.runtime in APPTAINER or site.shared_scratch or "memory_dirs" in needs,
        "prefix": "SINGULARITY" if site.runtime == "singularity" else "APPTAINER",
    }
    text = "".join(render(f"{name}.sh.j2", **facts) for name in _parts(site, needs))
    # Tabs for each four spaces: the script goes to every site with every pod.
    return _INDENT.sub(lambda match: "\t" * (len(match[0]) // 4), text)


def _parts(site: SiteFacts, needs: frozenset[str]) -> list[str]:
    family = "apptainer" if site.runtime in APPTAINER else site.runtime
    chosen = {
        "core": True,
        "environment": True,
        "volumes": "binds" in needs,
        "hostpath": "host_paths" in needs,
        "images": family != "host",
        f"runtime_{family}": True,
        "probes": bool(needs & {"probes", "hooks"}),
        "cgroups": site.cgroups and "memory" in needs and family != "podman",
        "supervise": True,
        "watch": True,
        "main": True,
    }
    return [name for name, wanted in chosen.items() if wanted]
