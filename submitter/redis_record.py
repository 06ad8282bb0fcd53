"""A shared record in Redis; only who has configured one needs the package."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, Optional

from redis import Redis
from redis.exceptions import RedisError, WatchError

from submitter.token_options import RedisOptions
from templates.errors import one_line

ANSWER_S = 5.0


class RedisRecord:
    """Under one key; it is seen by who administers the server, too."""

    def __init__(self, options: RedisOptions, key: str) -> None:
        self._options, self._key = options, key

    def read(self) -> tuple[bytes, str]:
        with self._redis() as redis:
            content = _content(redis.get(self._key))
        return content, _version(content)

    def swap(self, version: str, content: bytes) -> Optional[str]:
        with self._redis() as redis, redis.pipeline() as all_at_once:
            all_at_once.watch(self._key)  # type: ignore[no-untyped-call]
            if _version(_content(all_at_once.get(self._key))) != version:
                return None
            all_at_once.multi()
            all_at_once.set(self._key, content)
            try:
                all_at_once.execute()
            except WatchError:  # somebody has changed it since
                return None
        return _version(content)

    @contextlib.contextmanager
    def _redis(self) -> Iterator[Redis]:
        """A connection; whatever goes wrong with it is an ``OSError`` in one line."""
        options: dict[str, Any] = {}
        if self._options.password_file:
            with open(self._options.password_file, encoding="utf-8") as file:
                options["password"] = file.read().strip()
        if self._options.ca_file:
            options["ssl_ca_certs"] = self._options.ca_file
        try:
            with Redis.from_url(
                self._options.url,
                socket_timeout=ANSWER_S,
                socket_connect_timeout=ANSWER_S,
                **options,
            ) as redis:
                yield redis
        except (RedisError, UnicodeDecodeError) as error:
            raise OSError(0, one_line(str(error), 200), self._options.url) from None


def _content(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else b""


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
