"""Locks with kazoo. See ../README.md."""

import logging
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

logging.disable(logging.CRITICAL)


class Peer:
    def __init__(self, address):
        self.client = KazooClient(hosts=address, timeout=20)
        self.client.start(timeout=60)
        self.locks = {}
        self.writing = threading.Lock()

    def answer(self, number, *words):
        with self.writing:
            print(number, *words, flush=True)

    def make(self, path, recipe):
        if recipe == "mutex":
            # So that it waits for Curator's nodes, and for ours.
            return self.client.Lock(path, "kazoo", extra_lock_patterns=["lock-"])
        # As it is by itself.
        makers = {"own": self.client.Lock, "write": self.client.WriteLock, "read": self.client.ReadLock}
        return makers[recipe](path, "kazoo")

    def lock(self, key, path, recipe, wait):
        lock = self.make(path, recipe)
        try:
            taken = lock.acquire(timeout=int(wait) / 1000)
        except LockTimeout:
            taken = False
        if taken:
            self.locks[key] = lock
        return "true" if taken else "false"

    def unlock(self, key, _recipe):
        self.locks.pop(key).release()
        return ""

    def add(self, _key, path, file, rounds, recipe):
        lock = self.make(path, recipe)
        for _ in range(int(rounds)):
            with lock:
                with open(file) as counter:
                    value = int(counter.read())
                time.sleep(0.001)
                with open(file, "w") as counter:
                    counter.write(str(value + 1))
        return ""

    def handle(self, number, verb, words):
        try:
            self.answer(number, "ok", getattr(self, verb)(*words))
        except Exception as error:  # The test decides what it means.
            self.answer(number, "failed", repr(error))


def main():
    peer = Peer(sys.argv[1])
    peer.answer(0, "ok")
    for line in sys.stdin:
        number, verb, *words = line.split()
        threading.Thread(target=peer.handle, args=(number, verb, words), daemon=True).start()


main()
