// A page in headless Chromium, driven through its debugging pipe: messages of JSON that end in NUL,
// as chrome's DevTools protocol has them. Needs node alone.
"use strict";
const fs = require("node:fs");
const { spawn } = require("node:child_process");

// Fields of a stat of /proc (proc_pid_stat(5)); the name before them may have blanks.
function statOf(path) {
  try {
    const [, name, rest] = /\((.*)\) (.*)/s.exec(fs.readFileSync(`${path}/stat`, "latin1"));
    const fields = rest.split(" ");
    return { name, parent: Number(fields[1]), seconds: (Number(fields[11]) + Number(fields[12])) / 100 };
  } catch { return null; } // it has ended
}
const numbered = (folder) => {
  try { return fs.readdirSync(folder).filter((name) => /^\d+$/.test(name)); } catch { return []; }
};
const threads = (pid) => numbered(`/proc/${pid}/task`).map((id) => statOf(`/proc/${pid}/task/${id}`)).filter(Boolean);

function descendants(pid) {
  const all = numbered("/proc").map((id) => ({ pid: Number(id), ...statOf(`/proc/${id}`) }));
  const below = (parent) => all.filter((each) => each.parent === parent).flatMap((each) => [each.pid, ...below(each.pid)]);
  return [pid, ...below(pid)];
}

async function openBrowser(binary, profile) {
  const child = spawn(binary, ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    `--user-data-dir=${profile}`, "--remote-debugging-pipe", "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const [, , , to, from] = child.stdio, waiting = new Map(), listeners = [];
  let last = 0, rest = Buffer.alloc(0), failure = null;
  const fail = (problem) => {
    failure = problem;
    for (const { reject } of waiting.values()) reject(problem);
    waiting.clear();
  };
  child.on("error", fail);
  child.on("exit", (code) => fail(new Error(`the browser ended with ${code}`)));
  to.on("error", fail);
  from.on("data", (data) => {
    rest = Buffer.concat([rest, data]);
    for (let end; (end = rest.indexOf(0)) >= 0; rest = rest.subarray(end + 1)) {
      const message = JSON.parse(rest.subarray(0, end).toString());
      const done = waiting.get(message.id);
      waiting.delete(message.id);
      if (done && message.error) done.reject(new Error(message.error.message));
      else if (done) done.resolve(message.result);
      else for (const listener of listeners) listener(message);
    }
  });
  const send = (method, params = {}, sessionId = undefined) => new Promise((resolve, reject) => {
    if (failure) { reject(failure); return; }
    waiting.set(++last, { resolve, reject });
    to.write(JSON.stringify({ id: last, method, params, sessionId }) + "\0");
  });
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const requests = [], problems = [];
  listeners.push(({ method, params }) => {
    if (method === "Network.requestWillBeSent") requests.push(params.request.url);
    if (method === "Runtime.exceptionThrown")
      problems.push((params.exceptionDetails.exception || {}).description || params.exceptionDetails.text);
    if (method === "Log.entryAdded" && params.entry.level === "error") problems.push(params.entry.text);
  });
  const page = (method, params) => send(method, params, sessionId);
  for (const domain of ["Network", "Runtime", "Log", "Page"]) await page(`${domain}.enable`);
  return {
    requests, problems, page,
    async go(url) {
      await page("Page.navigate", { url });
    },
    // The value of an expression of the page, which may be a promise.
    async evaluate(expression) {
      const { result, exceptionDetails } = await page("Runtime.evaluate",
        { expression, awaitPromise: true, returnByValue: true });
      if (exceptionDetails)
        throw new Error((exceptionDetails.exception || {}).description || exceptionDetails.text);
      return result.value;
    },
    // Until an expression of the page is true.
    async await(expression, seconds = 600) {
      const until = Date.now() + 1000 * seconds;
      for (;;) {
        if (await this.evaluate(`Boolean(${expression})`).catch(() => false)) return;
        if (Date.now() > until) throw new Error(`waited in vain for ${expression}`);
        await new Promise((done) => setTimeout(done, 50));
      }
    },
    // Seconds of CPU that the workers of pages have used: of that a busy machine changes little.
    workerSeconds: () => descendants(child.pid).flatMap(threads)
      .filter(({ name }) => name.startsWith("DedicatedWorker")).reduce((sum, { seconds }) => sum + seconds, 0),
    size: (width, height, mobile = false) => page("Emulation.setDeviceMetricsOverride",
      { width, height, deviceScaleFactor: 1, mobile }),
    media: (features) => page("Emulation.setEmulatedMedia", features),
    async close() {
      await send("Browser.close").catch(() => {});
      await new Promise((done) => (child.exitCode === null ? child.once("exit", done) : done()));
    },
  };
}

module.exports = { openBrowser };
