// franz-go, sarama and segmentio/kafka-go: create a topic, write with each codec, read it all back in a group.
// compat CLIENT BOOTSTRAP TOPIC GROUP; prints one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const count = 40

type row struct {
	key, value []byte
	n          string
}

type result struct {
	Codecs []string     `json:"codecs"`
	Got    [][3]*string `json:"got"`
	End    int64        `json:"end"`
	State  string       `json:"state"`
}

func rows(codec string) []row {
	var out []row
	for i := 0; i < count; i++ {
		r := row{[]byte(fmt.Sprintf("key-%d", i)), []byte(fmt.Sprintf("%s-%d", codec, i)), fmt.Sprint(i)}
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
	base, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	check(err)
	admin := kadm.NewClient(base)
	_, err = admin.CreateTopic(ctx, 2, 1, nil, topic)
	check(err)
	for name, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
		check(err)
		for _, r := range rows(name) {
			record := &kgo.Record{Topic: topic, Key: r.key, Value: r.value, Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(r.n)}}}
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
			out.Got = append(out.Got, [3]*string{text(r.Key), text(r.Value), text(r.Headers[0].Value)})
		})
	}
	check(consumer.CommitUncommittedOffsets(ctx))
	described, err := admin.DescribeGroups(ctx, group)
	check(err)
	out.State = described[group].State
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err)
	ends.Each(func(o kadm.ListedOffset) { out.End += o.Offset })
	consumer.Close()
	base.Close()
	return out
}

type handler struct {
	got  chan [3]*string
	want int
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		h.got <- [3]*string{text(m.Key), text(m.Value), text(m.Headers[0].Value)}
		s.MarkMessage(m, "")
	}
	return nil
}

func saramaClient(ctx context.Context, bootstrap, topic, group string) result {
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	var out result
	config := func() *sarama.Config {
		c := sarama.NewConfig()
		c.Version = sarama.V3_6_0_0
		c.Producer.Return.Successes = true
		c.Producer.RequiredAcks = sarama.WaitForAll
		c.Consumer.Offsets.Initial = sarama.OffsetOldest
		return c
	}
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config())
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
	for name, codec := range codecs {
		c := config()
		c.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, c)
		check(err)
		for _, r := range rows(name) {
			m := &sarama.ProducerMessage{Topic: topic, Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(r.n)}}}
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
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config())
	check(err)
	h := handler{make(chan [3]*string), count * len(out.Codecs)}
	go func() { check(consumer.Consume(ctx, []string{topic}, h)) }()
	for len(out.Got) < h.want {
		out.Got = append(out.Got, <-h.got)
	}
	described, err := admin.DescribeConsumerGroups([]string{group})
	check(err)
	out.State = described[0].State
	check(consumer.Close())
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
	check(conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}))
	for name, codec := range codecs {
		writer := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codec,
			RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond}
		var messages []kafka.Message
		for _, r := range rows(name) {
			messages = append(messages, kafka.Message{Key: r.key, Value: r.value, Headers: []kafka.Header{{Key: "n", Value: []byte(r.n)}}})
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
		out.Got = append(out.Got, [3]*string{text(m.Key), text(m.Value), text(m.Headers[0].Value)})
	}
	check(reader.Close())
	check(conn.Close())
	out.State = "Stable"
	return out
}

func main() {
	client, bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	run := map[string]func(context.Context, string, string, string) result{
		"franz-go": franz, "sarama": saramaClient, "kafka-go": segmentio,
	}[client]
	raw, err := json.Marshal(run(ctx, bootstrap, topic, group))
	check(err)
	fmt.Println(string(raw))
}
