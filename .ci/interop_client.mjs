// Every step with the TypeScript clients: interop_client.mjs auto|legacy|1.x COMMAND ...
//
// Run in the folder that has node_modules. `auto` and `legacy` use @modelcontextprotocol/client
// (2.x), `1.x` uses @modelcontextprotocol/sdk. One line per step; exit 1 if one failed.
import { deepStrictEqual as same } from 'node:assert';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

const [mode, command, ...args] = process.argv.slice(2);
const old = mode === '1.x';
const modern = mode === 'auto';
const require = createRequire(process.cwd() + '/');
const { Client } = require(old ? '@modelcontextprotocol/sdk/client/index.js'
    : '@modelcontextprotocol/client');
const { StdioClientTransport } = require(old ? '@modelcontextprotocol/sdk/client/stdio.js'
    : '@modelcontextprotocol/client/stdio');

const client = new Client({ name: 'interop', version: '1.0.0' }, {
    capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
    versionNegotiation: { mode }    // 1.x does not know it
});
const transport = new StdioClientTransport({ command, args, stderr: 'pipe' });
const logs = [], updates = [], errors = [];
let failed = 0, written = '', agreed, subscription;

// ----------------------------------------------------------- what the client answers

// 1.x wants the schema of a method where 2.x wants its name.
const types = old ? require('@modelcontextprotocol/sdk/types.js') : {};
const onRequest = (method, schema, handler) =>
    client.setRequestHandler(types[schema] ?? method, handler);
const onNotification = (method, schema, handler) =>
    client.setNotificationHandler(types[schema] ?? method, handler);

onRequest('elicitation/create', 'ElicitRequestSchema', async ({ params }) => ({
    action: 'accept', content: params.message.includes('drink') ? { drink: 'tea' } : { cups: 2 }
}));
onRequest('sampling/createMessage', 'CreateMessageRequestSchema', async ({ params }) => ({
    role: 'assistant', model: 'none',
    content: { type: 'text', text: `${[params.messages[0].content].flat()[0].text} 42` }
}));
onRequest('roots/list', 'ListRootsRequestSchema', async () => ({
    roots: [{ uri: 'file:///some/folder', name: 'folder' }]
}));
onNotification('notifications/message', 'LoggingMessageNotificationSchema',
    ({ params }) => { logs.push([params.level, params.logger, params.data]); });
onNotification('notifications/resources/updated', 'ResourceUpdatedNotificationSchema',
    ({ params }) => { updates.push(params.uri); });
client.onerror = error => { errors.push(String(error)); };
transport.setProtocolVersion = version => { agreed = version; };
transport.stderr.on('data', chunk => { written += chunk; });

// --------------------------------------------------------------------------- the steps

const call = (name, args, options, _meta) => {
    const params = { name, arguments: args, ...(_meta && { _meta }) };
    return old ? client.callTool(params, undefined, options) : client.callTool(params, options);
};
const says = async (wanted, ...what) => {
    const result = await call(...what);
    same([result.content[0].text, result.isError ?? false], [wanted, false]);
};
const refused = async (promise, code) => {
    const outcome = await promise.then(result => ({ result }), error => ({ code: error.code }));
    same(outcome, { code });
};
const until = async condition => { while (!condition()) await sleep(10); };
const names = (list, key = 'name') => list.map(each => each[key]);

