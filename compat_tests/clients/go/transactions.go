package main

import (
	"context"
	"fmt"
	"sort"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Result of the steps in compat_tests/transactions/test_client_transactions.py.
type outcome struct {
	Fenced      bool     `json:"fenced"`
	Committed   []string `json:"read_committed"`
	Uncommitted []string `json:"read_uncommitted"`
}

func hasBoth(seen []string) bool {
	present := map[string]bool{}
	for _, value := range seen {
		present[value] = true
	}
	return present["e0"] && present["e1"]
}

func franzTransactions(ctx context.Context, bootstrap, topic, id string) outcome {
	manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
	client := func() *kgo.Client {
		made, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), manual)
		check(err)
		return made
	}
	send := func(to *kgo.Client, value string) {
		for partition := int32(0); partition < 2; partition++ {
			record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(fmt.Sprintf("%s%d", value, partition))}
			check(to.ProduceSync(ctx, record).FirstErr())
		}
	}
	read := func(level kgo.IsolationLevel) []string {
		start := kgo.NewOffset().AtStart()
		reader, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.FetchIsolationLevel(level),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: start, 1: start}}))
		check(err)
		var seen []string
		for !hasBoth(seen) {
			fetches := reader.PollFetches(ctx)
			check(fetches.Err())
			fetches.EachRecord(func(r *kgo.Record) { seen = append(seen, string(r.Value)) })
		}
		reader.Close()
		sort.Strings(seen)
		return seen
	}
	plain := client()
	for _, value := range []string{"a", "b"} {
		check(plain.BeginTransaction())
		send(plain, value)
		check(plain.EndTransaction(ctx, kgo.TransactionEndTry(value == "a")))
	}
	plain.Close()
	// The session commits the offsets of the polled records: the two of transaction a.
	first, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), manual, kgo.ConsumerGroup(id),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())
	check(err)
	for polled := 0; polled < 2; {
		fetches := first.PollRecords(ctx, 1)
		check(fetches.Err())
		polled += fetches.NumRecords()
	}
	for _, step := range []string{"c", "x"} {
		check(first.Begin())
		send(first.Client(), step)
		committed, err := first.End(ctx, kgo.TransactionEndTry(step == "c"))
		check(err)
		if committed != (step == "c") {
			check(fmt.Errorf("%s: committed %v", step, committed))
		}
	}
	check(first.Begin())
	send(first.Client(), "d")
	second := client()
	check(second.BeginTransaction())
	send(second, "e")
	committed, err := first.End(ctx, kgo.TryCommit)
	out := outcome{Fenced: err != nil || !committed}
	check(second.EndTransaction(ctx, kgo.TryCommit))
	out.Committed, out.Uncommitted = read(kgo.ReadCommitted()), read(kgo.ReadUncommitted())
	return out
}

func saramaTransactions(_ context.Context, bootstrap, topic, id string) outcome {
	producer := func() sarama.SyncProducer {
		c := saramaConfig()
		c.Producer.Idempotent = true
		c.Producer.Transaction.ID = id
		c.Producer.Partitioner = sarama.NewManualPartitioner
		c.Net.MaxOpenRequests = 1
		made, err := sarama.NewSyncProducer([]string{bootstrap}, c)
		check(err)
		return made
	}
	send := func(to sarama.SyncProducer, value string) {
		check(to.BeginTxn())
		for partition := int32(0); partition < 2; partition++ {
			m := &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(fmt.Sprintf("%s%d", value, partition))}
			_, _, err := to.SendMessage(m)
			check(err)
		}
	}
	positions := func(of sarama.SyncProducer, offset int64) {
		rows := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: offset}}
		check(of.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: rows}, id))
	}
	read := func(level sarama.IsolationLevel) []string {
		c := saramaConfig()
		c.Consumer.IsolationLevel = level
		reader, err := sarama.NewConsumer([]string{bootstrap}, c)
		check(err)
		var seen []string
		for partition := int32(0); partition < 2; partition++ {
			partitionConsumer, err := reader.ConsumePartition(topic, partition, sarama.OffsetOldest)
			check(err)
			for last := fmt.Sprintf("e%d", partition); len(seen) == 0 || seen[len(seen)-1] != last; {
				seen = append(seen, string((<-partitionConsumer.Messages()).Value))
			}
			check(partitionConsumer.Close())
		}
		check(reader.Close())
		sort.Strings(seen)
		return seen
	}
	first := producer()
	send(first, "a")
	check(first.CommitTxn())
	send(first, "b")
	check(first.AbortTxn())
	send(first, "c")
	positions(first, 1)
	check(first.CommitTxn())
	send(first, "x")
	positions(first, 9)
	check(first.AbortTxn())
	send(first, "d")
	second := producer()
	out := outcome{Fenced: first.CommitTxn() != nil}
	send(second, "e")
	check(second.CommitTxn())
	out.Committed, out.Uncommitted = read(sarama.ReadCommitted), read(sarama.ReadUncommitted)
	return out
}
