// What tests/web/test_planner.sh asks of the page: BROWSER PAGE GPUDAYS PROFILE. Prints what was found,
// a line each, and ends with 1 where something is not as it should be.
"use strict";
const fs = require("node:fs");
const http = require("node:http");
const { spawnSync } = require("node:child_process");
const { openBrowser } = require("./browser.js");

const [browserPath, pagePath, program, profile] = process.argv.slice(2);
const MOST_BYTES = 4 << 20;
// For what hangs: a test must pass on a busy machine. What was measured is printed.
const HANGS_MS = 60000;

let wrong = 0;
function check(name, fine, detail = "") {
  if (fine) return;
  wrong++;
  console.log(`NOT ${name}${detail ? ": " + detail : ""}`);
}

// --- the program's digits ----------------------------------------------------------------------

const CONFIG = JSON.stringify({ model_type: "llama", architectures: ["LlamaForCausalLM"],
  hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 16, num_attention_heads: 16,
  num_key_value_heads: 8, vocab_size: 32000, max_position_embeddings: 2048, rms_norm_eps: 1e-5,
  tie_word_embeddings: false, hidden_act: "silu" });

// Every preset on some hardware, and what else the page asks.
function questions(models) {
  const hardware = ["3090", "4x3090", "a100", "8xa100", "2x4090", "16xh100", "t4", "8xh200", "64xb200",
    "4xa6000", "2x3060", "32xv100-32gb", "5090"];
  const asked = models.map((model, i) =>
    ["plan", model, "--gpu", hardware[i % hardware.length], "--methods", "all", "--json"]);
  const small = "pythia-160m";
  for (const line of [
    `plan pythia-410m --gpu 4x3090 --json`, `plan pythia-1b --gpu a100 --json`, `plan gpt2 --gpu 8xh100 --json`,
    `plan pythia-2.8b --gpu 3090 --json`, `plan ${small} --gpu 4x3090 --stack pytorch --methods all --json`,
    `plan ${small} --gpu a100 --stack megatron --json`, `plan ${small} --gpu 4xa100 --stack paper --methods all --json`,
    `plan ${small} --gpu 2x4090 --tokens 20B --json`, `plan ${small} --gpu 4090 --batch 256 --seq 1024 --json`,
    `plan ${small} --gpu 4090 --precision fp32 --json`, `plan ${small} --gpu 24xh100 --nodes 3 --network ethernet-100 --methods all --json`,
    `plan ${small} --gpu 3090 --device-memory 6GiB --json`, `plan ${small} --gpu 3x3090 --json`,
    `plan pythia-410m --gpu 4x3090 --days 5 --json`, `plan pythia-410m --gpu 4x3090 --days 42 --json`,
    `plan pythia-410m --gpu 4x3090 --days 90 --methods all --json`, `plan pythia-410m --gpu 4x3090 --days never --json`,
    `plan pythia-410m --gpu 4x3090 --wall-limit 24h --queue-wait 6h --jobs 2 --days 60 --methods all --json`,
    `plan pythia-410m --gpu 4x3090 --wall-limit 24h --queue-wait 6h`, `plan pythia-1b --gpu 8xa100 --wall-limit 48h --json`,
    `plan pythia-1b --gpu 8xa100 --wall-limit 1m --json`, `cost pythia-410m --budget 1000 --days 60 --wall-limit 24h --json`,
    `cost pythia-410m --budget 500 --json`, `cost --budget 500 --days 30 --json`,
    `plan --gpu 3090 --json -- --help`, `plan ${small} --gpu 4x3090`, `plan config.json --gpu 2x4090 --tokens 20B --methods all --json`,
    `plan nothing --gpu 3090 --json`, `plan ${small} --gpu 9090 --json`, `plan ${small} --gpu 3090 --count abc --json`,
    `cost ${small} --machine server-4x-3090 --text`, `cost ${small} --machine server-8x-h100 --tokens 20B --text`,
    `cost ${small} --machine server-4x-3090 --stack pytorch --text`, `cost ${small} --json`,
    `export ${small} --gpu 4x3090 --format hf`, `export ${small} --gpu 2xa100 --format deepspeed`,
    `models --json`, `gpus --json`,
    `published gpt2 --json`, `estimate pythia-1b --gpu a100 --json`,
  ]) asked.push(line.split(" "));
  return asked;
}

