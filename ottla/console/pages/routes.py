"""Handlers of the console's pages and changes, by path."""

from __future__ import annotations

from ottla.console.page import PageHandler, Route
from ottla.console.pages import (
    batch,
    cluster,
    connections,
    drain,
    elections,
    frames,
    group_changes,
    group_list,
    groups,
    metadata_log,
    overview,
    produce,
    readers,
    rebalance,
    record_import,
    record_tail,
    records,
    topic_changes,
    topics,
)

RECORDS_LIVE_S = 0.1
"""Shortest interval in seconds between two lists of new records."""
FRAMES_LIVE_S = 0.5
"""Interval in seconds for checking for new frames."""
PAGES: dict[str, Route] = {
    "/": Route(overview.get_overview, overview.get_traffic),
    "/cluster": Route(cluster.get_cluster, cluster.get_state),
    "/cluster/rebalance": Route(rebalance.get_rebalance),
    "/cluster/rebalance/file": Route(rebalance.get_rebalance_file),
    "/cluster/drain": Route(drain.get_drain),
    "/metadata": Route(metadata_log.get_metadata_changes, metadata_log.get_metadata_changes),
    "/connections": Route(connections.get_connections, connections.get_connections),
    "/frames": Route(frames.get_frames, frames.get_new_frames, FRAMES_LIVE_S),
    "/frame": Route(frames.get_frame),
    "/frames/pcap": Route(frames.get_pcap),
    "/topics": Route(topics.get_topics),
    "/topic": Route(topics.get_topic, topics.get_topic_partitions),
    "/records": Route(
        records.get_records, record_tail.get_newest_records, RECORDS_LIVE_S, record_tail.wait_for_records
    ),
    "/record": Route(records.get_record),
    "/batch": Route(batch.get_batch),
    "/records/export": Route(records.export_records),
    "/records/import": Route(record_import.get_import),
    "/records/produce": Route(produce.get_produce),
    "/groups": Route(group_list.get_groups, group_list.get_groups),
    "/readers": Route(readers.get_readers, readers.get_readers),
    "/group": Route(groups.get_group, groups.get_group_state),
    "/group/offsets": Route(group_changes.get_offset_reset),
    "/topic/new": Route(topic_changes.get_new_topic),
    "/topic/partitions": Route(topic_changes.get_new_partitions),
    "/topic/setting": Route(topic_changes.get_setting),
    "/topic/delete-records": Route(topic_changes.get_records_to_delete),
}
ACTIONS: dict[str, PageHandler] = {
    "/topic/new": topic_changes.create_topic,
    "/topic/partitions": topic_changes.add_partitions,
    "/topic/setting": topic_changes.alter_setting,
    "/topic/delete": topic_changes.delete_topic,
    "/topic/delete-records": topic_changes.delete_records,
    "/records/import": record_import.import_records,
    "/records/produce": produce.produce_record,
    "/cluster/elect": elections.elect_preferred_leaders,
    "/cluster/rebalance": rebalance.apply_rebalance,
    "/cluster/drain": drain.apply_drain,
    "/group/offsets": group_changes.reset_offsets,
    "/group/delete": group_changes.delete_group,
}
