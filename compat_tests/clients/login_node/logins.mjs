// Authentication of kafkajs at listeners with SASL and TLS.
// node logins.mjs CELLS: CELLS is a JSON file with login methods; prints a line of JSON for each: "in" if authenticated,
// else the error.

import { readFileSync } from 'node:fs'
import { Kafka, logLevel } from 'kafkajs'

function settings (cell) {
  const out = { clientId: 'login', brokers: [cell.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 0 }, connectionTimeout: 10000, authenticationTimeout: 10000 }
  if (cell.ca) {
    out.ssl = { ca: [readFileSync(cell.ca, 'utf-8')] }
    if (!cell.checks_host) out.ssl.checkServerIdentity = () => undefined
    if (cell.certificate) {
      const both = readFileSync(cell.certificate, 'utf-8')
      Object.assign(out.ssl, { key: both, cert: both })
    }
  }
  const mechanism = (cell.mechanism || '').toLowerCase()
  if (mechanism === 'oauthbearer') out.sasl = { mechanism, oauthBearerProvider: async () => ({ value: cell.token }) }
  else if (mechanism) out.sasl = { mechanism, username: cell.user, password: cell.password }
  return out
}

async function authenticate (cell) {
  const admin = new Kafka(settings(cell)).admin()
  try {
    await admin.connect()
    await admin.listTopics()
    return 'in'
  } catch (error) {
    const cause = error.cause || error
    // The alert for a rejected certificate depends on the TLS library of the broker.
    const code = String(cause.code || '').replace(/^ERR_SSL_.*_ALERT_.*/, 'an alert')
    return code ? `${error.name} ${code}` : error.name
  } finally {
    await admin.disconnect().catch(() => {})
  }
}

const cells = JSON.parse(readFileSync(process.argv[2], 'utf-8'))
const results = await Promise.all(cells.map(authenticate))
cells.forEach((cell, i) => console.log(JSON.stringify([cell.name, results[i]])))
process.exit(0)
