"""What the page of limits tells: rows of what bounds one client, or one request, by section."""

from __future__ import annotations

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

broker.network.secure_connection.AUTHENTICATION_TIMEOUT_MS time | the time for TLS and the login together | the
connection is hung up on; who is late is looked for each {broker.network.acceptor._MAX_IDLE_CHECK_S seconds}, or more
often. Kafka waits for `connections.max.idle.ms`

broker.security.authn.pre_auth_memory.MAX_PRE_AUTH_BYTES bytes | the buffers of all connections of a listener that have
not logged in, beyond {broker.security.authn.pre_auth_memory.UNCOUNTED_BYTES bytes} each | the connection that wants
more is hung up on, and the log says so

ottla.runtime.tls_stream._HANDSHAKE_LOCK turns | the steps of TLS handshakes, of all that come in | the others wait;
everybody who is connected gets a turn in between

connection.failed.authentication.delay.ms time | how long a failed login is held | it is answered then, and the
connection ends

broker.security.authn.plain_server.MAX_INVALID_UTF8_BYTES bytes | a message of PLAIN that is no UTF-8 | counts as none:
the login fails

client.scram.MAX_MESSAGE_BYTES bytes | a message of SCRAM | counts as none: the login fails

controller.control.scram_credentials.MAX_FIELD_BYTES bytes | the salt, and the salted password, of a user's SCRAM
credential | UNACCEPTABLE_CREDENTIAL, for whoever sets it: who begins to log in is told the salt

broker.security.authn.oauthbearer_server.MAX_MESSAGE_BYTES bytes | a message of OAUTHBEARER, the token in it | counts as
none: the login fails

broker.security.authn.jwks._MIN_REFRESH_S each_s | fetches of the keys of tokens, because a token names one nobody
knows; {broker.security.authn.jwks._UNKNOWN_KEY_RETRY_MS each} because of one name | the next one waits, and the token
is refused. Kafka has no such limit

broker.handlers.admin.api_versions.MAX_SOFTWARE_CHARS chars | the name, and the version, of a client's software |
INVALID_REQUEST, in ApiVersions

broker.dispatch.rate_limited_log.MAX_PER_MINUTE lines | what the log tells of connections of a listener that did
something wrong | the rest is counted, and a later line says how many

broker.security.authz.audit_log.MAX_PER_MINUTE lines | different lines of the audit log (`ottla.audit.log`), half of
them of what is allowed | the rest is counted. The same line is told once a minute, and then how often it would have
been; of a name {broker.security.authz.audit_log.MAX_NAME_CHARS chars} are told

env.log_escaping.LONGEST_CHARS chars | a value in a log line | the rest is cut off; control and format characters are
escaped
"""

CONNECTIONS = """\
max.connections count | connections, of all listeners for clients together and of each one | who comes then waits,
unread, until another one leaves. The brokers' own listener lets its own in all the same: then who has been silent for
longest elsewhere is hung up on

max.connections.per.ip count | connections from one address; `max.connections.per.ip.overrides` names other numbers |
who comes then is hung up on

max.connection.creation.rate count | new connections in a second, of all listeners together and of each one | each waits
until the rate is back at it, {broker.quotas.connection_quotas.MAX_CONNECTION_THROTTLE_MS time} at most. Who is over a
quota of its address (`connection_creation_rate`) waits as long, unread, and is hung up on

connections.max.idle.ms time | how long a connection may ask nothing, or read nothing of its answer | it is hung up on;
a negative number is no limit

connections.max.reauth.ms endless | how long a login counts; a token may end before | the connection ends with its next
request, unless that begins to log in again; {broker.security.authn.sasl_authenticator.MIN_REAUTHENTICATION_INTERVAL_MS
each} may, sooner it is ILLEGAL_SASL_STATE

broker.network.connection._KEPT_BUFFER_BYTES bytes | the buffer a connection keeps between its requests | a larger one
is let go once all in it is answered, and the next one begins with {broker.network.connection._FIRST_BUFFER_BYTES bytes}

jobs.job.SLICE_MS time | how long a connection's requests, or one of them that has many rows, have the loop |
others get their turn, then it goes on

