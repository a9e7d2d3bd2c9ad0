"""Everything that bounds what one client, or one request, may cost a node: `docs/reference/limits_page.md`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from ottla.broker.config.key_docs import BROKER_DOCS
from ottla.broker.quotas.connection_quotas import NO_LIMIT
from ottla.controller.config.broker_config_keys import BROKER_KEYS

NOTE = "<!-- written by python -m devtools.docs.reference -->"
PACKAGES = ("broker", "controller", "log", "wire")

# A section, and behind its title: rows, parted by empty lines. A row says where its number comes from, what is bounded,
# and what happens beyond it. A number is a setting's default or a constant, by its module, and the form it is told in;
# within braces one may stand anywhere.
INTRO = """\
What bounds the cost of one client, or of one request, for a node, and what happens to whoever wants more. Where the
last column names a setting the number is its default ([settings](config.md)); the other numbers are fixed, and stand
in the code where that column says. Rates have no bound until a [quota](../how-to/secure.md#quotas-and-limits) is set.
Most bounds are of one request or one connection: for all of them together `max.connections` is the bound, and it is
not set by default. Where Kafka does otherwise it stands here or in [limitations](limitations.md).
"""

BEFORE_LOGIN = """\
Nothing but ApiVersions, SaslHandshake and SaslAuthenticate is decoded on a listener that asks for a login.

sasl.server.max.receive.size bytes | a frame before the login is complete, and while somebody logs in again | the
connection ends, and the log says so. A frame takes memory only as its bytes arrive

broker.server.guarded.AUTHENTICATION_MS time | the time for TLS and the login together | the connection is hung up on;
who is late is looked for each {broker.server.acceptor._LONGEST_ROUND_S seconds}, or more often. Kafka waits for
`connections.max.idle.ms`

broker.auth.strangers.MOST_BYTES bytes | the buffers of all connections of a listener that have not logged in, beyond
{broker.auth.strangers.FREE_BYTES bytes} each | the connection that wants more is hung up on, and the log says so

ottla.runtime.tls_stream._HANDSHAKE_LOCK turns | the steps of TLS handshakes, of all that come in | the others wait; everybody who
is connected gets a turn in between

connection.failed.authentication.delay.ms time | how long a failed login is held | it is answered then, and the
connection ends

broker.auth.plain.MOST_GARBLED_BYTES bytes | a message of PLAIN that is no UTF-8 | counts as none: the login fails

peers.scram.MAX_MESSAGE_BYTES bytes | a message of SCRAM | counts as none: the login fails

controller.scram.MOST_BYTES bytes | the salt, and the salted password, of a user's SCRAM credential |
UNACCEPTABLE_CREDENTIAL, for whoever sets it: who begins to log in is told the salt

broker.auth.bearer.MAX_MESSAGE_BYTES bytes | a message of OAUTHBEARER, the token in it | counts as none: the login fails

broker.auth.jwks._SHORTEST_S each_s | fetches of the keys of tokens, because a token names one nobody knows;
{broker.auth.jwks._AGAIN_MS each} because of one name | the next one waits, and the token is refused. Kafka has no such
limit

broker.handlers.api_versions.MOST_CHARS chars | the name, and the version, of a client's software | INVALID_REQUEST, in
ApiVersions

broker.server.complaints.A_MINUTE lines | what the log tells of connections of a listener that did something wrong | the
rest is counted, and a later line says how many

broker.auth.audit.A_MINUTE lines | different lines of the audit log (`ottla.audit.log`), half of them of what is allowed
| the rest is counted. The same line is told once a minute, and then how often it would have been; of a name
{broker.auth.audit.LONGEST_CHARS chars} are told

world.logs.LONGEST_CHARS chars | a value in a log line | the rest is cut off; control and format characters are escaped
"""

CONNECTIONS = """\
max.connections count | connections, of all listeners for clients together and of each one | who comes then waits,
unread, until another one leaves. The brokers' own listener lets its own in all the same: then who has been silent for
longest elsewhere is hung up on

max.connections.per.ip count | connections from one address; `max.connections.per.ip.overrides` names other numbers |
who comes then is hung up on

max.connection.creation.rate count | new connections in a second, of all listeners together and of each one | each waits
until the rate is back at it, {broker.auth.connection_quotas.MOST_DELAY_MS time} at most. Who is over a quota of its
address (`connection_creation_rate`) waits as long, unread, and is hung up on

connections.max.idle.ms time | how long a connection may ask nothing, or read nothing of its answer | it is hung up on;
a negative number is no limit

connections.max.reauth.ms endless | how long a login counts; a token may end before | the connection ends with its next
request, unless that begins to log in again; {broker.auth.gate.REAUTHENTICATION_EVERY_MS each} may, sooner it is
ILLEGAL_SASL_STATE

broker.server.connection._KEPT_BUFFER_BYTES bytes | the buffer a connection keeps between its requests | a larger one is
let go once all in it is answered, and the next one begins with {broker.server.connection._FIRST_BUFFER_BYTES bytes}

broker.turn.SLICE_MS time | how long a connection's requests, or one of them that has many rows, have the loop | others
get their turn, then it goes on

broker.auth.counters.MOST_COUNTERS count | clients that are counted under quotas of one kind | who was not heard from
for longest is forgotten, and counted anew. Of a client's name {broker.auth.counters.KEPT_NAME_CHARS chars} count
"""

REQUESTS = """\
socket.request.max.bytes bytes | a request | the connection ends, and the log says so. A request takes memory only as
its bytes arrive

wire.primitives.MAX_STRING_BYTES bytes | a text in it: a name, an id, a value | the connection ends; it is Kafka's limit

wire.primitives.MAX_UNKNOWN_TAGS count | tagged fields nobody knows, in one place | the connection ends; Kafka tries

wire.budget.FREE_BYTES bytes | what a request of {broker.server.dispatch.LARGE_BYTES bytes} and more may take in memory,
and {wire.budget.PER_REQUEST_BYTE count} bytes more for each of its own; elements of arrays may take another
{wire.budget.PER_EARLY_BYTE count} for each of its first {wire.budget.EARLY_BYTES bytes} | the connection ends; Kafka
tries. An element that is looked at in its place and not kept counts {wire.unread.UNREAD_BYTES count} bytes

wire.budget.FREE_KEPT_BYTES bytes | the same for requests of which something is kept: joining, being in and leaving
groups, and positions of share groups that are set or deleted; elements may take no more there | the connection ends

message.max.bytes bytes | a batch of records, of which a request has one for each partition; a topic's own
`max.message.bytes` | MESSAGE_TOO_LARGE. So it is for a batch that is packed anew, as soon as it has grown so large

log.validate.PIECE_BYTES bytes | what is unpacked at a time of a batch whose records are looked at before they are taken
| others get their turn before the next piece, and nothing of it is kept but what is packed anew

wire.compression.DEFAULT_LIMIT_BYTES bytes | what a batch may unpack to, where its records are looked at |
MESSAGE_TOO_LARGE where that is before it is taken. Later, ListOffsets by time answers CORRUPT_MESSAGE if it does not
find its record before; compaction keeps the batch as it is, and the tombstones behind it, and the log says so

wire.records.PIECE_BYTES bytes | what is kept unpacked at a time of a batch in which ListOffsets by time looks | others
get their turn before the next piece

wire.compression.MOST_TIMES packed | what compressed records may unpack to, by gzip, snappy, lz4 and zstd, as far as the
number of records goes that a batch says it has | INVALID_RECORD for more than would fit then. Kafka, which goes through
all records of a batch, counts them

broker.unpacking.AT_ONCE count | of all that Produce and ListOffsets look into, batches of which more than
{wire.compression.FREE_BYTES bytes} are unpacked at a time: zstd keeps a window of up to 128 MiB, snappy a whole block |
the others wait, and keep that much until then; what unpacks to less waits for nobody

wire.compression_headers.SNAPPY_MAX_RATIO times | what a block of snappy may say that it unpacks to | it counts as no
snappy

log.validate.MOST_RECORD_ERRORS count | records at fault that are named of one batch,
{broker.handlers.produce.MOST_NAMED count} in one answer | the rest of the batch is not looked at; a partition's row
that would name more names none

fetch.max.bytes bytes | records in the answer to a fetch | less is sent; the first batch is, whatever its size. A share
fetch divides it among its partitions

broker.handlers.describe_topic_partitions.MAX_PARTITIONS count | partitions in an answer to DescribeTopicPartitions | a
cursor in the answer says where to go on; `max.request.partition.size.limit` has no effect
"""

METADATA = """\
controller.assignment.MAX_PARTITIONS_A_REQUEST count | partitions of all topics of a CreateTopics request |
POLICY_VIOLATION for all of it

controller.assignment.MAX_RECORDS_A_REQUEST count | records of the metadata log that CreateTopics, CreatePartitions,
AlterConfigs, IncrementalAlterConfigs, ElectLeaders, AlterClientQuotas or AlterUserScramCredentials makes |
POLICY_VIOLATION for all of it; Kafka says UNKNOWN_SERVER_ERROR of the last one. DeleteTopics and
AlterPartitionReassignments do what fits, and answer UNKNOWN_SERVER_ERROR for the rest, as Kafka does

controller.assignment.MAX_BATCH_BYTES chars | names and values of settings in CreateTopics, AlterConfigs and
IncrementalAlterConfigs; names in AlterClientQuotas; names and salts in AlterUserScramCredentials |
RECORD_LIST_TOO_LARGE for all of it

controller.brokers.MOST_LISTED count | listeners, features or directories of a node that registers |
INVALID_REGISTRATION. Kafka has no limit

controller.raft.wire_values.MOST_LISTED count | endpoints or candidates in AddRaftVoter, UpdateRaftVoter,
BeginQuorumEpoch and EndQuorumEpoch | INVALID_REQUEST. Kafka has no limit

controller.quotas.MOST_PARTS count | parts of an entity, and quota keys, in an entry of AlterClientQuotas: there are
three, and five | INVALID_REQUEST for that entry. Kafka has no such limit

controller.topics.MAX_NAME chars | a topic's name | INVALID_TOPIC_EXCEPTION

controller.config_rules.MAX_VALUE_BYTES bytes | the value of a setting, with what is appended to it | INVALID_CONFIG

controller.config_rules.MAX_MATCH_CHARS chars | the patterns (`match`) of a client-metrics subscription |
INVALID_CONFIG. Kafka has no such limit

controller.acls.MOST_RECORDS count | access rules that a request makes or removes | CreateAcls answers POLICY_VIOLATION,
DeleteAcls INVALID_REQUEST, and nothing is done

controller.acls.MOST_AGAIN_CHARS chars | names in the rows of an answer to DeleteAcls that tell of a rule another filter
has found already; {controller.acls.ROW_CHARS chars} more for each row | INVALID_REQUEST, and nothing is done. Kafka has
no such limit

broker.metadata.admin.CREATING_AT_ONCE count | topics that are just being made because somebody asked for their metadata
| more are not begun: who asks is told that they are not there, and asks again
"""

GROUPS = """\
group.max.size, group.consumer.max.size, group.streams.max.size count | members of a group of the classic, the consumer
and the streams protocol | GROUP_MAX_SIZE_REACHED

broker.groups.promised.MOST_CHARS chars | the ids that were promised to new members of groups of the classic protocol
(MEMBER_ID_REQUIRED) and are not used yet, of all groups of a partition of `__consumer_offsets`;
{broker.groups.promised.MOST_OF_GROUP_CHARS chars} of one group, and each counts {broker.groups.promised.EACH_CHARS
count} more | the oldest is forgotten: UNKNOWN_MEMBER_ID, and whoever it was joins anew. Kafka keeps all of them

broker.handlers.join_group.MOST_PROTOCOLS count | assignors that a member of a group of the classic protocol names |
INCONSISTENT_GROUP_PROTOCOL. Kafka has no limit

broker.handlers.sync_group.MOST_ASSIGNMENTS count | assignments in a SyncGroup | UNKNOWN_SERVER_ERROR. Kafka leaves out
those of members that the group does not have

group.share.max.size count | members of a share group | GROUP_MAX_SIZE_REACHED

offset.metadata.max.bytes chars | the note beside a committed position | OFFSET_METADATA_TOO_LARGE for that partition

broker.groups.consumer.regex.MOST_BYTES, broker.handlers.list_transactions.MOST_BYTES bytes | the memory a regular
expression takes once it is compiled: of a member of a group, and in ListTransactions | INVALID_REGULAR_EXPRESSION. A
group's expressions are held against the topics again after {broker.groups.consumer.regex.LEAST_BETWEEN_MS time} at the
earliest

broker.handlers.streams_group_heartbeat.MOST_WEIGHT count | a streams topology: each topic that is named counts
{broker.handlers.streams_group_heartbeat.TOPIC_WEIGHT count}, each setting and each place in a copartition group one |
STREAMS_INVALID_TOPOLOGY

broker.groups.streams.configured.MOST_TASKS count | tasks of a streams topology | STREAMS_INVALID_TOPOLOGY; a heartbeat
that names twice as many, or as many client tags, is INVALID_REQUEST

broker.handlers.share_acks.LONGEST_MEMBER_ID chars | the member id in a share group | INVALID_REQUEST

group.share.max.share.sessions count | sessions of share fetches, with {broker.share.sessions.MOST_PLACES count}
partitions in all of them | SHARE_SESSION_LIMIT_REACHED, which whoever asks is told once its `max_wait_ms` is over.
Kafka counts sessions alone

broker.share.sessions.MANY_PLACES count | partitions of one session of share fetches | SHARE_SESSION_LIMIT_REACHED, as
there

group.share.partition.max.record.locks count | records of a partition that a share group has in flight; its own
`share.partition.max.record.locks` | no new ones are handed out until the first are done with. Whole record batches are
handed out, the last one beyond it

broker.share.partition.MOST_CUTS count | places where neighbouring records that a share group has of a partition were
told apart by what became of them | INVALID_REQUEST for the acknowledgement. The batches they came in say how many
records they have: that costs nothing

broker.share.machine.MOST_BATCHES count | batches in WriteShareGroupState for a partition,
{broker.share.machine.MOST_REMEMBERED count} with those that are remembered | INVALID_REQUEST

transaction.max.timeout.ms time | the time a producer may want for a transaction | INVALID_TRANSACTION_TIMEOUT. A
transaction that is open for longer than it wanted is aborted

max.incremental.fetch.session.cache.slots count | fetch sessions | the one that is idle for longest gives way if nobody
used it for {broker.server.sessions.MIN_EVICTION_MS time}, and a reader's to a follower in any case; else the fetch is
answered without a session

broker.server.sessions.MANY_PARTITIONS count | partitions of a reader's fetch session,
{broker.server.sessions.MOST_REMEMBERED count} of all readers' together | a fetch of more opens none; one that grows
beyond it ends (FETCH_SESSION_ID_NOT_FOUND). A broker's has no such bound; who only says that it is one, and has no
right CLUSTER_ACTION, has none

broker.handlers.delegation_tokens.MOST_RENEWERS count | renewers of a delegation token, with
{broker.handlers.delegation_tokens.MOST_CHARS chars} in their names | RECORD_LIST_TOO_LARGE; in Kafka its record may
have {controller.assignment.MAX_BATCH_BYTES bytes}

telemetry.max.bytes bytes | metrics a client pushes at once, packed and unpacked | TELEMETRY_TOO_LARGE; INVALID_RECORD
where they only unpack to more, or a value has more than {broker.telemetry.otlp.MOST_FIELDS count} fields

broker.telemetry.instances.MOST_INSTANCES count | clients that push metrics, or ask what to push | who was not heard
from for longest is forgotten

broker.telemetry.pushed.MOST_OF_ALL_BYTES bytes | values of theirs that are kept for the metrics page,
{broker.telemetry.pushed.MOST_OF_ONE_BYTES bytes} of one client | new ones are dropped and counted
(`ottla_telemetry_values_dropped_total`)

broker.server.metrics.MOST_READERS count | connections to the metrics page (`ottla.metrics.listener`) | who has asked
nothing there for longest is hung up on; who comes while all are being answered is, too

broker.server.metrics.PATIENCE_S seconds | a request to the metrics page (`ottla.metrics.listener`) and its answer | it
is hung up on; connections there do not count towards `max.connections`

broker.server.http.MAX_HEAD_BYTES bytes | the request line and header fields of a request to the metrics page | it is
refused with 431; of the body of a refused request {broker.server.http.MAX_DISCARDED_BYTES bytes} are received
"""

SECTIONS = {
    "Before somebody has logged in": BEFORE_LOGIN,
    "Connections": CONNECTIONS,
    "A request": REQUESTS,
    "Topics, settings, access rules": METADATA,
    "Groups, transactions, and what is remembered of clients": GROUPS,
}
_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_IN_BRACES = re.compile(r"\{(\S+) (\w+)\}")


def _bytes(value: float) -> str:
    for size, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size and value % size == 0:
            return f"{value // size:,} {name}"
    return f"{value:,} bytes"


def _time(ms: float) -> str:
    for size, name in _UNITS:
        if ms >= size and ms % size == 0:
            return f"{ms / size:g} {name}{'' if ms == size else 's'}"
    return f"{ms:g} ms"


def _each(ms: float) -> str:
    return f"one each {_time(ms).removeprefix('1 ')}"


FORMS: dict[str, Callable[[Any], str]] = {
    "bytes": _bytes,
    "chars": lambda value: f"{value:,} characters",
    "count": lambda value: "no bound" if value == NO_LIMIT else f"{value:,}",
    "each": _each,
    "each_s": lambda value: _each(value * 1000),
    "endless": lambda ms: _time(ms) if ms else "for ever",
    "lines": lambda value: f"{value:,} a minute",
    "packed": lambda value: f"{', '.join(f'{most:,}' for most in value[1:])} times their size",
    "seconds": lambda value: _time(value * 1000),
    "time": _time,
    "times": lambda value: f"{value} times its size",
    "turns": lambda _: "one at a time",
}


def _value(source: str) -> Any:
    """What a setting is by default, or a constant."""
    if source in BROKER_KEYS:
        assert source in BROKER_DOCS, f"{source} has no effect"
        return int(BROKER_KEYS[source].default or 0)
    module, name = source.rsplit(".", 1)
    return getattr(import_module(module if module.startswith("ottla.") else f"ottla.{module}"), name)


def _where(source: str) -> str:
    if source in BROKER_KEYS:
        return f"`{source}`"
    module, name = source.rsplit(".", 1)
    place = module if module.startswith("ottla.") or module.split(".")[0] in PACKAGES else f"ottla.{module}"
    return f"`{name}`, `{place.replace('.', '/')}.py`"


def _row(text: str) -> str:
    where, what, then = (part.strip() for part in " ".join(text.split()).split("|"))
    names, form = where.rsplit(" ", 1)
    sources = names.split(", ")
    most = ", ".join(dict.fromkeys(FORMS[form](_value(source)) for source in sources))
    told = f"| {what} | {most} | {then} | {', '.join(map(_where, sources))} |"
    return _IN_BRACES.sub(lambda found: FORMS[found[2]](_value(found[1])), told)


def _section(title: str, text: str) -> Iterator[str]:
    yield from (f"## {title}", "")
    parts = text.strip().split("\n\n")
    if "|" not in parts[0]:
        yield from (parts.pop(0), "")
    yield from ("| what | at most | then | set by / where |", "|---|---|---|---|", *map(_row, parts), "")


def limits_page() -> str:
    """What one client, or one request, may cost a node."""
    lines = ["# Limits", NOTE, "", INTRO]
    for title, text in SECTIONS.items():
        lines += _section(title, text)
    return "\n".join(lines).rstrip() + "\n"
