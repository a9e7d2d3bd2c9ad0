"""Client connection to a node: how it is opened, with ApiVersions and authentication, and requests one at a time."""

from __future__ import annotations

import errno
from typing import Any

from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.env.env import Env, Stream
from ottla.wire.api_keys import ApiKey, request_spec, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.framing import encode_request, parse_frame_size
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.headers import ResponseHeader

CLIENT_ID = "ottla"
CONNECT_TIMEOUT_S = 10.0
"""Connection timeout in seconds (Kafka's ``socket.connection.setup.timeout.ms``): the system's own timeout for an
unreachable host is minutes.
"""
FRAME_SIZE_BYTES = 4
"""Length of the size field before a request or response."""
_FIRST_BUFFER_BYTES = 1 << 20


class UnsupportedVersionError(WireError):
    """Raised for a request of which client and node support no common version (``UnsupportedVersionException``)."""


class Disconnected(OSError):
    """Raised if a connection is closed, busy with another call or has no known address, or no byte arrived in time."""


async def read_exactly(stream: Stream, size: int, timeout_s: float) -> bytearray:
    """Read and return exactly ``size`` bytes; the buffer grows as bytes arrive, not by the announced ``size``.

    Raises:
        Disconnected: the peer closed the connection, or sent no byte for ``timeout_s``.
        OSError: the connection failed, as `Stream.receive_into`.
    """
    buffer = bytearray(min(size, _FIRST_BUFFER_BYTES))
    done = 0
    while done < size:
        if done == len(buffer):
            buffer += bytes(min(done, size - done))
        with memoryview(buffer) as whole, whole[done:] as rest:
            count = await stream.receive_into(rest, timeout_s)
        if count == 0:
            raise Disconnected("the broker closed the connection, or did not answer in time")
        done += count
    return buffer


class ChannelTraffic:
    """Counters of the requests and responses of connections, and of their bytes with frame sizes and headers.

    Source: ``Selector.SelectorMetrics`` (apache/kafka 4.3.1).
    """

    def __init__(self) -> None:
        self.requests = self.request_bytes = 0
        self.responses = self.response_bytes = 0


class Channel:
    """Connection to a broker or controller with at most one request in flight.

    ``timeout_s``: maximum time of each wait for bytes of a response. A cancelled call or an invalid response
    closes the connection. ``traffic``: counters that several connections may share.
    """

    def __init__(
        self,
        stream: Stream,
        client_id: str = CLIENT_ID,
        timeout_s: float = 60.0,
        traffic: ChannelTraffic | None = None,
    ) -> None:
        self.stream = stream
        self.traffic = traffic or ChannelTraffic()
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._busy = False
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}

    async def negotiate(self) -> None:
        """Send ApiVersions version 3 and store the node's version ranges in `versions`; raises as `call`.

        The error code of the response is ignored: after UNSUPPORTED_VERSION no older version is tried.
        """
        answer = await self.call(ApiVersionsRequest("ottla", "0.1.0"), 3)
        self.versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}

    def version_for(self, key: ApiKey, at_most: int = 32767) -> int:
        """Return the newest version of an API, up to ``at_most``, that client and broker support, as `negotiate` found.

        Raises:
            UnsupportedVersionError: there is no common version; before `negotiate` there is none of any API.
        """
        spec = request_spec(key)
        low, high = self.versions.get(key, (0, -1))
        newest = spec.versions.high - (1 if spec.latest_unstable else 0)
        best = min(newest, high, at_most)
        if best < max(low, spec.versions.low):
            raise UnsupportedVersionError(f"The node does not support {key.name}")
        return best

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request and return its response message; None for Produce with acks=0, which has no response.

        ``version`` None: the newest common version. Error codes in the response are not raised. If the exchange fails
        or is cancelled the connection is closed.

        Raises:
            OSError: the connection failed; `Disconnected` if it is closed or another call is in progress.
            WireError: the response is malformed, or the version cannot represent the request.
            UnsupportedVersionError: there is no common version; the connection stays open.
        """
        key = ApiKey(request.SPEC.key)  # type: ignore[attr-defined]
        if version is None:
            version = self.version_for(key)
        if self.closed or self._busy:
            raise Disconnected("an earlier request on this connection was cancelled, or is still in progress")
        self._busy = True
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request(key, version, number, self._client_id, request)
            await self.stream.send([frame])
            self.traffic.requests += 1
            self.traffic.request_bytes += len(frame)
            if key is ApiKey.PRODUCE and getattr(request, "acks", 1) == 0:
                return None
            received = await self._read_frame()
            self.traffic.responses += 1
            self.traffic.response_bytes += FRAME_SIZE_BYTES + len(received)
            header, pos = compiler.decode(ResponseHeader, response_header_version(key, version), received)
            if header.correlation_id != number:
                raise WireError(
                    f"Correlation id for response ({header.correlation_id}) does not match request ({number})"
                )
            return compiler.decode(response_class(key), version, received, pos)[0]
        except BaseException:
            self.close()  # the next bytes may belong to this request's response
            raise
        finally:
            self._busy = False

    async def _read_frame(self) -> bytearray:
        size = parse_frame_size(await read_exactly(self.stream, FRAME_SIZE_BYTES, self._timeout_s), 2**31 - 1)
        return await read_exactly(self.stream, size, self._timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self.stream.close()


async def open_channel(
    env: Env,
    address: tuple[str, int],
    client_id: str,
    timeout_s: float,
    access: ConnectionSecurity = NO_SECURITY,
    traffic: ChannelTraffic | None = None,
) -> Channel:
    """Open a connection to ``address`` (host, port), request ApiVersions and authenticate; return it.

    ``timeout_s``: maximum time to connect (as `connect`, at most `CONNECT_TIMEOUT_S`), and of each wait for bytes of a
    response. ``access``: TLS and SASL, none by default. ``traffic``: as in `Channel`. On an error the connection is
    closed.

    Raises:
        OSError: the connection failed; AuthenticationFailed: the broker rejected the credentials.
        WireError: a response is malformed; InvalidTlsConfig: the client's keys or certificates cannot be used.
    """
    made = Channel(await connect(env, address, timeout_s, access), client_id, timeout_s, traffic)
    try:
        await made.negotiate()
        if access.login is not None:
            # lazy: 3.4 ms, 90 kB
            from ottla.client.sasl_authentication import authenticate

            await authenticate(made, access.login, env, address[0])
    except BaseException:
        made.close()
        raise
    return made


async def connect(
    env: Env, address: tuple[str, int], timeout_s: float, access: ConnectionSecurity = NO_SECURITY
) -> Stream:
    """Open a connection, with TLS if configured, within `CONNECT_TIMEOUT_S` and ``timeout_s``.

    In a `BlockingEnv` neither applies: each address of the host has 30 s.

    Raises:
        OSError: the connection failed or timed out, or the certificate is not trusted; InvalidTlsConfig: the client's
            keys or certificates cannot be used.
    """
    with env.timeout(min(timeout_s, CONNECT_TIMEOUT_S)):
        return await (env.net.connect(*address) if access.tls is None else env.net.connect(*address, access.tls))
    raise TimeoutError(errno.ETIMEDOUT, f"connection timed out: {address[0]}:{address[1]}")