broker.quotas.quota_table.MAX_COUNTERS count | clients that are counted under quotas of one kind | who was not heard
from for longest is forgotten, and counted anew. Of a client's name {broker.quotas.quota_table.MAX_CACHED_NAME_CHARS
chars} count
"""

REQUESTS = """\
socket.request.max.bytes bytes | a request | the connection ends, and the log says so. A request takes memory only as
its bytes arrive

wire.codec.primitives.MAX_STRING_BYTES bytes | a text in it: a name, an id, a value | the connection ends; it is Kafka's
limit

wire.codec.primitives.MAX_UNKNOWN_TAGS count | tagged fields nobody knows, in one place | the connection ends; Kafka
tries

wire.codec.decode_budget.FREE_BYTES bytes | what a request of {broker.dispatch.dispatcher.LARGE_BYTES bytes} and more
may take in memory, and {wire.codec.decode_budget.PER_REQUEST_BYTE count} bytes more for each of its own; elements of
arrays may take another {wire.codec.decode_budget.PER_EARLY_BYTE count} for each of its first
{wire.codec.decode_budget.EARLY_BYTES bytes} | the connection ends; Kafka tries. An element that is looked at in its
place and not kept counts {wire.codec.lazy_array.LAZY_ELEMENT_BYTES count} bytes

wire.codec.decode_budget.FREE_RETAINED_BYTES bytes | the same for requests of which something is kept: joining, being in
and leaving groups, and positions of share groups that are set or deleted; elements may take no more there | the
connection ends

message.max.bytes bytes | a batch of records, of which a request has one for each partition; a topic's own
`max.message.bytes` | MESSAGE_TOO_LARGE. So it is for a batch that is packed anew, as soon as it has grown so large

log.log_validator.PIECE_BYTES bytes | what is unpacked at a time of a batch whose records are looked at before they are
taken | others get their turn before the next piece, and nothing of it is kept but what is packed anew

wire.record_batch.compression.MAX_DECOMPRESSED_BYTES bytes | what a batch may unpack to, where its records are looked at
| MESSAGE_TOO_LARGE where that is before it is taken. Later, ListOffsets by time answers CORRUPT_MESSAGE if it does not
find its record before; compaction keeps the batch as it is, and the tombstones behind it, and the log says so

wire.record_batch.records.PIECE_BYTES bytes | what is kept unpacked at a time of a batch in which ListOffsets by time
looks | others get their turn before the next piece

wire.record_batch.compression.MAX_COMPRESSION_RATIOS packed | what compressed records may unpack to, by gzip, snappy,
lz4 and zstd, as far as the number of records goes that a batch says it has | INVALID_RECORD for more than would fit
then. Kafka, which goes through all records of a batch, counts them

broker.requests.decompression_limiter.MAX_CONCURRENT_DECOMPRESSIONS count | of all that Produce and ListOffsets look
into, batches of which more than {wire.record_batch.compression.FREE_BYTES bytes} are unpacked at a time: zstd keeps a
window of up to 128 MiB, snappy a whole block | the others wait, and keep that much until then; what unpacks to less
waits for nobody

wire.record_batch.compression_headers.SNAPPY_MAX_RATIO times | what a block of snappy may say that it unpacks to | it
counts as no snappy

log.log_validator.MAX_RECORD_ERRORS count | records at fault that are named of one batch,
{broker.handlers.produce.produce.MAX_RECORD_ERRORS count} in one answer | the rest of the batch is not looked at; a
partition's row that would name more names none

fetch.max.bytes bytes | records in the answer to a fetch | less is sent; the first batch is, whatever its size. A share
fetch divides it among its partitions

broker.handlers.admin.describe_topic_partitions.MAX_PARTITIONS count | partitions in an answer to
DescribeTopicPartitions | a cursor in the answer says where to go on; `max.request.partition.size.limit` has no effect
"""

METADATA = """\
controller.partitions.partition_assignment.MAX_PARTITIONS_PER_REQUEST count | partitions of all topics of a CreateTopics
request | POLICY_VIOLATION for all of it

controller.partitions.partition_assignment.MAX_RECORDS_PER_REQUEST count | records of the metadata log that
CreateTopics, CreatePartitions, AlterConfigs, IncrementalAlterConfigs, ElectLeaders, AlterClientQuotas or
AlterUserScramCredentials makes | POLICY_VIOLATION for all of it; Kafka says UNKNOWN_SERVER_ERROR of the last one.
DeleteTopics and AlterPartitionReassignments do what fits, and answer UNKNOWN_SERVER_ERROR for the rest, as Kafka does

