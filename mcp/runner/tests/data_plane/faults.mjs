// An MCP server over standard input and output that misbehaves as the name of the tool says.
import { createInterface } from 'node:readline';
import { appendFileSync, closeSync, existsSync } from 'node:fs';

const say = (line) => process.stdout.write(line + '\n');
const result = (id, text) => say(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text }] } }));

const tools = {
    ok: (id) => result(id, 'fine'),
    garbage: (id) => {
        say('Traceback (most recent call last):');
        say('{"jsonrpc":"2.0","id":');
        say('x'.repeat(20 << 20));
        say('\u0000\u001b[31m{}');
        result(id, 'after garbage');
    },
    strangers: (id) => {
        for (const other of [id + 1000, 'text', 1.5, null]) say(JSON.stringify({ jsonrpc: '2.0', id: other, result: {} }));
        result(id, 'once');
        result(id, 'twice');
    },
    flood: (id) => {
        const note = (progressToken, progress) => JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress } });
        for (let i = 1; i <= 20000; i++) say(note(id, i));
        result(id, 'after the flood');
    },
    long: (id) => result(id, 'x'.repeat(4 << 20)),
    deaf: () => {},
    // Reads nothing more until its record is gone.
    stop: () => { while (existsSync(process.argv[2])) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50); },
    // Closes its output, and would go on for ever.
    mute: () => { closeSync(1); setInterval(() => {}, 1000); process.stdin.removeAllListeners('end'); },
};

process.on('SIGTERM', () => {});
for await (const line of createInterface({ input: process.stdin })) {
    const { id, method, params } = JSON.parse(line);
    if (process.argv[2]) appendFileSync(process.argv[2], line + '\n');
    if (method === 'tools/call') tools[params.name](id);
    else if (method === 'initialize') {
        const server = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'faults', version: '1' } };
        say(JSON.stringify({ jsonrpc: '2.0', id, result: server }));
    } else if (id !== undefined) say(JSON.stringify({ jsonrpc: '2.0', id, result: {} }));
}
