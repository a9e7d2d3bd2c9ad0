"""UnregisterBroker (64), v0: forget a broker. One that still runs registers anew, as it would at its next heartbeat.

Source: ``ClusterControlManager.unregisterBroker``, ``BrokerLifecycleManager.java`` (apache/kafka 4.3.1).

From KIP-631.
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from ottla.wire.schema import Message


def handle(context: Context, request: UnregisterBrokerRequest) -> Answer:
    """Ask the controller."""
    return _unregister(context, request)


async def _unregister(context: Context, request: UnregisterBrokerRequest) -> Message:
    response: Message = await context.services.admin.submit(request, context.version)
    if context.services.config.node_id not in context.image.brokers:
        context.services.register_again()
    return response