controller.partitions.partition_assignment.MAX_BATCH_BYTES chars | names and values of settings in CreateTopics,
AlterConfigs and IncrementalAlterConfigs; names in AlterClientQuotas; names and salts in AlterUserScramCredentials |
RECORD_LIST_TOO_LARGE for all of it

controller.control.broker_registration.MAX_LISTED count | listeners, features or directories of a node that registers |
INVALID_REGISTRATION. Kafka has no limit

controller.raft.messages.conversion_types.MAX_LISTED count | endpoints or candidates in AddRaftVoter, UpdateRaftVoter,
BeginQuorumEpoch and EndQuorumEpoch | INVALID_REQUEST. Kafka has no limit

controller.control.client_quotas.MAX_ENTITY_PARTS count | parts of an entity, and quota keys, in an entry of
AlterClientQuotas: there are three, and five | INVALID_REQUEST for that entry. Kafka has no such limit

controller.control.create_and_delete_topics.MAX_TOPIC_NAME_LENGTH chars | a topic's name | INVALID_TOPIC_EXCEPTION

controller.config.config_validation.MAX_VALUE_BYTES bytes | the value of a setting, with what is appended to it |
INVALID_CONFIG

controller.config.config_validation.MAX_MATCH_CHARS chars | the patterns (`match`) of a client-metrics subscription |
INVALID_CONFIG. Kafka has no such limit

controller.control.acls.MAX_RECORDS count | access rules that a request makes or removes | CreateAcls answers
POLICY_VIOLATION, DeleteAcls INVALID_REQUEST, and nothing is done

controller.control.acls.MAX_REPEATED_CHARS chars | names in the rows of an answer to DeleteAcls that tell of a rule
another filter has found already; {controller.control.acls.ROW_CHARS chars} more for each row | INVALID_REQUEST, and
nothing is done. Kafka has no such limit

broker.metadata.controller_forwarder.MAX_TOPICS_IN_CREATION count | topics that are just being made because somebody
asked for their metadata | more are not begun: who asks is told that they are not there, and asks again
"""

GROUPS = """\
group.max.size, group.consumer.max.size, group.streams.max.size count | members of a group of the classic, the consumer
and the streams protocol | GROUP_MAX_SIZE_REACHED

broker.groups.classic.pending_member_ids.MAX_CHARS chars | the ids that were promised to new members of groups of the
classic protocol (MEMBER_ID_REQUIRED) and are not used yet, of all groups of a partition of `__consumer_offsets`;
{broker.groups.classic.pending_member_ids.MAX_GROUP_CHARS chars} of one group, and each counts
{broker.groups.classic.pending_member_ids.ENTRY_OVERHEAD_CHARS count} more | the oldest is forgotten: UNKNOWN_MEMBER_ID,
and whoever it was joins anew. Kafka keeps all of them

broker.handlers.groups.join_group.MAX_PROTOCOLS count | assignors that a member of a group of the classic protocol names
| INCONSISTENT_GROUP_PROTOCOL. Kafka has no limit

broker.handlers.groups.sync_group.MAX_ASSIGNMENTS count | assignments in a SyncGroup | UNKNOWN_SERVER_ERROR. Kafka
leaves out those of members that the group does not have

group.share.max.size count | members of a share group | GROUP_MAX_SIZE_REACHED

offset.metadata.max.bytes chars | the note beside a committed position | OFFSET_METADATA_TOO_LARGE for that partition

broker.groups.consumer.regex_subscriptions.MAX_PATTERN_BYTES,
broker.handlers.transactions.list_transactions.MAX_PATTERN_BYTES bytes | the memory a regular expression takes once it
is compiled: of a member of a group, and in ListTransactions | INVALID_REGULAR_EXPRESSION. A group's expressions are
held against the topics again after {broker.groups.consumer.regex_subscriptions.MIN_REFRESH_INTERVAL_MS time} at the
earliest

broker.handlers.groups.streams_group_heartbeat.MAX_TOPOLOGY_WEIGHT count | a streams topology: each topic that is named
counts {broker.handlers.groups.streams_group_heartbeat.TOPIC_WEIGHT count}, each setting and each place in a copartition
group one | STREAMS_INVALID_TOPOLOGY

