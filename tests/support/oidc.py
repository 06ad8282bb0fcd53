"""A small OpenID issuer of the tests' own, over TLS: discovery, keys, the two flows without people.

    with running(folder) as issuer:
        issuer.clients["us"] = "secret"
        issuer.lifetime_s = 5

``python -m tests.support.oidc FOLDER`` runs one for ever; what it is to do stands in
FOLDER/issuer.json, and what it was asked comes into FOLDER/asked, a line each. On SIGHUP it signs
with a new key. It knows what it was asked and answered (``asked``).
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import signal
import ssl
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, TextIO
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from scripts.lib import certificates


class Issuer:
    """What it knows; tests change it while it runs."""

    def __init__(self, folder: Path, host: str = "localhost", port: int = 0) -> None:
        self.folder = folder
        self.lifetime_s = 600.0
        self.clients: dict[str, str] = {}
        """Client -> secret; empty: one without."""
        self.refresh_tokens: dict[str, str] = {}
        """Those that are good -> whom they are for."""
        self.rotates = True
        """Whether a refresh token is good once only, and another one is given for it."""
        self.fails_with: Optional[tuple[int, str]] = None
        """Instead of a token: a status and what is said."""
        self.asked: list[dict[str, str]] = []
        """The forms that came, with ``given``: what became of them."""
        self.log: Optional[TextIO] = None
        """Where they are written, too."""
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self.rotate()
        self._lock = threading.Lock()
        if not (folder / "key.pem").exists():
            certificates.make(folder, (host,))
        self._server = _Server(("", port), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://{host}:{self._server.server_port}"

    @property
    def ca_file(self) -> str:
        return str(self.folder / "ca.pem")

    def run(self) -> None:
        self._server.serve_forever()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # --- what it says ---------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }

    def rotate(self) -> None:
        """Sign with a new key from now on; what the others have signed is still believed."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._keys = {**self._keys, uuid.uuid4().hex[:8]: key}

    def keys(self) -> dict[str, Any]:
        found = []
        for name, key in self._keys.items():
            public = key.public_key().public_numbers()
            own = {"kty": "RSA", "kid": name, "alg": "RS256", "use": "sig"}
            found.append({**own, "n": _number(public.n), "e": _number(public.e)})
        return {"keys": found}

    def token(self, form: dict[str, str], client: str, secret: str) -> tuple[int, dict[str, Any]]:
        """A status and an answer; whatever is asked of one token is asked one at a time."""
        with self._lock:
            status, answer = self._token(form, client, secret)
            noted = {**form, "client": client, "given": answer.get("error", "token")}
            self.asked.append(noted)
            if self.log is not None:
                self.log.write(f"{json.dumps(noted)}\n")
                self.log.flush()
        return status, answer

    def _token(self, form: dict[str, str], client: str, secret: str) -> tuple[int, dict[str, Any]]:
        if self.fails_with is not None:
            status, words = self.fails_with
            return status, {"error": words}
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client", "error_description": f"not {secret}"}
        answer: dict[str, Any] = {"token_type": "Bearer", "expires_in": int(self.lifetime_s)}
        subject = client
        if form.get("grant_type") == "refresh_token":
            used = form.get("refresh_token", "")
            if used not in self.refresh_tokens:
                return 400, {"error": "invalid_grant", "error_description": f"{used} is used"}
            subject = self.refresh_tokens[used]
            if self.rotates:
                del self.refresh_tokens[used]
                answer["refresh_token"] = self.new_refresh_token(subject)
        elif form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        answer["access_token"] = self.sign(
            subject, form.get("scope", ""), form.get("audience", ""), self.lifetime_s
        )
        return 200, answer

    def new_refresh_token(self, subject: str) -> str:
        token = uuid.uuid4().hex
        self.refresh_tokens[token] = subject
        return token

    def sign(self, subject: str, scope: str, audience: str, lifetime_s: float, **more: Any) -> str:
        """A token of the WLCG's profile, with further claims."""
        now = time.time()
        claims = {
            "iss": self.url,
            "sub": subject,
            "aud": audience,
            "scope": scope,
            "wlcg.ver": "1.0",
            "jti": uuid.uuid4().hex,
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now + lifetime_s),
            **more,
        }
        name, key = list(self._keys.items())[-1]
        head = {"alg": "RS256", "typ": "JWT", "kid": name}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = "/" + self.path.lstrip("/")  # an issuer that ends in "/" is asked so
                if path == "/.well-known/openid-configuration":
                    self._answer(200, issuer.describe())
                elif path == "/keys":
                    self._answer(200, issuer.keys())
                else:
                    self._answer(404, {"error": "not_found"})

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                form = {k: v[0] for k, v in parse_qs(self.rfile.read(length).decode()).items()}
                scheme, _, word = self.headers.get("Authorization", "").partition(" ")
                client, secret = form.pop("client_id", ""), form.pop("client_secret", "")
                if scheme == "Basic":
                    one, _, other = base64.b64decode(word).decode().partition(":")
                    client, secret = unquote_plus(one), unquote_plus(other)
                self._answer(*issuer.token(form, client, secret))

            def _answer(self, status: int, said: dict[str, Any]) -> None:
                content = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Who does not believe us, or has gone, is nothing to talk about."""


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Issuer]:
    """One on this machine."""
    issuer = Issuer(folder)
    thread = threading.Thread(target=issuer.run)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.stop()
        thread.join()


if __name__ == "__main__":
    home = Path(sys.argv[1])
    wanted = json.loads((home / "issuer.json").read_text())
    one = Issuer(home, wanted["host"], wanted["port"])
    one.clients, one.lifetime_s = wanted["clients"], wanted["lifetime_s"]
    one.refresh_tokens = wanted.get("refresh_tokens", {})
    signal.signal(signal.SIGHUP, lambda *_: one.rotate())
    with (home / "asked").open("w") as one.log:
        one.run()
