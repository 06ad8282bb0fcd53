"""The options for tokens by which a batch system knows its submitter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from templates.settings.types import PathOrEmpty, Word

NO_REDIS = "is no longer supported: use tokens.bucket (of the NATS server) or tokens.share"
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class TokenOptions:
    """Tokens of an OpenID issuer; secrets are in files of their own."""

    issuer: Word = ""
    """Who gives them (https://iam.example.org/); empty: none are asked for."""
    ca_file: PathOrEmpty = ""
    """Certificates of the CAs that the issuer is believed by; empty: those that are usual."""
    client_id: Word = ""
    """Who we are there."""
    client_secret_file: PathOrEmpty = ""
    """File with the client's secret; empty: it has none."""
    refresh_token_file: PathOrEmpty = ""
    """File with a refresh token to begin with; empty: the client asks for itself."""
    scopes: tuple[Word, ...] = (
        "compute.read",
        "compute.create",
        "compute.modify",
        "compute.cancel",
    )
    """What the tokens have to allow."""
    audience: Word = ""
    """For whom they have to be."""
    share: PathOrEmpty = ""
    """A folder where all submitters that are this client agree on who asks; empty: the pool's."""
    bucket: Word = ""
    """A bucket of the NATS server's key-value store where they agree on it instead."""


def mistakes(options: TokenOptions) -> Iterator[tuple[str, str]]:
    """Yield keys and errors that concern more than one value."""
    if not options.issuer:
        return
    if not options.issuer.startswith("https://"):
        yield "tokens.issuer", "must begin with https://"
    if not options.client_id:
        yield "tokens.client_id", "is missing"
    if not options.client_secret_file and not options.refresh_token_file:
        yield "tokens", "needs a client_secret_file, a refresh_token_file, or both"
    if options.bucket and not _BUCKET.fullmatch(options.bucket):
        yield "tokens.bucket", "must consist of letters, digits, - and _"
    if options.share and options.bucket:
        yield "tokens", "can have only one of share and bucket"