// The time that planning took is this machine's, and a day may end between two answers.
const masked = (text, day) => text.replace(/"plan_s": [^,\n]*/g, "")
  .replace(day ? /"done[a-z_]*": [^,\n]*|done by.*/g : /$^/, "").trimEnd();

// As on a CPU without FMA: with it, glibc's exp and log end in another digit once in a thousand times,
// in the native program as well, and WebAssembly has none.
const plain = { ...process.env, GLIBC_TUNABLES: "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4" };

function native(argv, folder) {
  const { status, stdout, stderr } = spawnSync(program, argv,
    { cwd: folder, env: plain, encoding: "utf8", maxBuffer: 1 << 28 });
  return { code: status, out: stdout, err: stderr };
}

async function compareAnswers(page) {
  const folder = `${profile}-files/model`; // what the program calls it by
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(`${folder}/config.json`, CONFIG);
  const models = JSON.parse(native(["models", "--json"], folder).out).models.map((model) => model.name);
  const asked = questions(models), slow = [];
  for (const argv of asked) {
    const begin = new Date().toDateString();
    const [ours, theirs] = [native(argv, folder), await page.evaluate(
      `page.engines.long.ask(${JSON.stringify(argv)}, ${JSON.stringify({ "config.json": CONFIG })})`)];
    const sameDay = new Date().toDateString() === begin, name = argv.join(" ");
    for (const part of ["out", "err"]) {
      const [a, b] = [ours, theirs].map((reply) => masked(reply[part], !sameDay).split("\n"));
      const at = a.findIndex((line, i) => line !== b[i]);
      check(`${name} says the same`, at < 0 && a.length === b.length, `"${a[at]}" there, "${b[at]}" here`);
    }
    check(`${name} ends alike`, ours.code === theirs.code, `${ours.code} there, ${theirs.code} here`);
    if (argv.includes("all")) slow.push(theirs.ms);
  }
  slow.sort((a, b) => a - b);
  console.log(`${asked.length} command lines, to the last digit; rankings of all methods: ` +
    `${slow[slow.length >> 1].toFixed(0)} ms, at most ${slow[slow.length - 1].toFixed(0)} ms`);
}

// --- the page ----------------------------------------------------------------------------------

const shown = (hash) => `document.body.dataset.shown === questionText(parseQuestion(${JSON.stringify(hash)}))`;

async function open(page, url, hash) {
  await page.go("about:blank");
  await page.await("location.href === 'about:blank'");
  await page.go(`${url}#${hash}`);
  await page.await(shown(hash.split(";")[0]));
}

const text = (page, what) => page.evaluate(`document.querySelector(${JSON.stringify(what)}).textContent`);

// Text on its ground: WCAG 2.2, success criterion 1.4.3.
const CONTRAST = `(() => {
  const channels = (color) => { const list = color.match(/[\\d.]+/g).map(Number); return list.length > 3 ? list : [...list, 1]; };
  const light = (color) => channels(color).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (channels(color)[3] === 1) return color;
    }
    return getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "rgb(0,0,0)" : "rgb(255,255,255)";
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest("script, style, noscript, [hidden], :disabled, optgroup, option") || !element.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(element.tagName + "." + element.className + " " + ratio.toFixed(2));
  }
  return [...new Set(low)];
})()`;

