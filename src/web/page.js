// What happens on the page: the form is read, the program is asked, its answers are shown.

const at = (id) => document.getElementById(id);
const page = { engines: null, models: new Map(), gpus: new Map(), kept: [], current: firstQuestion(),
  version: 0, answer: null, rows: [], allMethods: false, method: {} };

const times = (from, to, steps) => {
  const list = [];
  for (let power = from; power < to; power *= 10) for (const step of steps) list.push(power * step);
  return list;
};
const countText = (count) => countWords(count).replace(" ", "");
// What a slider can be set to; "" is not said.
const COUNTS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 512, 1024];
const SLIDERS = {
  count: COUNTS.map(String),
  tokens: [...times(1e8, 1e13, [1, 1.5, 2, 3, 5, 7]).map(countText), "10T", "15T", "20T"],
  days: ["", 1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 75, 90, 120, 150, 180, 270, 365, 730].map(String),
  budget: ["", ...times(100, 1e6, [1, 1.5, 2, 3, 5, 7]), 1e6].map(String),
};

// --- the form ----------------------------------------------------------------------------------

// "300B": what stands in the field where the question says nothing.
function recipeTokens(question) {
  const model = !question.config && page.models.get(question.model);
  return model && model.seq && !model.image_height ? countText(model.batch * model.seq * model.steps) : "";
}

// What an address says need not be in the list: another name of a GPU, or what the program refuses.
function choose(name, value) {
  const list = at(name);
  if (![...list.options].some((option) => option.value === value))
    list.append(make("option", { value }, value));
  list.value = value;
}

function placeSlider(name) {
  const steps = SLIDERS[name], value = numberOf(at(name).value);
  let nearest = 0;
  for (let i = 0; i < steps.length && value > 0; i++)
    if (steps[i] && Math.abs(Math.log(numberOf(steps[i]) / value)) <
        Math.abs(Math.log((numberOf(steps[nearest]) || 1e-9) / value))) nearest = i;
  at(`${name}-slider`).value = nearest;
  sayOnSlider(name);
}

const sayOnSlider = (name) =>
  at(`${name}-slider`).setAttribute("aria-valuetext", at(name).value || "not set");

function fillForm(question) {
  for (const name of FIELDS)
    if (at(name) && !["model", "gpu", "stack", "tokens"].includes(name)) at(name).value = question[name] || "";
  if (!at("count").value) at("count").value = "1";
  choose("model", question.config ? CONFIG : question.model);
  choose("gpu", question.gpu);
  choose("stack", question.stack || "");
  for (const name of ["days", "budget"]) placeSlider(name);
  fitForm(question);
}

// What depends on what was chosen.
function fitForm(question) {
  const model = page.models.get(question.model), own = at("model").value === CONFIG;
  const batch = Number(question.batch) || (!own && model && model.batch) || 0;
  SLIDERS.count = COUNTS.filter((count) => batch % count === 0).map(String); // a batch is divided
  at("count-slider").max = SLIDERS.count.length - 1;
  placeSlider("count");
  at("config-field").hidden = !own;
  at("tokens-field").hidden = !own && Boolean(model) && !recipeTokens(question);
  if (document.activeElement !== at("tokens")) at("tokens").value = question.tokens || recipeTokens(question);
  placeSlider("tokens");
  at("tokens").placeholder = own ? "auto" : "";
  for (const name of ["batch", "seq"]) at(name).placeholder = (!own && model && model[name]) || "";
  at("tokens-hint").textContent = own ? "Empty: as assumed, see the answer"
    : question.tokens ? `The recipe's: ${recipeTokens(question)}` : "As in the model's recipe";
  const extras = EXTRAS.filter((name) => question[name]);
  at("extras").hidden = extras.length === 0;
  at("extras").replaceChildren(...extras.map((name) => make("li", {}, `--${name} ${question[name]} `,
    make("button", { type: "button", "aria-label": `Remove --${name}`, onclick: () => {
      const { [name]: dropped, ...rest } = page.current;
      change(rest, true);
    } }, "✕"))));
}

function readForm() {
  const question = {};
  for (const name of EXTRAS) if (page.current[name]) question[name] = page.current[name];
  for (const name of FIELDS)
    if (at(name) && !at(name).closest("[hidden]") && at(name).value.trim())
      question[name] = at(name).value.trim().replace(/^\$|,(?=\d{3})/g, "");
  if (question.tokens === recipeTokens(page.current)) delete question.tokens; // of the model before
  if (question.tokens === recipeTokens(question)) delete question.tokens;
  for (const name of ["wall-limit", "queue-wait"]) // a limit without a unit has hours
    if (/^[\d.]+$/.test(question[name])) question[name] += "h";
  if (question.model === CONFIG) {
    delete question.model;
    try { question.config = JSON.stringify(JSON.parse(question.config)); } catch { /* the program says what is wrong */ }
  } else
    delete question.config;
  return question;
}

