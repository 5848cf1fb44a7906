"""Locks with redis-py, python-redis-lock or kazoo, the variant. See ../README.md."""

import json
import math
import sys
import threading
import time
from collections import Counter
from importlib.metadata import version

import redis
import redis_lock
from kazoo.client import KazooClient

LEASE = 30


class RedisPy:
    """Its defaults: tries every 100 ms, for as long as it takes."""

    name = "redis"

    def __init__(self, client, name):
        self.lock = client.lock(name, timeout=LEASE)

    def acquire(self):
        if not self.lock.acquire():
            raise RuntimeError("not acquired")

    def release(self):
        self.lock.release()


class PythonRedisLock:
    """Its defaults: waits in BLPOP."""

    name = "python-redis-lock"

    def __init__(self, client, name):
        self.lock = redis_lock.Lock(client, name, expire=LEASE)

    def acquire(self):
        if not self.lock.acquire():
            raise RuntimeError("not acquired")

    def release(self):
        self.lock.release()


class Kazoo:
    """Its defaults: waits for the node before."""

    name = "kazoo"

    def __init__(self, client, name):
        self.lock = client.Lock("/" + name)

    def acquire(self):
        if not self.lock.acquire():
            raise RuntimeError("not acquired")

    def release(self):
        self.lock.release()


class Task(threading.Thread):
    def __init__(self, lock, order):
        super().__init__(daemon=True)
        self.lock, self.order = lock, order
        self.pairs = self.all = self.held_ns = self.errors = 0
        self.error = None
        self.waits = Counter()
        self.notes = []

    def run(self):
        now, end = time.monotonic_ns, self.order["end_ns"]
        hold = self.order["hold_us"] / 1e6
        time.sleep(max(0, self.order["start_ns"] - now()) / 1e9)
        while (asked := now()) < end:
            try:
                self.lock.acquire()
            except Exception as error:
                self.failed(error)
                continue
            acquired = now()
            if hold:
                time.sleep(hold)
            releasing = now()
            try:
                self.lock.release()
            except Exception as error:
                self.failed(error)
            self.waits[int(math.log2(max(acquired - asked, 1)) * 16)] += 1
            self.all += 1
            self.held_ns += releasing - acquired
            self.pairs += now() < end
            if self.order["notes"]:
                self.notes.append([asked, acquired, releasing])

    def failed(self, error):
        self.errors += 1
        self.error = self.error or f"{type(error).__name__}: {error}"


def measure(library, client, order):
    tasks = [Task(library(client, name), order) for name in order["names"]]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    waits = sum((task.waits for task in tasks), Counter())
    return {
        "pairs": [task.pairs for task in tasks],
        "all": sum(task.all for task in tasks),
        "waits": {str(bucket): count for bucket, count in waits.items()},
        "held_ns": sum(task.held_ns for task in tasks),
        "notes": [note for task in tasks for note in task.notes],
        "errors": sum(task.errors for task in tasks),
        "error": next((task.error for task in tasks if task.error), None),
    }


def connect(url):
    if url.startswith("zk://"):
        client = KazooClient(url.removeprefix("zk://"))
        client.start()
        return client
    # python-redis-lock holds one connection for each waiter, and redis-py opens 100 at most by itself.
    client = redis.Redis.from_url(url, max_connections=1000)
    client.ping()
    return client


def main():
    libraries = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock, "kazoo": Kazoo}
    library = libraries[sys.argv[2]]
    client = connect(sys.argv[1])
    what = f"{sys.argv[2]} {version(library.name)}, Python {sys.version.split()[0]}"
    print(json.dumps({"ready": what}), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(library, client, json.loads(line))), flush=True)


main()