const steps = {
    async 'list-tools'() {
        const { tools } = await client.listTools();
        same(names(tools), ['add', 'slow', 'stopped_calls', 'talk', 'order', 'think', 'folders',
            'touch']);
        same(tools[0].inputSchema.properties.a.type, 'integer');
    },
    async 'list-resources'() {
        same(names((await client.listResources()).resources, 'uri'), ['note://fixed']);
    },
    async 'list-templates'() {
        const { resourceTemplates } = await client.listResourceTemplates();
        same(names(resourceTemplates, 'uriTemplate'), ['note://by/{topic}']);
    },
    async 'list-prompts'() {
        const { prompts } = await client.listPrompts();
        same([names(prompts), names(prompts[0].arguments)], [['review'], ['language', 'code']]);
    },
    async 'call-structured'() {
        const result = await call('add', { a: 2, b: 3 });
        same([result.structuredContent, result.isError ?? false],
            [{ total: 5, terms: [2, 3] }, false]);
    },
    async 'call-bad-arguments'() {
        const result = await call('add', { a: 'two' });
        same([result.isError, /a: .*integer/.test(result.content[0].text)], [true, true]);
    },
    async 'call-unknown-tool'() {
        await refused(call('nothing', {}), -32602);
    },
    async progress() {
        const seen = [];
        await call('slow', { seconds: 0.2 }, {
            onprogress: ({ progress, total, message }) => seen.push([progress, total, message])
        });
        await until(() => seen.length >= 10);
        same(seen, [...Array(10).keys()].map(n => [n + 1, 10, `step ${n + 1}`]));
    },
    async logging() {
        if (!modern) await client.setLoggingLevel('info');
        await says('logged', 'talk', {}, undefined,
            modern ? { 'io.modelcontextprotocol/logLevel': 'info' } : undefined);
        await until(() => logs.length);
        same(logs, [['warning', 'interop', 'heard']]);
    },
    async elicitation() {
        await says('2 tea', 'order', {});
    },
    async sampling() {
        await says('The answer? 42', 'think', { question: 'The answer?' });
    },
    async roots() {
        await says('file:///some/folder', 'folders', {});
    },
    async 'read-resource'() {
        const { contents: [only] } = await client.readResource({ uri: 'note://fixed' });
        same([only.text, only.mimeType], ['fixed note', 'text/plain']);
    },
    async 'read-template'() {
        const { contents: [only] } = await client.readResource({ uri: 'note://by/the%20sea' });
        same([JSON.parse(only.text), only.mimeType], [{ topic: 'the sea' }, 'application/json']);
    },
    async 'read-unknown'() {
        // The wire has -32002 in the handshake revisions; 2.x gives its user -32602 for both.
        await refused(client.readResource({ uri: 'note://nowhere/at/all' }),
            old ? -32002 : -32602);
    },
    async 'get-prompt'() {
        const { messages } = await client.getPrompt(
            { name: 'review', arguments: { language: 'python' } });
        same([messages[0].role, messages[0].content.text], ['user', 'Review this python: pass']);
    },
    async completion() {
        const { completion } = await client.complete({
            ref: { type: 'ref/prompt', name: 'review' },
            argument: { name: 'language', value: 'p' }
        });
        same(completion.values, ['python', 'perl']);
    },
    async updates() {
        if (modern) subscription = await client.listen({ resourceSubscriptions: ['note://fixed'] });
        else await client.subscribeResource({ uri: 'note://fixed' });
        await says('touched', 'touch', {});
        await until(() => updates.length);
        same(updates, ['note://fixed']);
    },
    async cancel() {
        const stop = new AbortController();
        const started = Date.now();
        const outcome = call('slow', { seconds: 30 }, { signal: stop.signal })
            .then(() => 'answered', () => 'given up');
        await sleep(500);
        stop.abort('enough');
        same(await outcome, 'given up');
        while ((await call('stopped_calls', {})).content[0].text !== '1') await sleep(50);
        same(Date.now() - started < 3000, true, 'the server took its time');
    }
};

async function step(name, body) {
    const late = new AbortController();
    try {
        await Promise.race([body(), sleep(10000, undefined, { signal: late.signal })
            .then(() => { throw new Error('too late'); })]);
        console.log(`PASS ${name}`);
    } catch (error) {
        failed += 1;
        console.log(`FAIL ${name} ${String(error).replace(/\s+/g, ' ')}`);
    }
    late.abort();
}

let child;
await step('connect', async () => {
    await client.connect(transport);
    child = transport._process;    // private, but the exit status is part of the check
    same(old ? agreed : client.getNegotiatedProtocolVersion(),
        modern ? '2026-07-28' : '2025-11-25');
});
if (child) {
    const exited = new Promise(resolve => child.on('exit', (...how) => resolve(how)));
    for (const [name, body] of Object.entries(steps)) await step(name, body);
    await step('close', async () => {
        const started = Date.now();
        await client.close();
        same(await exited, [0, null]);
        same(Date.now() - started < 2000, true, 'the server took its time');
    });
    if (subscription) {
        await step('subscription-ends', async () => same(await subscription.closed, 'graceful'));
    }
    await step('no-client-errors', async () => same(errors, []));
    await step('quiet-stderr', async () => same(written, ''));
} else {
    transport._process?.kill('SIGKILL');
}
process.exit(failed ? 1 : 0);
