// Transactions of kafkajs: node kafkajs.cjs BOOTSTRAP TOPIC ID, which finds kafkajs by NODE_PATH.
// Steps: compat_tests/transactions/test_client_transactions.py. Prints one line of JSON.

const { Kafka, logLevel } = require('kafkajs')
const [bootstrap, topic, id] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING })

async function producer () {
  const made = kafka.producer({ transactionalId: id, maxInFlightRequests: 1, idempotent: true })
  await made.connect()
  return made
}

async function begin (of, value) {
  const transaction = await of.transaction()
  await transaction.send({ topic, acks: -1, messages: [0, 1].map(partition => ({ partition, value: `${value}${partition}` })) })
  return transaction
}

function positions (offset) {
  return { consumerGroupId: id, topics: [{ topic, partitions: [{ partition: 0, offset }] }] }
}

async function read (uncommitted) {
  const consumer = kafka.consumer({ groupId: `${id}-reads-${uncommitted}`, readUncommitted: uncommitted })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const seen = []
  await new Promise(resolve => consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      seen.push(message.value.toString())
      if (seen.includes('e0') && seen.includes('e1')) resolve()
    }
  }))
  await consumer.disconnect()
  return seen.sort()
}

async function main () {
  const first = await producer()
  await (await begin(first, 'a')).commit()
  await (await begin(first, 'b')).abort()
  const third = await begin(first, 'c')
  await third.sendOffsets(positions('1'))
  await third.commit()
  const fourth = await begin(first, 'x')
  await fourth.sendOffsets(positions('9'))
  await fourth.abort()
  const open = await begin(first, 'd')
  const second = await producer()
  const last = await begin(second, 'e')
  let fenced = false
  try { await open.commit() } catch { fenced = true }
  await last.commit()
  const out = { fenced, read_committed: await read(false), read_uncommitted: await read(true) }
  console.log(JSON.stringify(out))
  process.exit(0)
}

setTimeout(() => { console.error('not in time'); process.exit(1) }, 120000)
main().catch(error => { console.error(error); process.exit(1) })
