// Locks with redlock. See ../README.md.
'use strict';
const readline = require('node:readline');
const Redis = require('ioredis');
const Redlock = require('redlock');

const LEASE = 30_000;

const now = () => Number(process.hrtime.bigint());
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const clients = process.argv[2].split(',').map((url) => new Redis(url));
// Its defaults, 200 to 300 ms between tries, but without a limit to them.
const redlock = new Redlock(clients, { retryCount: -1 });

async function repeat(name, order, answer) {
  const { start_ns, end_ns, hold_us, notes } = order;
  let pairs = 0;
  const failed = (error) => {
    answer.errors += 1;
    answer.error ??= `${error.name}: ${error.message}`;
  };
  await sleep(Math.max(0, start_ns - now()) / 1e6);
  for (;;) {
    const asked = now();
    if (asked >= end_ns) break;
    let lock;
    try {
      lock = await redlock.lock(name, LEASE);
    } catch (error) {
      failed(error);
      continue;
    }
    const acquired = now();
    if (hold_us > 0) await sleep(hold_us / 1000);
    const releasing = now();
    try {
      await lock.unlock();
    } catch (error) {
      failed(error);
    }
    const bucket = Math.floor(Math.log2(Math.max(acquired - asked, 1)) * 16);
    answer.waits[bucket] = (answer.waits[bucket] ?? 0) + 1;
    answer.all += 1;
    answer.held_ns += releasing - acquired;
    if (now() < end_ns) pairs += 1;
    if (notes) answer.notes.push([asked, acquired, releasing]);
  }
  return pairs;
}

async function main() {
  await Promise.all(clients.map((client) => client.ping()));
  const version = (name) => require(`./node_modules/${name}/package.json`).version;
  const ready = `redlock ${version('redlock')}, ioredis ${version('ioredis')}, Node ${process.versions.node}`;
  process.stdout.write(JSON.stringify({ ready }) + '\n');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const answer = { all: 0, waits: {}, held_ns: 0, notes: [], errors: 0, error: null };
    answer.pairs = await Promise.all(order.names.map((name) => repeat(name, order, answer)));
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  clients.forEach((client) => client.disconnect());
}

main();
