"""Hashes, configuration, timers, purgatory, and listener strings."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from ottla.broker.config.listener_config import ConfigException, parse_listener
from ottla.broker.config.node_config import NodeConfig, closest_match, settings_from_environment
from ottla.broker.config.startup_checks import check_startup_values
from ottla.broker.coordinator.runtime import java_string_hash, partition_for_key
from ottla.broker.coordinator.timers import Timers
from ottla.broker.requests.purgatory import DelayedOperation, Purgatory
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import GROUP_KEYS, TOPIC_KEYS, check_value
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.job import run_to_end


@pytest.mark.behaviour("P-84")
def test_partition_for_key_equals_kafka() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("abc") == 96354
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for_key("polygenelubricants", 50) == 0
    assert (partition_for_key("cg1", 2), partition_for_key("cg2", 2)) == (1, 0)
    assert java_string_hash("😀") == 1772899


def test_config_keys_have_the_number_of_kafkas() -> None:
    assert (len(BROKER_KEYS), len(TOPIC_KEYS), len(GROUP_KEYS)) == (340, 33, 17)
    assert all(key.broker_key in BROKER_KEYS for key in TOPIC_KEYS.values() if key.broker_key)


def test_default_config_values_are_valid() -> None:
    for key in [*TOPIC_KEYS.values(), *GROUP_KEYS.values()]:
        if key.default is not None:
            assert check_value(key, key.default) is None, key
    settings = NodeConfig().log_settings(MetadataImage(), "t")
    assert settings.segment_bytes == 1 << 30


def test_unknown_config_key_warns_with_closest_match() -> None:
    assert check_startup_values({"num.partition": "3"}) == [
        "unknown setting 'num.partition'; did you mean 'num.partitions'?"
    ]
    assert closest_match("zzzzzz", BROKER_KEYS) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "many"),
        ("auto.create.topics.enable", "perhaps"),
        ("ottla.otlp.endpoint", "collector:4318"),
        ("ottla.otlp.endpoint", "grpc://collector:4317"),
        ("ottla.otlp.endpoint", "http://collector:99999"),
    ],
)
def test_invalid_config_value_raises_config_exception(key: str, value: str) -> None:
    with pytest.raises(ConfigException):
        check_startup_values({key: value})


def test_settings_from_environment_reads_variables_of_kafka_image() -> None:
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_LOG_DIRS": "/x", "PATH": "/bin"}
    assert settings_from_environment(environment) == {"num.partitions": "3", "log.dirs": "/x"}


def test_settings_from_environment_parses_values_as_properties_lines() -> None:
    environment = {
        "KAFKA_SASL_JAAS_CONFIG": 'M required username=\\"a\\" password=\\u0062;',
        "KAFKA_LISTENER_NAME_SASL__SSL_SSL_KEYSTORE_LOCATION": " C:\\\\x\u00e9 ",
        "KAFKA_LOG_DIRS": "/x,\\\n  /y\n",
    }
    assert settings_from_environment(environment) == {
        "sasl.jaas.config": 'M required username="a" password=b;',
        "listener.name.sasl_ssl.ssl.keystore.location": "C:\\x\u00c3\u00a9",
        "log.dirs": "/x,/y",
    }
    with pytest.raises(ConfigException, match="Malformed"):
        settings_from_environment({"KAFKA_LOG_DIRS": "\\u12"})


def test_parse_listener_accepts_kafkas_syntax() -> None:
    assert parse_listener("PLAINTEXT://0.0.0.0:9092") == ("PLAINTEXT", "0.0.0.0", 9092)
    assert parse_listener("127.0.0.1:0") == ("PLAINTEXT", "127.0.0.1", 0)
    assert parse_listener("plaintext://[::1]:9092") == ("PLAINTEXT", "::1", 9092)
    for text in ("9092", "host:port", "host:99999"):
        with pytest.raises(ConfigException):
            parse_listener(text)


def test_topic_config_overrides_broker_config() -> None:
    image = MetadataImage(configs={(2, "t"): {"retention.ms": "1"}, (4, ""): {"log.retention.ms": "2"}})
    config = NodeConfig({"log.retention.ms": "3"})
    key = TOPIC_KEYS["retention.ms"]
    assert config.topic_text(image, "t", key) == "1"
    assert config.topic_text(image, "u", key) == "2"
    assert config.topic_text(MetadataImage(), "u", key) == "3"
    assert NodeConfig().topic_text(MetadataImage(), "u", key) == "604800000"


class TimerEnv:
    """Part of `Env` that timers need."""

    def now_ms(self) -> int:
        return int(trio.current_time() * 1000) + 1_000_000

    def monotonic_ms(self) -> float:
        return trio.current_time() * 1000

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)


def virtually(main: object) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))  # type: ignore[arg-type]


def test_timers_fire_once_in_order_and_can_be_rescheduled() -> None:
    fired: list[tuple[str, int]] = []

    async def main() -> None:
        timers = Timers(TimerEnv())  # type: ignore[arg-type]
        start = 1_000_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            for name, at in (("b", 300), ("a", 100), ("moved", 150), ("gone", 200)):
                timers.arm(name, start + at, lambda n=name: fired.append((n, round(trio.current_time() * 1000))))  # type: ignore[misc]
            await trio.sleep(0.05)
            timers.arm("moved", start + 400, lambda: fired.append(("moved", round(trio.current_time() * 1000))))
            timers.cancel("gone")
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    virtually(main)
    assert fired == [("a", 100), ("b", 300), ("moved", 400)]


def test_timers_cancelled_10000_times_are_removed_from_heap() -> None:
    async def main() -> None:
        timers = Timers(TimerEnv())  # type: ignore[arg-type]
        for turn in range(10_000):
            timers.cancel("session")
            timers.arm("session", 1_010_000 + turn, lambda: None)
        assert len(timers._heap) < 200

    virtually(main)


def test_purgatory_operation_completes_when_ready_or_at_timeout() -> None:
    async def main() -> None:
        purgatory = Purgatory(TimerEnv())  # type: ignore[arg-type]
        have = 0
        outcomes: dict[str, tuple[bool, float]] = {}

        async def wait(name: str, need: int, timeout_ms: int) -> None:
            done = await purgatory.wait([("p", 0), ("p", 1)], lambda: have >= need, timeout_ms)
            outcomes[name] = (done, trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "one", 1, 5000)
            nursery.start_soon(wait, "three", 3, 5000)
            nursery.start_soon(wait, "never", 9, 700)
            for number in range(3):
                await trio.sleep(0.2)
                have += 1
                purgatory.check_and_complete(("p", number % 2))
        assert outcomes == {"one": (True, 0.2), "three": (True, pytest.approx(0.6)), "never": (False, 0.7)}
        assert len(purgatory) == 0

    virtually(main)


@pytest.mark.parametrize("is_thrown_in", [False, True])
def test_purgatory_operation_with_many_keys_is_released_in_parts(*, is_thrown_in: bool) -> None:
    async def main() -> None:
        purgatory = Purgatory(TimerEnv())  # type: ignore[arg-type]
        parked = DelayedOperation(lambda key: True)
        for number in range(2500):
            purgatory.watch(parked, number)
        purgatory.check_and_complete(7)
        assert parked.event.is_set()
        purgatory.check_and_complete(8)
        assert len(purgatory._operations_by_key) == 2500, "a wake looks at its own key only"
        job = purgatory.release(parked)
        next(job)
        assert len(purgatory._operations_by_key) == 1500
        if is_thrown_in:
            with pytest.raises(KeyboardInterrupt):
                job.throw(KeyboardInterrupt())
        else:
            run_to_end(job)
        assert not purgatory._operations_by_key

    virtually(main)