async function lookAtPage(page, url) {
  await open(page, url, "model=pythia-410m&gpu=3090&count=4&budget=500&deadline=40");
  const [, days, low, high] = /time +(\S+) days +\((\S+) - (\S+)\)/.exec(
    native(["plan", "pythia-410m", "--gpu", "4x3090"], ".").out);
  check("the headline is the program's", await text(page, ".headline") === `${days} days`, await text(page, ".headline"));
  check("the range is the program's", (await text(page, ".range")).startsWith(`${low} to ${high} days`), await text(page, ".range"));
  const judged = await page.evaluate("[...document.querySelectorAll('.verdicts li')].map((item) => item.className).join()");
  check("a deadline and a budget are judged", judged === "doubtful,bad,bad", judged);
  check("all methods are ranked", /^22 of 22/.test(await text(page, "#methods .hint")), await text(page, "#methods .hint"));
  for (const scheme of ["light", "dark"]) {
    await page.media({ features: [{ name: "prefers-color-scheme", value: scheme }] });
    const lowest = await page.evaluate(CONTRAST);
    check(`contrast, ${scheme}`, lowest.length === 0, lowest.join("; "));
  }
  await page.media({ media: "print", features: [] });
  check("print shows the answer alone", await page.evaluate(
    "getComputedStyle(form).display === 'none' && getComputedStyle(answer).display !== 'none'"));
  await page.media({ media: "", features: [] });
  const { nodes } = await page.page("Accessibility.getFullAXTree");
  const controls = nodes.filter(({ role }) => role &&
    ["textbox", "combobox", "slider", "button", "spinbutton", "img", "region"].includes(role.value));
  const nameless = controls.filter(({ name }) => !name || !name.value);
  check("controls have names", controls.length > 20 && nameless.length === 0,
    `${nameless.length} of ${controls.length}: ${nameless.map(({ role }) => role.value)}`);
  await page.size(390, 844, true);
  check("no sideways scrolling at 390 px", await page.evaluate("document.documentElement.scrollWidth <= innerWidth"));
  check("the answer is on the first screen of a phone", await page.evaluate(
    "document.querySelector('.headline').getBoundingClientRect().bottom < innerHeight"));
  await page.size(1280, 900);
}

async function press(page, key, code = key) {
  const windowsVirtualKeyCode = { Tab: 9, ArrowRight: 39, Enter: 13 }[key];
  await page.page("Input.dispatchKeyEvent", { type: "keyDown", key, code, windowsVirtualKeyCode,
    text: key === "Enter" ? "\r" : undefined });
  await page.page("Input.dispatchKeyEvent", { type: "keyUp", key, code, windowsVirtualKeyCode });
}

// From the first field to the buttons by Tab; a slider is moved by its arrow.
async function useKeyboard(page, url) {
  await open(page, url, "model=pythia-160m&gpu=4090&count=1");
  const visited = [], changes = [];
  for (let i = 0; i < 40; i++) {
    await press(page, "Tab");
    const id = await page.evaluate("document.activeElement.id || document.activeElement.className || document.activeElement.tagName");
    visited.push(id);
    while (id === "tokens-slider" && changes.length < 5) {
      await page.evaluate("delete document.body.dataset.shortMs");
      await press(page, "ArrowRight");
      await page.await("document.body.dataset.shortMs");
      changes.push(Number(await page.evaluate("document.body.dataset.shortMs")));
      await page.await("document.body.dataset.shown === questionText(page.current)");
    }
  }
  for (const id of ["skip", "model", "gpu", "count", "count-slider", "tokens", "days", "budget", "wall-limit", "keep", "copy-link", "grant", "export"])
    check(`Tab reaches ${id}`, visited.includes(id), visited.join(" "));
  const question = await page.evaluate("location.hash");
  await page.evaluate("skip.focus()");
  await press(page, "Enter");
  check("the answer is skipped to", await page.evaluate("document.activeElement.id") === "answer" &&
    await page.evaluate("location.hash") === question);
  changes.sort((a, b) => a - b);
  check("a change is answered", changes.length === 5 && changes[4] < HANGS_MS, changes.join(" "));
  console.log(`a slider's change is answered in ${changes.map((ms) => ms.toFixed(0)).join(", ")} ms`);
}

