// franz-go, sarama and segmentio/kafka-go.
// compat CLIENT all BOOTSTRAP TOPIC GROUP: write with each codec, read all records back, print one line of JSON.
// compat CLIENT member BOOTSTRAP TOPIC GROUP: read as a member of a group until killed, a line for each record.
// compat franz-go new-member|sharer BOOTSTRAP TOPIC GROUP: the same in a group of KIP-848, and in a share group.
// compat CLIENT transactions BOOTSTRAP TOPIC ID: transactions.go; one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	count = 40
	big   = 1_000_000
)

var baseMs, _ = strconv.ParseInt(os.Getenv("COMPAT_BASE_MS"), 10, 64)

type row struct {
	key, value []byte
	n          string
	at         time.Time
}

type result struct {
	Codecs  []string `json:"codecs"`
	Got     [][4]any `json:"got"`
	End     int64    `json:"end"`
	Big     int      `json:"big"`
	Deleted bool     `json:"deleted"`
	State   string   `json:"state,omitempty"`
}

func rows(codec string) []row {
	var out []row
	for i := 0; i < count; i++ {
		r := row{[]byte(fmt.Sprintf("key-%d", i)), []byte(fmt.Sprintf("%s-%d", codec, i)), fmt.Sprint(i), time.UnixMilli(baseMs + int64(i))}
		if i%7 == 0 {
			r.key = nil
		}
		if i%11 == 5 {
			r.value = nil
		}
		out = append(out, r)
	}
	return out
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func seen(key, value, n []byte, at time.Time) [4]any {
	return [4]any{text(key), text(value), text(n), at.UnixMilli()}
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func franz(ctx context.Context, bootstrap, topic, group string) result {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	var out result
	base, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchMaxBytes(1_048_588))
	check(err)
	admin := kadm.NewClient(base)
	_, err = admin.CreateTopic(ctx, 2, 1, nil, topic)
	check(err)
	bigTopic := topic + "-big"
	_, err = admin.CreateTopic(ctx, 1, 1, nil, bigTopic)
	check(err)
	for name, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
		check(err)
		for _, r := range rows(name) {
			record := &kgo.Record{Topic: topic, Key: r.key, Value: r.value, Timestamp: r.at,
				Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(r.n)}}}
			producer.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
		}
		check(producer.Flush(ctx))
		producer.Close()
		out.Codecs = append(out.Codecs, name)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	for len(out.Got) < count*len(out.Codecs) {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			out.Got = append(out.Got, seen(r.Key, r.Value, r.Headers[0].Value, r.Timestamp))
		})
	}
	check(base.ProduceSync(ctx, &kgo.Record{Topic: bigTopic, Value: make([]byte, big)}).FirstErr())
	single, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(bigTopic))
	check(err)
	for out.Big == 0 {
		single.PollFetches(ctx).EachRecord(func(r *kgo.Record) { out.Big = len(r.Value) })
	}
	single.Close()
	check(consumer.CommitUncommittedOffsets(ctx))
	described, err := admin.DescribeGroups(ctx, group)
	check(err)
	out.State = described[group].State
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err)
	ends.Each(func(o kadm.ListedOffset) { out.End += o.Offset })
	_, err = admin.DeleteTopics(ctx, bigTopic)
	check(err)
	remaining, err := admin.ListTopics(ctx)
	check(err)
	out.Deleted = !remaining.Has(bigTopic)
	consumer.Close()
	base.Close()
	return out
}

func franzMember(ctx context.Context, bootstrap, topic, group string) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond), kgo.SessionTimeout(6*time.Second))
	check(err)
	for {
		consumer.PollFetches(ctx).EachRecord(func(r *kgo.Record) { fmt.Println(r.Partition, string(r.Value)) })
	}
}

// franzNewMember consumes as a member of a consumer group (KIP-848).
func franzNewMember(ctx context.Context, bootstrap, topic, group string) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	check(err)
	for {
		consumer.PollFetches(ctx).EachRecord(func(r *kgo.Record) { fmt.Println(r.Partition, string(r.Value)) })
	}
}

// franzSharer consumes as a member of a share group: renews the acquisition locks, then accepts the records.
func franzSharer(ctx context.Context, bootstrap, topic, group string) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
	check(err)
	for {
		records := consumer.PollFetches(ctx).Records()
		consumer.MarkAcks(kgo.AckRenew, records...)
		check(consumer.FlushAcks(ctx))
		for _, r := range records { // printed before they are accepted: a member killed in between prints them twice instead of never
			fmt.Println(r.Partition, string(r.Value))
		}
		consumer.MarkAcks(kgo.AckAccept, records...)
		check(consumer.FlushAcks(ctx))
	}
}

type handler struct{ got func(*sarama.ConsumerMessage) }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		h.got(m)
		s.MarkMessage(m, "")
	}
	return nil
}

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.MaxMessageBytes = 1_048_588
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	return c
}

func saramaMember(ctx context.Context, bootstrap, topic, group string) {
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, saramaConfig())
	check(err)
	for {
		check(consumer.Consume(ctx, []string{topic}, handler{func(m *sarama.ConsumerMessage) { fmt.Println(m.Partition, string(m.Value)) }}))
	}
}

