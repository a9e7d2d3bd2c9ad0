// rdkafka and rskafka.
// compat CLIENT all BOOTSTRAP TOPIC GROUP: write with each codec, read all records back, print one line of JSON.
// compat CLIENT member BOOTSTRAP TOPIC GROUP: read as a member of a group until killed, a line for each record.
// compat rdkafka new-member BOOTSTRAP TOPIC GROUP: the same in a group of KIP-848.
// compat rdkafka transactions BOOTSTRAP TOPIC ID: steps of compat_tests/transactions/test_client_transactions.py; one line of JSON.
use std::collections::BTreeMap;
use std::env;
use std::io::Write;
use std::time::Duration;

use chrono::TimeZone;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use serde_json::{json, Value};

const COUNT: usize = 40;
const BIG: usize = 1_000_000;

struct Row {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    n: String,
    timestamp: i64,
}

fn base_ms() -> i64 {
    env::var("COMPAT_BASE_MS").expect("COMPAT_BASE_MS").parse().expect("a number")
}

fn rows(codec: &str) -> Vec<Row> {
    (0..COUNT)
        .map(|i| Row {
            key: (i % 7 != 0).then(|| format!("key-{i}").into_bytes()),
            value: (i % 11 != 5).then(|| format!("{codec}-{i}").into_bytes()),
            n: i.to_string(),
            timestamp: base_ms() + i as i64,
        })
        .collect()
}

fn text(raw: Option<&[u8]>) -> Value {
    raw.map_or(Value::Null, |r| json!(String::from_utf8_lossy(r)))
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut c = ClientConfig::new();
    c.set("bootstrap.servers", bootstrap);
    c
}

fn consumer(bootstrap: &str, group: &str) -> BaseConsumer {
    config(bootstrap)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "300")
        .create()
        .expect("consumer")
}

async fn rdkafka_all(bootstrap: &str, topic: &str, group: &str) -> Value {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap).create().expect("admin");
    let big_topic = format!("{topic}-big");
    let new = [
        NewTopic::new(topic, 2, TopicReplication::Fixed(1)),
        NewTopic::new(&big_topic, 1, TopicReplication::Fixed(1)),
    ];
    for done in admin.create_topics(&new, &AdminOptions::new()).await.expect("create") {
        done.expect("created");
    }
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    for codec in codecs {
        let producer: ThreadedProducer<DefaultProducerContext> =
            config(bootstrap).set("compression.type", codec).set("enable.idempotence", "true").create().expect("producer");
        for row in rows(codec) {
            let headers = OwnedHeaders::new().insert(Header { key: "n", value: Some(&row.n) });
            let mut record: BaseRecord<Vec<u8>, Vec<u8>> = BaseRecord::to(topic).headers(headers).timestamp(row.timestamp);
            if let Some(key) = &row.key {
                record = record.key(key);
            }
            if let Some(value) = &row.value {
                record = record.payload(value);
            }
            producer.send(record).map_err(|(e, _)| e).expect("send");
        }
        producer.flush(Duration::from_secs(20)).expect("flush");
    }
    let producer: ThreadedProducer<DefaultProducerContext> =
        config(bootstrap).set("message.max.bytes", "1048588").create().expect("producer");
    let big = vec![b'x'; BIG];
    producer.send(BaseRecord::<(), Vec<u8>>::to(&big_topic).payload(&big)).map_err(|(e, _)| e).expect("send");
    producer.flush(Duration::from_secs(20)).expect("flush");

    let reader = consumer(bootstrap, group);
    reader.subscribe(&[topic]).expect("subscribe");
    let mut got = vec![];
    while got.len() < COUNT * codecs.len() {
        if let Some(message) = reader.poll(Duration::from_secs(20)) {
            let m = message.expect("message");
            let n = m.headers().and_then(|h| h.get(0).value.map(|v| v.to_vec()));
            got.push(json!([text(m.key()), text(m.payload()), text(n.as_deref()), m.timestamp().to_millis()]));
        }
    }
    reader.commit_consumer_state(CommitMode::Sync).expect("commit");
    let single = consumer(bootstrap, &format!("{group}-big"));
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&big_topic, 0, Offset::Beginning).expect("list");
    single.assign(&list).expect("assign");
    let length = single.poll(Duration::from_secs(20)).expect("a record").expect("message").payload_len();
    let mut end = 0;
    for partition in 0..2 {
        end += reader.fetch_watermarks(topic, partition, Duration::from_secs(10)).expect("watermarks").1;
    }
    drop(reader);
    let deleted = admin.delete_topics(&[&big_topic], &AdminOptions::new()).await.expect("delete");
    json!({"codecs": codecs, "got": got, "end": end, "big": length, "deleted": deleted[0].is_ok()})
}

fn rdkafka_new_member(bootstrap: &str, topic: &str, group: &str) {
    let reader: BaseConsumer = config(bootstrap)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("group.protocol", "consumer")
        .create()
        .expect("consumer");
    read(reader, topic)
}

fn rdkafka_member(bootstrap: &str, topic: &str, group: &str) {
    read(consumer(bootstrap, group), topic)
}

fn read(reader: BaseConsumer, topic: &str) {
    reader.subscribe(&[topic]).expect("subscribe");
    loop {
        if let Some(Ok(m)) = reader.poll(Duration::from_millis(100)) {
            println!("{} {}", m.partition(), String::from_utf8_lossy(m.payload().unwrap_or(b"")));
            std::io::stdout().flush().expect("flush");
        }
    }
}

const WAIT: Duration = Duration::from_secs(60);

fn transactional(bootstrap: &str, id: &str) -> ThreadedProducer<DefaultProducerContext> {
    let producer: ThreadedProducer<DefaultProducerContext> =
        config(bootstrap).set("transactional.id", id).create().expect("producer");
    producer.init_transactions(WAIT).expect("init");
    producer
}