broker.groups.streams.configured_topology.MAX_TASKS count | tasks of a streams topology | STREAMS_INVALID_TOPOLOGY; a
heartbeat that names twice as many, or as many client tags, is INVALID_REQUEST

broker.handlers.share.share_acknowledgements.MAX_MEMBER_ID_CHARS chars | the member id in a share group |
INVALID_REQUEST

group.share.max.share.sessions count | sessions of share fetches, with
{broker.share_partitions.share_sessions.MAX_CACHED_PARTITIONS count} partitions in all of them |
SHARE_SESSION_LIMIT_REACHED, which whoever asks is told once its `max_wait_ms` is over. Kafka counts sessions alone

broker.share_partitions.share_sessions.MAX_SESSION_PARTITIONS count | partitions of one session of share fetches |
SHARE_SESSION_LIMIT_REACHED, as there

group.share.partition.max.record.locks count | records of a partition that a share group has in flight; its own
`share.partition.max.record.locks` | no new ones are handed out until the first are done with. Whole record batches are
handed out, the last one beyond it

broker.share_partitions.share_partition.MAX_CUTS count | places where neighbouring records that a share group has of a
partition were told apart by what became of them | INVALID_REQUEST for the acknowledgement. The batches they came in say
how many records they have: that costs nothing

broker.share_state.state_machine.MAX_WRITTEN_BATCHES count | batches in WriteShareGroupState for a partition,
{broker.share_state.state_machine.MAX_STORED_BATCHES count} with those that are remembered | INVALID_REQUEST

transaction.max.timeout.ms time | the time a producer may want for a transaction | INVALID_TRANSACTION_TIMEOUT. A
transaction that is open for longer than it wanted is aborted

max.incremental.fetch.session.cache.slots count | fetch sessions | the one that is idle for longest gives way if nobody
used it for {broker.fetch_sessions.fetch_session_cache.MIN_EVICTION_MS time}, and a reader's to a follower in any case;
else the fetch is answered without a session

broker.fetch_sessions.fetch_session_cache.MAX_SESSION_PARTITIONS count | partitions of a reader's fetch session,
{broker.fetch_sessions.fetch_session_cache.MAX_CACHED_PARTITIONS count} of all readers' together | a fetch of more opens
none; one that grows beyond it ends (FETCH_SESSION_ID_NOT_FOUND). A broker's has no such bound; who only says that it is
one, and has no right CLUSTER_ACTION, has none

broker.handlers.security.delegation_tokens.MAX_RENEWERS count | renewers of a delegation token, with
{broker.handlers.security.delegation_tokens.MAX_RENEWER_CHARS chars} in their names | RECORD_LIST_TOO_LARGE; in Kafka
its record may have {controller.partitions.partition_assignment.MAX_BATCH_BYTES bytes}

telemetry.max.bytes bytes | metrics a client pushes at once, packed and unpacked | TELEMETRY_TOO_LARGE; INVALID_RECORD
where they only unpack to more, or a value has more than {broker.observability.otlp.MAX_FIELDS count} fields

broker.observability.client_metrics_instances.MAX_INSTANCES count | clients that push metrics, or ask what to push | who
was not heard from for longest is forgotten

broker.observability.client_metrics_store.MAX_TOTAL_BYTES bytes | values of theirs that are kept for the metrics page,
{broker.observability.client_metrics_store.MAX_CLIENT_BYTES bytes} of one client | new ones are dropped and counted
(`ottla_telemetry_values_dropped_total`)

broker.observability.metrics_endpoint.MAX_CLIENTS count | connections to the metrics page (`ottla.metrics.listener`) |
who has asked nothing there for longest is hung up on; who comes while all are being answered is, too

broker.observability.metrics_endpoint.CLIENT_TIMEOUT_S seconds | a request to the metrics page
(`ottla.metrics.listener`) and its answer | it is hung up on; connections there do not count towards `max.connections`

broker.observability.http_protocol.MAX_HEAD_BYTES bytes | the request line and header fields of a request to the metrics
page | it is refused with 431; of the body of a refused request {broker.observability.http_protocol.MAX_DISCARDED_BYTES
bytes} are received
"""

SECTIONS = {
    "Before somebody has logged in": BEFORE_LOGIN,
    "Connections": CONNECTIONS,
    "A request": REQUESTS,
    "Topics, settings, access rules": METADATA,
    "Groups, transactions, and what is remembered of clients": GROUPS,
}
