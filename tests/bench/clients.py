"""Keep-alive HTTP clients on raw sockets, in a process of their own so that they are not the limit.

    python -m tests.bench.clients PORT THREADS

For each line on stdin, a number of seconds, it asks for that long and answers with the number of
responses per second.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b"\r\n\r\nhello"


class Client(threading.Thread):
    """Asks over one connection until the time is over."""

    def __init__(self, port: int, until: float) -> None:
        super().__init__(daemon=True)
        self.port, self.until, self.count = port, until, 0
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while time.perf_counter() < self.until:
                    self.ask(connection)
                    self.count += 1
        except OSError as error:
            self.error = error

    def ask(self, connection: socket.socket) -> None:
        connection.sendall(REQUEST)
        answer = connection.recv(4096)
        while not answer.endswith(BODY):
            more = connection.recv(4096)
            if not more:
                raise ConnectionError(f"not the answer that was expected: {answer[:80]!r}")
            answer += more


def rate(port: int, threads: int, seconds: float) -> float:
    """Responses per second that ``threads`` clients get together."""
    start = time.perf_counter()
    clients = [Client(port, start + seconds) for _ in range(threads)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    errors = [client.error for client in clients if client.error]
    if errors:
        raise errors[0]
    return sum(client.count for client in clients) / (time.perf_counter() - start)


if __name__ == "__main__":
    for line in sys.stdin:
        print(rate(int(sys.argv[1]), int(sys.argv[2]), float(line)), flush=True)
