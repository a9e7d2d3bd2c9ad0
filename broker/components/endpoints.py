"""Start of a node's listeners: for controllers, and for clients and brokers.

Source: ``SharedServer.scala``, ``BrokerServer.scala``, ``ControllerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import trio

from ottla.broker.components.broker_components import BrokerComponents
from ottla.broker.config.listener_config import DEFAULT_LISTENER
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import CONTROLLER_APIS
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.interbroker.controller_channel import REGISTRATION_TIMEOUT_S
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.bound_listeners import BoundListeners
from ottla.broker.observability.request_observers import combine_observers, create_request_observer
from ottla.broker.replication.log_creator import LOG_CREATION_WORKERS
from ottla.broker.services import BrokerServices
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.env.env import Env
from ottla.jobs.supervision import supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.broker.network.connection_limiter import ConnectionLimiter
    from ottla.broker.security.authn.listener_security import ListenerSecurity
    from ottla.controller.metadata.delta import MetadataListener
    from ottla.env.env import StreamListener

CONNECTION_LIMIT_PREFIX, CONNECTION_RATE_QUOTA = "max.connection", "connection_creation_rate"
"""Common prefix of the settings that limit connections; name of the connection rate quota of IP addresses."""


def start_controller_endpoints(
    env: Env, components: BrokerComponents, listening: BoundListeners, nursery: trio.Nursery
) -> None:
    """Start the controller, or observer, of the metadata log and the controller listeners, before the broker's start.

    Without controller listeners (broker only) nothing else is started. Otherwise also the probe of brokers and, in a
    larger cluster, the registration of this controller. All run in ``nursery``.
    """
    nursery.start_soon(components.controller.run)
    if not listening.controllers:
        return
    # a controller responds with committed metadata, whether or not a broker here has applied it
    committed = MetadataCache(
        components.services.config, components.cache.cluster_id, lambda: components.controller.kraft_version
    )
    components.controller.subscribe(committed.set_image)
    services = replace(components.services, metadata=committed)
    acceptors, observer = {}, combine_observers(components.request_observers)
    for name in listening.controllers:
        dispatcher = Dispatcher(services, CONTROLLER_APIS, name, observer)
        acceptors[name] = Acceptor(dispatcher, _listener_security(services, name, nursery))
    _link_acceptors(components, acceptors)
    _limit_connections(env, components, acceptors)
    # A controller-only node applies no images, so the committed images are used.
    _reload_certificates(services.config, listening.controllers, components.controller.subscribe)
    for name, listener in listening.controllers.items():
        nursery.start_soon(acceptors[name].run, listener)
    nursery.start_soon(supervise, env, "broker liveness probe", components.run_liveness_probe)
    if not components.services.config.is_standalone:
        # lazy: 0.8 ms, 12 kB
        from ottla.broker.metadata.controller_registration import ControllerRegistration

        channel = components.create_channel(REGISTRATION_TIMEOUT_S)
        registration = ControllerRegistration(
            env,
            components.services.config.node_id,
            components.controller.incarnation_id,
            components.quorum.endpoints,
            channel,
        )
        components.controller.subscribe(registration.publish)
        nursery.start_soon(supervise, env, "controller registration", registration.run)


def _link_acceptors(made: BrokerComponents, acceptors: Mapping[str, Acceptor]) -> None:
    """Add acceptors to the list of all acceptors of the node, which each of them refers to."""
    made.acceptors.extend(acceptors.values())
    for acceptor in acceptors.values():
        acceptor.node_acceptors = made.acceptors


def _listener_security(services: BrokerServices, listener: str, nursery: trio.Nursery) -> ListenerSecurity | None:
    """Return the security settings of a listener; None for PLAINTEXT. ``nursery`` runs the refresh of a JWKS."""
    if services.config.security_protocol(listener) == DEFAULT_LISTENER:
        return None
    # lazy: 16.6 ms, 349 kB
    from ottla.broker.components.secure_listeners import create_listener_security

    return create_listener_security(services, listener, nursery)


def _limit_connections(
    env: Env, made: BrokerComponents, listeners: Mapping[str, Acceptor], protected: str | None = None
) -> None:
    """Limit the connections of listeners together, once settings or metadata have a limit, and follow changes.

    ``protected``: name of the inter-broker listener, None for controller listeners.
    """
    config = made.services.config
    limiting: list[ConnectionLimiter] = []
    own = (RESOURCE_BROKER, str(config.node_id)), (RESOURCE_BROKER, "")

    def publish(image: MetadataImage, delta: MetadataDelta) -> None:
        is_new = any(about[0] == "quota" and about[2] == CONNECTION_RATE_QUOTA for about in delta.others)
        if is_new or not delta.configs.isdisjoint(own):
            set_now = (key for at in own for key in image.config(*at))
            if not limiting and (is_new or any(CONNECTION_LIMIT_PREFIX in key for key in set_now)):
                begin()
            for admission in limiting:
                admission.publish(image)

    def begin() -> None:
        # lazy: 6.5 ms, 279 kB: few nodes limit connections
        from ottla.broker.network.connection_limiter import ConnectionLimiter

        limiting.append(ConnectionLimiter(env, config, listeners, protected))

    if any(CONNECTION_LIMIT_PREFIX in key for key in config.values):
        begin()
        limiting[0].publish(made.controller.image)
    made.controller.subscribe(publish)


def _reload_certificates(
    config: NodeConfig, listeners: Mapping[str, StreamListener], subscribe: Callable[[MetadataListener], object]
) -> None:
    """Subscribe a reload of the certificates of TLS listeners when their stores change in the metadata.

    Without TLS listeners nothing is done. ``subscribe`` registers a listener of metadata images.
    """
    secured = {name: x for name, x in listeners.items() if config.security_protocol(name).endswith("SSL")}
    if secured:
        # lazy: 16.6 ms, 364 kB
        from ottla.broker.security.authn.certificate_reload import CertificateReloader, TlsListener

        renewal = CertificateReloader(config, cast("dict[str, TlsListener]", secured))
        subscribe(renewal.publish)


def start_client_endpoints(
    env: Env,
    components: BrokerComponents,
    listening: BoundListeners,
    nursery: trio.Nursery,
    create_dispatcher: Callable[..., Dispatcher] = Dispatcher,
) -> None:
    """Start the listeners for clients and brokers, and the background tasks.

    All run in ``nursery``; a failed task of `BrokerComponents.background_tasks` is restarted. ``create_dispatcher``
    creates the dispatcher of a listener, for example one with faults.
    """
    nursery.start_soon(components.timers.run)
    nursery.start_soon(components.groups.run)
    for _ in range(LOG_CREATION_WORKERS):
        nursery.start_soon(components.log_creator.run)
    for name, work in components.background_tasks():
        nursery.start_soon(supervise, env, name, work, name=name)
    acceptors, observer = {}, create_request_observer(components.services, components.request_observers)
    for name in listening.clients:
        dispatcher = create_dispatcher(components.services, listener=name, observer=observer)
        acceptors[name] = Acceptor(dispatcher, _listener_security(components.services, name, nursery))
    _link_acceptors(components, acceptors)
    _reload_certificates(components.services.config, listening.clients, components.publisher.subscribe)
    _limit_connections(env, components, acceptors, components.services.config.inter_broker_listener)
    for name, listener in listening.clients.items():
        nursery.start_soon(acceptors[name].run, listener)
