// npm's oidc-provider for tests, driven from standard input, whose end is its own.
//
// Usage: node provider.mjs ADDRESS [CERTIFICATE KEY]. IDENTITY_MODULES names the folder that holds node_modules; with a certificate it speaks HTTPS.
// It prints the issuer in a line when it serves. The line `rotate` puts a new signing key before those that are published, forgets opaque tokens,
// and is echoed when done.
//
// Tokens come from client credentials, with the `resource` of the request (RFC 8707) as their audience. Client `caller` gets JWTs, `opaque-caller`
// opaque tokens, and `gate` may introspect them (RFC 7662). The secret of each is its name and `-secret`.
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const library = `${process.env.IDENTITY_MODULES}/node_modules/oidc-provider/lib/index.js`;
const { default: Provider } = await import(pathToFileURL(library));

const [address, certificate, key] = process.argv.slice(2);
const [host, port] = address.split(':');

let generation = 0;
const newKey = () => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    return { ...privateKey.export({ format: 'jwk' }), kid: `key-${++generation}`, alg: 'ES256', use: 'sig' };
};
const client = (id, grants) => ({
    client_id: id, client_secret: `${id}-secret`, grant_types: grants, redirect_uris: [], response_types: [],
    id_token_signed_response_alg: 'ES256',
});
const configuration = (keys) => ({
    jwks: { keys },
    clients: [client('caller', ['client_credentials']), client('opaque-caller', ['client_credentials']), client('gate', [])],
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    // An introspection of client credentials names no subject otherwise.
    extraTokenClaims: (_, token) => ({ sub: token.clientId }),
    features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: false },
        introspection: { enabled: true, allowedPolicy: (_, { clientId }) => clientId === 'gate' },
        resourceIndicators: {
            enabled: true,
            getResourceServerInfo: (_, resource, { clientId }) => ({
                audience: resource, scope: '', accessTokenTTL: 300,
                accessTokenFormat: clientId === 'opaque-caller' ? 'opaque' : 'jwt',
                jwt: { sign: { alg: 'ES256' } },
            }),
        },
    },
    ttl: { ClientCredentials: 300 },
});

let issuer;
let keys = [newKey()];
let handler;
const renew = () => { handler = new Provider(issuer, configuration(keys)).callback(); };

const answer = (request, response) => handler(request, response);
const server = certificate
    ? https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, answer)
    : http.createServer(answer);
server.listen(Number(port), host, () => {
    issuer = `${certificate ? 'https' : 'http'}://${host}:${server.address().port}`;
    renew();
    console.log(issuer);
});

const commands = createInterface({ input: process.stdin });
commands.on('line', (line) => {
    if (line !== 'rotate') return;
    keys = [newKey(), ...keys];
    renew();
    console.log(line);
});
commands.on('close', () => process.exit());
