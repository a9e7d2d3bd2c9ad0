"""Start of a node with its web console if one is configured; the console is not imported otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import Node
from ottla.controller.config.config_keys import CONSOLE_LISTENER

logger = logging.getLogger("ottla.console")


async def run_node(node: Node, config: NodeConfig, ready: Callable[[Node], None], stop: trio.Event) -> None:
    """Run a node until ``stop`` is set, with its console if ``ottla.console.listener`` is set.

    Without the libraries of the console a warning is logged, and the node runs without a console.

    Raises:
        ConfigException: ``ottla.console.listener`` or ``ottla.console.schema.registry`` is invalid. Others as
            `Node.run`, with a console within an ExceptionGroup.
    """
    if not config.values.get(CONSOLE_LISTENER):
        await node.run(ready, stop)
        return
    try:
        # lazy: 80.0 ms, 3800 kB: only with a console
        from ottla.console.console_server import run_with_console
    except ModuleNotFoundError as error:
        logger.warning("Console is not available: %s is not installed: pip install 'ottla[console]'", error.name)
        await node.run(ready, stop)
    else:
        await run_with_console(node, config, ready, stop)
