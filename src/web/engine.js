// Workers that answer command lines, and what they have answered.

// Of several questions only the newest matters: one that waits is dropped when the next one comes.
class Engine {
  constructor(source) {
    this.worker = new Worker(source);
    this.waiting = new Map();
    this.known = new Map();
    this.next = 1;
    this.worker.onmessage = ({ data }) => {
      const done = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (done) done(data);
    };
  }

  ask(argv, files = {}) {
    const key = JSON.stringify([argv, files]);
    if (!this.known.has(key)) {
      if (this.known.size >= 300) this.known.delete(this.known.keys().next().value);
      this.known.set(key, new Promise((done) => {
        const id = this.next++;
        this.waiting.set(id, done);
        this.worker.postMessage({ id, argv, files });
      }));
    }
    return this.known.get(key);
  }
}

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

// Two: a short answer need not wait for the ranking of all methods.
async function makeEngines() {
  const text = (id) => document.getElementById(id).textContent;
  const source = URL.createObjectURL(
    new Blob([text("program"), text("worker")], { type: "text/javascript" }));
  const module = await unpack(text("wasm").trim());
  const engines = { short: new Engine(source), long: new Engine(source) };
  for (const engine of Object.values(engines)) engine.worker.postMessage({ module });
  return engines;
}
