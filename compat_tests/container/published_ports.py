"""A client behind published ports: ``python -m compat_tests.container.published_ports TOPIC COUNT PORT=HOST:PORT...``.

Each ``PORT=HOST:PORT`` forwards a port of this machine as a container runtime does. The client creates the topic with
as many replicas as there are ports, writes COUNT records with acks=all and prints how many records the topic has.
``CLIENT_SETTINGS`` holds more settings of the client as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 120


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def forward(port: int, address: str) -> None:
    """Forward connections to a port of this machine to an address."""
    host, _, target_port = address.rpartition(":")
    listener = socket.create_server(("127.0.0.1", port))

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            try:
                server = socket.create_connection((host, int(target_port)), 2)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def main(topic: str, count: int, published: list[str]) -> None:
    """Write and read through the published ports."""
    ports = []
    for item in published:
        port, _, address = item.partition("=")
        forward(int(port), address)
        ports.append(port)
    common = {"bootstrap.servers": ",".join(f"localhost:{port}" for port in ports), "broker.address.family": "v4"}
    common |= json.loads(os.environ.get("CLIENT_SETTINGS", "{}"))
    admin = AdminClient(common)
    if topic not in admin.list_topics(timeout=TIMEOUT_S).topics:
        admin.create_topics([NewTopic(topic, 3, len(ports))])[topic].result(TIMEOUT_S)
    producer = Producer({**common, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(TIMEOUT_S) == 0
    group = {"group.id": f"group-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**common, **group, "enable.partition.eof": True})
    consumer.subscribe([topic])
    read, ended = 0, set()
    while len(ended) < 3:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{read} records read"
        if message.error() is None:
            read += 1
        else:
            ended.add(message.partition())
    consumer.close()
    print(read)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
