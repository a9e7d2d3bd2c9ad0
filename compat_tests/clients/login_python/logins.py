"""Logins of confluent-kafka, kafka-python, aiokafka and kcat at listeners that authenticate.

``logins.py CLIENT CELLS``: the file has a list of login methods; for each, a line of JSON has the result, or the class
of the error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

VAGUE = ("_TRANSPORT", "_ALL_BROKERS_DOWN")
STABLE_S = 2.0
UNTRUSTED = "certificate verify failed"
"""Common part of the messages: librdkafka adds different details."""
WITHIN_S = 20.0
Cell = dict[str, Any]


def librdkafka(cell: Cell) -> dict[str, Any]:
    """Return a cell as settings of librdkafka."""
    conf = {"bootstrap.servers": cell["bootstrap"], "security.protocol": cell["protocol"]}
    if "ca" in cell:
        conf["ssl.ca.location"] = cell["ca"]
        conf["ssl.endpoint.identification.algorithm"] = "https" if cell["checks_host"] else "none"
    if "certificate" in cell:
        conf |= {"ssl.certificate.location": cell["certificate"], "ssl.key.location": cell["certificate"]}
    if "mechanism" in cell:
        conf["sasl.mechanism"] = cell["mechanism"]
    if "user" in cell:
        conf |= {"sasl.username": cell["user"], "sasl.password": cell["password"]}
    return conf


def confluent(cell: Cell) -> str:
    """Return the outcome of a login with confluent-kafka: ``in``, or the name of the error."""
    from confluent_kafka import KafkaException, Producer

    error_names: list[str] = []
    conf = librdkafka(cell) | {"log_level": 0, "error_cb": lambda error: error_names.append(error.name())}
    if "token" in cell:
        conf["oauth_cb"] = lambda _: (cell["token"], time.time() + 3600)
    producer, until_s = Producer(conf), time.monotonic() + WITHIN_S
    stable_s = until_s
    while time.monotonic() < until_s:
        producer.poll(0.05)
        if errors := [name for name in error_names if name not in VAGUE]:
            return errors[0]
        # a connection that was closed has the same message: does the next attempt have a more specific one?
        if VAGUE[0] in error_names:
            stable_s = min(stable_s, time.monotonic() + STABLE_S)
            if time.monotonic() > stable_s:
                return VAGUE[0]
        try:
            producer.list_topics(timeout=0.5)
        except KafkaException:
            continue
        return "in"
    return "timeout"


def context(cell: Cell) -> ssl.SSLContext | None:
    """Return the TLS context of a cell; None without TLS."""
    if "ca" not in cell:
        return None
    out = ssl.create_default_context(cafile=cell["ca"])
    out.check_hostname = cell["checks_host"]
    if "certificate" in cell:
        out.load_cert_chain(cell["certificate"])
    return out


def python(cell: Cell) -> dict[str, Any]:
    """Return a cell in the names that kafka-python and aiokafka share."""
    conf = {"bootstrap_servers": cell["bootstrap"], "security_protocol": cell["protocol"], "ssl_context": context(cell)}
    if "mechanism" in cell:
        conf["sasl_mechanism"] = cell["mechanism"]
    if "user" in cell:
        conf |= {"sasl_plain_username": cell["user"], "sasl_plain_password": cell["password"]}
    return conf


class LoggedErrorClasses(logging.Handler):
    """Classes of the errors that a client only logs."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Record the classes of the exceptions in a log record."""
        args = record.args if isinstance(record.args, tuple) else ()
        self.classes += [type(x).__name__ for x in args if isinstance(x, Exception)]


def listening(logger: logging.Logger) -> LoggedErrorClasses:
    """Return a new handler of a logger, which replaces its other ones."""
    logger.propagate = False
    logger.handlers = [LoggedErrorClasses()]
    return logger.handlers[0]  # type: ignore[return-value]


def kafka_python(cell: Cell) -> str:
    """Log in with one cell at a time: the reason of a failure is only logged.

    The failure is a response of the broker or a closed connection, by chance, with any broker: both count as a refusal.
    """
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return str(cell["token"])

    conf = python(cell) | ({"sasl_oauth_token_provider": Provider()} if "token" in cell else {})
    log_capture = listening(logging.getLogger("kafka"))
    for patience_ms in (1500, 20_000):  # a busy machine gets a second attempt
        try:
            KafkaProducer(**conf, bootstrap_timeout_ms=patience_ms).close()
        except Exception as error:  # any error: its class is the result
            if log_capture.classes:
                return "refused"
            if patience_ms > 1500:
                return type(error).__name__
            continue
        return "in"
    raise AssertionError("it was one of both")


async def aiokafka(cell: Cell) -> str:
    """Return the outcome of a login with aiokafka: ``in``, or the class of the error."""
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.client import AIOKafkaClient

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return str(cell["token"])

    log_capture = listening(logging.getLogger("aiokafka"))
    conf = python(cell) | ({"sasl_oauth_token_provider": Provider()} if "token" in cell else {})
    client = AIOKafkaClient(**conf)
    try:
        await asyncio.wait_for(client.bootstrap(), WITHIN_S)
        return "in" if client.cluster.brokers() else "no brokers"
    except Exception as error:  # without the reason, which is only in its log
        return [*log_capture.classes, type(error).__name__][0]
    finally:
        await client.close()


async def run_sequentially(cells: list[Cell]) -> None:
    """Print the outcome of each cell with aiokafka, one after the other."""
    for cell in cells:
        print(json.dumps([cell["name"], await aiokafka(cell)]), flush=True)


def kcat(cell: Cell) -> str:
    """Return the outcome of a login with kcat: ``in``, or the words of the error."""
    settings = [x for key, value in librdkafka(cell).items() for x in ("-X", f"{key}={value}")]
    command = [os.environ["KCAT"], "-L", "-m", "20", *settings, "-X", "log.thread.name=false"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"\|FAIL\|[^|]*\| (?:\[[^\]]*\]: )?\S+: (?!Connect to)(.*)", line)
            if found is not None:
                process.kill()
                # The alert for a refused certificate depends on the TLS library of the other side.
                words = re.sub(r" \(after .*|\S*\d\S*|(?<= alert ).*", "", found[1]).lower()
                return UNTRUSTED if UNTRUSTED in words else re.sub(r"[^a-z]+", " ", words).strip()[:60]
    return "in" if process.returncode == 0 else "timeout"


def main() -> None:
    """Print the outcomes of a client for the cells of a file."""
    name, file = sys.argv[1:]
    with open(file) as given:
        cells: list[Cell] = json.load(given)
    if name == "aiokafka":
        asyncio.run(run_sequentially(cells))
        return
    ask = {"confluent": confluent, "kafka-python": kafka_python, "kcat": kcat}[name]
    with (ProcessPoolExecutor if name == "kafka-python" else ThreadPoolExecutor)(6) as pool:
        for cell, result in zip(cells, pool.map(ask, cells), strict=True):
            print(json.dumps([cell["name"], result]), flush=True)


if __name__ == "__main__":
    main()
