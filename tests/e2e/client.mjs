// The official JavaScript client, driven by a test: node client.mjs <folder with node_modules> <host> <JSON>
// The JSON is {"call": "chat", "request": {...}, "leaveAfter": 3}; what comes back is printed as one JSON list.
import { createRequire } from 'node:module';

const [folder, host, asked] = process.argv.slice(2);
const { Ollama } = createRequire(`${folder}/`)('ollama');
const { call, request, leaveAfter } = JSON.parse(asked);
const client = new Ollama({ host });

const answer = await client[call](request);
const parts = [];
if (request.stream) {
  try {
    for await (const part of answer) {
      parts.push(part);
      if (parts.length === leaveAfter) answer.abort();
    }
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
    parts.push({ error: error.name });
  }
} else {
  parts.push(answer);
}
process.stdout.write(JSON.stringify(parts));
