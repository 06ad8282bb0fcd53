"""Accounts: literally what servers out there are told."""

from __future__ import annotations

import json
from typing import Any

from templates.nats import accounts, subjects

SITES = {"alpha": ("a",), "beta": ("b", "c")}


def lines(entries: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(entry) for entry in entries]


def test_a_site() -> None:
    made = accounts.site_account("il", ("a",), [{"nkey": "U"}])
    assert made["limits"] == {
        "max_connections": 8,
        "max_subscriptions": 1024,
        "max_leafnodes": 0,
    }
    assert made["users"] == [{"nkey": "U"}]
    assert lines(made["exports"]) == [
        '{"service": "il.create.a", "accounts": ["cluster"], "threshold": "120s"}',
        '{"service": "il.delete.a.*", "accounts": ["cluster"], "threshold": "120s"}',
        '{"service": "il.logs.a.*", "accounts": ["cluster"], "threshold": "120s",'
        ' "response": "stream"}',
        '{"service": "il.query.a", "accounts": ["cluster"], "threshold": "120s"}',
        '{"stream": "il.config.a", "accounts": ["cluster"]}',
        '{"stream": "il.resources.a", "accounts": ["cluster"]}',
        '{"stream": "il.status.a", "accounts": ["cluster"]}',
        '{"service": "il.answerparts.a.*", "accounts": ["cluster"], "threshold": "15s"}',
    ]
    assert lines(made["imports"]) == [
        '{"stream": {"account": "cluster", "subject": "il.hello"}}',
        '{"service": {"account": "cluster", "subject": "il.requestparts.a.*"}}',
        '{"stream": {"account": "cluster", "subject": "il.shutdown.a"}}',
    ]
    assert "jetstream" not in made


def test_only_a_site_with_a_bucket_may_store_anything() -> None:
    made = accounts.site_account("il", ("a",), [], has_bucket=True)
    assert made["jetstream"] == {
        "max_mem": 0,
        "max_file": 4194304,
        "max_streams": 1,
        "max_consumers": 16,
    }


def test_the_cluster() -> None:
    made = accounts.cluster_account("il", SITES, [])
    assert lines(made["exports"]) == [
        '{"stream": "il.hello"}',
        *(
            text
            for pool, site in (("a", "alpha"), ("b", "beta"), ("c", "beta"))
            for text in (
                f'{{"service": "il.requestparts.{pool}.*", "accounts": ["{site}"],'
                ' "threshold": "15s"}',
                f'{{"stream": "il.shutdown.{pool}", "accounts": ["{site}"]}}',
            )
        ),
    ]
    assert "limits" not in made


def test_what_one_side_exports_the_other_imports() -> None:
    made = {site: accounts.site_account("il", pools, []) for site, pools in SITES.items()}
    made["cluster"] = accounts.cluster_account("il", SITES, [])
    exported = {
        (kind, name, entry[kind], to)
        for name, account in made.items()
        for entry in account["exports"]
        for kind in ("service", "stream")
        if kind in entry
        for to in entry.get("accounts", SITES)
    }
    imported = {
        (kind, entry[kind]["account"], entry[kind]["subject"], name)
        for name, account in made.items()
        for entry in account["imports"]
        for kind in entry
    }
    assert exported == imported
    kinds = {subject.split(".")[1] for _, _, subject, _ in imported}
    assert kinds == {row.kind for row in subjects.TABLE}
