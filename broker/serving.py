"""What a node serves, and at which of its listeners: other controllers, clients and brokers, whoever reads the metrics.

Source: ``SharedServer.scala``, ``BrokerServer.scala``, ``ControllerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import trio

from ottla.broker.addresses import DEFAULT_LISTENER
from ottla.broker.config import NodeConfig
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.parts import Parts
from ottla.broker.replica.making import WORKERS
from ottla.broker.server.acceptor import Acceptor
from ottla.broker.server.dispatch import Dispatcher
from ottla.broker.server.listening import Listening
from ottla.broker.server.observer import Counts, observer_of
from ottla.broker.services import Services
from ottla.broker.upkeep.supervise import supervise
from ottla.controller.delta import MetadataDelta
from ottla.controller.image import RESOURCE_BROKER, MetadataImage
from ottla.world.env import Env

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.auth.doors import Door
    from ottla.broker.auth.scram import TokenOf
    from ottla.broker.server.admission import Admission
    from ottla.controller.delta import MetadataListener as Follower
    from ottla.world.env import Listener

LIMIT, BY_ADDRESS = "max.connection", "connection_creation_rate"
"""Settings that limit connections have the one in their names; quotas of addresses are called the other."""


def controllers(env: Env, made: Parts, listening: Listening, nursery: trio.Nursery) -> None:
    """Take part in the quorum, and answer whoever asks this node's controller; both before anything else is known."""
    nursery.start_soon(made.controller.run)
    if not listening.controllers:
        return
    from ottla.broker.server.controller_routes import CONTROLLER_ROUTES  # a broker alone decides nothing

    # A controller tells what is committed, whether or not there is a broker here that has applied it.
    committed = MetadataCache(made.services.config, made.cache.cluster_id, lambda: made.controller.kraft_version)
    made.controller.listeners.append(committed.follow)
    services = replace(made.services, metadata=committed)
    acceptors = {}
    for name in listening.controllers:
        door = _door(services, name, nursery)
        acceptors[name] = Acceptor(Dispatcher(services, CONTROLLER_ROUTES, name, _watched(made, listening)), door)
    _join_acceptors(made, acceptors)
    _limit(env, made, acceptors)
    controller = made.controller  # of a node that is no broker nobody applies what is committed
    _renew_certificates(services.config, listening.controllers, controller.listeners, controller.image)
    for name, listener in listening.controllers.items():
        nursery.start_soon(acceptors[name].run, listener)
    if not listening.clients:
        _tell_numbers(env, made, listening, nursery)
    nursery.start_soon(supervise, env, "looking after brokers", made.look_after)
    if not made.services.config.alone:
        registration = made.registration()
        registration.publish(made.controller.image, MetadataDelta.from_empty(made.controller.image))
        made.controller.listeners.append(registration.publish)
        nursery.start_soon(supervise, env, "registering the controller", registration.run)


def _join_acceptors(made: Parts, acceptors: Mapping[str, Acceptor]) -> None:
    """Let the acceptors of one kind of listener know those of the whole node."""
    made.acceptors.extend(acceptors.values())
    for acceptor in acceptors.values():
        acceptor.neighbours = made.acceptors


def _door(services: Services, listener: str, nursery: trio.Nursery) -> Door | None:
    """What a listener asks of who comes; None where it lets everybody in."""
    env, cache, config = services.env, services.metadata, services.config
    protocol = config.protocol(listener)
    if protocol == DEFAULT_LISTENER:
        return None
    from ottla.broker.auth.doors import door_of
    from ottla.broker.auth.scram import keys_in

    keys_of = lambda user, name: keys_in(cache.image, user, name)  # noqa: E731 - one line says it
    door = door_of(config.values, listener, protocol, keys_of, env, _token_of(env, cache, config), services.audit)
    if door is not None and door.tokens is not None and door.tokens.keys is not None:
        nursery.start_soon(supervise, env, "fetching the keys of tokens", door.tokens.keys.run)
    return door


