package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	poolBytes = 1 << 20
	idle      = 6 * time.Second
)

var held sync.Map

func errorName(err error) string {
	var kafkaError *kerr.Error
	if errors.As(err, &kafkaError) {
		return kafkaError.Message
	}
	return err.Error()
}

func pool(seed int64, text bool) []byte {
	out := make([]byte, poolBytes)
	if text {
		for i := 0; i < len(out); {
			i += copy(out[i:], fmt.Sprintf("line %d of seed %d;", i/64, seed))
		}
		return out
	}
	rand.New(rand.NewSource(seed)).Read(out)
	return out
}

func fill(pool []byte, index, size int) []byte {
	out := make([]byte, size)
	for done, at := 0, index*7919%len(pool); done < size; at = 0 {
		done += copy(out[done:], pool[at:])
	}
	return out
}

func number(settings map[string]string, name string, use func(int)) {
	if text, exists := settings[name]; exists {
		value, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		use(value)
	}
}

func produceOptions(job *Job) []kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	options := []kgo.Opt{kgo.SeedBrokers(job.Bootstrap), kgo.ClientID(job.ClientID), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(job.Topic)}
	if codec, exists := job.Settings["compression.type"]; exists {
		options = append(options, kgo.ProducerBatchCompression(codecs[codec]))
	}
	if job.Settings["acks"] == "1" {
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	} else if job.Settings["enable.idempotence"] == "false" {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	number(job.Settings, "linger.ms", func(v int) { options = append(options, kgo.ProducerLinger(time.Duration(v)*time.Millisecond)) })
	number(job.Settings, "max.request.size", func(v int) { options = append(options, kgo.ProducerBatchMaxBytes(int32(v))) })
	number(job.Settings, "request.timeout.ms", func(v int) {
		timeout := time.Duration(v) * time.Millisecond
		options = append(options, kgo.ProduceRequestTimeout(timeout), kgo.RequestTimeoutOverhead(timeout))
	})
	if job.Transaction != nil {
		options = append(options, kgo.TransactionalID(job.Transaction.ID))
		number(job.Settings, "transaction.timeout.ms", func(v int) { options = append(options, kgo.TransactionTimeout(time.Duration(v)*time.Millisecond)) })
	}
	return options
}

func produce(job *Job) (any, error) {
	client, err := kgo.NewClient(produceOptions(job)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	failed := map[string][]int{}
	var mutex sync.Mutex
	values := pool(job.Seed, job.Text)
	txn, in := job.Transaction, 0
	for i, r := range job.Records {
		if txn != nil && in == 0 {
			if err := client.BeginTransaction(); err != nil {
				return nil, err
			}
		}
		record := &kgo.Record{Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp)}
		if r.Key != nil {
			record.Key = []byte(*r.Key)
		}
		if r.Size >= 0 {
			record.Value = fill(values, i, r.Size)
		}
		for h := 0; h < r.Headers; h++ {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: fmt.Sprintf("h%d", h), Value: []byte(strconv.Itoa(i))})
		}
		done := make(chan struct{})
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				mutex.Lock()
				failed[errorName(err)] = append(failed[errorName(err)], i)
				mutex.Unlock()
			}
			close(done)
		})
		if job.Sync {
			<-done
		}
		in++
		if txn != nil && in == txn.Size && i != len(job.Records)-1 {
			if err := end(ctx, client, txn.Aborts == 0 || i/txn.Size%txn.Aborts != 0); err != nil {
				return nil, err
			}
			in = 0
		}
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	if txn != nil && in > 0 {
		if txn.LeaveOpen {
			held.Store(job.Handle, client)
			return map[string]any{"failed": failed}, nil
		}
		if err := end(ctx, client, true); err != nil {
			return nil, err
		}
	}
	client.Close()
	return map[string]any{"failed": failed}, nil
}

