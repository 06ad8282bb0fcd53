"""Accounts of the NATS server, in its own words: one for the cluster's users, one for each site.

A message leaves its account only where a row of the table of subjects lets it: who is asked exports
a service, who publishes exports a stream, and the other side imports it. So a site reaches nothing
of another one's, whatever its user may say, and the server's limits hold for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from templates.nats.permissions import Permissions
from templates.nats.subjects import (
    ANSWER_S,
    ANY,
    NO_ANSWER,
    NO_TOKENS,
    ONE_ANSWER,
    SITE,
    TABLE,
    SubjectRow,
    subject,
)

CLUSTER = "cluster"

SERVER_LIMITS: dict[str, Any] = {
    "max_payload": "1MB",
    "max_pending": "64MB",  # the plugin reads logs of all sites at once
    "write_deadline": "5s",
    "max_control_line": "2KB",
    "max_connections": 16384,
    "ping_interval": "20s",
    "ping_max": 3,
}
"""Limits of the whole server; accounts cannot have them."""
LOGIN_S = 2
CONNECTIONS = 8  # of one site, over all of its submitters
SUBSCRIPTIONS = 1024  # of each connection: each large answer of the last two minutes has one
_STORE = {"max_mem": 0, "max_file": 4 * 1024 * 1024, "max_streams": 1, "max_consumers": 16}

Account = dict[str, Any]


def cluster_account(
    root: str, pools: Mapping[str, Iterable[str]], users: Iterable[dict[str, Any]]
) -> Account:
    """Return the cluster's account, which speaks with these sites about their pools."""
    rows = [row for row in TABLE if not _is_exported_by_site(row)]
    exports = [_export(root, row) for row in rows if row.tokens == NO_TOKENS]
    imports = []
    for site, own in pools.items():
        for pool in own:
            of_pool = [row for row in rows if row.tokens != NO_TOKENS]
            exports += [_export(root, row, pool, site) for row in of_pool]
            imports += [
                _import(root, row, site, pool) for row in TABLE if _is_exported_by_site(row)
            ]
    return {"users": list(users), "exports": exports, "imports": imports}


def site_account(
    root: str,
    pools: Iterable[str],
    users: Iterable[dict[str, Any]],
    *,
    connections: int = CONNECTIONS,
    has_bucket: bool = False,
) -> Account:
    """Return a site's account."""
    rows = [row for row in TABLE if not _is_exported_by_site(row)]
    imports = [_import(root, row, CLUSTER) for row in rows if row.tokens == NO_TOKENS]
    exports = []
    for pool in pools:
        exports += [_export(root, row, pool, CLUSTER) for row in TABLE if _is_exported_by_site(row)]
        of_pool = [row for row in rows if row.tokens != NO_TOKENS]
        imports += [_import(root, row, CLUSTER, pool) for row in of_pool]
    made = closed_account(connections=connections, has_bucket=has_bucket)
    return {**made, "users": list(users), "exports": exports, "imports": imports}


def closed_account(*, connections: int = CONNECTIONS, has_bucket: bool = False) -> Account:
    """Return an account that is there, and through which nobody speaks.

    A server has to know an account before something is exported to it, and so have all servers, if
    there are several. Else a new site's requests for parts, and what it says at another server,
    reach nobody who was connected before.
    """
    limits = {"max_connections": connections, "max_subscriptions": SUBSCRIPTIONS}
    store = {"jetstream": dict(_STORE)} if has_bucket else {}
    return {"limits": {**limits, "max_leafnodes": 0}, **store}


def user_entry(public_key: str, may: Permissions) -> dict[str, Any]:
    """Return one user of an account."""
    permissions: dict[str, Any] = {
        "publish": {"allow": list(may.publish)},
        "subscribe": {"allow": list(may.subscribe)},
    }
    if may.answers:
        permissions["allow_responses"] = {"max": may.answers, "expires": f"{ANSWER_S}s"}
    return {"nkey": public_key, "permissions": permissions}


def _is_service(row: SubjectRow) -> bool:
    return row.answers != NO_ANSWER


def _is_exported_by_site(row: SubjectRow) -> bool:
    return SITE in (row.subscribers if _is_service(row) else row.publishers)


def _kind(row: SubjectRow) -> str:
    return "service" if _is_service(row) else "stream"


def _export(root: str, row: SubjectRow, pool: str = "", account: str = "") -> dict[str, Any]:
    """Return an export to one account; without one, to whoever imports it."""
    made: dict[str, Any] = {_kind(row): subject(root, row.kind, pool, ANY)}
    if account:
        made["accounts"] = [account]
    if _is_service(row):
        made["threshold"] = f"{row.silent_s}s"
    if row.answers > ONE_ANSWER:
        made["response"] = "stream"
    return made


def _import(root: str, row: SubjectRow, account: str, pool: str = "") -> dict[str, Any]:
    return {_kind(row): {"account": account, "subject": subject(root, row.kind, pool, ANY)}}