// --- asking ------------------------------------------------------------------------------------

// Runs one task at a time; of those that wait the newest alone.
function newestOnly() {
  let busy = false, next = null;
  return function go(task) {
    if (busy) { next = task; return; }
    busy = true;
    task().finally(() => {
      const following = next;
      busy = false;
      next = null;
      if (following) go(following);
    });
  };
}
const goShort = newestOnly(), goLong = newestOnly();

// What is no JSON has its sentence on err.
function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

const askRows = async (engine, question, methods) => {
  const reply = await engine.ask([...planCommand(question, methods), "--json"], filesOf(question));
  return { ...reply, rows: (parsed(reply.out) || {}).trials || [] };
};

// All methods ranked; row is the answer, misfit what comes nearest to fitting where nothing does.
async function askWhole(question) {
  const reply = await askRows(page.engines.long, question, "all");
  const row = reply.rows.find((each) => each.answer);
  const need = (each) => Math.max(each.peak_bytes / each.device_limit_bytes || 0,
    each.host_bytes / each.host_limit_bytes || 0);
  const [misfit] = row ? [] : [...reply.rows].sort((a, b) => need(a) - need(b));
  return { ...reply, row, misfit };
}

const kindOf = (question) => question.stack || "own";

function ask() {
  const version = ++page.version, question = page.current, begin = performance.now();
  const stale = () => version !== page.version;
  let whole = false;
  history.replaceState(null, "", addressOf([question, ...page.kept]));
  at("answer").setAttribute("aria-busy", "true");
  page.engines.remedies.stop();
  if (at("model").value === CONFIG && !question.config) {
    showWhole(question, { rows: [], err: "Paste the config.json of your model into the field, or choose the file. It is in the model's folder, or among its files on Hugging Face." });
    return;
  }
  if (page.method[kindOf(question)])
    goShort(async () => {
      if (stale()) return;
      const { rows } = await askRows(page.engines.short, question, page.method[kindOf(question)]);
      if (stale() || whole || !rows[0] || !rows[0].feasible) return;
      showAnswer(question, rows[0]);
      document.body.dataset.shortMs = performance.now() - begin;
    });
  // While a slider moves, the ranking waits for it to rest.
  setTimeout(() => stale() || goLong(async () => {
    if (stale()) return;
    const reply = await askWhole(question);
    if (stale()) return;
    whole = true;
    showWhole(question, reply);
    document.body.dataset.wholeMs = performance.now() - begin;
    document.body.dataset.shown = questionText(question);
  }), page.answer ? 150 : 0);
}

function change(question, fill) {
  page.current = question;
  if (fill) fillForm(question); else fitForm(question);
  ask();
}

// --- showing -----------------------------------------------------------------------------------

const gpuOf = (question) => page.gpus.get(question.gpu);

function showAnswer(question, row) {
  const open = at("answer").querySelector("details.trust[open]");
  page.answer = row;
  document.title = `${daysWords(row.days, row.days_high)}: ${row.model} on ${placeOf(question, gpuOf(question))}`;
  at("answer").replaceChildren(...answerParts(question, row, gpuOf(question)).filter(Boolean));
  if (open) at("answer").querySelector("details.trust").open = true;
  at("actions").hidden = false;
  for (const id of ["keep", "grant", "export", "format"]) at(id).disabled = false;
}

let saying = 0;
function say(text) { // once the figures have come to rest
  clearTimeout(saying);
  saying = setTimeout(() => { at("status").textContent = text; }, 700);
}

function showWhole(question, reply) {
  const { row, misfit, rows, err } = reply;
  page.rows = rows;
  closeText();
  if (row) {
    page.method[kindOf(question)] = row.method;
    showAnswer(question, row);
    say(`${row.model} on ${placeOf(question, gpuOf(question))}: ${daysWords(row.days, row.days_high)}, ${rangeWords(row.days_low, row.days_high)}, by ${row.method}`);
  } else {
    page.answer = null;
    document.title = "gpudays: plan a pre-training run";
    if (misfit) showMisfit(question, misfit);
    else at("answer").replaceChildren(...errorParts(err));
    at("actions").hidden = !misfit;
    for (const id of ["grant", "export", "format"]) at(id).disabled = true;
    say(misfit ? `Does not fit: ${misfit.reason}` : err);
  }
  at("answer").setAttribute("aria-busy", "false");
  showMethods();
  showElsewhere(question);
  showCompared(question, reply);
}

