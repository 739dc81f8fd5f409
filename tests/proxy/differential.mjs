// One call of each kind to the address given, by the openai SDK; prints what comes of them as one JSON value.
import OpenAI, { toFile } from 'openai';

const client = new OpenAI({ baseURL: process.argv[2], maxRetries: 0 });
const ofOneConnection = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length']);
const seen = [];
const headers = (response) =>
  [...response.headers].filter(([name]) => !ofOneConnection.has(name)).sort();

const { data: stream, response } = await client.chat.completions
  .create({ model: 'm', messages: [{ role: 'user', content: 'Grüße' }], stream: true, max_tokens: 5 })
  .withResponse();
seen.push(headers(response));
for await (const chunk of stream) seen.push(chunk);
seen.push(await client.chat.completions.create({ model: 'm', messages: [] }));
seen.push(await client.embeddings.create({ model: 'm', input: 'a', encoding_format: 'float' }));
const bytes = Buffer.from('\0\r\n'.repeat(100000));
seen.push(await client.files.create({ file: await toFile(bytes, 'a'), purpose: 'batch' }));
const models = await client.models.list().withResponse();
seen.push(headers(models.response), models.data.data);
try {
  await client.chat.completions.create({ model: 'busy', messages: [] });
} catch (error) {
  seen.push(error.status, error.error, [...error.headers].filter(([name]) => !ofOneConnection.has(name)).sort());
}
console.log(JSON.stringify(seen));
