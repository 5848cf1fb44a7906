"""Locks with redis-py. See ../README.md."""

import json
import sys
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError


class Peer:
    def __init__(self, url):
        self.client = redis.Redis.from_url(url)
        self.locks = {}

    def acquire(self, name, ttl_ms=None, wait_ms=0):
        ttl = ttl_ms / 1000 if ttl_ms else None
        lock = self.client.lock(name, timeout=ttl, sleep=0.01)
        self.locks[name] = lock
        return lock.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 or None)

    def release(self, name):
        try:
            self.locks[name].release()
            return True
        except LockNotOwnedError:
            return False

    def extend(self, name, ttl_ms):
        try:
            return self.locks[name].extend(ttl_ms / 1000, replace_ttl=True)
        except LockNotOwnedError:
            return False

    def owned(self, name):
        return self.locks[name].owned()

    def locked(self, name):
        return self.client.lock(name).locked()

    def load(self, name, counter, rounds, pause_ms, ttl_ms):
        for _ in range(rounds):
            if not self.acquire(name, ttl_ms, 120_000):
                raise LockError("the lock never came")
            value = int(self.client.get(counter) or 0)
            time.sleep(pause_ms / 1000)
            self.client.set(counter, value + 1)
            if not self.release(name):
                raise LockError("the lock was lost")
        return {"ok": True, "done": rounds}


def main():
    peer = Peer(sys.argv[1])
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(peer, order.pop("do"))(**order)
            answer = answer if isinstance(answer, dict) else {"ok": bool(answer)}
        except Exception as error:  # The test decides what it means.
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
