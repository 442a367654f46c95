// Workers that answer command lines, and what they have answered.

class Engine {
  constructor(source, module) {
    this.source = source;
    this.module = module;
    this.known = new Map();
    this.next = 1;
    this.start();
  }

  start() {
    this.worker = new Worker(this.source);
    this.waiting = new Map();
    this.worker.onmessage = ({ data }) => {
      const done = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (done) done.keep(data);
    };
    this.worker.postMessage({ module: this.module });
  }

  // What it was at is no longer asked for; its promise is never kept.
  stop() {
    if (this.waiting.size === 0) return;
    this.worker.terminate();
    for (const { key } of this.waiting.values()) this.known.delete(key);
    this.start();
  }

  ask(argv, files = {}) {
    const key = JSON.stringify([argv, files]);
    if (!this.known.has(key)) {
      if (this.known.size >= 300) this.known.delete(this.known.keys().next().value);
      this.known.set(key, new Promise((done) => {
        const id = this.next++;
        this.waiting.set(id, { key, keep: done });
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

// A short answer need not wait for the ranking of all methods, nor that for remedies, which take
// seconds: every GPU of the catalogue is tried.
async function makeEngines() {
  const text = (id) => document.getElementById(id).textContent;
  const source = URL.createObjectURL(
    new Blob([text("program"), text("worker")], { type: "text/javascript" }));
  const module = await unpack(text("wasm").trim());
  return { short: new Engine(source, module), long: new Engine(source, module),
    remedies: new Engine(source, module) };
}
