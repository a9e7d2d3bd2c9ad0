"""BrokerHeartbeat (63), v0-2: a broker extends its session with the controller.

Behaviour: the session is extended when the request arrives, before it is queued.

Source: ``QuorumController.processBrokerHeartbeat`` (apache/kafka 4.3.1).
From KIP-631; failed log directories: KIP-858.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.controller import controller_requests
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest


def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> HandlerResult:
    """Extend the session of the broker id and epoch at once, then submit the request to the controller in this process.

    The session is extended before the epoch is checked, and also on an inactive controller. The connection is
    registered with `BrokerLivenessProbe`: if it ends, the active controller probes the broker.
    """
    services, broker_id, epoch = context.services, request.broker_id, request.broker_epoch
    services.controller.record_heartbeat(broker_id, epoch)
    services.liveness_probe().on_heartbeat(context.peer, broker_id, epoch)
    return controller_requests.handle(context, request)
