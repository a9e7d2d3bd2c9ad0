"""``ottla trace``: proxy that prints each request and response between a client and a Kafka cluster."""

from __future__ import annotations

import sys
from functools import partial

import trio

from ottla.broker.config.listener_config import ConfigException, parse_listener
from ottla.cli.arguments import command_parser
from ottla.cli.errors import failure_text
from ottla.cli.terminal import OutputFailed
from ottla.client.channel import read_exactly
from ottla.env.env import Stream
from ottla.runtime.real_env import RealEnv
from ottla.tools.trace import Address, ConnectionTrace
from ottla.wire.errors import WireError
from ottla.wire.field_dump import Explainer
from ottla.wire.framing import parse_frame_size

TEXT = """Connect a client to the address of --listen. Its requests and responses are printed field by field. Each
broker of the cluster gets its own listening address, so all connections to the cluster are traced.

examples:
  ottla trace --listen 9192 --to 127.0.0.1:9092
  ottla trace --listen 9192 --to kafka.example.org:9092 --bytes
  ottla trace --listen 9192 --to 127.0.0.1:9092 --explain      with the meaning of each field
"""
IDLE_S = 24 * 3600.0


async def _frame(stream: Stream) -> bytes:
    """Wait for the next frame of a connection, and return it with its 4 bytes of size.

    Raises:
        OSError: the connection is closed, or idle for `IDLE_S`.
        WireError: the size is negative.
    """
    head = await read_exactly(stream, 4, IDLE_S)
    return bytes(head + await read_exactly(stream, parse_frame_size(head, 2**31 - 1), IDLE_S))


class TracingProxy:
    """Proxy of a cluster that prints requests and responses: a listening address, named in responses, for each broker.

    Args:
        nursery: nursery of the listeners and connections.
        host: address to listen at.
        show_bytes: True to print the bytes beside each field.
        explained: True to explain each field where it first appears.
    """

    def __init__(self, nursery: trio.Nursery, host: str, *, show_bytes: bool, explained: bool = False) -> None:
        self._env = RealEnv()
        self._nursery = nursery
        self._host = host
        self._bytes = show_bytes
        self._explainer = Explainer() if explained else None
        self._proxied: dict[Address, Address] = {}
        self._count = 0

    async def proxy_broker(self, broker: Address, port: int = 0) -> Address:
        """Start a listener that forwards its connections to a broker, and return the listening address.

        ``port`` is the port to listen at; 0 selects a free one. The listener runs in the nursery until it is cancelled.

        Raises:
            OSError: the proxy cannot listen at the port.
        """
        listener = await self._env.net.listen(self._host, port)
        place = self._host, listener.port
        self._proxied[broker] = place

        async def accept() -> None:
            while True:
                self._nursery.start_soon(self._serve, await listener.accept(), broker)

        self._nursery.start_soon(accept)
        return place

    async def _serve(self, client: Stream, broker: Address) -> None:
        self._count += 1
        label = f"#{self._count}"
        print(f"{label} {client.peer} connects to {broker[0]}:{broker[1]}", flush=True)
        try:
            server = await self._env.net.connect(*broker)
        except OSError as error:
            print(f"{label} {broker[0]}:{broker[1]}: {error}", flush=True)
            client.close()
            return
        talk = ConnectionTrace(
            label, self._proxy_address, partial(print, flush=True), show_bytes=self._bytes, explainer=self._explainer
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._requests, client, server, talk, nursery.cancel_scope)
            nursery.start_soon(self._answers, client, server, talk, nursery.cancel_scope)
        client.close()
        server.close()
        print(f"{label} closed", flush=True)

    def _proxy_address(self, broker: Address) -> Address:
        return self._proxied.get(broker, broker)

    async def _requests(self, client: Stream, server: Stream, talk: ConnectionTrace, scope: trio.CancelScope) -> None:
        try:
            while True:
                frame = await _frame(client)
                talk.request(frame, self._env.monotonic_ms())
                await server.send([frame])
        except (OSError, WireError, trio.ClosedResourceError):
            pass
        scope.cancel()

    async def _answers(self, client: Stream, server: Stream, talk: ConnectionTrace, scope: trio.CancelScope) -> None:
        try:
            while True:
                frame = await _frame(server)
                await self._proxy_new_brokers(talk, frame)
                await client.send(talk.response(frame, self._env.monotonic_ms()))
        except (OSError, WireError, trio.ClosedResourceError):
            pass
        scope.cancel()

    async def _proxy_new_brokers(self, talk: ConnectionTrace, frame: bytes) -> None:
        """Start listeners for the brokers that response ``frame`` names for the first time."""
        for broker in talk.named_brokers(frame):
            if broker not in self._proxied and broker not in self._proxied.values():
                await self.proxy_broker(broker)


async def _main(host: str, port: int, target: Address, *, show_bytes: bool, explained: bool) -> None:
    async with trio.open_nursery() as nursery:
        proxy = TracingProxy(nursery, host, show_bytes=show_bytes, explained=explained)
        place = await proxy.proxy_broker(target, port)
        print(f"listening at {place[0]}:{place[1]} for {target[0]}:{target[1]}", flush=True)


def run(arguments: list[str]) -> int:
    """Run the proxy of ``ottla trace`` until interrupted; return the exit status.

    Returns:
        0 after an interrupt, 2 if an address is invalid or cannot be listened at.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = command_parser("trace", TEXT)
    parser.add_argument(
        "--listen", required=True, metavar="[HOST:]PORT", help="address for clients; port 0 selects a free port"
    )
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="broker of any Kafka cluster")
    parser.add_argument("--bytes", action="store_true", help="show each field beside its bytes")
    parser.add_argument("--explain", action="store_true", help="explain each field where it first appears")
    options = parser.parse_args(arguments)
    listen = options.listen if ":" in options.listen else f"127.0.0.1:{options.listen}"
    try:
        _, host, port = parse_listener(listen)
        _, to_host, to_port = parse_listener(options.to)
        run_proxy = partial(_main, host, port, (to_host, to_port))
        trio.run(partial(run_proxy, show_bytes=options.bytes, explained=options.explain))
    except KeyboardInterrupt:
        return 0
    except BaseExceptionGroup as group:
        if group.split((OutputFailed, OSError, KeyboardInterrupt))[1] is not None:
            raise
        cause: BaseException | None = group.split((OutputFailed, OSError))[0]
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, OutputFailed):
            raise cause from None
        if isinstance(cause, OSError):
            print(f"ottla trace: cannot listen at {listen}: {failure_text(cause)}", file=sys.stderr)
            return 2
        return 0
    except (ConfigException, OSError) as error:
        print(f"ottla trace: {failure_text(error)}", file=sys.stderr)
        return 2
    return 0
