"""What a scripted server does with its end of a connection, step by step."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable

RST, HANG = "rst", "hang"
Step = bytes | float | str
"""Bytes are written in a write of their own, a number is a pause in seconds, RST breaks the connection, HANG waits for the client's end."""


async def play(steps: Iterable[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Step after step; who calls closes the connection."""
    for step in steps:
        if isinstance(step, bytes):
            writer.write(step)
            await writer.drain()
            # One write must not melt into the next.
            await asyncio.sleep(0.001)
        elif isinstance(step, float):
            await asyncio.sleep(step)
        elif step == RST:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return
        else:
            await reader.read()
