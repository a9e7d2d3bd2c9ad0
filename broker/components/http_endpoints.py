"""HTTP listener of a node, with metrics, health and a list of connections, and export of the metrics.

It serves as soon as the components of the node exist, as readiness is requested during startup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import trio

from ottla.broker.components.broker_components import BrokerComponents
from ottla.broker.config.listener_config import ANY_HOST, parse_listener
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.network.bound_listeners import BoundListeners
from ottla.broker.network.connection_list import refusal, render_connections
from ottla.broker.network.http.http_messages import TEXT, HttpHandler, HttpRequest, HttpResponse, route_by_path
from ottla.broker.network.http.http_server import HttpServer
from ottla.broker.observability.election_metrics import LeaderElectionCounter
from ottla.broker.observability.health import HealthSources, readiness_reasons, render_health
from ottla.broker.observability.metrics_endpoint import CONTENT_TYPE, MetricsCollector, MetricSources, MetricsPage
from ottla.broker.observability.raft_metrics import RaftMetrics
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.controller.config.config_keys import ALLOWED_HOSTS, CONSOLE_LISTENER, METRICS_LISTENER, OTLP_ENDPOINT
from ottla.controller.config.java_values import split
from ottla.env.env import Env
from ottla.jobs.supervision import supervise
from ottla.jobs.time_slice import run_in_background

if TYPE_CHECKING:
    from ottla.broker.observability.otlp_exporter import OtlpExporter

logger = logging.getLogger("ottla.http")
JSON = "application/json"


def start_observability(
    env: Env, components: BrokerComponents, listening: BoundListeners, nursery: trio.Nursery
) -> None:
    """Start to serve metrics and health on the HTTP listener, and to export metrics by OTLP, each if it is configured.

    Requests are observed if metrics are served or exported, or if the node has a console; otherwise nothing is done.
    """
    config = components.services.config
    create_exporter = _load_otlp_export() if config.values.get(OTLP_ENDPOINT) else None
    if listening.metrics is None and create_exporter is None and not config.values.get(CONSOLE_LISTENER):
        return
    page = create_metrics_page(env, components, listening)
    if listening.metrics is not None:
        handlers = http_handlers(components, listening, page)
        logger.info("HTTP listener at port %d: %s", listening.metrics.port, ", ".join(handlers))
        server = HttpServer(env, route_by_path(handlers), allowed_hosts(config, METRICS_LISTENER))
        nursery.start_soon(supervise, env, "HTTP listener", partial(server.serve, listening.metrics))
    if create_exporter is not None:
        exporter = create_exporter(env, components, page)
        nursery.start_soon(supervise, env, "OTLP export", exporter.run)


def _load_otlp_export() -> Callable[[Env, BrokerComponents, MetricsPage], OtlpExporter] | None:
    """Return the function that creates an exporter; None, and a warning in the log, if its package is missing."""
    try:
        # lazy: 27.1 ms, 2419 kB
        from ottla.broker.components.otlp_export import create_otlp_exporter
    except ModuleNotFoundError as error:
        text = "OTLP export is not available: %s is not installed: pip install 'ottla[otel]'"
        logger.warning(text, error.name)
        return None
    return create_otlp_exporter


def allowed_hosts(config: NodeConfig, key: str) -> frozenset[str]:
    """Return the host names that HTTP requests may name: the configured names and the names of the node's listeners.

    ``key``: the setting of the HTTP listener.
    """
    hosts = set(split(config.values.get(ALLOWED_HOSTS, "")))
    hosts.add(parse_listener(config.values[key])[1])
    for listener in config.client_listeners:
        hosts.add(listener.host)
        advertised = config.advertised_address(listener.name)
        if advertised is not None:
            hosts.add(advertised[0])
    return frozenset(host.lower() for host in hosts.difference(ANY_HOST))


def create_metrics_page(env: Env, components: BrokerComponents, listening: BoundListeners) -> MetricsPage:
    """Return the metrics page of a node, and add the observers that count requests and steps of the Raft driver.

    Only listeners that start to serve later have the observer of requests.
    """
    is_broker, is_controller = bool(listening.clients), bool(components.services.config.controller_listeners)
    elections = LeaderElectionCounter()
    requests = RequestMetrics(env.monotonic_ms)
    components.request_observers.append(requests)
    raft_driver = components.controller.raft_driver
    raft_metrics = RaftMetrics(raft_driver, env.monotonic_ms())
    raft_driver.step_observers.append(raft_metrics.observe)
    if is_controller:
        components.controller.subscribe(elections.publish)
    sources = MetricSources(
        components.log_dirs,
        components.replica_manager,
        components.cleaner,
        components.scrubber,
        requests,
        components.acceptors,
        components.controller,
        is_broker,
        is_controller,
        broker_state=lambda: components.lifecycle.state,
        group_shards=lambda: components.groups,
        transaction_shards=lambda: components.transactions or (),
        elections=elections,
        raft_metrics=raft_metrics,
        client_metrics=lambda: components.client_metrics_store,
        remote_log_manager=components.remote_log_manager,
        remote_reads=components.services.remote_reads,
    )
    return MetricsPage(env, MetricsCollector(env, sources).render)


def http_handlers(
    components: BrokerComponents, listening: BoundListeners, metrics: MetricsPage
) -> dict[str, HttpHandler]:
    """Return the handlers of the node's HTTP listener by path: metrics, liveness, readiness and connections."""
    env, config = components.services.env, components.services.config
    is_broker, is_controller = bool(listening.clients), bool(config.controller_listeners)
    health = HealthSources(
        config.node_id,
        is_broker,
        is_controller,
        lambda: components.lifecycle.state,
        lambda: components.controller.image,
        lambda: components.controller.raft.leader_id,
        lambda: components.log_dirs.offline,
    )

    async def get_metrics(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, await metrics.render(), CONTENT_TYPE)

    async def get_livez(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, b'{"status": "live"}\n', JSON)

    async def get_readyz(_: HttpRequest) -> HttpResponse:
        reasons = readiness_reasons(health)
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return HttpResponse(status, render_health(health, reasons), JSON)

    async def get_connections(request: HttpRequest) -> HttpResponse:
        has_authorizer = bool(config.text("authorizer.class.name"))
        reason = refusal(request.peer, request.headers, has_authorizer=has_authorizer)
        if reason:
            return HttpResponse(HTTPStatus.FORBIDDEN, f"{reason}\n".encode(), TEXT)
        every = [each for acceptor in components.acceptors for each in acceptor.connections]
        body = await run_in_background(env, render_connections(config.node_id, every, env.monotonic_ms()))
        return HttpResponse(HTTPStatus.OK, body, JSON)

    return {
        "/metrics": get_metrics,
        "/": get_metrics,
        "/livez": get_livez,
        "/readyz": get_readyz,
        "/v1/status/ready": get_readyz,
        "/connections": get_connections,
    }