async function useButtons(page, url) {
  await open(page, url, "model=pythia-6.9b&gpu=3090;model=pythia-160m&gpu=h100");
  check("what does not fit is said", await text(page, ".headline") === "Does not fit");
  await page.await("document.querySelectorAll('.remedies button').length > 0");
  const before = await page.evaluate("location.hash");
  await page.evaluate("document.querySelector('.remedies button').click()");
  await page.await("location.hash !== " + JSON.stringify(before));
  await page.await("document.querySelector('.headline').textContent.includes('day')");
  await open(page, url, `gpu=4090&count=2&tokens=20B&config=${encodeURIComponent(CONFIG)}`);
  check("a config.json is planned", /days|hours/.test(await text(page, ".headline")), await text(page, ".headline"));
  await open(page, url, "model=pythia-160m&gpu=3090&count=4");
  await page.evaluate("document.getElementById('keep').click()");
  await page.await("document.querySelectorAll('#compared thead th').length === 2");
  const address = await page.evaluate("location.hash.slice(1)");
  await open(page, url, address);
  await page.await("document.querySelectorAll('#compared thead th').length === 2");
  await page.evaluate("document.getElementById('grant').click()");
  await page.await("document.querySelector('#text pre').textContent.includes('We will pre-train pythia-160m')");
  await page.evaluate("document.getElementById('export').click()");
  await page.await("document.querySelector('#text h2').textContent.includes('Transformers')");
  await page.await("document.querySelector('#text pre').textContent.includes('per_device_train_batch_size')");
  await page.evaluate(`window.copied = ""; Object.defineProperty(navigator, "clipboard",
    { value: { writeText: async (text) => { copied = text; } } }); document.getElementById("copy-command").click()`);
  await page.await("copied === 'gpudays plan pythia-160m --gpu 4x3090'");
}

// Machines and models within a deadline and a budget, with the verdict of the program on each.
async function lookElsewhere(page, url) {
  await open(page, url, "model=pythia-410m&gpu=3090&count=4&budget=1000&days=60&wall-limit=24h&queue-wait=6h");
  const calendar = /waiting each: (\S+) days/.exec(native(["plan", "pythia-410m", "--gpu", "4x3090",
    "--wall-limit", "24h", "--queue-wait", "6h"], ".").out.replace(/\s+/g, " "));
  check("jobs of a queue are said", (await text(page, ".range")).includes(`each waits 6h: ${calendar[1]} days in all`), await text(page, ".range"));
  await page.evaluate("machines.open = true; presets.open = true");
  await page.await("document.querySelectorAll('#presets tbody tr').length > 0");
  const advice = /answer +rent (\d+) x (\S+): \$(\S+)/.exec(native(["cost", "pythia-410m", "--budget", "1000", "--days", "60",
    "--wall-limit", "24h", "--queue-wait", "6h"], ".").out);
  const shownAdvice = await text(page, "#machines .remedies li");
  check("the advice is the program's", shownAdvice.includes(`${advice[1]} × RTX ${advice[2]}`) && shownAdvice.includes(`$${advice[3]}`), shownAdvice);
  await page.evaluate("document.querySelector('#machines .remedies button').click()");
  await page.await(`page.current.gpu === ${JSON.stringify(advice[2])} && page.current.count === ${JSON.stringify(advice[1])}`);
  await page.await("document.querySelector('.verdicts li.good') && document.activeElement.id === 'answer'");
}

