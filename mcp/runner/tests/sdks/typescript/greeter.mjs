// A server and a client made with the official TypeScript SDK.
//
// Usage: greeter.mjs serve ADDRESS | serve stdio | call URL ERA
// A client reads one name a line, and writes one answer a line.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler, fromJsonSchema, isLegacyRequest } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const ERAS = { session: 'legacy', stateless: { pin: '2026-07-28' }, either: 'auto' };

const greeter = () => {
    const server = new McpServer({ name: 'greeter', version: '1' });
    const inputSchema = fromJsonSchema({ type: 'object', properties: { name: { type: 'string' } }, required: ['name'] });
    server.registerTool('greet', { inputSchema }, ({ name }) => ({
        content: [{ type: 'text', text: `Hi ${name} from ${process.pid}` }],
    }));
    return server;
};

// The SDK's own handler keeps no sessions in the older era, so that sessions are kept here as its documentation shows.
const sessions = new Map();
const serveSession = async (request, response, message) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (!transport) {
        if (request.headers['mcp-session-id']) return response.writeHead(404).end('Session not found');
        transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: (id) => sessions.set(id, transport),
        });
        await greeter().connect(transport);
    }
    await transport.handleRequest(request, response, message);
};

const serve = (where) => {
    if (where === 'stdio') return serveStdio(greeter);
    const [host, port] = where.split(':');
    const stateless = toNodeHandler(createMcpHandler(greeter, { legacy: 'reject' }));
    createServer(async (request, response) => {
        const chunks = await request.toArray();
        const message = chunks.length ? JSON.parse(Buffer.concat(chunks)) : undefined;
        const legacy = await isLegacyRequest(await toWebRequest(request, message));
        await (legacy ? serveSession : stateless)(request, response, message);
    }).listen(Number(port), host);
};

const call = async (url, era) => {
    const client = new Client({ name: 'sdks', version: '1' }, { versionNegotiation: { mode: ERAS[era] } });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    for await (const name of createInterface({ input: process.stdin })) {
        let line;
        try {
            const result = await client.callTool({ name: 'greet', arguments: { name } });
            line = { text: result.content[0].text };
        } catch (error) {
            line = { failed: String(error) };
        }
        process.stdout.write(JSON.stringify(line) + '\n');
    }
    process.exit(0);
};

const [command, ...rest] = process.argv.slice(2);
await { serve, call }[command](...rest);
