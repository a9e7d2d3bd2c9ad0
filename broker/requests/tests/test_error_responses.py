"""Error responses of each API in every version, as Kafka's ``getErrorResponse`` builds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch.api_registry import API_SPECS
from ottla.broker.requests.error_responses import build_error_response, contains_error
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey, request_class, request_spec, response_class
from ottla.wire.codec import compiler
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.response_array import PENDING_ROWS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_groups,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    metadata,
    offset_delete,
    offset_fetch,
    produce,
    update_features,
)
from ottla.wire.messages import alter_partition_reassignments as apr
from ottla.wire.messages import list_partition_reassignments as lpr

REDIRECT_TEXT = "The active controller appears to be node 2."
CODE = ErrorCode.NOT_CONTROLLER
ID = b"i" * 16


SPECS = {spec.key: spec for spec in API_SPECS}


def asking(request: Any, version: int) -> Any:
    return SimpleNamespace(spec=SPECS[request.SPEC.key], version=version)


def refuse(request: Any, version: int, code: ErrorCode, message: str | None = None) -> Any:
    return run_to_end(build_error_response(asking(request, version), request, code, message))


def two(row: Any) -> list[Any]:
    return [row("a"), row("b")]


@pytest.mark.parametrize(
    ("request_", "version", "answer"),
    [
        (
            create_topics.CreateTopicsRequest(two(create_topics.CreatableTopic)),
            7,
            create_topics.CreateTopicsResponse(
                topics=[create_topics.CreatableTopicResult(n, bytes(16), CODE, REDIRECT_TEXT) for n in "ab"]
            ),
        ),
        (
            create_partitions.CreatePartitionsRequest(two(create_partitions.CreatePartitionsTopic)),
            3,
            create_partitions.CreatePartitionsResponse(
                results=[create_partitions.CreatePartitionsTopicResult(n, CODE, REDIRECT_TEXT) for n in "ab"]
            ),
        ),
        (
            delete_topics.DeleteTopicsRequest(topic_names=["a", "b"]),
            5,
            delete_topics.DeleteTopicsResponse(
                responses=[delete_topics.DeletableTopicResult(n, error_code=CODE) for n in "ab"]
            ),
        ),
        (
            delete_topics.DeleteTopicsRequest(
                [delete_topics.DeleteTopicState("a"), delete_topics.DeleteTopicState(None, ID)]
            ),
            6,
            delete_topics.DeleteTopicsResponse(
                responses=[
                    delete_topics.DeletableTopicResult("a", bytes(16), CODE),
                    delete_topics.DeletableTopicResult(None, ID, CODE),
                ]
            ),
        ),
        (
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                two(describe_user_scram_credentials.UserName)
            ),
            0,
            describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
                0,
                CODE,
                REDIRECT_TEXT,
                [
                    describe_user_scram_credentials.DescribeUserScramCredentialsResult("", CODE, REDIRECT_TEXT)
                    for _ in "ab"
                ],
            ),
        ),
        (
            alter_configs.AlterConfigsRequest(
                [alter_configs.AlterConfigsResource(2, "t"), alter_configs.AlterConfigsResource(4, "1")]
            ),
            2,
            alter_configs.AlterConfigsResponse(
                responses=[
                    alter_configs.AlterConfigsResourceResponse(CODE, REDIRECT_TEXT, 2, "t"),
                    alter_configs.AlterConfigsResourceResponse(CODE, REDIRECT_TEXT, 4, "1"),
                ]
            ),
        ),
        (
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                [incremental_alter_configs.AlterConfigsResource(2, "t")]
            ),
            1,
            incremental_alter_configs.IncrementalAlterConfigsResponse(
                responses=[incremental_alter_configs.AlterConfigsResourceResponse(CODE, REDIRECT_TEXT, 2, "t")]
            ),
        ),
        (update_features.UpdateFeaturesRequest(), 1, update_features.UpdateFeaturesResponse(0, CODE, REDIRECT_TEXT)),
        (alter_partition.AlterPartitionRequest(), 3, alter_partition.AlterPartitionResponse(0, CODE)),
        (
            apr.AlterPartitionReassignmentsRequest(
                topics=[apr.ReassignableTopic("t", [apr.ReassignablePartition(3), apr.ReassignablePartition(5)])]
            ),
            1,
            apr.AlterPartitionReassignmentsResponse(
                error_code=CODE,
                error_message=REDIRECT_TEXT,
                responses=[
                    apr.ReassignableTopicResponse(
                        "t", [apr.ReassignablePartitionResponse(n, CODE, REDIRECT_TEXT) for n in (3, 5)]
                    )
                ],
            ),
        ),
        (
            lpr.ListPartitionReassignmentsRequest(topics=[lpr.ListPartitionReassignmentsTopics("t", [4])]),
            0,
            lpr.ListPartitionReassignmentsResponse(
                0, CODE, REDIRECT_TEXT, [lpr.OngoingTopicReassignment("t", [lpr.OngoingPartitionReassignment(4)])]
            ),
        ),
        (lpr.ListPartitionReassignmentsRequest(), 0, lpr.ListPartitionReassignmentsResponse(0, CODE, REDIRECT_TEXT)),
        (
            elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("t", [1, 2])]),
            1,
            elect_leaders.ElectLeadersResponse(
                0,
                CODE,
                [
                    elect_leaders.ReplicaElectionResult(
                        "t", [elect_leaders.PartitionResult(n, CODE, REDIRECT_TEXT) for n in (1, 2)]
                    )
                ],
            ),
        ),
        (  # version 0 has no top-level error field
            elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("t", [1])]),
            0,
            elect_leaders.ElectLeadersResponse(
                0,
                0,
                [elect_leaders.ReplicaElectionResult("t", [elect_leaders.PartitionResult(1, CODE, REDIRECT_TEXT)])],
            ),
        ),
        (elect_leaders.ElectLeadersRequest(0, None), 2, elect_leaders.ElectLeadersResponse(0, CODE)),
        (
            produce.ProduceRequest(
                topic_data=[produce.TopicProduceData("t", bytes(16), [produce.PartitionProduceData(3)])]
            ),
            12,
            produce.ProduceResponse(
                [
                    produce.TopicProduceResponse(
                        "t", bytes(16), [produce.PartitionProduceResponse(3, CODE, -1, error_message=REDIRECT_TEXT)]
                    )
                ]
            ),
        ),
        (
            fetch.FetchRequest(topics=[fetch.FetchTopic("", ID, [fetch.FetchPartition(3)])]),
            17,
            fetch.FetchResponse(
                0,
                CODE,
                responses=[fetch.FetchableTopicResponse("", ID, [fetch.PartitionData(3, CODE, -1, records=b"")])],
            ),
        ),
        (
            metadata.MetadataRequest([metadata.MetadataRequestTopic(ID, "t")]),
            12,
            metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(CODE, "t", ID)]),
        ),
        (
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic("t", [4])]
            ),
            3,
            add_partitions_to_txn.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                        "t", [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(4, CODE)]
                    )
                ]
            ),
        ),
        (
            offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g")]),
            9,
            offset_fetch.OffsetFetchResponse(groups=[offset_fetch.OffsetFetchResponseGroup("g", error_code=CODE)]),
        ),
        (
            describe_groups.DescribeGroupsRequest(["a", "b"]),
            5,
            describe_groups.DescribeGroupsResponse(
                groups=[describe_groups.DescribedGroup(CODE, group_id=n) for n in "ab"]
            ),
        ),
    ],
    ids=lambda x: type(x).__name__ if hasattr(x, "SPEC") else str(x),
)
def test_build_error_response_fills_error_fields_of_api(request_: Any, version: int, answer: Any) -> None:
    refused = refuse(request_, version, CODE, REDIRECT_TEXT)
    assert refused == answer
    assert run_to_end(contains_error(refused, CODE))
    assert not run_to_end(contains_error(refused, ErrorCode.NOT_LEADER_OR_FOLLOWER))


def test_contains_error_finds_code_in_pending_rows() -> None:
    rows = response_array(elect_leaders.ElectLeadersResponse, 2)
    response = elect_leaders.ElectLeadersResponse(replica_election_results=rows)
    for number in range(PENDING_ROWS + 1):
        rows.append(elect_leaders.ReplicaElectionResult(f"t{number}", [elect_leaders.PartitionResult(0)]))
    assert not run_to_end(contains_error(response, CODE))
    rows.append(elect_leaders.ReplicaElectionResult("u", [elect_leaders.PartitionResult(0, CODE)]))
    assert run_to_end(contains_error(response, CODE))


AT_THE_TOP = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ALTER_PARTITION,
    ApiKey.UPDATE_FEATURES,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
OWN_NAME = {
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.CONTROLLER_REGISTRATION,
}


@pytest.mark.parametrize("key", AT_THE_TOP, ids=lambda key: str(key.name))
def test_build_error_response_without_rows_has_top_level_error(key: ApiKey) -> None:
    answer = refuse(request_class(key)(), SPECS[key].max_version, CODE, REDIRECT_TEXT)
    assert type(answer) is response_class(key)
    assert answer.error_code == CODE
    assert getattr(answer, "error_message", REDIRECT_TEXT) == ("Not controller." if key in OWN_NAME else REDIRECT_TEXT)
    versions = request_spec(key).versions
    for version in range(versions.low, versions.high + 1):
        refused = refuse(request_class(key)(), version, CODE)
        back = compiler.decode_exact(response_class(key), version, compiler.encode(refused, version))
        assert run_to_end(contains_error(back, CODE)) == (key is not ApiKey.FETCH or version >= 7)


def test_offset_delete_error_response_has_only_top_level_error() -> None:
    request = offset_delete.OffsetDeleteRequest(
        "g", [offset_delete.OffsetDeleteRequestTopic("t", [offset_delete.OffsetDeleteRequestPartition(1)])]
    )
    assert refuse(request, 0, CODE) == offset_delete.OffsetDeleteResponse(CODE)


def test_contains_error_of_response_without_errors_is_false() -> None:
    assert not run_to_end(
        contains_error(create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("a")]), CODE)
    )
    part = alter_partition.AlterPartitionResponsePartitionData
    rows = [part(0), part(1, CODE)]
    assert run_to_end(
        contains_error(
            alter_partition.AlterPartitionResponse(topics=[alter_partition.AlterPartitionResponseTopicData(ID, rows)]),
            CODE,
        )
    )
    assert not run_to_end(
        contains_error(
            alter_partition.AlterPartitionResponse(
                topics=[alter_partition.AlterPartitionResponseTopicData(ID, rows[:1])]
            ),
            CODE,
        )
    )


@pytest.mark.parametrize(
    ("request_", "steps"),
    [
        (create_topics.CreateTopicsRequest([create_topics.CreatableTopic(str(n)) for n in range(50)]), 50 + 1),
        (
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                [alter_user_scram_credentials.ScramCredentialDeletion(str(n)) for n in range(50)]
            ),
            50 + 2,
        ),
        (
            alter_client_quotas.AlterClientQuotasRequest(
                [
                    alter_client_quotas.AlterClientQuotasRequestEntryData(
                        [alter_client_quotas.AlterClientQuotasRequestEntityData(str(n)) for n in range(49)]
                    )
                ]
            ),
            49 + 1 + 1,
        ),
        (
            alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                [alter_replica_log_dirs.AlterReplicaLogDir(str(n)) for n in range(50)]
            ),
            50,
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_build_error_response_takes_a_step_per_row_and_list(request_: Any, steps: int) -> None:
    assert sum(1 for _ in build_error_response(asking(request_, 7), request_, CODE)) == steps


def test_alter_user_scram_credentials_error_response_names_user_once() -> None:
    downs = [alter_user_scram_credentials.ScramCredentialDeletion(name) for name in "bab"]
    refused = refuse(
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            downs, [alter_user_scram_credentials.ScramCredentialUpsertion("a")]
        ),
        0,
        CODE,
    )
    assert [row.user for row in refused.results] == ["b", "a"]


def test_contains_error_visits_rows_in_steps() -> None:
    acls = [delete_acls.DeleteAclsMatchingAcl() for _ in range(50)]
    answer = delete_acls.DeleteAclsResponse(filter_results=[delete_acls.DeleteAclsFilterResult(0, None, acls)])
    assert sum(1 for _ in contains_error(answer, CODE)) == 51
