"""Factories of a node's transaction coordinator and verifier, created on first use.

Source: ``TransactionCoordinator.apply`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinator.timers import Timers
from ottla.broker.interbroker.credentials import inter_broker_access
from ottla.broker.services import BrokerServices
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.marker_sender import MarkerSenderDependencies
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from ottla.broker.transactions.verification import TransactionVerifier

FEATURE = "transaction.version"


def create_transaction_coordinator(services: BrokerServices, timers: Timers, listener: str) -> TransactionCoordinator:
    """Return a coordinator without partitions, not started; ``listener``: name of the inter-broker listener."""
    config, replicas = services.config, services.replica_manager
    image = lambda: replicas.image  # noqa: E731 - one line says it

    def address(broker_id: int) -> tuple[str, int] | None:
        return replicas.image.unfenced_broker_address(broker_id, listener)

    async def here(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        # lazy: 14.8 ms, 645 kB
        from ottla.broker.handlers.transactions.marker_writer import write_markers

        return await run_in_background(services.env, write_markers(services, request))

    timeout_s = config.number("request.timeout.ms") / 1000
    access = partial(inter_broker_access, config)
    around = MarkerSenderDependencies(config.node_id, image, address, here, timeout_s, access)
    return TransactionCoordinator(
        services.env,
        config,
        timers,
        services.fail,
        image,
        lambda: services.metadata.image.features.get(FEATURE, 0),
        services.producer_ids.generate_nowait,
        around,
    )


def create_transaction_verifier(services: BrokerServices) -> TransactionVerifier:
    """Return the verifier of transactions with their coordinators."""
    # lazy: 2.7 ms, 132 kB
    from ottla.broker.handlers.transactions.batched_add_partitions import add_partitions
    from ottla.broker.transactions.verification import TransactionVerifier, TransactionVerifierDependencies

    partition_for, add = services.transaction_coordinator.partition_for, partial(add_partitions, services)
    return TransactionVerifier(
        TransactionVerifierDependencies(
            services.env, services.config, services.metadata, services.replica_manager, partition_for, add
        )
    )
