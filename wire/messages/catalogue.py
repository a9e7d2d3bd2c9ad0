"""Every top-level message class by Kafka's name. Imports all message modules: for tests and tools, not for a node."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ottla.wire import messages
from ottla.wire.codec.schema import Message


def all_messages() -> dict[str, type[Message]]:
    """Return the classes of requests, responses, headers and stored records by Kafka's name (``ProduceRequest``).

    Structs inside messages are left out. Imports every message module.
    """
    out: dict[str, type[Message]] = {}
    for info in pkgutil.iter_modules(messages.__path__):
        if info.name == "catalogue":
            continue
        # lazy: 27.3 ms, 1606 kB: all of them, for tests and tools
        module = import_module(f"ottla.wire.messages.{info.name}")
        for name, value in vars(module).items():
            own = isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
            if own and hasattr(value, "SPEC"):
                out[name] = value
    return out
