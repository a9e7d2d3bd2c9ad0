// kafkajs and @platformatic/kafka.
// node clients.mjs CLIENT all BOOTSTRAP TOPIC GROUP: write with each codec, read all records back, print one line of JSON.
// node clients.mjs CLIENT member BOOTSTRAP TOPIC GROUP: read as a member of a group until killed, a line for each record.

const [client, mode, bootstrap, topic, group] = process.argv.slice(2)
const COUNT = 40
const BASE_MS = Number(process.env.COMPAT_BASE_MS)
const BIG = 1000000
const bigTopic = `${topic}-big`

function rows (codec) {
  const out = []
  for (let i = 0; i < COUNT; i++) {
    out.push({
      key: i % 7 === 0 ? null : `key-${i}`,
      value: i % 11 === 5 ? null : `${codec}-${i}`,
      headers: { n: String(i) },
      timestamp: BASE_MS + i
    })
  }
  return out
}

function within (ms, progress) {
  return setTimeout(() => { console.error(`not in time: ${progress()}`); process.exit(1) }, ms)
}

async function kafkajs () {
  const { Kafka, CompressionTypes, logLevel } = await import('kafkajs')
  const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.ERROR })
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 300, sessionTimeout: 6000 })
  if (mode === 'member') {
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async ({ partition, message }) => console.log(`${partition} ${message.value}`) })
    return new Promise(() => {})
  }
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }, { topic: bigTopic, numPartitions: 1 }], waitForLeaders: true })
  const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  for (const [name, compression] of Object.entries(codecs)) {
    const messages = rows(name).map(r => ({ ...r, timestamp: String(r.timestamp) }))
    await producer.send({ topic, compression, acks: -1, messages })
  }
  await producer.send({ topic: bigTopic, acks: -1, messages: [{ value: 'x'.repeat(BIG) }] })
  await producer.disconnect()
  const want = COUNT * Object.keys(codecs).length
  await consumer.connect()
  await consumer.subscribe({ topics: [topic, bigTopic], fromBeginning: true })
  const got = []
  let big = 0
  const timer = within(30000, () => `${got.length} of ${want}`)
  await new Promise((resolve, reject) => {
    consumer.run({
      eachMessage: async ({ topic: from, message }) => {
        if (from === bigTopic) big = message.value.length
        else got.push([message.key && message.key.toString(), message.value && message.value.toString(), message.headers.n.toString(), Number(message.timestamp)])
        if (got.length === want && big) resolve()
      }
    }).catch(reject)
  })
  clearTimeout(timer)
  const described = await admin.describeGroups([group])
  await consumer.disconnect()
  const offsets = await admin.fetchTopicOffsets(topic)
  await admin.deleteTopics({ topics: [bigTopic] })
  const deleted = !(await admin.listTopics()).includes(bigTopic)
  await admin.disconnect()
  const end = offsets.reduce((n, o) => n + Number(o.offset), 0)
  return { codecs: Object.keys(codecs), got, end, big, deleted, state: described.groups[0].state }
}

async function platformatic () {
  const { Admin, Producer, Consumer, stringSerializers, stringDeserializers } = await import('@platformatic/kafka')
  const base = { clientId: 'compat', bootstrapBrokers: [bootstrap] }
  const consumer = new Consumer({ ...base, groupId: group, deserializers: stringDeserializers, heartbeatInterval: 300, sessionTimeout: 6000, maxWaitTime: 500 })
  if (mode === 'member') {
    const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: true })
    for await (const message of stream) console.log(`${message.partition} ${message.value}`)
    return
  }
  const admin = new Admin(base)
  await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 })
  await admin.createTopics({ topics: [bigTopic], partitions: 1, replicas: 1 })
  const codecs = ['none', 'gzip', 'snappy', 'lz4', 'zstd']
  const used = []
  for (const compression of codecs) {
    const producer = new Producer({ ...base, serializers: stringSerializers, idempotent: true })
    try {
      const messages = rows(compression).map(r => ({ topic, key: r.key ?? undefined, value: r.value ?? undefined, headers: r.headers, timestamp: BigInt(r.timestamp) }))
      await producer.send({ messages, compression, acks: -1 })
      used.push(compression)
    } catch (error) {
      // Older Node.js versions have no zstd.
      if (!error.errors?.some(e => e.code === 'PLT_KFK_UNSUPPORTED_COMPRESSION')) throw error
    }
    await producer.close()
  }
  const producer = new Producer({ ...base, serializers: stringSerializers })
  await producer.send({ messages: [{ topic: bigTopic, value: 'x'.repeat(BIG) }], acks: -1 })
  await producer.close()
  const want = COUNT * used.length
  const stream = await consumer.consume({ topics: [topic, bigTopic], mode: 'earliest', autocommit: true })
  const got = []
  let big = 0
  const timer = within(30000, () => `${got.length} of ${want}`)
  for await (const message of stream) {
    if (message.topic === bigTopic) big = message.value.length
    else got.push([message.key || null, message.value || null, message.headers.get('n'), Number(message.timestamp)])
    if (got.length === want && big) break
  }
  clearTimeout(timer)
  await consumer.close(true)
  await admin.deleteTopics({ topics: [bigTopic] })
  const deleted = !(await admin.listTopics()).includes(bigTopic)
  await admin.close()
  return { codecs: used, got, end: want, big, deleted }
}

const result = await (client === 'kafkajs' ? kafkajs() : platformatic())
console.log(JSON.stringify(result))
process.exit(0)
