"""The node's numbers at an address of their own, as Prometheus reads them: ``ottla.metrics.listener=HOST:PORT``.

Names are those a Prometheus exporter gives Kafka's beans, where Kafka has the number; what only Ottla has begins with
``ottla_``. Everything is counted anyway: asking costs a walk over the partitions, not asking costs nothing. The walk
goes in slices: with 10,000 partitions it is 40,000 lines.

Source: ``LogManager``, ``LogCleanerManager``, ``ReplicaManager``, ``UnifiedLog``, ``RequestMetrics`` beans
(apache/kafka 4.3.1, docs/ops); the text form is Prometheus' own, version 0.0.4.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.broker.replica.replicas import Replicas
from ottla.broker.replica.storage import Storage
from ottla.broker.server import http
from ottla.broker.server.observer import Count, Counts
from ottla.broker.turn import BESIDE_MS, Turn
from ottla.broker.upkeep.cleaner import Cleaner
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.log.partition_log import PartitionLog
from ottla.world.env import Env, Listener, Stream

if TYPE_CHECKING:
    from ottla.broker.replica.health import Health
    from ottla.broker.telemetry.pushed import Pushed

logger = logging.getLogger("ottla.metrics")
_PATHS = (b"/metrics", b"/")
PATIENCE_S = 10.0
MOST_READERS = 32
"""Who scrapes comes alone, and asks at once."""
AT_ONCE = 50
_PER_LOG: dict[str, tuple[str, Callable[[PartitionLog], int]]] = {
    "kafka_log_log_size": ("Bytes of all segments.", lambda log: log.size_bytes),
    "kafka_log_log_numlogsegments": ("Segments.", lambda log: len(log.segments)),
    "kafka_log_log_logstartoffset": ("First offset that is kept.", lambda log: log.log_start_offset),
    "kafka_log_log_logendoffset": ("Next offset to be written.", lambda log: log.log_end_offset),
}
_PER_API: dict[str, tuple[str, Callable[[Count], int]]] = {
    "kafka_network_requestmetrics_requests_total": ("Requests that came.", lambda count: count.requests),
    "ottla_answers_total": ("Answers that left; what asks for none gets none.", lambda count: count.answers),
    "ottla_request_bytes_total": ("Bytes of the requests.", lambda count: count.request_bytes),
    "ottla_answer_bytes_total": ("Bytes of the answers.", lambda count: count.answer_bytes),
}
Row = tuple[str, str, int]
"""Name, what it is, value."""


class Numbers(NamedTuple):
    """Where the numbers are."""

    storage: Storage
    replicas: Replicas
    cleaner: Cleaner
    scrubber: Scrubber
    counts: Counts
    connections: Callable[[], int]
    controller: Any
    """`ottla.broker.server.quorum_numbers.Decides`."""
    serves: bool
    """Whether this node is a broker."""
    decides: bool
    """Whether it is one of the controllers."""
    pushed: Callable[[], Pushed | None] = lambda: None
    """What clients pushed, once one did."""

    def gauges(self, health: Health) -> Iterable[Row]:
        """What goes up and down, of the node as a whole."""
        replicas = self.replicas
        yield "kafka_server_replicamanager_partitioncount", "Partitions on this node.", len(replicas)
        name = "kafka_server_replicamanager"
        yield f"{name}_leadercount", "Partitions this node leads.", health.leading
        about = "Of those, the ones with replicas that are not in sync."
        yield f"{name}_underreplicatedpartitions", about, health.under_replicated
        about = "Of those, the ones with fewer in sync than min.insync.replicas."
        yield f"{name}_underminisrpartitioncount", about, health.under_min_isr
        about = "Of those, the ones with just as many in sync as that."
        yield f"{name}_atminisrpartitioncount", about, health.at_min_isr
        about = "Committed records the follower is without that is most behind."
        yield "kafka_server_replicafetchermanager_maxlag", about, health.most_lag
        offline = len(replicas.offline)
        yield "kafka_server_replicamanager_offlinereplicacount", "Partitions in failed directories.", offline
        failed = len(self.storage.failed)
        yield "kafka_log_logmanager_offlinelogdirectorycount", "Data directories that failed.", failed
        about = "Compacted partitions that cannot be compacted."
        yield "kafka_log_logcleanermanager_uncleanable_partitions_count", about, self.cleaner.broken_count

    def counters(self) -> Iterable[Row]:
        """What only grows."""
        cleaner, scrubber, replicas = self.cleaner, self.scrubber, self.replicas
        name = "kafka_server_replicamanager"
        yield f"{name}_isrexpands", "Replicas that have come in sync.", replicas.isr_expands
        yield f"{name}_isrshrinks", "Times that replicas were let go for being behind.", replicas.isr_shrinks
        yield f"{name}_failedisrupdates", "Changes of an ISR that the controller refused.", replicas.isr_failures
        yield "ottla_cleaner_passes", "Passes of the compactor.", cleaner.passes
        yield "ottla_cleaner_read_bytes", "Bytes the compactor read.", cleaner.bytes_read
        yield "ottla_cleaner_written_bytes", "Bytes the compactor wrote.", cleaner.bytes_written
        yield "ottla_scrub_segments", "Old segments that were read again.", scrubber.segments_read
        yield "ottla_scrub_damage", "Damaged places that were found in them.", scrubber.damage_found


def _head(name: str, about: str, kind: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


async def page(env: Env, numbers: Numbers) -> bytes:
    """All numbers in Prometheus' text form. A topic's name has nothing in it that would have to be escaped."""
    turn = Turn(env, BESIDE_MS)
    out = await _of_a_broker(env, numbers, turn) if numbers.serves else []
    from ottla.broker.server import quorum_numbers  # who asks for no numbers does not load these

    for name, about, number in (
        *quorum_numbers.quorum(numbers.controller),
        *(await turn.through(quorum_numbers.cluster(numbers.controller)) if numbers.decides else ()),
        ("ottla_connections", "Connections of clients, brokers and controllers.", numbers.connections()),
    ):
        out.append(f"{_head(name, about, 'gauge')}{name} {number}\n")
    out += quorum_numbers.states(numbers.controller)
    for name, (about, count_of) in _PER_API.items():
        out.append(_head(name, about, "counter"))
        out += [f'{name}{{request="{count.name}"}} {count_of(count)}\n' for count in numbers.counts]
    return "".join(out).encode()


async def _of_a_broker(env: Env, numbers: Numbers, turn: Turn) -> list[str]:
    """Its logs, its partitions, and what goes on beside."""
    out: list[str] = []
    logs = numbers.storage.logs()
    for name, (about, value) in _PER_LOG.items():
        out.append(_head(name, about, "gauge"))
        for first in range(0, len(logs), AT_ONCE):
            out += [
                f'{name}{{topic="{log.topic}",partition="{log.partition}"}} {value(log)}\n'
                for log in logs[first : first + AT_ONCE]
            ]
            await turn.step()
    open_files = 0
    for first in range(0, len(logs), AT_ONCE):
        open_files += sum(segment.is_open for log in logs[first : first + AT_ONCE] for segment in log.segments)
        await turn.step()
    from ottla.broker.replica.health import looking

    health = await turn.through(looking(numbers.replicas))
    open_segments = ("ottla_open_segments", "Segments whose file is open.", open_files)
    for name, about, number in (*numbers.gauges(health), open_segments):
        out.append(f"{_head(name, about, 'gauge')}{name} {number}\n")
    for name, about, number in numbers.counters():
        out.append(f"{_head(name + '_total', about, 'counter')}{name}_total {number}\n")
    pushed = numbers.pushed()
    if pushed is not None:
        for name, about, number in pushed.counters():
            out.append(f"{_head(name + '_total', about, 'counter')}{name}_total {number}\n")
        out += await turn.through(pushed.lines(env.monotonic_ms()))
    return out


async def serve(env: Env, numbers: Numbers, listener: Listener) -> None:
    """Answer ``GET`` and ``HEAD`` of ``/metrics`` until cancelled."""
    logger.info("metrics at port %d", listener.port)
    readers = _Readers(env, numbers)
    async with trio.open_nursery() as nursery:
        while True:
            stream = await listener.accept()
            if readers.takes_in(stream):
                nursery.start_soon(readers.answer, stream)


class _Readers:
    """Who is connected to read the page. Those who ask while it is made get the next one together."""

    def __init__(self, env: Env, numbers: Numbers) -> None:
        self._env = env
        self._numbers = numbers
        self._silent: dict[Stream, None] = {}
        """They have not asked yet, the first one for longest."""
        self._answered = 0
        """How many have, and are not gone."""
        self._making = trio.Lock()
        self._begun = self._made = 0
        """Numbers of the last page that was begun, and of the last that was made."""
        self._page = b""

    def takes_in(self, stream: Stream) -> bool:
        """Whether there is room for one more. Who has asked for nothing for longest gives way."""
        if len(self._silent) + self._answered >= MOST_READERS:
            if not self._silent:
                stream.close()
                return False
            first = next(iter(self._silent))
            del self._silent[first]
            first.close()
        self._silent[stream] = None
        return True

    async def answer(self, stream: Stream) -> None:
        """Serve one, and hang up."""
        has_asked = False
        try:
            with contextlib.suppress(OSError, trio.ClosedResourceError), self._env.timeout(PATIENCE_S):
                request = await http.read_request(stream, PATIENCE_S)
                if request is not None and stream in self._silent:
                    del self._silent[stream]
                    has_asked, self._answered = True, self._answered + 1
                    await self._respond(stream, request)
        finally:
            self._silent.pop(stream, None)
            self._answered -= has_asked
            stream.close()

    async def _respond(self, stream: Stream, request: http.Request) -> None:
        refusal = http.refusal(request, _PATHS)
        if refusal is not None:
            await stream.send(http.response(request, refusal, refusal.reason))
            await http.discard_body(stream, request, PATIENCE_S)
            return
        await stream.send(http.response(request, http.OK, await self._newest()))

    async def _newest(self) -> bytes:
        """A page that was begun after it was asked for."""
        before = self._begun
        async with self._making:
            if self._made <= before:
                self._begun += 1
                self._page = await page(self._env, self._numbers)
                self._made = self._begun
            body = self._page
            if not self._making.statistics().tasks_waiting:
                self._page, self._made = b"", 0  # megabytes, where there are many partitions
            return body
