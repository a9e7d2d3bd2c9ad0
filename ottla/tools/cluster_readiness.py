"""Wait until every node of a new cluster knows all brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.client.cluster_client import ClusterClient
from ottla.client.connection_security import ConnectionSecurity
from ottla.env.env import Env

REQUEST_TIMEOUT_S = 10.0
_POLL_S = 0.02


class BrokersUnknown(Exception):
    """Raised if a node does not know all brokers in time; the message has its address and the ids that it lacks."""


async def wait_for_brokers(
    env: Env, servers: Iterable[str], brokers: Collection[int], access: ConnectionSecurity, within_s: float
) -> None:
    """Wait until the Metadata response of each server names all ``brokers``.

    A server that cannot be reached or rejects the client is skipped.

    A broker serves clients as soon as it is unfenced itself and reads the registrations of the others a moment later.
    Until then its Metadata responses lack them, and a client that is connected to one of those drops that connection.
    Kafka's ``KafkaClusterTestKit`` (4.3.1) waits for the same condition.

    Args:
        env: clock and network.
        servers: ``HOST:PORT`` of a client listener of each node.
        brokers: ids of the brokers.
        access: TLS and SASL settings of the listeners.
        within_s: maximum time for all servers together.

    Raises:
        BrokersUnknown: a broker is missing in the responses of a server after ``within_s``.
    """
    deadline_ms = env.monotonic_ms() + within_s * 1000
    for server in servers:
        client = ClusterClient(env, server, timeout_s=REQUEST_TIMEOUT_S, access=access)
        try:
            while missing := sorted(set(brokers) - {x.node_id for x in (await client.metadata([])).brokers}):
                if env.monotonic_ms() >= deadline_ms:
                    raise BrokersUnknown(f"the node at {server} does not know brokers {missing} after {within_s:g} s")
                await env.sleep(_POLL_S)
        except OSError:
            continue  # the listener may require a login that ``access`` lacks
        finally:
            client.close()