// The question that a button stands for; what is read on is the answer.
function askInstead(question) {
  change(question, true);
  at("answer").focus();
  at("answer").scrollIntoView({ block: "nearest" });
}

// Why at once, what to do when it was found.
async function showMisfit(question, row) {
  const version = page.version;
  const show = (misfit, remedies) => at("answer").replaceChildren(
    ...misfitParts(question, misfit, gpuOf(question), remedies, (remedy) =>
      askInstead(questionOfCommand(question, commandWords(remedy.command)))).filter(Boolean));
  show(row, null);
  const { rows } = await askRows(page.engines.remedies, question, "");
  if (version !== page.version) return;
  show(rows[0] || row, (rows[0] || row).remedies || []);
  document.body.dataset.remedies = questionText(question);
}

function showMethods() {
  at("methods").hidden = page.rows.length < 2;
  if (page.rows.length > 1)
    at("methods").replaceChildren(...methodParts(page.rows, page.allMethods, () => {
      page.allMethods = !page.allMethods;
      showMethods();
      at("methods").querySelector("button").focus();
    }).filter(Boolean));
}

// What takes seconds is looked for when it is asked for: by opening it.
function showElsewhere(question) {
  const budget = numberOf(question.budget);
  at("elsewhere").hidden = !question.config && !page.models.has(question.model);
  at("presets").hidden = !(budget > 0);
  at("presets").querySelector("summary").textContent = `What could be trained for ${dollars(budget)}?`;
  for (const id of ["machines", "presets"]) if (at(id).open && !at(id).hidden) showFound(id, question);
}

const FINDINGS = {
  machines: [machinesCommand, (reply, question, again) => machineParts(reply, question, page.gpus, page.allMachines,
    () => {
      page.allMachines = !page.allMachines;
      again();
      at("machines").querySelector("[aria-expanded]").focus();
    }, (changes) => askInstead({ ...question, ...changes }))],
  presets: [presetsCommand, (reply, question) => presetParts(reply, page.gpus, (changes) => {
    const { config, tokens, batch, seq, ...rest } = question; // of the model before
    askInstead({ ...rest, ...changes });
  })],
};

async function showFound(id, question) {
  const version = page.version, [command, parts] = FINDINGS[id], place = at(id).querySelector("div");
  const argv = command(question);
  if (place.dataset.shown !== argv.join(" ")) place.replaceChildren(make("p", { class: "hint" }, id === "presets" ? "Looking at every preset on every machine: this may take half a minute…" : "Looking…"));
  const { out, err } = await page.engines.remedies.ask(argv, filesOf(question));
  if (version !== page.version) return;
  const show = () => place.replaceChildren(...parts({ found: parsed(out), err }, question, show).filter(Boolean));
  show();
  place.dataset.shown = argv.join(" ");
}

async function showCompared(question, reply) {
  const version = page.version;
  at("compared").hidden = page.kept.length === 0;
  if (page.kept.length === 0) return;
  const columnOf = ({ row, misfit, err }, of) =>
    ({ question: of, gpu: gpuOf(of), row: row || misfit, error: err && err.replace(/^gpudays: /, "") });
  const columns = [columnOf(reply, question)];
  for (const [i, kept] of page.kept.entries())
    columns.push({ ...columnOf({}, kept),
      edit: () => { page.kept[i] = page.current; askInstead(kept); },
      remove: () => { page.kept.splice(i, 1); page.focus = true; ask(); } });
  for (let i = 0; i < columns.length; i++) {
    if (i > 0) Object.assign(columns[i], columnOf(await askWhole(columns[i].question), columns[i].question));
    if (version !== page.version) return;
    at("compared").replaceChildren(...compareParts(columns));
    if (page.focus) at("compared").querySelector("h2").focus();
  }
  page.focus = false;
}

// --- to take along -----------------------------------------------------------------------------

function toast(text) {
  at("toast").textContent = text;
  at("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { at("toast").hidden = true; }, 2500);
}

// A page that was not loaded by HTTPS has no navigator.clipboard.
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { class: "unseen" });
    document.body.append(area);
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(`Copied: ${what}`);
}

// A line a paragraph, as text fields want it.
const unwrapped = (text) => text.replace(/\n {2}(?=\S)/g, " ").replace(/([^\n])\n(?![-\n])(?=\S)/g, "$1 ");

function showText(title, text) {
  at("text").hidden = false;
  at("text-title").textContent = title;
  at("text").querySelector("pre").textContent = text;
  at("text").querySelector("pre").focus();
}
function closeText() { at("text").hidden = true; }

