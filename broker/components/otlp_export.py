"""Creation of the OTLP exporter of a node from its settings."""

from __future__ import annotations

from ottla.broker.components.broker_components import BrokerComponents
from ottla.broker.config.otlp_settings import parse_otlp_headers
from ottla.broker.observability.metrics_endpoint import MetricsPage
from ottla.broker.observability.otlp_encoder import OtlpResource
from ottla.broker.observability.otlp_exporter import OtlpExporter
from ottla.broker.observability.request_tracer import RequestTracer
from ottla.controller.config.config_keys import OTLP_ENDPOINT, OTLP_HEADERS, OTLP_INTERVAL, OTLP_TRACE_RATIO
from ottla.controller.config.java_values import parse_double
from ottla.env.env import Env


def create_otlp_exporter(env: Env, components: BrokerComponents, page: MetricsPage) -> OtlpExporter:
    """Return the exporter of a node; if a part of the requests is to be traced, add the tracer to their observers.

    The tracer is the first observer, as the request metrics reset the time that a request waited.
    """
    config = components.services.config
    ratio, tracer = parse_double(config.text(OTLP_TRACE_RATIO)), None
    if ratio:
        tracer = RequestTracer(env, ratio)
        components.request_observers.insert(0, tracer)
    resource = OtlpResource(config.node_id)
    headers = parse_otlp_headers(config.values.get(OTLP_HEADERS, ""))
    return OtlpExporter(env, config.text(OTLP_ENDPOINT), headers, resource, page, tracer, config.number(OTLP_INTERVAL))