func saramaClient(ctx context.Context, bootstrap, topic, group string) result {
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	var out result
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig())
	check(err)
	bigTopic := topic + "-big"
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
	check(admin.CreateTopic(bigTopic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	for name, codec := range codecs {
		c := saramaConfig()
		c.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, c)
		check(err)
		for _, r := range rows(name) {
			m := &sarama.ProducerMessage{Topic: topic, Timestamp: r.at,
				Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(r.n)}}}
			if r.key != nil {
				m.Key = sarama.ByteEncoder(r.key)
			}
			if r.value != nil {
				m.Value = sarama.ByteEncoder(r.value)
			}
			_, _, err := producer.SendMessage(m)
			check(err)
			out.End++
		}
		check(producer.Close())
		out.Codecs = append(out.Codecs, name)
	}
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, saramaConfig())
	check(err)
	got := make(chan [4]any)
	deliver := func(m *sarama.ConsumerMessage) { got <- seen(m.Key, m.Value, m.Headers[0].Value, m.Timestamp) }
	go func() { check(consumer.Consume(ctx, []string{topic}, handler{deliver})) }()
	for len(out.Got) < count*len(out.Codecs) {
		out.Got = append(out.Got, <-got)
	}
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, saramaConfig())
	check(err)
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: bigTopic, Value: sarama.ByteEncoder(make([]byte, big))})
	check(err)
	check(producer.Close())
	single, err := sarama.NewConsumer([]string{bootstrap}, saramaConfig())
	check(err)
	partition, err := single.ConsumePartition(bigTopic, 0, sarama.OffsetOldest)
	check(err)
	out.Big = len((<-partition.Messages()).Value)
	check(partition.Close())
	check(single.Close())
	described, err := admin.DescribeConsumerGroups([]string{group})
	check(err)
	out.State = described[0].State
	check(consumer.Close())
	check(admin.DeleteTopic(bigTopic))
	remaining, err := admin.ListTopics()
	check(err)
	_, exists := remaining[bigTopic]
	out.Deleted = !exists
	check(admin.Close())
	return out
}

func segmentio(ctx context.Context, bootstrap, topic, group string) result {
	codecs := map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	var out result
	conn, err := kafka.Dial("tcp", bootstrap)
	check(err)
	bigTopic := topic + "-big"
	check(conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: 1},
		kafka.TopicConfig{Topic: bigTopic, NumPartitions: 1, ReplicationFactor: 1}))
	for name, codec := range codecs {
		writer := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codec,
			RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond}
		var messages []kafka.Message
		for _, r := range rows(name) {
			messages = append(messages, kafka.Message{Key: r.key, Value: r.value, Time: r.at,
				Headers: []kafka.Header{{Key: "n", Value: []byte(r.n)}}})
		}
		check(writer.WriteMessages(ctx, messages...))
		check(writer.Close())
		out.Codecs = append(out.Codecs, name)
		out.End += count
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: group, Topic: topic,
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond})
	for len(out.Got) < count*len(out.Codecs) {
		m, err := reader.ReadMessage(ctx)
		check(err)
		out.Got = append(out.Got, seen(m.Key, m.Value, m.Headers[0].Value, m.Time))
	}
	check(reader.Close())
	writer := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: bigTopic, BatchBytes: 2_000_000, BatchTimeout: 10 * time.Millisecond}
	check(writer.WriteMessages(ctx, kafka.Message{Value: make([]byte, big)}))
	check(writer.Close())
	single := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: bigTopic, MaxWait: 200 * time.Millisecond, MaxBytes: 2_000_000})
	m, err := single.ReadMessage(ctx)
	check(err)
	out.Big = len(m.Value)
	check(single.Close())
	check(conn.DeleteTopics(bigTopic))
	partitions, err := conn.ReadPartitions()
	check(err)
	out.Deleted = true
	for _, p := range partitions {
		out.Deleted = out.Deleted && p.Topic != bigTopic
	}
	check(conn.Close())
	return out
}

func segmentioMember(ctx context.Context, bootstrap, topic, group string) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: group, Topic: topic,
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond, HeartbeatInterval: 300 * time.Millisecond,
		SessionTimeout: 6 * time.Second})
	for {
		m, err := reader.ReadMessage(ctx)
		check(err)
		fmt.Println(m.Partition, string(m.Value))
	}
}

func main() {
	client, mode, bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	if mode == "new-member" || mode == "sharer" {
		map[string]func(context.Context, string, string, string){
			"new-member": franzNewMember, "sharer": franzSharer,
		}[mode](context.Background(), bootstrap, topic, group)
	}
	if mode == "member" {
		map[string]func(context.Context, string, string, string){
			"franz-go": franzMember, "sarama": saramaMember, "kafka-go": segmentioMember,
		}[client](context.Background(), bootstrap, topic, group)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if mode == "transactions" {
		raw, err := json.Marshal(map[string]func(context.Context, string, string, string) outcome{
			"franz-go": franzTransactions, "sarama": saramaTransactions,
		}[client](ctx, bootstrap, topic, group))
		check(err)
		fmt.Println(string(raw))
		return
	}
	run := map[string]func(context.Context, string, string, string) result{
		"franz-go": franz, "sarama": saramaClient, "kafka-go": segmentio,
	}[client]
	raw, err := json.Marshal(run(ctx, bootstrap, topic, group))
	check(err)
	fmt.Println(string(raw))
}
