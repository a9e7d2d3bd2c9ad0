"""Comparison of random settings by Ottla and by Kafka's classes."""

from __future__ import annotations

from compat_tests.vs_kafka.random_settings import BASE_SETTINGS, RandomSettings, config_key, decode_text
from ottla.broker.config.listener_config import STANDARD_AUTHORIZER, ConfigException
from ottla.broker.config.startup_checks import check_startup_values
from ottla.cli.node_setup.settings import configure
from ottla.controller.config.broker_config_validation import InvalidBrokerConfig, check_classes
from ottla.controller.config.config_keys import check_value
from ottla.controller.config.config_validation import check_group, check_topic
from ottla.controller.config.config_values import canonical_value
from ottla.controller.config.pluggable_classes import STARTUP_CLASSES_BY_KEY
from ottla.wire.errors import ProtocolError

SINGLE_NODE_MESSAGE = "inter.broker.listener.name must be a listener name defined in advertised.listeners"
"""Without a listener called PLAINTEXT, and without a setting that names another one, Kafka does not start."""
INTER_BROKER = ("inter.broker.listener.name", "security.inter.broker.protocol")


def parse_with_ottla(drawn: RandomSettings) -> str | list[str]:
    """Return the parsed values, or the message of the refusal."""
    try:
        if drawn.kind == "broker":
            values = {**drawn.broker, **drawn.settings}
            check_startup_values(values)
            configure(values)
        else:
            for name, value in drawn.settings.items():
                wrong = check_value(config_key(drawn.kind, name), value)
                if wrong is not None:
                    return wrong
            if drawn.kind == "topic":
                check_topic(drawn.settings, drawn.broker, {})
            else:
                check_group(drawn.settings, BASE_SETTINGS)
    except ConfigException as error:
        return str(error)
    except ProtocolError as error:
        return error.message or ""
    return [canonical_value(config_key(drawn.kind, name), value) for name, value in drawn.settings.items()]


def is_different(drawn: RandomSettings, mine: str | list[str], theirs: str) -> bool:
    """Return True if only one of both accepts a setting, or both read different values."""
    verdict, _, rest = theirs.partition(" ")
    if verdict == "no":
        return not isinstance(mine, str)
    return mine != [decode_text(x) for x in rest.split(" ")]


def is_refused_by_ottla_alone(kind: str, name: str, value: str) -> bool:
    """Return True if Kafka's classes accept a value that Ottla refuses, as documented in the limitations.

    Most of them are resolved after ``KafkaConfig`` was created, so Kafka does not start with them, either: real starts
    prove that (`compat_tests.vs_kafka.startup_settings`).
    """
    key = config_key(kind, name)
    if name in (*STARTUP_CLASSES_BY_KEY, "metrics.recording.level"):
        try:
            check_classes({name: value})
        except InvalidBrokerConfig:
            return True
    return (
        (key.type == "CLASS" and value == "java.lang.String")
        or (name == "authorizer.class.name" and canonical_value(key, value) not in ("", STANDARD_AUTHORIZER))
        or (name == "remote.log.storage.system.enable" and canonical_value(key, value) == "true")
        or (name == "listeners" and ":99999" in value)
        or (name == "controller.quorum.voters" and "0.0.0.0" in value)
        or (name == "advertised.listeners" and "//:" in value)
    )


def is_accepted_by_ottla_alone(kind: str, name: str, value: str) -> bool:
    """Return True if Kafka refuses a value that Ottla accepts, as documented in the limitations."""
    return (
        (name in ("listeners", "advertised.listeners") and "://" not in value)
        or (name == "controller.quorum.voters" and value.strip() == "")
        or (config_key(kind, name).type == "CLASS" and "oauthbearer.secured." in value)
    )


def without_documented_differences(drawn: RandomSettings) -> RandomSettings:
    """Return the settings without those with values in the limitations."""
    rest = {
        name: value
        for name, value in drawn.settings.items()
        if not is_refused_by_ottla_alone(drawn.kind, name, value)
        and not is_accepted_by_ottla_alone(drawn.kind, name, value)
    }
    given = (
        {name: value for name, value in BASE_SETTINGS.items() if name not in rest}
        if drawn.kind == "broker"
        else BASE_SETTINGS
    )
    return drawn if len(rest) == len(drawn.settings) else drawn._replace(broker=given, settings=rest)


def is_documented_difference(drawn: RandomSettings, mine: str | list[str], theirs: str) -> bool:
    """Return True if a difference is documented; the other settings are compared by themselves."""
    alone = is_refused_by_ottla_alone if isinstance(mine, str) else is_accepted_by_ottla_alone
    if any(alone(drawn.kind, name, value) for name, value in drawn.settings.items()):
        return True
    if isinstance(mine, str):
        return mine.startswith("ssl.keystore.location: listener ")
    return SINGLE_NODE_MESSAGE in (decode_text(theirs.partition(" ")[2]) or "") and drawn.settings.keys().isdisjoint(
        INTER_BROKER
    )
