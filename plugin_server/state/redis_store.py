"""What a restarted plugin may know a moment sooner: how scripts are built for each pool, in Redis.

JSON only, in the form in which submitters publish it, and read with the same distrust. Nothing is
wrong without it, when it dies, or when it comes back empty: whatever a site says wins. Deletions
are kept here, too, for plugins without a directory.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from plugin_server.common.periodic_thread import Looking
from plugin_server.common.settings import Redis as RedisSettings
from plugin_server.state.delete_records import Intent, read_intent
from plugin_server.state.pools import Pools
from templates.common.errors import ConfigError, InterlinkNatsError, one_line
from templates.common.names import check_token
from templates.nats import codec
from templates.program.recurring_error import RecurringError
from templates.protocol import publications

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 2.0
ANSWER_S = 2.0
AT_ONCE = 500  # deletions or configurations in one message


class Store:
    """Loads once, then saves what has changed every few seconds, in a thread of its own."""

    def __init__(self, settings: RedisSettings, pools: Pools) -> None:
        self._settings = settings
        self._pools = pools
        self._saved: dict[str, str] = {}  # pool -> digest of the configuration
        self._saving = Looking("redis", self._save, lambda: SAVE_EVERY_S)
        self._error = RecurringError(
            logger, "redis: not used until it answers", "redis: works again"
        )

    def start(self) -> None:
        """Load what there is, and begin to save."""
        with self._tried(), self._connect() as redis:
            logger.info("redis: configurations of %d pools loaded", self._load(redis))
        self._saving.start()

    def stop(self) -> None:
        """End the thread, after a last attempt to save."""
        self._saving.stop(3 * ANSWER_S)
        self._save()

    # --- loading --------------------------------------------------------------------------------

    def _load(self, redis: Redis) -> int:
        """Load the configurations; return how many there are."""
        loaded = 0
        for pool, raw in self._entries(redis, "configs"):
            try:
                self._pools.remember_config(publications.read_config(codec.decode(raw), pool))
                check_token("pool", pool)
            except InterlinkNatsError as error:
                logger.warning("redis: the configuration of %s is not one: %s", pool, error)
                continue
            loaded += 1
            redis.unlink(self._key(f"states:{pool}"))  # kept by former versions
        return loaded

    def _entries(self, redis: Redis, name: str) -> Iterator[tuple[str, bytes]]:
        found: Any = redis.hscan_iter(self._key(name), count=AT_ONCE)
        for key, value in found:
            yield key.decode(errors="replace"), value

    # --- deletions ------------------------------------------------------------------------------

    def add(self, intent: Intent) -> None:
        """Write a deletion down; when Redis is away, memory and file have to do."""
        if not self._error.message:
            with self._tried(), self._connect() as redis:
                redis.hset(self._key("deletes"), intent.job, json.dumps(intent._asdict()))

    def remove(self, job: str) -> None:
        """Its site has confirmed it."""
        if not self._error.message:
            with self._tried(), self._connect() as redis:
                redis.hdel(self._key("deletes"), job)

    def load(self) -> list[Intent]:
        """Those that were not confirmed."""
        found: list[Intent] = []
        with self._tried(), self._connect() as redis:
            for _, raw in self._entries(redis, "deletes"):
                intent = read_intent(raw, "redis")
                if intent is not None:
                    found.append(intent)
        return found

    @contextlib.contextmanager
    def _tried(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError, ConfigError) as error:
            self._error.set(one_line(str(error)) or repr(error))

    # --- saving ---------------------------------------------------------------------------------

    def _save(self) -> None:
        works = not self._error.message
        if not works:
            self._saved.clear()  # it may come back empty
        changed = {
            pool: known.config
            for pool, known in self._pools.known().items()
            if known.config and self._saved.get(pool) != known.config.digest
        }
        if works and not changed:
            return
        with self._tried(), self._connect() as redis:
            redis.ping()
            for pool, config in changed.items():
                raw = codec.encode(publications.write_config(pool, config.build), compress=False)
                redis.hset(self._key("configs"), pool, raw)
                self._saved[pool] = config.digest
            self._error.clear()

    # --- the connection -------------------------------------------------------------------------

    def _connect(self) -> Redis:
        password = None
        if self._settings.password_file:
            password = _secret(self._settings.password_file)
        return Redis.from_url(
            self._settings.url,
            password=password,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
        )

    def _key(self, name: str) -> str:
        return f"{self._settings.prefix}:{name}"


def _secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise ConfigError("redis.password_file", f"{path}: {reason}") from None
