"""S3-compatible server (moto) on a free port of the loopback interface, with faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.backends import get_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "segments"
Environment = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environment, StartResponse], Iterable[bytes]]
Fault = Callable[[Application, Environment, StartResponse], Iterable[bytes]]


class _QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - a method of werkzeug
        return


class S3Server:
    """Running server; `fault` takes the place of the next requests for which it is set."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        """Method and path with query of each request."""
        self.faults: list[tuple[Callable[[str], bool], Fault]] = []
        """Pairs of a condition on a request and what is done once instead of it."""
        self.inner: Application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_QuietHandler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.released = threading.Event()
        """Set at the end: responses that are held back return."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _serve(self, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        text = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        self.requests.append(text)
        for entry in self.faults:
            if entry[0](text):
                self.faults.remove(entry)
                return entry[1](self.inner, environ, start_response)
        return self.inner(environ, start_response)

    def inject(self, fault: Fault, *, method: str = "", query: str = "", times: int = 1) -> None:
        """Do ``fault`` instead of the next requests of a method with a text in the query."""
        for _ in range(times):
            self.faults.append((lambda text: text.startswith(method) and query in text, fault))

    @property
    def bucket(self) -> Any:
        """Bucket in the server's memory."""
        return get_backend("s3")["123456789012"]["aws"].buckets[BUCKET]

    def reset(self) -> None:
        """Remove all objects, uploads and faults; create the bucket."""
        self.faults.clear()
        backend = get_backend("s3")["123456789012"]["aws"]
        backend.reset()
        backend.create_bucket(BUCKET, "us-east-1")
        self.requests.clear()

    def settings(self) -> dict[str, str]:
        """Return the settings with which a store reaches the server."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }

    def stop(self) -> None:
        """End the server."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def running_server() -> Iterator[S3Server]:
    """Run a server with an empty bucket."""
    server = S3Server()
    try:
        server.reset()
        yield server
    finally:
        server.stop()


# ---------------------------------------------------------------------- faults


def status(code: int, body: bytes = b"<Error><Code>Injected</Code></Error>") -> Fault:
    """Return a fault that answers with an error, without doing what was requested."""

    def fault(inner: Application, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{code} Injected", [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
        return [body]

    return fault


def done_but_failed(code: int = 500) -> Fault:
    """Return a fault that does what was requested and answers with an error."""

    def fault(inner: Application, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        b"".join(inner(environ, lambda *args: None))
        return status(code)(inner, {**environ, "CONTENT_LENGTH": "0"}, start_response)

    return fault


def held_back(server: S3Server) -> Fault:
    """Return a fault that does not answer until the server ends."""

    def fault(inner: Application, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        server.released.wait(20)
        return status(503)(inner, {**environ, "CONTENT_LENGTH": "0"}, start_response)

    return fault


def changed(change: Callable[[bytes], bytes], length: int | None = None, **headers: str) -> Fault:
    """Return a fault that changes body and headers of the response.

    ``length``: announced length, None for that of the changed body; a body that is shorter ends the connection.
    """

    def fault(inner: Application, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        kept: list[Any] = []
        body = change(b"".join(inner(environ, lambda *args: kept.extend(args))))
        replaced = {"content-length", *(name.lower() for name in headers)}
        listed = [(k, v) for k, v in kept[1] if k.lower() not in replaced]
        listed += [("Content-Length", str(len(body) if length is None else length)), *headers.items()]
        start_response(kept[0], listed)
        return [body]

    return fault