async function showCommand(title, argv) {
  const reply = await page.engines.short.ask(argv, filesOf(page.current));
  showText(title, reply.out.trim() ? (argv.includes("--text") ? unwrapped(reply.out) : reply.out)
    : reply.err.replace(/^gpudays: /gm, ""));
}

function exportCommand() {
  const argv = commandWords(page.answer.next_export || ""), format = argv.indexOf("--format");
  if (format >= 0) argv[format + 1] = at("format").value;
  return argv;
}

function listen() {
  // A link to #answer would be another question.
  at("skip").addEventListener("click", () => { at("answer").focus(); at("answer").scrollIntoView(); });
  for (const id of ["machines", "presets"])
    at(id).addEventListener("toggle", () => { if (at(id).open) showFound(id, page.current); });
  at("form").addEventListener("submit", (event) => event.preventDefault());
  at("form").addEventListener("input", ({ target }) => {
    const name = target.id.replace(/-slider$/, "");
    if (target.type === "file") return;
    if (SLIDERS[name] && target.type === "range") {
      at(name).value = SLIDERS[name][target.value];
      sayOnSlider(name);
    } else if (SLIDERS[name])
      placeSlider(name);
    if (target.id === "model") at("config-field").hidden = target.value !== CONFIG;
    change(readForm(), false);
  });
  at("file").addEventListener("change", async () => {
    at("config").value = at("file").files[0] ? await at("file").files[0].text() : "";
    change(readForm(), false);
  });
  at("keep").addEventListener("click", () => {
    if (page.kept.length >= MOST_ANSWERS - 1) { toast("Four answers at most: remove one first"); return; }
    page.kept.push({ ...page.current });
    ask();
    toast("Kept: change the question to compare");
  });
  at("copy-link").addEventListener("click", () => copy(location.href, "the link"));
  at("copy-command").addEventListener("click", () => {
    const text = commandText(planCommand(page.current, ""));
    copy(text, text);
  });
  at("grant").addEventListener("click", () => showCommand("The compute paragraph of a grant proposal", grantCommand(page.current, page.answer)));
  at("export").addEventListener("click", () => showCommand(`Settings for ${at("format").selectedOptions[0].text}`, exportCommand()));
  at("copy-text").addEventListener("click", () => copy(at("text").querySelector("pre").textContent, at("text-title").textContent));
  at("close-text").addEventListener("click", closeText);
  at("print").addEventListener("click", () => window.print());
  addEventListener("hashchange", readAddress);
}

// --- the beginning -----------------------------------------------------------------------------

const grouping = (items, group, option) => [...new Set(items.map(group))].map((name) =>
  make("optgroup", { label: name }, items.filter((item) => group(item) === name).map(option)));

function fillChoices(models, gpus) {
  const classes = { desktop: "Desktop", workstation: "Workstation", datacenter: "Data centre" };
  page.models = new Map(models.map((model) => [model.name, model]));
  page.gpus = new Map(gpus.map((gpu) => [gpu.name, gpu]));
  at("model").append(make("optgroup", { label: "Yours" }, make("option", { value: CONFIG }, "paste a config.json…")),
    ...grouping(models, (model) => model.family, (model) =>
      make("option", { value: model.name }, `${model.name}, ${countWords(model.parameters)}`)));
  at("gpu").append(...grouping(gpus, (gpu) => classes[gpu.class] || gpu.class, (gpu) =>
    make("option", { value: gpu.name }, shortTitle(gpu.title))));
  for (const [name, steps] of Object.entries(SLIDERS))
    Object.assign(at(`${name}-slider`), { min: 0, max: steps.length - 1, step: 1 });
}

function readAddress() {
  const [first, ...kept] = parseAddress(location.hash);
  page.kept = kept;
  const usual = firstQuestion();
  if (first && first.gpu) delete usual.count; // one of them
  if (first && first.config) delete usual.model;
  change({ ...usual, ...first }, true);
}

async function begin() {
  try {
    page.engines = await makeEngines();
    const [models, gpus, version] = await Promise.all([page.engines.short.ask(["models", "--json"]),
      page.engines.long.ask(["gpus", "--json"]), page.engines.short.ask(["--version"])]);
    fillChoices(JSON.parse(models.out).models, JSON.parse(gpus.out).gpus);
    at("version").textContent = version.out.trim();
    at("more").open = innerWidth > 800; // on a phone the answer would be below the screen
  } catch (problem) {
    at("starting").textContent = `The planner could not start: ${problem.message || problem}. It needs a browser of 2023 or later.`;
    return;
  }
  listen();
  readAddress();
}
begin();
