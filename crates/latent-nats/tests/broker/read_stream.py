"""Reads a stream with nats-py, a client that shares nothing with the program under test, and prints its messages as JSON lines.

Arguments: address, server name, root certificate (PEM), user, stream. The password is the first line of standard input.
"""

import asyncio
import base64
import json
import ssl
import sys

import nats


async def main() -> None:
    address, server_name, root, user, stream = sys.argv[1:6]
    password = sys.stdin.readline().rstrip("\n")
    tls = ssl.create_default_context(cafile=root)
    client = await nats.connect(
        f"tls://{address}",
        user=user,
        password=password,
        tls=tls,
        tls_hostname=server_name,
        tls_handshake_first=True,
        allow_reconnect=False,
        inbox_prefix="_INBOX",
    )
    jetstream = client.jetstream()
    state = (await jetstream.stream_info(stream)).state
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await jetstream.get_msg(stream, sequence)
        headers = dict(message.headers or {})
        payload = base64.b64encode(message.data or b"").decode()
        print(json.dumps({"sequence": message.seq, "subject": message.subject, "headers": headers, "payload": payload}))
    await client.close()


asyncio.run(main())
