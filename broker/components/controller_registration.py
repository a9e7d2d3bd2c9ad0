"""Registration of a controller in a cluster; that of a single node is among the first records of its metadata log.

Source: ``ControllerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.components.broker_components import BrokerComponents
from ottla.broker.interbroker.controller_channel import REGISTRATION_TIMEOUT_S
from ottla.broker.metadata.controller_registration import ControllerRegistration


def create_controller_registration(made: BrokerComponents) -> ControllerRegistration:
    """Return the registration; the caller subscribes it to the metadata and runs it."""
    services, channel = made.services, made.create_channel(REGISTRATION_TIMEOUT_S)
    identity = services.config.node_id, made.controller.incarnation_id
    return ControllerRegistration(services.env, *identity, made.quorum.endpoints, channel)