// An address is anybody's text: a sentence, and a page that goes on working.
async function askNonsense(page, url) {
  for (const [address, sentence] of [
    ["model=%3Cscript%3Edocument.title%3D1%3C/script%3E&gpu=3090&count=4", "<script>document.title=1</script>"],
    ["model=--help&gpu=3090", "unknown model \"--help\""], ["model=pythia-410m&gpu=--json&count=4", "unknown GPU"],
    ["model=pythia-410m&gpu=3090&count=-1", "--count is \"-1\""], ["model=pythia-410m&gpu=3090&count=1e9", "--count is \"1e9\""],
    ["model=pythia-410m&gpu=3090&count=1000000000", "1000000000"], ["model=pythia-410m&gpu=3090&tokens=1e300", "--tokens is"],
    ["model=pythia-410m&gpu=3090&days=soon", "--days is"], ["model=pythia-410m&gpu=3090&wall-limit=%00", "--wall-limit"],
    ["model=pythia-410m&gpu=3090&budget=%3Cimg%20src%3Dx%3E", "The budget is “<img src=x>”"],
    ["config=%7B%22a%22:1%7D&gpu=3090", "model_type is missing"], ["%%%;;;&&&===;model", "days"],
  ]) {
    await page.go("about:blank");
    await page.await("location.href === 'about:blank'");
    await page.go(`${url}#${address}`);
    await page.await("document.getElementById('answer').getAttribute('aria-busy') === 'false'", 30).catch(() => {});
    const said = await text(page, "#answer");
    check(`#${address} gets a sentence`, said.includes(sentence), said);
    check(`#${address} is text alone`, await page.evaluate("document.querySelectorAll('#answer script, #answer img, form img').length === 0"));
  }
}

// Of the workers alone, and as seconds of CPU: a machine that is busy takes longer by the clock.
async function measureTimes(page, url) {
  await open(page, url, "model=pythia-410m&gpu=3090&count=4");
  const measure = async (engine, argv) => {
    const begin = page.workerSeconds();
    await page.evaluate(`page.engines.${engine}.ask(${JSON.stringify(argv.split(" "))})`);
    return 1000 * (page.workerSeconds() - begin);
  };
  const middle = (list) => list.sort((a, b) => a - b)[list.length >> 1];
  const answers = [], rankings = [];
  for (const [i, tokens] of ["20B", "30B", "50B", "70B", "100B", "150B", "200B"].entries()) {
    const question = `plan ${["pythia-410m", "pythia-1b"][i % 2]} --gpu 4xa100 --tokens ${tokens}`;
    answers.push(await measure("short", `${question} --methods free-lunch --json`));
    rankings.push(await measure("long", `${question} --methods all --json`));
  }
  const remedies = await measure("remedies", "plan pythia-6.9b --gpu 3090 --json");
  console.log(`of CPU: an answer ${middle(answers).toFixed(0)} ms, a ranking ${middle(rankings).toFixed(0)} ms, remedies ${remedies.toFixed(0)} ms`);
  check("an answer takes 200 ms of CPU at most", middle(answers) <= 200, answers.join(" "));
  check("a ranking takes 2 s of CPU at most", middle(rankings) <= 2000, rankings.join(" "));
}

// --- all of it ---------------------------------------------------------------------------------

async function main() {
  const { size } = fs.statSync(pagePath);
  check("the page is small", size < MOST_BYTES, `${size} bytes`);
  console.log(`${(size / 1024).toFixed(0)} KiB`);
  const page = await openBrowser(browserPath, profile), url = `file://${pagePath}`;
  const server = http.createServer((request, response) => {
    response.writeHead(200, { "Content-Type": "text/html" });
    response.end(fs.readFileSync(pagePath));
  });
  try {
    await page.size(1280, 900);
    await lookAtPage(page, url);
    await useKeyboard(page, url);
    await useButtons(page, url);
    await lookElsewhere(page, url);
    await askNonsense(page, url);
    await measureTimes(page, url);
    await compareAnswers(page);
    await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
    const host = `http://127.0.0.1:${server.address().port}/`;
    await open(page, host, "model=pythia-160m&gpu=3090&count=4");
    const others = page.requests.filter((address) => !/^(about|blob|data):/.test(address) &&
      !address.startsWith(url) && address.replace(/#.*/, "") !== host);
    check("no host is asked", others.length === 0, others.join(" "));
    check("no errors", page.problems.length === 0, page.problems.join("; "));
  } finally {
    server.closeAllConnections();
    server.close();
    await page.close();
  }
}

main().catch((problem) => check("the test runs to its end", false, problem.stack)).finally(() => {
  console.log(wrong ? `${wrong} wrong` : "fine");
  process.exitCode = wrong ? 1 : 0;
});
