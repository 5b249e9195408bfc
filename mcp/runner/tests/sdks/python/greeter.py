"""A server and a client made with the official Python SDK.

Usage: greeter.py serve ADDRESS | serve stdio | call URL ERA
A client reads one name a line, and writes one answer a line.
"""

import json
import os
import sys

import anyio
from mcp import Client
from mcp.server.mcpserver import MCPServer

ERAS = {"session": "legacy", "stateless": "2026-07-28", "either": "auto"}


def serve(where):
    server = MCPServer("greeter")

    @server.tool()
    def greet(name: str) -> str:
        return f"Hi {name} from {os.getpid()}"

    if where == "stdio":
        server.run("stdio")
    else:
        host, port = where.split(":")
        server.run("streamable-http", host=host, port=int(port))


async def call(url, era):
    async with Client(url, mode=ERAS[era]) as client:
        async for name in anyio.wrap_file(sys.stdin):
            try:
                result = await client.call_tool("greet", {"name": name.strip()})
                line = {"text": result.content[0].text}
            except Exception as error:
                line = {"failed": repr(error)}
            print(json.dumps(line), flush=True)


match sys.argv[1:]:
    case ["serve", where]:
        serve(where)
    case ["call", url, era]:
        anyio.run(call, url, era)
