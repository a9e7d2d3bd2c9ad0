"""Metric families of the `/metrics` page: name, type, unit, labels and meaning.

A metric that Apache Kafka has is named as the JMX exporter rules of common dashboards name its MBean. Families that
kafka_exporter and kafka-lag-exporter define keep their names. All others begin with ``ottla_``.
`docs/reference/metrics.md` is generated from this table.
"""

from __future__ import annotations

from typing import NamedTuple

GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"


class MetricFamily(NamedTuple):
    """Metric family: name, type (gauge, counter or summary), unit, label names and meaning."""

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    meaning: str


class MetricSection(NamedTuple):
    """Metric families of one subject, with the title of their section in the documentation."""

    title: str
    families: tuple[MetricFamily, ...]


def _parse_section(title: str, table: str) -> MetricSection:
    """Return a section from lines ``name | kind | unit | labels | meaning``."""
    families = []
    for line in table.strip().split("\n"):
        name, kind, unit, labels, meaning = (cell.strip() for cell in line.split("|"))
        families.append(MetricFamily(name, kind, unit, tuple(labels.split()), meaning))
    return MetricSection(title, tuple(families))


_PARTITIONS = """
kafka_log_log_size | gauge | bytes | topic partition | Size of all segments of a replica of this node
kafka_log_log_numlogsegments | gauge | segments | topic partition | Segments of a replica of this node
kafka_log_log_logstartoffset | gauge | offset | topic partition | Log start offset of a replica of this node
kafka_log_log_logendoffset | gauge | offset | topic partition | Log end offset of a replica of this node
kafka_cluster_partition_underminisr | gauge | 0 or 1 | topic partition | 1 if the ISR is smaller than min.insync.replicas; from the leader
kafka_cluster_partition_atminisr | gauge | 0 or 1 | topic partition | 1 if the ISR is as large as min.insync.replicas; from the leader
kafka_cluster_partition_replicascount | gauge | replicas | topic partition | Replicas; from the leader
kafka_topic_partitions | gauge | partitions | topic | Partitions of a topic; from the leader of partition 0
kafka_topic_partition_current_offset | gauge | offset | topic partition | High watermark; from the leader
kafka_topic_partition_oldest_offset | gauge | offset | topic partition | Log start offset; from the leader
kafka_partition_latest_offset | gauge | offset | topic partition | The same as kafka_topic_partition_current_offset, as kafka-lag-exporter names it
kafka_partition_earliest_offset | gauge | offset | topic partition | The same as kafka_topic_partition_oldest_offset, as kafka-lag-exporter names it
kafka_topic_partition_leader | gauge | node id | topic partition | Leader; from the leader
kafka_topic_partition_leader_is_preferred | gauge | 0 or 1 | topic partition | 1 if the leader is the first replica; from the leader
kafka_topic_partition_replicas | gauge | replicas | topic partition | Replicas; from the leader
kafka_topic_partition_in_sync_replica | gauge | replicas | topic partition | Replicas in the ISR; from the leader
kafka_topic_partition_under_replicated_partition | gauge | 0 or 1 | topic partition | 1 if a replica is not in the ISR; from the leader
ottla_metrics_omitted_partitions | gauge | partitions | | Replicas of this node without series of their own: the limit of series is reached
"""
_TRAFFIC = """
kafka_server_brokertopicmetrics_messagesin_total | counter | records | topic | Records that producers appended
kafka_server_brokertopicmetrics_bytesin_total | counter | bytes | topic | Bytes of the batches that producers appended
kafka_server_brokertopicmetrics_bytesout_total | counter | bytes | topic | Bytes of the batches that consumers fetched
kafka_server_brokertopicmetrics_bytesrejected_total | counter | bytes | topic | Bytes of the batches that were larger than the limit
kafka_server_brokertopicmetrics_replicationbytesin_total | counter | bytes | | Bytes that this node fetched from leaders
kafka_server_brokertopicmetrics_replicationbytesout_total | counter | bytes | | Bytes that followers fetched from this node
kafka_server_brokertopicmetrics_totalproducerequests_total | counter | appends | topic | Partitions of Produce requests
kafka_server_brokertopicmetrics_totalfetchrequests_total | counter | reads | topic | Partitions of Fetch requests
kafka_server_brokertopicmetrics_failedproducerequests_total | counter | appends | topic | Partitions of Produce requests that failed unexpectedly: not those with another leader, a batch that is too large or corrupt, or a failed log directory
kafka_server_brokertopicmetrics_failedfetchrequests_total | counter | reads | topic | Partitions of Fetch requests that failed unexpectedly: not those with another leader or leader epoch, an offset out of range, or a failed log directory
"""
_TIERED = """
kafka_server_brokertopicmetrics_remotecopybytes_total | counter | bytes | topic | Bytes of the segments that were copied to the remote store
kafka_server_brokertopicmetrics_remotecopyrequests_total | counter | segments | topic | Copies to the remote store that were begun
kafka_server_brokertopicmetrics_remotecopyerrors_total | counter | segments | topic | Copies to the remote store that failed
kafka_server_brokertopicmetrics_remotedeleterequests_total | counter | segments | topic | Deletions of remote segments that were begun
kafka_server_brokertopicmetrics_remotedeleteerrors_total | counter | segments | topic | Deletions of remote segments that failed
kafka_server_brokertopicmetrics_remotefetchbytes_total | counter | bytes | topic | Bytes that were read from the remote store
kafka_server_brokertopicmetrics_remotefetchrequests_total | counter | reads | topic | Reads of the remote store for consumers
kafka_server_brokertopicmetrics_remotefetcherrors_total | counter | reads | topic | Reads of the remote store for consumers that failed
kafka_server_brokertopicmetrics_buildremotelogauxstaterequests_total | counter | replicas | topic | Followers on this node that began with the end of the remote log
kafka_server_brokertopicmetrics_buildremotelogauxstateerrors_total | counter | replicas | topic | Failures of followers to begin with the end of the remote log
kafka_server_brokertopicmetrics_remotecopylagbytes | gauge | bytes | topic | Size of the rolled segments that are not copied; from the leader
kafka_server_brokertopicmetrics_remotecopylagsegments | gauge | segments | topic | Rolled segments that are not copied; from the leader
kafka_server_brokertopicmetrics_remotedeletelagbytes | gauge | bytes | topic | Size of the remote segments that are to be deleted; from the leader
kafka_server_brokertopicmetrics_remotedeletelagsegments | gauge | segments | topic | Remote segments that are to be deleted; from the leader
kafka_server_brokertopicmetrics_remotelogmetadatacount | gauge | segments | topic | Remote segments with metadata; from the leader
kafka_server_brokertopicmetrics_remotelogsizebytes | gauge | bytes | topic | Size of the remote segments; from the leader
kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent | gauge | ratio | | Part of the threads for copies that is idle, from 0 to 1
kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize | gauge | reads | | Reads that wait for a thread
kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent | gauge | ratio | | Part of the threads for reads that is idle, from 0 to 1
kafka_server_delayedremotefetchmetrics_expires_total | counter | requests | | Fetch requests that were answered before their reads of the remote store ended: remote.fetch.max.wait.ms had passed
kafka_server_delayedremotelistoffsetsmetrics_expires_total | counter | requests | | ListOffsets requests whose reads of the remote store did not end in time
"""
_REQUESTS = """
kafka_network_requestmetrics_requests_total | counter | requests | request | Requests received
kafka_network_requestmetrics_errors_total | counter | errors | request error | Error codes in responses, one for each row with an error; NONE is not counted
kafka_network_requestmetrics_totaltimems | summary | milliseconds | request quantile | Time from the receipt of a request until its response is encoded; behind another request that waited, from the end of that wait; repeated Fetch and Produce requests of a connection are timed once in 16 receipts
kafka_network_requestmetrics_localtimems | summary | milliseconds | request quantile | Part of the time until the request first waited
kafka_network_requestmetrics_remotetimems | summary | milliseconds | request quantile | Part of the time from then on: waiting for followers, records, another node or the next time slice
ottla_answers_total | counter | responses | request | Responses sent; a request with acks=0 has none
ottla_request_bytes_total | counter | bytes | request | Bytes of the requests
ottla_answer_bytes_total | counter | bytes | request | Bytes of the responses
kafka_server_socket_server_metrics_connection_count | gauge | connections | listener | Connections of a listener
ottla_connections | gauge | connections | | Connections of all listeners
kafka_network_socketserver_networkprocessoravgidle_percent | gauge | ratio | | Part of the time since the previous scrape in which the process used no CPU: one event loop serves all connections
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent | gauge | ratio | | The same number: handlers run on the same event loop
"""
_BROKER = """
kafka_server_kafkaserver_brokerstate | gauge | state | | 0 not running, 1 starting, 2 recovery, 3 running, 6 controlled shutdown, 7 shutting down
kafka_server_replicamanager_partitioncount | gauge | partitions | | Replicas of this node
kafka_server_replicamanager_leadercount | gauge | partitions | | Partitions that this node leads
kafka_server_replicamanager_underreplicatedpartitions | gauge | partitions | | Led partitions with replicas outside the ISR
kafka_server_replicamanager_underminisrpartitioncount | gauge | partitions | | Led partitions whose ISR is smaller than min.insync.replicas
kafka_server_replicamanager_atminisrpartitioncount | gauge | partitions | | Led partitions whose ISR is as large as min.insync.replicas
kafka_server_replicamanager_offlinereplicacount | gauge | partitions | | Replicas in failed log directories
kafka_server_replicamanager_isrexpands_total | counter | changes | | Replicas that joined an ISR
kafka_server_replicamanager_isrshrinks_total | counter | changes | | Times that replicas left an ISR
kafka_server_replicamanager_failedisrupdates_total | counter | changes | | ISR changes that the controller refused
kafka_server_replicafetchermanager_maxlag | gauge | records | | Committed records that the follower with the largest lag on this node lacks
kafka_log_logmanager_offlinelogdirectorycount | gauge | directories | | Log directories that failed
kafka_log_logcleanermanager_uncleanable_partitions_count | gauge | partitions | | Partitions that cannot be compacted
ottla_open_segments | gauge | segments | | Segments whose file is open
ottla_cleaner_passes_total | counter | passes | | Passes of the log cleaner
ottla_cleaner_read_bytes_total | counter | bytes | | Bytes that the log cleaner read
ottla_cleaner_written_bytes_total | counter | bytes | | Bytes that the log cleaner wrote
ottla_scrub_segments_total | counter | segments | | Old segments that were read again
ottla_scrub_damage_total | counter | places | | Damaged places found in old segments
"""
_GROUPS = """
kafka_coordinator_group_groupmetadatamanager_numgroups | gauge | groups | | Groups that this node coordinates
kafka_coordinator_group_groupmetadatamanager_numoffsets | gauge | offsets | | Committed offsets that this node keeps
ottla_groups | gauge | groups | type state | Groups that this node coordinates
kafka_consumergroup_members | gauge | members | consumergroup | Members of a group; from its coordinator
kafka_consumergroup_current_offset | gauge | offset | consumergroup topic partition | Committed offset; from the coordinator of the group
kafka_consumergroup_current_offset_sum | gauge | offset | consumergroup topic | Sum of the committed offsets of a topic
kafka_consumergroup_lag | gauge | records | consumergroup topic partition | High watermark minus committed offset, where the coordinator has a replica of the partition
kafka_consumergroup_lag_sum | gauge | records | consumergroup topic | Sum of the lag of a topic
kafka_consumergroup_group_offset | gauge | offset | group topic partition | The same as kafka_consumergroup_current_offset, as kafka-lag-exporter names it
kafka_consumergroup_group_lag | gauge | records | group topic partition | The same as kafka_consumergroup_lag, as kafka-lag-exporter names it
kafka_consumergroup_group_topic_sum_lag | gauge | records | group topic | The same as kafka_consumergroup_lag_sum, as kafka-lag-exporter names it
kafka_consumergroup_group_max_lag | gauge | records | group | Largest lag of a partition
kafka_consumergroup_group_sum_lag | gauge | records | group | Sum of the lag of all partitions
ottla_metrics_omitted_group_offsets | gauge | offsets | | Committed offsets without series of their own: the limit of series is reached
ottla_transactional_ids | gauge | ids | | Transactional ids that this node coordinates
"""
_QUORUM = """
kafka_server_raft_metrics_current_leader | gauge | node id | | Leader of the metadata quorum; -1 if unknown
kafka_server_raft_metrics_current_vote | gauge | node id | | Candidate this node voted for; -1 for none
kafka_server_raft_metrics_current_epoch | gauge | epoch | | Epoch of the quorum
kafka_server_raft_metrics_high_watermark | gauge | offset | | High watermark of the metadata log; -1 if unknown
kafka_server_raft_metrics_log_end_offset | gauge | offset | | End of the metadata log of this node
kafka_server_raft_metrics_log_end_epoch | gauge | epoch | | Epoch of the last record of the metadata log
kafka_server_raft_metrics_number_of_voters | gauge | nodes | | Voters
kafka_server_raft_metrics_number_of_observers | gauge | nodes | | Observers that the leader knows
kafka_server_raft_metrics_uncommitted_voter_change | gauge | 0 or 1 | | 1 while a change of the voters is not committed
kafka_server_raft_metrics_current_state | gauge | 0 or 1 | state | 1 for the state of this node
kafka_server_raftmetrics_current_leader | gauge | node id | | The same as kafka_server_raft_metrics_current_leader, as Strimzi names it
kafka_server_raftmetrics_current_vote | gauge | node id | | The same as kafka_server_raft_metrics_current_vote
kafka_server_raftmetrics_current_epoch | gauge | epoch | | The same as kafka_server_raft_metrics_current_epoch
kafka_server_raftmetrics_high_watermark | gauge | offset | | The same as kafka_server_raft_metrics_high_watermark
kafka_server_raftmetrics_log_end_offset | gauge | offset | | The same as kafka_server_raft_metrics_log_end_offset
kafka_server_raftmetrics_current_state | gauge | 1 | current_state | 1, with the state of this node as label
kafka_server_raftmetrics_append_records_rate | gauge | records/s | | Records of the metadata log that this node appends as leader, over the last 30 to 90 s
kafka_server_raftmetrics_fetch_records_rate | gauge | records/s | | Records of the metadata log that this node fetches from the leader, over the last 30 to 90 s
kafka_server_raftmetrics_commit_latency_avg | gauge | milliseconds | | Average time per record until a batch of the leader is committed; from a node that committed batches as leader in the last 30 to 90 s
kafka_server_raftchannelmetrics_request_total | counter | requests | | Requests of this node to other controllers about the metadata log, with ApiVersions and SASL
kafka_server_raftchannelmetrics_response_total | counter | responses | | Responses to these requests
kafka_server_raftchannelmetrics_outgoing_byte_total | counter | bytes | | Bytes of these requests
kafka_server_raftchannelmetrics_incoming_byte_total | counter | bytes | | Bytes of these responses
kafka_controller_kafkacontroller_activecontrollercount | gauge | 0 or 1 | | 1 on the active controller
kafka_controller_kafkacontroller_activebrokercount | gauge | brokers | | Registered brokers that are not fenced
kafka_controller_kafkacontroller_fencedbrokercount | gauge | brokers | | Registered brokers that are fenced
kafka_controller_kafkacontroller_controlledshutdownbrokercount | gauge | brokers | | Brokers in controlled shutdown
kafka_controller_kafkacontroller_globaltopiccount | gauge | topics | | Topics of the cluster
kafka_controller_kafkacontroller_globalpartitioncount | gauge | partitions | | Partitions of the cluster
kafka_controller_kafkacontroller_offlinepartitionscount | gauge | partitions | | Partitions without leader
kafka_controller_kafkacontroller_preferredreplicaimbalancecount | gauge | partitions | | Partitions whose leader is not the first replica
kafka_controller_controllerstats_leaderelections_total | counter | elections | | Leader changes that this controller saw committed since its start
kafka_controller_controllerstats_uncleanleaderelections_total | counter | elections | | Those whose leader was not in the ISR
kafka_brokers | gauge | brokers | | Brokers that are not fenced; from the active controller
kafka_broker_info | gauge | 1 | id address | 1 for each broker that is not fenced, with its first listener; from the active controller
kafka_controller_kafkacontroller_lastcommittedrecordoffset | gauge | offset | | Last committed record of the metadata log
"""
_PROCESS = """
process_cpu_seconds_total | counter | seconds | | CPU time of the process
process_resident_memory_bytes | gauge | bytes | | Resident memory of the process
process_virtual_memory_bytes | gauge | bytes | | Virtual memory of the process
process_open_fds | gauge | descriptors | | Open file descriptors
process_max_fds | gauge | descriptors | | Limit of open file descriptors
process_start_time_seconds | gauge | seconds | | Start of the process, in seconds since 1970
kafka_server_kafkaserver_linux_disk_read_bytes | gauge | bytes | | Bytes that the process had read from disk
kafka_server_kafkaserver_linux_disk_write_bytes | gauge | bytes | | Bytes that the process had written to disk
"""
_CLIENTS = """
ottla_telemetry_pushes_total | counter | requests | | Accepted pushes of client metrics
ottla_telemetry_values_dropped_total | counter | values | | Pushed values beyond the limit
"""
SECTIONS = (
    _parse_section("Partitions and topics", _PARTITIONS),
    _parse_section("Topic traffic", _TRAFFIC),
    _parse_section("Tiered storage", _TIERED),
    _parse_section("Requests and connections", _REQUESTS),
    _parse_section("Broker, replication and log", _BROKER),
    _parse_section("Groups and transactions", _GROUPS),
    _parse_section("Metadata quorum and controller", _QUORUM),
    _parse_section("Process", _PROCESS),
    _parse_section("Client metrics", _CLIENTS),
)
FAMILIES: dict[str, MetricFamily] = {family.name: family for section in SECTIONS for family in section.families}
