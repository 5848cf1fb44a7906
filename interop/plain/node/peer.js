// Locks with redlock. See ../README.md.
'use strict';
const readline = require('node:readline');
const Redis = require('ioredis');
const Redlock = require('redlock');

const RETRY = 10;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// One for each node; what is counted is on the first.
const nodes = process.argv[2].split(',').map((url) => new Redis(url));
const client = nodes[0];
// A node that is down is not the end of the process.
nodes.forEach((node) => node.on('error', () => {}));
const locks = new Map();

// redlock counts its tries, not the time.
const patient = (waitMs) =>
  new Redlock(nodes, { retryCount: Math.floor(waitMs / RETRY), retryDelay: RETRY, retryJitter: 0 });

// Whether most nodes say so, of those that answer within a second.
async function most(ask) {
  const answers = nodes.map((node) => Promise.race([ask(node).catch(() => false), sleep(1000).then(() => false)]));
  return (await Promise.all(answers)).filter(Boolean).length > nodes.length / 2;
}

// Not to hold it (any more) is an answer, all else an error.
async function held(attempt) {
  try {
    return await attempt();
  } catch (error) {
    if (error.name === 'LockError' || error.name === 'ExecutionError') return null;
    throw error;
  }
}

const verbs = {
  async acquire({ name, ttl_ms, wait_ms = 0 }) {
    if (!ttl_ms) throw new Error('redlock has no locks without a lease');
    const lock = await held(() => patient(wait_ms).lock(name, ttl_ms));
    if (lock) locks.set(name, lock);
    return lock !== null;
  },
  async release({ name }) {
    return (await held(() => locks.get(name).unlock())) !== null;
  },
  async extend({ name, ttl_ms }) {
    const longer = await held(() => locks.get(name).extend(ttl_ms));
    if (longer) locks.set(name, longer);
    return longer !== null;
  },
  // redlock does not ask the server, so the value it wrote is compared.
  async owned({ name }) {
    return most(async (node) => (await node.get(name)) === locks.get(name).value);
  },
  async locked({ name }) {
    return most(async (node) => (await node.exists(name)) === 1);
  },
  async load({ name, counter, rounds, pause_ms, ttl_ms }) {
    for (let round = 0; round < rounds; round++) {
      if (!(await verbs.acquire({ name, ttl_ms, wait_ms: 120_000 }))) throw new Error('the lock never came');
      const value = Number((await client.get(counter)) ?? 0);
      await sleep(pause_ms);
      await client.set(counter, value + 1);
      if (!(await verbs.release({ name }))) throw new Error('the lock was lost');
    }
    return { ok: true, done: rounds };
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      const order = JSON.parse(line);
      answer = await verbs[order.do](order);
      if (typeof answer === 'boolean') answer = { ok: answer };
    } catch (error) {
      answer = { error: `${error.name}: ${error.message}` };
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  nodes.forEach((node) => node.disconnect());
}

main();