def _token_of(env: Env, cache: MetadataCache, config: NodeConfig) -> TokenOf:
    """Who comes with a delegation token."""
    from ottla.broker.auth.scram import no_tokens

    if not config.values.get("delegation.token.secret.key"):
        return no_tokens
    from ottla.broker.auth.delegation_tokens import TokenLogins

    return TokenLogins(config.values["delegation.token.secret.key"], lambda: cache.image, env.uuid).find


def _limit(env: Env, made: Parts, listeners: Mapping[str, Acceptor], protected: str | None = None) -> None:
    """Have connections limited, once there is a limit; ``protected``: the listener where brokers reach one another."""
    config = made.services.config
    limiting: list[Admission] = []
    own = (RESOURCE_BROKER, str(config.node_id)), (RESOURCE_BROKER, "")

    def publish(image: MetadataImage, delta: MetadataDelta) -> None:
        is_new = any(about[0] == "quota" and about[2] == BY_ADDRESS for about in delta.others)
        if is_new or not delta.configs.isdisjoint(own):
            set_now = (key for at in own for key in image.config(*at))
            if not limiting and (is_new or any(LIMIT in key for key in set_now)):
                begin()
            for admission in limiting:
                admission.publish(image)

    def begin() -> None:
        from ottla.broker.server.admission import Admission  # few nodes have limits

        limiting.append(Admission(env, config, listeners, protected))

    image = made.controller.image
    if any(LIMIT in key for key in config.values):
        begin()
        limiting[0].publish(image)
    publish(image, MetadataDelta.from_empty(image))
    made.controller.listeners.append(publish)


def _renew_certificates(
    config: NodeConfig, listeners: Mapping[str, Listener], followers: list[Follower], image: MetadataImage
) -> None:
    """Hear of other stores that are set for a listener with TLS; ``image``: what was set before this start."""
    secured = {name: x for name, x in listeners.items() if config.protocol(name).endswith("SSL")}
    if secured:
        from ottla.broker.auth.renewal import Renewable, Renewal

        renewal = Renewal(config, cast("dict[str, Renewable]", secured))
        renewal.publish(image, MetadataDelta.from_empty(image))
        followers.append(renewal.publish)


def clients(env: Env, made: Parts, listening: Listening, nursery: trio.Nursery) -> None:
    """Serve clients and other brokers, and start what goes on beside. What may fail and begin anew is supervised."""
    nursery.start_soon(made.timers.run)
    nursery.start_soon(made.groups.run)
    for _ in range(WORKERS):
        nursery.start_soon(made.making.run)
    for name, work in made.upkeep():
        nursery.start_soon(supervise, env, name, work, name=name)
    acceptors, observer = {}, observer_of(made.services, _watched(made, listening))
    for name in listening.clients:
        dispatcher = Dispatcher(made.services, listener=name, observer=observer)
        acceptors[name] = Acceptor(dispatcher, _door(made.services, name, nursery))
    _join_acceptors(made, acceptors)
    _tell_numbers(env, made, listening, nursery)
    _renew_certificates(made.services.config, listening.clients, made.applier.followers, made.cache.image)
    _limit(env, made, acceptors, made.services.config.inter_broker_listener)
    for name, listener in listening.clients.items():
        nursery.start_soon(acceptors[name].run, listener)


def _watched(made: Parts, listening: Listening) -> Counts | None:
    """Who counts requests, where somebody may ask for numbers: it costs half a microsecond a request."""
    return None if listening.metrics is None else made.counts


def _tell_numbers(env: Env, made: Parts, listening: Listening, nursery: trio.Nursery) -> None:
    """Answer who reads the metrics, where that is configured."""
    if listening.metrics is None:
        return
    from ottla.broker.server import metrics  # who has no such page does not load it

    numbers = metrics.Numbers(
        *(made.storage, made.replicas, made.cleaner, made.scrubber, made.counts),
        *(lambda: sum(len(x) for x in made.acceptors), made.controller),
        *(bool(listening.clients), bool(listening.controllers)),
        pushed=lambda: made.pushed,
    )
    nursery.start_soon(supervise, env, "metrics", partial(metrics.serve, env, numbers, listening.metrics))
