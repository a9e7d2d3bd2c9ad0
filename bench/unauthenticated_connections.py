"""Memory cost of unauthenticated connections, and the delay for authenticated clients.

``python -m bench.unauthenticated_connections [--strangers 1000] [--seconds 10]``. An authenticated client writes a
record each five milliseconds: before the other connections open, while they open, while they stay, and after they have
closed. A third of them send no byte, a third begin an incomplete frame (at TLS, a hello), a third send a login of half
a mebibyte by the kilobyte; a closed one connects again. ``grew``: growth of the node's peak resident memory from the
first connection to the end.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bench.build_comparison import produce_frame
from compat_tests.support.processes import OTTLA, OttlaProcess, free_port
from compat_tests.support.raw_client import RawClient
from ottla.runtime.tests.certificate_authority import CertificateAuthority
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages import create_topics
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "CONTROLLER": "PLAINTEXT"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(60)
TOKEN_BYTES, PIECE_BYTES = 500 << 10, 1 << 10
STEP_INTERVAL_S, WRITE_INTERVAL_S = 1.0, 0.005


class AuthenticatingNode(OttlaProcess):
    """Node with two listeners that authenticate, one of them with TLS."""

    def __init__(self, where: Path) -> None:
        super().__init__(where / "data")
        authority = CertificateAuthority(where / "ca")
        self.trusted = authority.truststore.location
        self.ports = {name: self.port if name == "PLAINTEXT" else free_port() for name in PROTOCOLS}
        self._file = where / "guarded.properties"
        self._file.write_text(
            f"listeners={','.join(f'{name}://localhost:{port}' for name, port in self.ports.items())}\n"
            f"listener.security.protocol.map={','.join(f'{name}:{kind}' for name, kind in PROTOCOLS.items())}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            "sasl.enabled.mechanisms=PLAIN\nssl.keystore.type=PEM\n"
            f"ssl.keystore.location={authority.issue('server', '/CN=localhost', alt='DNS:localhost').location}\n"
            + "".join(
                f'listener.name.{name}.plain.sasl.jaas.config={MODULE} user_alice="a-secret";\n'
                for name in ("login", "both")
            )
        )

    def command(self) -> list[str]:
        """Return the command of the process, with its properties file."""
        return [OTTLA, "serve", "--config", str(self._file), "--data-dir", str(self.data_dir)]

    def memory_bytes(self, field: str) -> int:
        """Return a size in bytes from ``/proc``: ``VmRSS`` now, or ``VmHWM``, its peak since `forget_peak`."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024

    def forget_peak(self) -> None:
        """Reset the peak of the resident memory to its present value."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


def client_ssl_context(trusted: str) -> ssl.SSLContext:
    """Return an SSL context of a client that trusts the certificates in the file ``trusted``."""
    return ssl.create_default_context(cafile=trusted)


def authenticated_client(node: AuthenticatingNode, listener: str) -> RawClient:
    """Connect to a listener (with TLS to ``BOTH``), authenticate by PLAIN, and return the client."""
    client = RawClient(node.ports[listener])
    if listener == "BOTH":
        client.sock = client_ssl_context(node.trusted).wrap_socket(client.sock, server_hostname="localhost")
    client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
    response = client.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"\0alice\0a-secret"))
    assert response.error_code == 0
    return client


class ClientLatency:
    """Measurement of the latency of Produce requests of an authenticated client."""

    def __init__(self, client: RawClient) -> None:
        self._client, self._frame = client, produce_frame()

    def p99_ms(self, seconds: float) -> tuple[float, float]:
        """Produce for ``seconds``, every `WRITE_INTERVAL_S`; return p99 and median of the latencies in ms."""
        waits, until_s = [], time.perf_counter() + seconds
        while (began := time.perf_counter()) < until_s:
            self._client.sock.sendall(self._frame)
            self._client.read()
            waits.append(time.perf_counter() - began)
            time.sleep(WRITE_INTERVAL_S)
        waits.sort()
        return waits[int(len(waits) * 0.99)] * 1000, waits[len(waits) // 2] * 1000


class HostileConnection:
    """Connection that does not authenticate.

    ``kind``: 0 sends nothing, 1 an incomplete frame (a TLS hello with ``context``), 2 a long login in small pieces.
    """

    def __init__(self, port: int, kind: int, context: ssl.SSLContext | None) -> None:
        self._port, self._kind, self._context = port, kind, context
        self._sock: socket.socket | None = None

    def connect(self) -> None:
        """Connect and send the first bytes; an error leaves it closed, and `send_more` tries again."""
        with suppress(OSError):
            sock = socket.create_connection(("127.0.0.1", self._port), 10)
            if self._kind == 1:
                sock.sendall(struct.pack(">i", 100) + bytes(10) if self._context is None else HELLO)
            elif self._kind == 2:
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_hostname="localhost")
                sock.sendall(encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, "s", SaslHandshakeRequest("PLAIN")))
                sock.sendall(struct.pack(">i", TOKEN_BYTES))
            sock.settimeout(0)
            self._sock = sock

    def send_more(self) -> None:
        """Send the next piece of a login (kind 2), and connect again if the node has closed the connection."""
        if self._sock is None:
            self.connect()
            return
        try:
            if self._kind == 2:
                self._sock.send(bytes(PIECE_BYTES))
            elif not self._sock.recv(100):
                raise ConnectionError
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._sock.close()
            self._sock = None


def attack(port: int, count: int, trusted: str) -> None:
    """Open ``count`` connections to ``port``, print a line, and keep them open until this process is killed.

    A third sends nothing, a third an incomplete frame, a third a login in pieces; closed ones connect again.
    ``trusted``: file of trusted certificates for a listener with TLS; empty for one without.
    """
    context = client_ssl_context(trusted) if trusted else None
    outsiders = [HostileConnection(port, number % 3, context) for number in range(count)]
    for outsider in outsiders:
        outsider.connect()
    print("here", flush=True)
    while True:
        began = time.monotonic()
        for outsider in outsiders:
            outsider.send_more()
        time.sleep(max(0.0, began + STEP_INTERVAL_S - time.monotonic()))


def measure(node: AuthenticatingNode, listener: str, count: int, seconds: float) -> None:
    """Measure and print memory, and latency of an authenticated client, with ``count`` other connections to a listener.

    ``seconds``: duration of each phase, half as long while the other connections open.
    """
    client = authenticated_client(node, listener)
    with client.sock:
        waits = ClientLatency(client)
        waits.p99_ms(2)
        before = waits.p99_ms(seconds)
        node.forget_peak()
        had_bytes = node.memory_bytes("VmRSS")
        trusted = node.trusted if listener == "BOTH" else ""
        command = [
            sys.executable,
            "-m",
            "bench.unauthenticated_connections",
            "--attack",
            str(node.ports[listener]),
            trusted,
        ]
        command += ["--strangers", str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attackers:
            coming = waits.p99_ms(seconds / 2)
            assert attackers.stdout is not None
            assert attackers.stdout.readline() == "here\n"
            staying = waits.p99_ms(seconds)
            attackers.kill()
        time.sleep(1)
        after = waits.p99_ms(seconds)
    grew_mb = (node.memory_bytes("VmHWM") - had_bytes) / 1e6
    alone = (before[0] + after[0]) / 2
    print(
        f"{PROTOCOLS[listener]:15} {count} strangers: p99 {before[0]:.2f} ms before, {coming[0]:.2f} as they come, "
        f"{staying[0]:.2f} as they stay ({staying[0] / alone:.2f} times), {after[0]:.2f} after; "
        f"median {before[1]:.2f} and {staying[1]:.2f}; grew by {grew_mb:.1f} MB",
        flush=True,
    )


def main() -> None:
    """Measure a listener with SASL and one with SASL and TLS, each of a new node, and print the results."""
    parser = argparse.ArgumentParser("bench.unauthenticated_connections", description=__doc__)
    parser.add_argument("--strangers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--attack", nargs=2, metavar=("PORT", "TRUSTED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        attack(int(options.attack[0]), options.strangers, options.attack[1])
    for listener in ("LOGIN", "BOTH"):
        with tempfile.TemporaryDirectory() as name, AuthenticatingNode(Path(name)) as node:
            maker = RawClient(node.port)
            maker.call(
                ApiKey.CREATE_TOPICS,
                7,
                create_topics.CreateTopicsRequest([create_topics.CreatableTopic("small", 1, 1)], 9_000),
            )
            maker.close()
            measure(node, listener, options.strangers, options.seconds)


if __name__ == "__main__":
    main()
