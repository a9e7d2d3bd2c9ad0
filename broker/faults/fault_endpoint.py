"""HTTP endpoint for fault injection: on a loopback address, with a token only for the owner of the data directory.

Requests and responses are JSON. ``GET /faults`` returns the state of the node; ``POST`` changes it.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from http import HTTPStatus
from typing import Any

import trio

from ottla.broker.config.limits import MAX_FAULT_REQUEST_BYTES
from ottla.broker.config.listener_config import ConfigException, parse_listener
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.faults.fault_rule import FaultRule, InvalidFault, parse_fault, parse_limits
from ottla.broker.faults.node_faults import NodeFaults
from ottla.broker.network.http.http_messages import HttpHandler, HttpRequest, HttpResponse, error_response
from ottla.broker.network.http.http_server import HttpLimits, HttpServer
from ottla.controller.config.config_keys import FAULTS_LISTENER
from ottla.env.disk import PRIVATE_FILE
from ottla.env.hosts import format_address
from ottla.jobs.supervision import supervise

FILE_NAME = "ottla-faults.json"
"""File in the first log directory with the address and the token of the endpoint."""
MAX_ADVANCE_MS = 1000 * 365 * 24 * 3600 * 1000
_JSON = "application/json"


class FaultEndpoint:
    """Listener for the faults of a node.

    Args:
        faults: faults of the node.
        config: settings of the node.
        ports: bound port of each client listener by name.

    Raises:
        ConfigException: the address is not a loopback address.
    """

    def __init__(self, faults: NodeFaults, config: NodeConfig, ports: Mapping[str, int]) -> None:
        self._faults = faults
        self._env = faults.base_env
        self._address = config.values.get(FAULTS_LISTENER, "127.0.0.1:0")
        _, self._host, self._port = parse_listener(self._address)
        if not _is_loopback(self._host):
            raise ConfigException(f"{FAULTS_LISTENER}={self._address}: loopback address expected")
        self._path = f"{config.data_dirs[0]}/{FILE_NAME}"
        self._node = {"node": config.node_id, "listeners": reachable_addresses(config, ports)}
        self._token = (self._env.uuid() + self._env.uuid()).hex()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled; ``task_status`` reports the start once the file with address and token is written.

        The file is removed at the end.

        Raises:
            ConfigException: the address cannot be bound. OSError: the file cannot be written.
        """
        try:
            listener = await self._env.net.listen(self._host, self._port)
        except OSError as error:
            raise ConfigException(f"{FAULTS_LISTENER}={self._address}: {error.strerror or error}") from None
        server = HttpServer(self._env, self._route, limits=HttpLimits(body_bytes=MAX_FAULT_REQUEST_BYTES))
        try:
            self._write_file(format_address(self._host, listener.port))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervise, self._env, "HTTP listener for faults", partial(server.serve, listener))
                task_status.started()
        finally:
            listener.close()
            if self._env.disk.exists(self._path):
                self._env.disk.unlink(self._path)

    def _write_file(self, address: str) -> None:
        """Write the address and the token of the endpoint into a file with mode 0600."""
        disk, temporary = self._env.disk, f"{self._path}.tmp"
        if disk.exists(temporary):  # its mode may be another one
            disk.unlink(temporary)
        with closing(disk.open(temporary, create=True, mode=PRIVATE_FILE)) as file:
            file.truncate(0)
            file.pwrite(json.dumps({"address": address, "token": self._token}).encode(), 0)
        disk.rename(temporary, self._path)

    def _route(self, request: HttpRequest) -> HttpHandler | HttpResponse:
        """Return the handler of a request by method and path, or an error response."""
        actions: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Any]] = {
            ("GET", "/faults"): lambda _: self._state(),
            ("POST", "/faults"): self._add,
            ("POST", "/faults/limits"): self._set_limits,
            ("POST", "/faults/remove"): self._remove,
            ("POST", "/clock/advance"): self._advance,
            ("POST", "/network"): self._set_network,
        }
        action = actions.get((request.method, request.path))
        if action is not None:
            return partial(self._answer, action)
        methods = [method for method, path in actions if path == request.path]
        if not methods:
            return error_response(HTTPStatus.NOT_FOUND)
        return error_response(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", ", ".join(methods)),))

    async def _answer(self, action: Callable[[Mapping[str, Any]], Any], request: HttpRequest) -> HttpResponse:
        """Check the token of a request and execute its action; return the result as JSON.

        A wrong token is answered with 401, an invalid fault or malformed JSON with 400, each with an ``error`` text.
        """
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return _response(HTTPStatus.UNAUTHORIZED, {"error": f"wrong token; see {FILE_NAME}"})
        try:
            fields = json.loads(request.body or b"{}")
            if not isinstance(fields, dict):
                raise InvalidFault("JSON object expected")
            return _response(HTTPStatus.OK, action(fields))
        except (InvalidFault, ValueError, RecursionError) as error:
            text = str(error) if isinstance(error, InvalidFault) else "malformed JSON"
            return _response(HTTPStatus.BAD_REQUEST, {"error": text})

    def _state(self) -> dict[str, Any]:
        faults = self._faults
        return {
            **self._node,
            "faults": [rule.describe() for rule in faults.rules.list()],
            "clock": {"offset_ms": faults.clock.offset_ms, "now_ms": faults.clock.now_ms()},
            "paused": faults.gate.is_paused,
            "blocked": sorted(format_address(*address) for address in faults.gate.blocked),
        }

    def _add(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return self._faults.rules.add(parse_fault(fields), parse_limits(fields)).describe()

    def _set_limits(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        rule = self._rule(fields)
        rule.set_limits(parse_limits({name: value for name, value in fields.items() if name != "id"}))
        return rule.describe()

    def _remove(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Remove the fault with the ``id`` of the request, or all faults without one; return their descriptions.

        Raises:
            InvalidFault: There is no fault with this id.
        """
        if "id" not in fields:
            removed = [rule.describe() for rule in self._faults.rules.list()]
            self._faults.rules.clear()
            return {"removed": removed}
        return {"removed": [self._faults.rules.remove(self._rule(fields).id).describe()]}

    def _rule(self, fields: Mapping[str, Any]) -> FaultRule:
        number = fields.get("id")
        if type(number) is not int:
            raise InvalidFault(f"id: number expected: {number!r}")
        return self._faults.rules.get(number)

    def _advance(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Advance the clock of the node by ``ms`` milliseconds; return the state of the node.

        Raises:
            InvalidFault: ``ms`` is no number from 0 to `MAX_ADVANCE_MS`.
        """
        milliseconds = fields.get("ms")
        if type(milliseconds) is not int or not 0 <= milliseconds <= MAX_ADVANCE_MS:
            raise InvalidFault(f"ms: number from 0 to {MAX_ADVANCE_MS} expected: {milliseconds!r}")
        self._faults.clock.advance(milliseconds)
        return self._state()

    def _set_network(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Pause or resume the network (``paused``), or set the addresses that the node cannot reach (``blocked``).

        A field that is missing leaves that part unchanged. The state of the node is returned.

        Raises:
            InvalidFault: A field has a wrong type or address.
        """
        paused, blocked = fields.get("paused"), fields.get("blocked")
        if not isinstance(paused, bool | None) or not isinstance(blocked, list | None):
            raise InvalidFault("paused: true or false expected; blocked: list of addresses expected")
        try:
            addresses = None if blocked is None else frozenset(parse_listener(str(each))[1:] for each in blocked)
        except ConfigException as error:
            raise InvalidFault(f"blocked: {error}") from None
        self._faults.gate.set_state(is_paused=paused, blocked=addresses)
        return self._state()


def reachable_addresses(config: NodeConfig, ports: Mapping[str, int]) -> list[str]:
    """Return ``HOST:PORT`` of each listener at which other nodes reach this one, those for clients first, each once.

    A controller listener at any free port (port 0) is left out. ``ports``: bound port of each client listener by name.
    """
    quorum = config.quorum_config(*(listener.port for listener in config.controller_listeners))
    addresses = [(each.host, each.port) for each in config.registered_listeners(ports)]
    voters = [endpoint for node, endpoint in quorum.static_voters if node == config.node_id]
    addresses += [(each.host, each.port) for each in (*quorum.endpoints, *voters)]
    return list(dict.fromkeys(format_address(host, port) for host, port in addresses if port))


def _response(status: HTTPStatus, value: Any) -> HttpResponse:
    return HttpResponse(status, json.dumps(value).encode() + b"\n", _JSON)


def _is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address, or ``localhost``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
