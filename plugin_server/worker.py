"""gunicorn's worker: the loop that speaks to NATS watches the connections of interLink, too.

In gunicorn's own threaded worker each request wakes a thread, which wakes the loop, which wakes the
thread again: that took more time than all the rest of a create. Here a request that nobody has to
wait for in a thread is answered where it is read (``connection.py``), and thousands of creates may
wait for their sites without a thread each.

The main thread is left with what a worker owes to gunicorn: signs of life, and the end.
"""

from __future__ import annotations

import concurrent.futures
import os
import select
import socket
import time
from typing import Any

from gunicorn.workers.base import Worker as BaseWorker

from plugin_server.connection import Connection, Host
from plugin_server.heads import Heads
from plugin_server.http.app import service_of

BEAT_S = 1.0  # between two signs of life
SWEEP_S = 1.0
FULL_PAUSE_S = 1.0  # when the process may open no more files
START_S = 10.0
ACCEPTED_AT_ONCE = 64
IDLE_AT_THE_END_S = 2.0  # for a request that was sent before the client knew of the end


class Worker(BaseWorker):  # type: ignore[misc]
    """One process that serves."""

    alive: bool

    def run(self) -> None:
        """Serve until the end; gunicorn calls it when the application is there and started."""
        self._bridge = service_of(self.wsgi).bridge
        self._connections: set[Connection] = set()
        self._patience_s = float(self.cfg.keepalive)
        self._bridge.call(self._start(), START_S)
        while self.alive:
            self._pause(BEAT_S)
            if self.ppid != os.getppid():
                self.log.info("The master is gone, so this worker stops: %s", self)
                self.alive = False
        self._finish()

    def _finish(self) -> None:
        """Let what has begun come to its end."""
        end = time.monotonic() + self.cfg.graceful_timeout
        self._bridge.call(self._accept_no_more(), START_S)
        while self._connections and time.monotonic() < end:
            self._pause(BEAT_S / 10)

    def _pause(self, seconds: float) -> None:
        """Say that we live, and wait: for that long, or until a signal."""
        self.notify()
        waker = self.PIPE[0]
        if select.select([waker], [], [], seconds)[0]:
            os.read(waker, 4096)

    # --- in the loop's thread -------------------------------------------------------------------

    async def _start(self) -> None:
        self._loop = self._bridge.running()
        threads = concurrent.futures.ThreadPoolExecutor(self.cfg.threads, "aside")
        self._loop.set_default_executor(threads)
        self._host = Host(
            self.wsgi,
            self.cfg,
            Heads(),
            self._loop,
            lambda: self.alive,
            self.handle_error,
            self._closed,
        )
        for listener in self.sockets:
            listener.setblocking(False)
        self._accept_more()
        self._sweep()

    def _accept_more(self) -> None:
        for listener in self.sockets:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept_none(self) -> None:
        for listener in self.sockets:
            self._loop.remove_reader(listener.fileno())

    def _accept(self, listener: Any) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self.log.error("no connection can be taken: %s", error)
                self._accept_none()
                self._loop.call_later(FULL_PAUSE_S, self._accept_again)
                return
            self._welcome(client, peer, listener.getsockname())

    def _accept_again(self) -> None:
        if self.alive:
            self._accept_more()

    def _welcome(self, client: socket.socket, peer: Any, server: Any) -> None:
        connection = Connection(self._host, client, peer, server)
        self._connections.add(connection)
        connection.open()

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in list(self._connections):
            connection.sweep(now, self._patience_s)
        self._loop.call_later(SWEEP_S, self._sweep)

    async def _accept_no_more(self) -> None:
        self._accept_none()
        self._patience_s = IDLE_AT_THE_END_S
