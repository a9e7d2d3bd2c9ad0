"""What Ottla answers to drawn settings, and whether that differs from Kafka's own classes."""

from __future__ import annotations

from compat_tests.drawn_settings import BASE, Drawn, decoded, key_of
from ottla.broker.addresses import BadConfig
from ottla.broker.config import check_values
from ottla.cli.settings import configure
from ottla.controller.config_keys import check_value
from ottla.controller.config_rules import check_group, check_topic
from ottla.controller.config_values import meant
from ottla.wire.errors import ProtocolError


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
