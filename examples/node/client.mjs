// A stream of the openai SDK for Node. Behind `midstream proxy` it differs in nothing but its address:
//
//     npm ci
//     OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none node client.mjs
import OpenAI from 'openai';

const client = new OpenAI();
const stream = await client.chat.completions.create({
  model: process.env.MODEL ?? 'emulated',
  messages: [{ role: 'user', content: 'Say hello.' }],
  max_tokens: 100,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
}
console.log();
