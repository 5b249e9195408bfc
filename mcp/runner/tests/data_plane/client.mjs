// The official TypeScript SDK's client, driven from standard input: one JSON command a line, one JSON reply a line.
// Progress notifications come as lines of their own before the reply of the call they belong to.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.env.MCP_MODULES}/package.json`);
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const client = new Client({ name: 'data-plane-test', version: '1' }, { capabilities: {} });
const [url, token] = process.argv.slice(2);
const requestInit = token ? { headers: { authorization: `Bearer ${token}` } } : {};
const Transport = new URL(url).pathname.endsWith('/sse') ? SSEClientTransport : StreamableHTTPClientTransport;
const transport = new Transport(new URL(url), { requestInit });
let abort = new AbortController();
let started;

client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => say({ notification: 'tools/list_changed' }));
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (n) => say({ notification: 'resources/updated', uri: n.params.uri }));

const call = ({ name, args, progress }) => {
    const options = { signal: abort.signal, timeout: 60000 };
    if (progress) options.onprogress = (progress) => say({ progress });
    return client.callTool({ name, arguments: args ?? {} }, undefined, options);
};
const commands = {
    connect: async () => {
        await client.connect(transport);
        return { server: client.getServerVersion(), capabilities: client.getServerCapabilities(), session: transport.sessionId };
    },
    list: () => client.listTools(),
    ping: () => client.ping(),
    call,
    start: async (command) => { abort = new AbortController(); started = call(command); started.catch(() => {}); },
    finish: () => started,
    cancel: async () => abort.abort('the test says so'),
    subscribe: ({ uri }) => client.subscribeResource({ uri }),
    leave: () => transport.terminateSession(),
};

for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    try {
        say({ reply: (await commands[command.do](command)) ?? {} });
    } catch (error) {
        say({ failed: String(error.message ?? error), code: error.code });
    }
}
process.exit(0);
