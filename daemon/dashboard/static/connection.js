// The stream of events: opened, and opened again whenever it ends, however it ended.

const FIRST_RETRY = 500, LAST_RETRY = 5000; // ms
const SILENCE = 20000; // ms: how things stand is told every 5 s

export function connect(handlers, tell) {
  let source = null, retry = FIRST_RETRY, timer = null, watchdog = null;

  function heard() {
    clearTimeout(watchdog);
    watchdog = setTimeout(again, SILENCE);
  }

  function again() {
    source?.close();
    clearTimeout(watchdog);
    clearTimeout(timer);
    tell("lost");
    timer = setTimeout(open, retry);
    retry = Math.min(2 * retry, LAST_RETRY);
  }

  function open() {
    source = new EventSource("/pilotfish/api/live");
    source.onopen = () => {
      retry = FIRST_RETRY;
      tell("live");
      heard();
    };
    source.onerror = again;
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (message) => {
        heard();
        handle(JSON.parse(message.data));
      });
    }
  }

  tell("waiting");
  open();
  window.addEventListener("pagehide", () => source?.close());
  window.addEventListener("pageshow", (event) => event.persisted && again());
}

export async function ask(path) {
  const answer = await fetch(`/pilotfish/api/${path}`);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

export async function post(path, body) {
  const answer = await fetch(`/pilotfish/api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.error || `it was answered with ${answer.status}`);
}
