"""Checks of what a job could do to the submitter and to other jobs, as it runs as the same user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from submitter.backends import registry
from submitter.cli import config_file
from submitter.cli.report import Report
from submitter.config.settings import Pool, Settings
from templates.nats.options import LinkSettings
from templates.site.build_config import HOST

PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
PTRACE_HINT = "sysctl -w kernel.yama.ptrace_scope=1, and the same in /etc/sysctl.d"


def check(path: Path, settings: Settings, options: LinkSettings, report: Report) -> None:
    """Check the files that jobs must not read or change, and what they know of each other."""
    pools = [pool for pool in settings.pools if _is_run_by_our_user(pool)]
    if not pools:
        return
    if is_root():
        report.wrong("user", "all jobs would run as root", "run the service as another user")
        return
    for key, name in config_file.secret_files(settings.nats):
        _check_secret(f"nats.{key}", name, options, report)
    for name in (str(path), str(path.parent), sys.prefix):
        if may_change(name):
            hint = f"chown root {name}, and chmod go-w {name}"
            report.wrong(name, "jobs, which run as this user, could change it", hint)
    for pool in pools:
        _check_other_jobs(pool, settings, path, report)
        _check_memory(pool, report)


def _is_run_by_our_user(pool: Pool) -> bool:
    """Return whether jobs are processes of our user, of this machine or of the site."""
    backend = registry.load_class_or_base(pool)
    return backend.runs_here or backend.needs_shared_directory(pool)


def is_root() -> bool:
    """Return whether we can do everything."""
    return os.geteuid() == 0


def may_read(path: str) -> bool:
    """Return whether a process of our user can read a file, now or once it has changed its mode."""
    return os.access(path, os.R_OK, effective_ids=True) or _is_owner(path)


def may_change(path: str) -> bool:
    """Return whether a process of our user can change a file or what is in a folder."""
    return os.access(path, os.W_OK, effective_ids=True) or _is_owner(path)


def _is_owner(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _check_secret(key: str, name: str, options: LinkSettings, report: Report) -> None:
    if may_read(name):
        message = f"jobs, which run as this user, could read {name}"
        hint = f"chown root {name}, chmod 600 {name}, and StandardInput=file:{name} in the unit"
        report.wrong(key, message, hint)
    elif options.secret:
        report.ok(key, f"{name}, handed over by root: no job can read it")


def _check_other_jobs(pool: Pool, settings: Settings, path: Path, report: Report) -> None:
    """Check whether a job could read what belongs to others."""
    subject, names = f"pool {pool.name}: other jobs", pool.policy.namespaces or ("*",)
    shares = len(names) > 1 or any(character in names[0] for character in "*?[")
    if pool.build.runtime.name == HOST and shares:
        message = f"with runtime {HOST} a job could read the Secrets of the others, of {names}"
        hint = "name one namespace in policy.namespaces, or a runtime in build.runtime.name"
        report.wrong(subject, message, hint)
    private = [pool.directory, *(name for _, name in config_file.secret_files(settings.nats))]
    for host_path in pool.build.volumes.host_paths:
        root = host_path.path.rstrip("/") + "/"
        for name in private:
            if f"{name}/".startswith(root) or root.startswith(f"{name}/"):
                message = f"pods may mount {host_path.path}, and so reach {name}"
                hint = "take it out of build.volumes.host_paths, or move what is private"
                report.wrong(subject, message, hint)


def _check_memory(pool: Pool, report: Report) -> None:
    """Check whether a job on this machine could look into a submitter that has just started."""
    if not registry.load_class_or_base(pool).runs_here or pool.build.runtime.name == "podman":
        return
    try:
        scope = Path(PTRACE_SCOPE).read_text(encoding="ascii").strip()
    except OSError:
        scope = "0"
    if scope == "0":
        message = "jobs on this machine could look into the submitter's memory while it starts"
        report.wrong(f"pool {pool.name}: memory", message, PTRACE_HINT)
