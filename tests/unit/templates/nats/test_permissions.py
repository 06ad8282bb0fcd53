"""Permissions: literally those that servers out there have been given."""

from __future__ import annotations

from templates.nats import permissions, subjects


def test_a_site() -> None:
    may = permissions.site_permissions("interlink", "alpha", ("a", "b"), "tokens-alpha")
    assert may.publish == (
        "interlink.config.a",
        "interlink.resources.a",
        "interlink.status.a",
        "interlink.requestparts.a.*",
        "interlink.config.b",
        "interlink.resources.b",
        "interlink.status.b",
        "interlink.requestparts.b.*",
        "_R_.>",
        "$KV.tokens-alpha.*",
        "$JS.API.DIRECT.GET.KV_tokens-alpha.$KV.tokens-alpha.*",
    )
    assert may.subscribe == (
        "interlink.hello",
        "_INBOX_alpha.>",
        "interlink.create.a a",
        "interlink.delete.a.* a",
        "interlink.logs.a.* a",
        "interlink.query.a a",
        "interlink.answerparts.a.*",
        "interlink.shutdown.a",
        "interlink.create.b b",
        "interlink.delete.b.* b",
        "interlink.logs.b.* b",
        "interlink.query.b b",
        "interlink.answerparts.b.*",
        "interlink.shutdown.b",
    )
    assert may.answers == 0


def test_a_site_without_an_account_of_its_own() -> None:
    """It answers where it was asked: the plugin's inbox is in its own account."""
    may = permissions.guest_permissions("interlink", "alpha", ("a",))
    own = permissions.site_permissions("interlink", "alpha", ("a",))
    assert may == (own.publish[:-1], own.subscribe, 512)
    plugin = permissions.role_permissions("interlink", subjects.PLUGIN, ["alpha"])
    assert plugin.publish[-1] == "_INBOX_alpha.>"


def test_the_plugin() -> None:
    assert permissions.role_permissions("lab.il", subjects.PLUGIN) == (
        (
            "lab.il.create.*",
            "lab.il.delete.*.*",
            "lab.il.logs.*.*",
            "lab.il.query.*",
            "lab.il.answerparts.*.*",
            "lab.il.hello",
            "_R_.>",
        ),
        (
            "lab.il.config.*",
            "lab.il.resources.*",
            "lab.il.status.*",
            "lab.il.requestparts.*.*",
            "_INBOX_plugin.>",
        ),
        0,
    )


def test_kueue_nats_and_the_operator() -> None:
    assert permissions.role_permissions("il", subjects.KUEUE) == (
        ("il.hello",),
        ("il.resources.*", "_INBOX_kueue.>"),
        0,
    )
    assert permissions.role_permissions("il", subjects.OPERATOR) == (
        ("il.shutdown.*",),
        ("_INBOX_operator.>",),
        0,
    )