fn begin(to: &ThreadedProducer<DefaultProducerContext>, topic: &str, value: &str) {
    to.begin_transaction().expect("begin");
    for partition in 0..2 {
        let payload = format!("{value}{partition}");
        let record = BaseRecord::<(), str>::to(topic).partition(partition).payload(&payload);
        to.send(record).map_err(|(e, _)| e).expect("send");
    }
    to.flush(WAIT).expect("flush");
}

fn read_all(bootstrap: &str, topic: &str, level: &str) -> Vec<String> {
    let reader: BaseConsumer =
        config(bootstrap).set("group.id", "reader").set("isolation.level", level).create().expect("consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..2 {
        list.add_partition_offset(topic, partition, Offset::Beginning).expect("list");
    }
    reader.assign(&list).expect("assign");
    let mut seen: Vec<String> = vec![];
    while !["e0", "e1"].iter().all(|last| seen.iter().any(|value| value == last)) {
        let message = reader.poll(WAIT).expect("a record").expect("message");
        seen.push(String::from_utf8_lossy(message.payload().expect("a value")).into_owned());
    }
    seen.sort();
    seen
}

fn rdkafka_transactions(bootstrap: &str, topic: &str, id: &str) -> Value {
    let group = consumer(bootstrap, id).group_metadata().expect("metadata of the group");
    let positions = |offset: i64| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Offset(offset)).expect("list");
        list
    };
    let first = transactional(bootstrap, id);
    begin(&first, topic, "a");
    first.commit_transaction(WAIT).expect("commit");
    begin(&first, topic, "b");
    first.abort_transaction(WAIT).expect("abort");
    begin(&first, topic, "c");
    first.send_offsets_to_transaction(&positions(1), &group, WAIT).expect("positions");
    first.commit_transaction(WAIT).expect("commit");
    begin(&first, topic, "x");
    first.send_offsets_to_transaction(&positions(9), &group, WAIT).expect("positions");
    first.abort_transaction(WAIT).expect("abort");
    begin(&first, topic, "d");
    let second = transactional(bootstrap, id);
    let fenced = first.commit_transaction(WAIT).is_err();
    begin(&second, topic, "e");
    second.commit_transaction(WAIT).expect("commit");
    let [committed, uncommitted] = ["read_committed", "read_uncommitted"].map(|level| read_all(bootstrap, topic, level));
    json!({"fenced": fenced, "read_committed": committed, "read_uncommitted": uncommitted})
}

async fn rskafka_all(bootstrap: &str, topic: &str) -> Value {
    let client = ClientBuilder::new(vec![bootstrap.to_owned()]).build().await.expect("client");
    let controller = client.controller_client().expect("controller");
    let big_topic = format!("{topic}-big");
    controller.create_topic(topic, 2, 1, 5_000).await.expect("create");
    controller.create_topic(&big_topic, 1, 1, 5_000).await.expect("create");
    let codecs = [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ];
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await.expect("partition");
    for (name, compression) in codecs {
        let records = rows(name)
            .into_iter()
            .map(|row| Record {
                key: row.key,
                value: row.value,
                headers: BTreeMap::from([("n".to_owned(), row.n.into_bytes())]),
                timestamp: chrono::Utc.timestamp_millis_opt(row.timestamp).unwrap(),
            })
            .collect();
        partition.produce(records, compression).await.expect("produce");
    }
    let mut got = vec![];
    let mut at = 0;
    while got.len() < COUNT * codecs.len() {
        let (records, _) = partition.fetch_records(at, 1..1_000_000, 1_000).await.expect("fetch");
        for r in records {
            at = r.offset + 1;
            let n = r.record.headers.get("n").map(|v| v.as_slice());
            got.push(json!([
                text(r.record.key.as_deref()),
                text(r.record.value.as_deref()),
                text(n),
                r.record.timestamp.timestamp_millis()
            ]));
        }
    }
    let end = partition.get_offset(OffsetAt::Latest).await.expect("offset");
    let big = client.partition_client(&big_topic, 0, UnknownTopicHandling::Retry).await.expect("partition");
    let record = Record {
        key: None,
        value: Some(vec![b'x'; BIG]),
        headers: BTreeMap::new(),
        timestamp: chrono::Utc.timestamp_millis_opt(base_ms()).unwrap(),
    };
    big.produce(vec![record], Compression::NoCompression).await.expect("produce");
    let (records, _) = big.fetch_records(0, 1..2_000_000, 5_000).await.expect("fetch");
    let length = records[0].record.value.as_ref().map_or(0, |v| v.len());
    let deleted = controller.delete_topic(&big_topic, 5_000).await.is_ok();
    let names: Vec<&str> = codecs.iter().map(|(name, _)| *name).collect();
    json!({"codecs": names, "got": got, "end": end, "big": length, "deleted": deleted})
}

#[tokio::main]
async fn main() {
    let a: Vec<String> = env::args().collect();
    let (client, mode, bootstrap, topic, group) = (&a[1], &a[2], &a[3], &a[4], &a[5]);
    let outcome = match (client.as_str(), mode.as_str()) {
        ("rdkafka", "all") => rdkafka_all(bootstrap, topic, group).await,
        ("rdkafka", "member") => return rdkafka_member(bootstrap, topic, group),
        ("rdkafka", "new-member") => return rdkafka_new_member(bootstrap, topic, group),
        ("rdkafka", "transactions") => rdkafka_transactions(bootstrap, topic, group),
        ("rskafka", "all") => rskafka_all(bootstrap, topic).await,
        _ => panic!("no such client or mode"),
    };
    println!("{outcome}");
}
