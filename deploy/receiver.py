"""A stand-in for a receiver of notices: verifies each webhook and prints its headline.

Usage: ``python receiver.py FILE [PORT]``; FILE holds the secret.
"""

from __future__ import annotations

import http.server
import pathlib
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

verifier = Webhook(pathlib.Path(sys.argv[1]).read_text().strip())
port = int(sys.argv[2]) if len(sys.argv) > 2 else 8090


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes notices: POST of JSON, signed as Standard Webhooks have it."""

    timeout = 10

    def do_POST(self) -> None:
        """Answer 204 to a notice with a right signature, 401 to anything else."""
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), 1 << 20))
        try:
            notice = verifier.verify(body, dict(self.headers))
        except WebhookVerificationError:
            self.send_error(401)
            return
        print(self.headers["webhook-id"], notice["data"]["headline"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing but notices."""


http.server.ThreadingHTTPServer(("", port), Receiver).serve_forever()
