"""A dictionary that programs on many servers share: all have all of it, and see the same writes in the same order.

On each server:  python shared_dict.py GROUP   then lines such as `colour=blue`; it prints what it has after each write.
"""

from __future__ import annotations

import json
import sys
import threading

from rostrum.client import Agent, Message, Replica


class SharedDict(Replica):
    """Writes go to the group; reads are local. Another thread calls `dispatch`."""

    def __init__(self, agent: Agent, group: str) -> None:
        self.items: dict[str, str] = {}
        self.writes = 0
        super().__init__(agent, group)

    def __setitem__(self, key: str, value: str) -> None:
        self.publish(json.dumps([key, value]).encode())

    def __getitem__(self, key: str) -> str:
        return self.items[key]

    def deliver(self, message: Message) -> None:
        key, value = json.loads(message.data)
        self.items[key] = value
        self.writes += 1

    def get_state(self) -> bytes:
        return json.dumps([self.writes, self.items]).encode()

    def set_state(self, state: memoryview) -> None:
        self.writes, self.items = json.loads(bytes(state))


def main(group: str) -> None:
    with Agent() as agent, SharedDict(agent, group) as shared:
        shared.wait_ready(60)
        print(shared.items, flush=True)

        def show() -> None:
            while True:
                shared.dispatch()
                print(shared.items, flush=True)

        threading.Thread(target=show, daemon=True).start()
        for line in sys.stdin:
            key, _, value = line.strip().partition("=")
            shared[key] = value


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
