"""What Ottla answers to drawn settings, and whether that differs from Kafka's own classes."""

from __future__ import annotations

from compat_tests.drawn_settings import BASE, Drawn, decoded, key_of
from ottla.broker.addresses import BadConfig
from ottla.broker.start_checks import check_values
from ottla.cli.settings import configure
from ottla.controller.config_keys import check_value
from ottla.controller.config_rules import check_group, check_topic
from ottla.controller.config_values import meant
from ottla.controller.known_classes import NAMED_CLASSES
from ottla.wire.errors import ProtocolError

AT_START = {*NAMED_CLASSES, "metrics.recording.level", "authorizer.class.name"}
"""Kafka resolves these after ``KafkaConfig`` was made, and does not start, either."""
PORT = 99_999
"""No port: Kafka does not start, though ``KafkaConfig`` takes it."""
UNROUTABLE = "0.0.0.0"
ANY_ADVERTISED = "//:"
"""An advertised listener without a host, which `docs/reference/limitations.md` lists."""
UNNAMED = "h:1"
"""A listener without a name: listed there, too."""


def ours(drawn: Drawn) -> str | list[str]:
    """The parsed values, or the message of the refusal."""
    try:
        if drawn.kind == "broker":
            values = {**drawn.broker, **drawn.settings}
            check_values(values)
            configure(values)
        else:
            for name, value in drawn.settings.items():
                wrong = check_value(key_of(drawn.kind, name), value)
                if wrong is not None:
                    return wrong
            if drawn.kind == "topic":
                check_topic(drawn.settings, BASE, {})
            else:
                check_group(drawn.settings, BASE)
    except BadConfig as error:
        return str(error)
    except ProtocolError as error:
        return error.message or ""
    return [meant(key_of(drawn.kind, name), value) for name, value in drawn.settings.items()]


def differs(drawn: Drawn, mine: str | list[str], theirs: str) -> bool:
    """Whether Kafka accepts what Ottla refuses, the other way round, or reads another value."""
    verdict, _, rest = theirs.partition(" ")
    if verdict == "no":
        return not isinstance(mine, str)
    return mine != [decoded(x) for x in rest.split(" ")]


def is_listed(drawn: Drawn, mine: str | list[str]) -> bool:
    """Whether a difference is one of the documented ones."""
    settings = drawn.settings
    if not isinstance(mine, str):
        named = (
            settings.get("advertised.listeners") == UNNAMED
            or settings.get("controller.quorum.voters", "-").strip() == ""
        )
        return named or any("oauthbearer.secured." in x for x in mine)
    classes = [name for name in settings if key_of(drawn.kind, name).type == "CLASS"]
    return (
        not AT_START.isdisjoint(settings)
        or any("java.lang." in settings[name] for name in classes)
        or f":{PORT}" in settings.get("listeners", "")
        or UNROUTABLE in settings.get("controller.quorum.voters", "")
        or ANY_ADVERTISED in settings.get("advertised.listeners", "")
        or "remote.log.storage.system.enable" in settings
    )
