"""``kueue-nats plan``: show the objects of a MasterQueue before anything is made."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

import yaml

from kueue_nats.plan import drafts, planner
from kueue_nats.plan import objects as kueue_objects
from kueue_nats.plan.actions import is_owned
from kueue_nats.plan.diff import is_superset
from kueue_nats.plan.objects import FLAVORS, NEW, QUEUES
from kueue_nats.pools.tracker import MAX_POOLS, PoolRecord, current_offers, restored_record
from kueue_nats.spec import masterqueue
from kueue_nats.spec import settings as settings_module
from kueue_nats.spec.errors import KueueClientError, SpecError
from kueue_nats.spec.masterqueue import MasterQueue
from kueue_nats.spec.settings import Settings
from templates.common.errors import ConfigError, Located
from templates.common.names import check_token
from templates.protocol.publications import Resources, read_resources
from templates.settings.files import parse_yaml, reading_file

Write = Callable[[str], object]
Json = dict[str, Any]

NO_UID = "00000000-0000-0000-0000-000000000000"


def run(arguments: argparse.Namespace, settings: Settings, write: Write) -> int:
    """Print the objects, or with ``--diff`` how the cluster's differ; return the exit code."""
    masters = _masters(arguments.file)
    offered = _offered(arguments.resources) if arguments.resources else {}
    try:
        if arguments.diff:
            return _differences(masters, offered, settings, write)
    except KueueClientError as error:
        raise ConfigError("cluster", str(error)) from None
    for raw, wanted in masters:
        local = [group.name for group in wanted.groups if group.nats is None]
        plan = _planned(wanted, offered, local)
        made = [*_objects(raw, plan, NEW).values()]
        write(yaml.safe_dump_all(made, sort_keys=False, explicit_start=True))
        for pool in plan.pools:
            state = f"{pool.state}{': ' if pool.message else ''}{pool.message}"
            write(f"# {wanted.name}: {pool.group}: {pool.name}: {state}\n")
    return 0


# --- reading --------------------------------------------------------------------------------------


def _masters(path: str) -> list[tuple[Json, MasterQueue]]:
    with reading_file(path):
        text = Path(path).read_text(encoding="utf-8")
    try:
        documents = [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(path, f"is not YAML: {error}") from None
    raws = [one for one in documents if one.get("kind") == masterqueue.KIND]
    if not raws:
        raise ConfigError(path, f"holds no {masterqueue.KIND}")
    found = []
    for raw in raws:
        try:
            wanted = masterqueue.read(raw)
        except SpecError as error:
            raise ConfigError(f"{path}: {error.field}", error.reason) from None
        raw["metadata"].setdefault("uid", NO_UID)
        found.append((raw, wanted._replace(uid=raw["metadata"]["uid"])))
    return found


def _offered(path: str) -> dict[str, Resources]:
    with reading_file(path):
        text = Path(path).read_text(encoding="utf-8")
    raw = parse_yaml(text, path)
    if not isinstance(raw, dict) or len(raw) > MAX_POOLS:
        raise ConfigError(path, "must be a mapping of pools to what they publish")
    found = {}
    for pool, said in raw.items():
        message = said if isinstance(said, dict) and "quotas" in said else {"quotas": said}
        try:
            found[pool] = read_resources(message, check_token(path, pool))
        except Located as error:
            raise ConfigError(f"{path}: {pool}", f"{error.field}: {error.reason}") from None
    return found


def _planned(
    wanted: MasterQueue, offered: Mapping[str, Resources], local: list[str]
) -> planner.Plan:
    heard = {}
    for group in wanted.groups:
        if group.nats is not None:
            records: dict[Any, PoolRecord] = {
                (group.nats.source, pool): restored_record(one, 0.0, 0.0)
                for pool, one in offered.items()
            }
            heard[group.name] = current_offers(records, group.nats, 0.0)
    return planner.plan(wanted, heard, local)


def _objects(raw: Json, plan: planner.Plan, version: str) -> dict[tuple[str, str], Json]:
    made = drafts.objects(
        plan, kueue_objects.owner_reference(raw), version, drafts.flavor_names(plan)
    )
    flavors = {(FLAVORS, name): dict(body) for name, body in made.flavors.items()}
    return {**flavors, **{(QUEUES, name): dict(body) for name, body in made.queues.items()}}


# --- comparing ------------------------------------------------------------------------------------


def _differences(
    masters: list[tuple[Json, MasterQueue]],
    offered: Mapping[str, Resources],
    settings: Settings,
    write: Write,
) -> int:
    from kueue_nats.kube.client import connect

    cluster = connect(settings.kubeconfig or settings_module.home_kubeconfig())
    version = cluster.kueue_version()
    there = {plural: cluster.listed(plural, version) for plural in (FLAVORS, QUEUES)}
    uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in cluster.masters()}
    differs = False
    for raw, wanted in masters:
        uid = uids.get(wanted.name, NO_UID)
        raw["metadata"]["uid"] = uid
        local = [name for name, item in there[FLAVORS].items() if not is_owned(item, uid)]
        made = _objects(raw, _planned(wanted, offered, local), version)
        for (plural, name), body in made.items():
            differs |= _shown(there[plural].get(name), body, f"{plural}/{name}", write)
        for plural, items in there.items():
            for name, item in items.items():
                if is_owned(item, uid) and (plural, name) not in made:
                    differs |= _shown(item, None, f"{plural}/{name}", write)
    return int(differs)


def _shown(actual: Json | None, wanted: Json | None, name: str, write: Write) -> bool:
    """Print how one object differs; return whether it does."""
    if wanted is not None and is_superset(actual, wanted):
        return False
    there, planned = _text(actual, wanted), _text(wanted, wanted)
    lines = difflib.unified_diff(there, planned, f"cluster {name}", f"planned {name}")
    write("".join(lines))
    return True


def _text(item: Json | None, like: Json | None) -> list[str]:
    """Return the fields of an object to compare; of the cluster's only those of the planned one."""
    if item is None:
        return []
    spec = item.get("spec") or {}
    kept = {key: spec[key] for key in (like["spec"] if like else spec) if key in spec}
    return yaml.safe_dump(kept, sort_keys=True).splitlines(keepends=True)
