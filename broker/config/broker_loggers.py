"""Loggers of a node: clients read and change their levels at run time (KIP-412): resource type BROKER_LOGGER.

A change is not persisted: it is lost when the process ends. ``root`` is the common parent of the node's loggers, not
the root logger of the process, which belongs to an application that embeds a node.

Source: ``LoggingController``, ``Log4jCoreController``, ``RuntimeLoggerManager``, ``LogLevelConfig`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from ottla.controller.config.java_values import parse_integer
from ottla.env.log_escaping import LOGGER_NAMES
from ottla.wire.errors import ErrorCode, ProtocolError

RESOURCE_BROKER_LOGGER = 8
ROOT_LOGGER = "root"
_PARENT = "ottla"
TRACE = 5
LOG_LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
SET, DELETE = 0, 1
_OPERATIONS = {2: "APPEND", 3: "SUBTRACT"}
logger = logging.getLogger("ottla.loggers")


class LoggerChange(Protocol):
    """Change of one logger's level: an element of ``configs`` in IncrementalAlterConfigs."""

    name: str
    config_operation: int
    value: str | None


def get_logger_levels() -> dict[str, str]:
    """Return Kafka's name of the effective level of each logger: its own, or that of its nearest ancestor."""
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in (*LOGGER_NAMES, ROOT_LOGGER)}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_PARENT if name == ROOT_LOGGER else name)


def _level_name(level: int) -> str:
    """Return the most verbose of Kafka's levels that a level of `logging` enables; ``OFF`` if it enables none."""
    return next((name for name, number in LOG_LEVELS.items() if number >= level), "OFF")


def check_node_id(resource_name: str, node_id: int) -> None:
    """Check that the resource name of a logger change is the id of this node, ``node_id``.

    Raises:
        ProtocolError: INVALID_REQUEST: another node, or not an integer.
    """
    try:
        number = parse_integer(resource_name, 32)
    except ValueError:
        text = f"Node id must be an integer, but it is: {resource_name}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text) from None
    if number != node_id:
        text = f"Unexpected node id. Expected {node_id}, but received {number}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text)


def check_logger_change(change: LoggerChange) -> None:
    """Check a change of a logger's level.

    Raises:
        ProtocolError: INVALID_CONFIG: unknown logger or level; INVALID_REQUEST: an operation that is not allowed;
            UNKNOWN_SERVER_ERROR: unknown operation.
    """
    operation = change.config_operation
    if operation not in (SET, DELETE):
        if operation not in _OPERATIONS:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # a NullPointerException in Kafka
        text = f"{_OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text)
    if change.name != ROOT_LOGGER and change.name not in LOGGER_NAMES:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if operation == DELETE and change.name == ROOT_LOGGER:
        text = f"Removing the log level of the {ROOT_LOGGER} logger is not allowed"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text)
    if operation == SET and change.value not in LOG_LEVELS:
        text = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LOG_LEVELS))}"
        )
        raise ProtocolError(ErrorCode.INVALID_CONFIG, text)


def apply_logger_changes(changes: Sequence[LoggerChange]) -> None:
    """Set or unset the levels of loggers at once; `check_logger_change` has accepted each change."""
    logging.addLevelName(TRACE, "TRACE")
    for change in changes:
        if change.config_operation == SET:
            assert change.value is not None, "checked"
            _logger(change.name).setLevel(LOG_LEVELS[change.value])
            logger.warning("Updated the log level of %s to %s", change.name, change.value)
        else:
            _logger(change.name).setLevel(logging.NOTSET)
            logger.warning("Unset the log level of %s", change.name)
