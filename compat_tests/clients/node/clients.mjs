// kafkajs and @platformatic/kafka: create a topic, write with each codec, read it all back in a group.
// node clients.mjs CLIENT BOOTSTRAP TOPIC GROUP; prints one line of JSON.

const [client, bootstrap, topic, group] = process.argv.slice(2)
const COUNT = 40

function rows (codec) {
  const out = []
  for (let i = 0; i < COUNT; i++) {
    out.push({ key: i % 7 === 0 ? null : `key-${i}`, value: i % 11 === 5 ? null : `${codec}-${i}`, headers: { n: String(i) } })
  }
  return out
}

async function kafkajs () {
  const { Kafka, CompressionTypes, logLevel } = await import('kafkajs')
  const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
  const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  for (const [name, compression] of Object.entries(codecs)) {
    await producer.send({ topic, compression, acks: -1, messages: rows(name) })
  }
  await producer.disconnect()
  const want = COUNT * Object.keys(codecs).length
  const consumer = kafka.consumer({ groupId: group })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const got = []
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`only ${got.length} of ${want}`)), 30000).unref()
    consumer.run({
      eachMessage: async ({ message }) => {
        got.push([message.key && message.key.toString(), message.value && message.value.toString(), message.headers.n.toString()])
        if (got.length === want) resolve()
      }
    }).catch(reject)
  })
  await consumer.disconnect()
  const offsets = await admin.fetchTopicOffsets(topic)
  const described = await admin.describeGroups([group])
  await admin.disconnect()
  return { codecs: Object.keys(codecs), got, end: offsets.reduce((n, o) => n + Number(o.offset), 0), state: described.groups[0].state }
}

async function platformatic () {
  const { Admin, Producer, Consumer, stringSerializers, stringDeserializers } = await import('@platformatic/kafka')
  const base = { clientId: 'compat', bootstrapBrokers: [bootstrap] }
  const admin = new Admin(base)
  await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 })
  const codecs = ['none', 'gzip', 'snappy', 'lz4', 'zstd']
  const used = []
  for (const compression of codecs) {
    const producer = new Producer({ ...base, serializers: stringSerializers, idempotent: true })
    try {
      const messages = rows(compression).map(r => ({ topic, key: r.key ?? undefined, value: r.value ?? undefined, headers: r.headers }))
      await producer.send({ messages, compression, acks: -1 })
      used.push(compression)
    } catch (error) {
      // Older Node.js versions have no zstd of their own.
      if (!error.errors?.some(e => e.code === 'PLT_KFK_UNSUPPORTED_COMPRESSION')) throw error
    }
    await producer.close()
  }
  const want = COUNT * used.length
  const consumer = new Consumer({ ...base, groupId: group, deserializers: stringDeserializers })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: true })
  const got = []
  const timer = setTimeout(() => { console.error(`only ${got.length} of ${want}`); process.exit(1) }, 30000)
  for await (const message of stream) {
    got.push([message.key || null, message.value || null, message.headers.get('n')])
    if (got.length === want) break
  }
  clearTimeout(timer)
  await consumer.close(true)
  await admin.close()
  return { codecs: used, got, end: want, state: 'Empty' }
}

const result = await (client === 'kafkajs' ? kafkajs() : platformatic())
console.log(JSON.stringify(result))
process.exit(0)
