"""Redis store of build configurations, so that a restarted plugin has them a moment sooner.

JSON only, in the form in which submitters publish it, and checked as strictly. Nothing is wrong
without it, when it dies, or when it comes back empty: what a site publishes wins. Pending deletes
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

from plugin_server.common.periodic_thread import Poller
from plugin_server.common.settings import Redis as RedisSettings
from plugin_server.state.delete_records import DeleteRecord, parse_delete_record
from plugin_server.state.pools import Pools
from templates.common.errors import ConfigError, InterlinkNatsError, one_line
from templates.common.names import check_token
from templates.nats import codec
from templates.program.recurring_error import RecurringError
from templates.protocol import publications

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 2.0
TIMEOUT_S = 2.0
SCAN_COUNT = 500  # deletes or configurations in one message


class Store:
    """Redis store that loads once, then saves changes every few seconds, in its own thread."""

    def __init__(self, settings: RedisSettings, pools: Pools) -> None:
        self._settings = settings
        self._pools = pools
        self._saved: dict[str, str] = {}  # pool -> digest of the configuration
        self._poller = Poller("redis", self._save, lambda: SAVE_EVERY_S)
        self._error = RecurringError(
            logger, "redis: not used until it answers", "redis: works again"
        )

    def start(self) -> None:
        """Load the configurations, and start saving."""
        with self._log_errors(), self._connect() as redis:
            logger.info("redis: configurations of %d pools loaded", self._load(redis))
        self._poller.start()

    def stop(self) -> None:
        """Stop the thread, and try to save once more."""
        self._poller.stop(3 * TIMEOUT_S)
        self._save()

    # --- loading --------------------------------------------------------------------------------

    def _load(self, redis: Redis) -> int:
        """Load the configurations; return how many there are."""
        loaded = 0
        for pool, raw in self._entries(redis, "configs"):
            try:
                self._pools.restore_config(publications.read_config(codec.decode(raw), pool))
                check_token("pool", pool)
            except InterlinkNatsError as error:
                logger.warning("redis: the configuration of %s is not one: %s", pool, error)
                continue
            loaded += 1
            redis.unlink(self._key(f"states:{pool}"))  # kept by former versions
        return loaded

    def _entries(self, redis: Redis, name: str) -> Iterator[tuple[str, bytes]]:
        found: Any = redis.hscan_iter(self._key(name), count=SCAN_COUNT)
        for key, value in found:
            yield key.decode(errors="replace"), value

    # --- pending deletes ------------------------------------------------------------------------

    def add(self, record: DeleteRecord) -> None:
        """Save a pending delete; without Redis, it is kept in memory and in a file."""
        if not self._error.message:
            with self._log_errors(), self._connect() as redis:
                redis.hset(self._key("deletes"), record.job, json.dumps(record._asdict()))

    def remove(self, job: str) -> None:
        """Remove a delete that its site has confirmed."""
        if not self._error.message:
            with self._log_errors(), self._connect() as redis:
                redis.hdel(self._key("deletes"), job)

    def load(self) -> list[DeleteRecord]:
        """Return the deletes that are not confirmed."""
        found: list[DeleteRecord] = []
        with self._log_errors(), self._connect() as redis:
            for _, raw in self._entries(redis, "deletes"):
                record = parse_delete_record(raw, "redis")
                if record is not None:
                    found.append(record)
        return found

    @contextlib.contextmanager
    def _log_errors(self) -> Iterator[None]:
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
            pool: info.config
            for pool, info in self._pools.snapshot().items()
            if info.config and self._saved.get(pool) != info.config.digest
        }
        if works and not changed:
            return
        with self._log_errors(), self._connect() as redis:
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
            password = _read_password(self._settings.password_file)
        return Redis.from_url(
            self._settings.url,
            password=password,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
        )

    def _key(self, name: str) -> str:
        return f"{self._settings.prefix}:{name}"


def _read_password(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise ConfigError("redis.password_file", f"{path}: {reason}") from None
