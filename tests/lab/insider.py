"""An agent with a right certificate that does what it likes: says hello to the manager, joins a group, and tells which
keys it was given, a line of JSON each. Lines of its input: "leave", then "end".

python -m tests.lab.insider SERVER CERTIFICATE KEY CA GROUP
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time

from rostrum.controller.northbound.thrift.codec import idl

from tests.controller.fakes import FakeAgent

MANAGER = "10.255.0.1"


async def main(server: str, certificate: str, key: str, authority: str, group: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    agent = FakeAgent(*await asyncio.open_connection(MANAGER, 9090, ssl=context))
    plain = idl.Engine(name="plain", options=[], regions=False)
    agent.hello(server, time.time_ns(), seals=True, group_engines=[plain])
    await agent.expect("welcome")
    options = idl.GroupOptions("plain", "none", "")
    agent.say("join_group", group=idl.GroupUse(group=group, options=options))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    told, ended = 0, False
    waiting = asyncio.create_task(lines.readline())
    while not ended:
        agent.say("keepalive")
        for method, said in agent.heard[told:]:
            for one in said.keys if method == "keys" else ():
                print(json.dumps({"purpose": one.purpose, "id": one.id, "epoch": one.epoch, "key": one.key.hex(),
                                  "transmitter": one.transmitter, "in_ms": one.in_ms}), flush=True)  # fmt: skip
        told = len(agent.heard)
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        if done:
            word = waiting.result().decode().strip()
            ended = word in ("end", "")
            if word == "leave":
                agent.say("leave_group", group=group)
            waiting = asyncio.create_task(lines.readline())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