func end(ctx context.Context, client *kgo.Client, commit bool) error {
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func finish(job *Job) (any, error) {
	found, _ := held.LoadAndDelete(job.Handle)
	client := found.(*kgo.Client)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := end(ctx, client, job.Commit); err != nil {
		return map[string]any{"failed": map[string][]int{errorName(err): {0}}}, nil
	}
	return map[string]any{"failed": map[string][]int{}}, nil
}

func partitionName(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

func consumeOptions(job *Job) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(job.Bootstrap), kgo.ClientID(job.ClientID), kgo.KeepControlRecords()}
	reset := kgo.NewOffset().AtStart()
	if job.Settings["auto.offset.reset"] == "none" {
		reset = kgo.NoResetOffset()
	}
	options = append(options, kgo.ConsumeResetOffset(reset))
	if job.Settings["isolation.level"] == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	number(job.Settings, "fetch.min.bytes", func(v int) { options = append(options, kgo.FetchMinBytes(int32(v))) })
	number(job.Settings, "fetch.max.bytes", func(v int) { options = append(options, kgo.FetchMaxBytes(int32(v))) })
	number(job.Settings, "max.partition.fetch.bytes", func(v int) { options = append(options, kgo.FetchMaxPartitionBytes(int32(v))) })
	number(job.Settings, "fetch.max.wait.ms", func(v int) { options = append(options, kgo.FetchMaxWait(time.Duration(v)*time.Millisecond)) })
	if job.Group != nil {
		return append(options, kgo.DisableAutoCommit(), kgo.ConsumerGroup(*job.Group), kgo.ConsumeTopics(job.Topics...))
	}
	assigned := map[string]map[int32]kgo.Offset{}
	for _, topic := range job.Topics {
		assigned[topic] = map[int32]kgo.Offset{}
		for partition := int32(0); ; partition++ {
			start, exists := job.Start[partitionName(topic, partition)]
			if !exists {
				break
			}
			offset := kgo.NewOffset().AtStart()
			if start >= 0 {
				offset = kgo.NewOffset().At(start)
			}
			assigned[topic][partition] = offset
		}
	}
	return append(options, kgo.ConsumePartitions(assigned))
}

type reading struct {
	sync.Mutex
	rows      map[string][][6]int64
	positions map[string]int64
	errors    map[string]int
	last      time.Time
	finished  bool
}

func (r *reading) add(record *kgo.Record) {
	name := partitionName(record.Topic, record.Partition)
	r.last = time.Now()
	r.positions[name] = record.Offset + 1
	if record.Attrs.IsControl() {
		return
	}
	digest := crc32.NewIEEE()
	digest.Write(record.Key)
	digest.Write(record.Value)
	for _, header := range record.Headers {
		digest.Write([]byte(header.Key))
		digest.Write(header.Value)
	}
	size := int64(len(record.Value))
	if record.Value == nil {
		size = -1
	}
	key := int64(-1)
	if record.Key != nil {
		key = int64(crc32.ChecksumIEEE(record.Key))
	}
	row := [6]int64{record.Offset, record.Timestamp.UnixMilli(), int64(record.Attrs.TimestampType()), size, int64(digest.Sum32()), key}
	r.rows[name] = append(r.rows[name], row)
}

func (r *reading) atEnd(job *Job) bool {
	for name, end := range job.Ends {
		if r.positions[name] < end {
			return false
		}
	}
	return true
}

func consume(job *Job) (any, error) {
	state := &reading{rows: map[string][][6]int64{}, positions: map[string]int64{}, errors: map[string]int{}, last: time.Now()}
	deadline := time.Now().Add(time.Duration(job.TimeoutS * float64(time.Second)))
	stops := make([]string, max(job.Members, 1))
	var wait sync.WaitGroup
	for i := range stops {
		wait.Add(1)
		go func() {
			defer wait.Done()
			stops[i] = member(job, state, deadline)
		}()
	}
	wait.Wait()
	stop := stops[0]
	for _, other := range stops {
		if other != "end" {
			stop = other
		}
	}
	return map[string]any{"rows": state.rows, "errors": state.errors, "stop": stop}, nil
}

func member(job *Job, state *reading, deadline time.Time) (stop string) {
	defer func() {
		if problem := recover(); problem != nil {
			stop = fmt.Sprintf("panic: %v", problem)
		}
	}()
	client, err := kgo.NewClient(consumeOptions(job)...)
	if err != nil {
		panic(err)
	}
	defer client.CloseAllowingRebalance()
	until := time.Time{}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		most := 0
		number(job.Settings, "max.poll.records", func(v int) { most = v })
		fetches := client.PollRecords(ctx, most)
		cancel()
		state.Lock()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				state.errors[errorName(err)]++
			}
		})
		fetches.EachRecord(state.add)
		now := time.Now()
		quiet := idle
		if job.IdleS > 0 {
			quiet = time.Duration(job.IdleS * float64(time.Second))
		}
		done := until.IsZero() && (state.atEnd(job) || now.Sub(state.last) > quiet)
		if done && !state.finished {
			state.finished = true
			emit(map[string]any{"id": job.ID, "event": "end"})
		}
		state.Unlock()
		if done {
			until = now.Add(time.Duration(job.LingerS * float64(time.Second)))
		}
		if !until.IsZero() && now.After(until) {
			break
		}
		if until.IsZero() && now.After(deadline) {
			return "timeout"
		}
	}
	if job.Group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			state.Lock()
			state.errors["commit: "+errorName(err)]++
			state.Unlock()
		}
	}
	return "end"
}
