"""Node without the library of its console."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from compat_tests.support.processes import free_port
from ottla.console.console_server import run_with_console
from ottla.controller.config.config_keys import CONSOLE_LISTENER

SCRIPT = """
import logging, sys
logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(name)s %(message)s")
sys.modules[sys.argv[1]] = None  # an import fails as if it were not installed
import ottla
with ottla.Broker(settings={"ottla.console.listener": f"127.0.0.1:{sys.argv[2]}"}) as broker:
    broker.produce("orders", b"value")
    print("records:", len(broker.records("orders")))
"""


def test_node_runs_without_the_library_of_the_console() -> None:
    command = [sys.executable, "-c", SCRIPT, "jinja2", str(free_port())]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    problem = "Console is not available: jinja2 is not installed: pip install 'ottla[console]'"
    assert f"ottla.console {problem}" in lines, lines
    assert lines[-1] == "records: 1"


def test_controller_without_a_listener_for_clients_binds_no_console(caplog: pytest.LogCaptureFixture) -> None:
    async def run(ready: Any, _: trio.Event) -> None:
        ready(node)

    node: Any = SimpleNamespace(run=run)
    config: Any = SimpleNamespace(values={CONSOLE_LISTENER: "127.0.0.1:0"}, client_listeners=())
    trio.run(run_with_console, node, config)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["Console is not available: the node has no listener for clients"]
