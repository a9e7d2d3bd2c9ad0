"""Allowed class names of settings that name a Java class: Kafka's own classes. Others are not supported.

Source: ``KafkaConfig`` and the config classes it joins (apache/kafka 4.3.1).
"""

from __future__ import annotations

_SECURITY = "org.apache.kafka.common.security."
_BEARER = f"{_SECURITY}oauthbearer."

CLASSES_BY_KEY: dict[str, tuple[str, ...]] = {
    "principal.builder.class": (f"{_SECURITY}authenticator.DefaultKafkaPrincipalBuilder",),
    "ssl.engine.factory.class": (f"{_SECURITY}ssl.DefaultSslEngineFactory",),
    "sasl.server.callback.handler.class": (
        f"{_BEARER}OAuthBearerValidatorCallbackHandler",
        f"{_BEARER}secured.OAuthBearerValidatorCallbackHandler",  # its name until 4.0
        f"{_BEARER}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    ),
    "sasl.login.callback.handler.class": (
        f"{_BEARER}OAuthBearerLoginCallbackHandler",
        f"{_BEARER}secured.OAuthBearerLoginCallbackHandler",  # its name until 4.0
    ),
    "sasl.login.class": (
        f"{_SECURITY}authenticator.DefaultLogin",
        f"{_SECURITY}kerberos.KerberosLogin",
        f"{_BEARER}internals.OAuthBearerRefreshingLogin",
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        f"{_BEARER}DefaultJwtRetriever",
        f"{_BEARER}ClientCredentialsJwtRetriever",
        f"{_BEARER}FileJwtRetriever",
        f"{_BEARER}JwtBearerJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        f"{_BEARER}DefaultJwtValidator",
        f"{_BEARER}BrokerJwtValidator",
        f"{_BEARER}ClientJwtValidator",
    ),
}
"""Allowed classes of settings of type CLASS. A setting that is not in here allows none."""

STARTUP_CLASSES_BY_KEY: dict[str, tuple[str, ...]] = {
    "metric.reporters": ("org.apache.kafka.common.metrics.JmxReporter",),
    "kafka.metrics.reporters": (),
    "replica.selector.class": (
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "org.apache.kafka.common.replica.LeaderSelector",
    ),
    "group.share.persister.class.name": ("org.apache.kafka.server.share.persister.DefaultStatePersister",),
}
"""Allowed classes of settings of type STRING or LIST which Kafka loads at start."""

UNIFORM, RANGE, SIMPLE = "uniform", "range", "simple"
_ASSIGNOR = "org.apache.kafka.coordinator.group.assignor."
CONSUMER_ASSIGNORS = {
    UNIFORM: UNIFORM,
    RANGE: RANGE,
    f"{_ASSIGNOR}UniformAssignor": UNIFORM,
    f"{_ASSIGNOR}RangeAssignor": RANGE,
}
"""Allowed elements of ``group.consumer.assignors``, with the assignor's name for each."""
SHARE_ASSIGNORS = {SIMPLE: SIMPLE, f"{_ASSIGNOR}SimpleAssignor": SIMPLE}
"""Allowed elements of ``group.share.assignors``, with the assignor's name for each."""
