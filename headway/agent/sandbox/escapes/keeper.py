"""A server's part for the ground: attempts leave blobs with it, and it remembers them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Keeper:
    """What was left, by digest; the path of an upload is its digest."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        kept = self.kept

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                kept[self.path.removeprefix("/")] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def serving(self) -> Generator[None]:
        """While it listens."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()
