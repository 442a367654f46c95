// A question: what the form, the address and the command line say. Fields that are not set are not
// in any of them, and the program's own defaults hold.

// Options without a control of their own, which a remedy or an address may name.
const EXTRAS = ["nodes", "network", "machine", "device-memory", "host-memory"];
const RECIPE = ["stack", "tokens", "precision", "batch", "seq"];
const CALENDAR = ["days", "wall-limit", "queue-wait", "jobs"];
const FIELDS = ["model", "gpu", "count", ...RECIPE, "budget", ...CALENDAR, ...EXTRAS, "config"];
const FORMER = { deadline: "days" }; // what older links call a field
const CONFIG = "config.json";
const MOST_ANSWERS = 4;

const firstQuestion = () => ({ model: "pythia-410m", gpu: "3090", count: "4" });

function questionText(question) {
  return FIELDS.filter((name) => question[name])
    .map((name) => `${name}=${encodeURIComponent(question[name])}`).join("&");
}

function parseQuestion(text) {
  const question = {};
  for (const part of text.split("&")) {
    const at = part.indexOf("=");
    const name = FORMER[part.slice(0, at)] || part.slice(0, at);
    if (at > 0 && FIELDS.includes(name))
      try { question[name] = decodeURIComponent(part.slice(at + 1)); } catch { /* not of ours */ }
  }
  return question;
}

// The question in the form, then those that are compared with it.
const addressOf = (questions) => "#" + questions.map(questionText).join(";");
const parseAddress = (hash) => hash.replace(/^#/, "").split(";").map(parseQuestion)
  .filter((question) => Object.keys(question).length > 0).slice(0, MOST_ANSWERS);

const modelOf = (question) => (question.config ? CONFIG : question.model || "");
const filesOf = (question) => (question.config ? { [CONFIG]: question.config } : {});

const optionWords = (question, names) =>
  names.filter((name) => question[name]).flatMap((name) => [`--${name}`, question[name]]);

// A model out of an address is no option, whatever it is called.
function withModel(command, question, options) {
  const model = modelOf(question);
  return model.startsWith("-") ? [command, ...options, "--", model] : [command, model, ...options];
}

function planCommand(question, methods) {
  const count = question.count || "1", whole = /^[1-9]\d*$/.test(count);
  return withModel("plan", question, [
    "--gpu", whole && count !== "1" ? `${count}x${question.gpu}` : question.gpu,
    ...(whole ? [] : ["--count", count]), // the program says what is wrong with it
    ...optionWords(question, [...RECIPE, ...CALENDAR, ...EXTRAS]),
    ...(methods ? ["--methods", methods] : [])]);
}

const grantCommand = (question, answer) => withModel("cost", question,
  ["--machine", answer.bought || answer.machine || question.gpu,
    ...optionWords(question, ["stack", "tokens", "batch", "seq"]), "--text"]);

// Every machine that can be bought or rented, for this model.
const machinesCommand = (question) => withModel("cost", question,
  [...optionWords(question, ["stack", "tokens", "batch", "seq", "budget", ...CALENDAR]), "--json"]);

// Every preset, for this budget.
const presetsCommand = (question) =>
  ["cost", ...optionWords(question, ["budget", "days", "stack"]), "--json"];

// What a command of the program asks, as changes of a question: how its remedies are taken.
function questionOfCommand(question, argv) {
  const changed = { ...question };
  for (let i = 2; i + 1 < argv.length; i += 2) {
    const name = argv[i].slice(2), value = argv[i + 1], several = /^(\d+)x(.+)$/.exec(value);
    if (name === "gpu")
      Object.assign(changed, several ? { gpu: several[2], count: several[1] } : { gpu: value, count: "1" });
    else if (FIELDS.includes(name)) changed[name] = value;
  }
  return changed;
}

const commandText = (argv) => ["gpudays", ...argv].map((word) =>
  (/^[\w.,:+\/=@-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`)).join(" ");
// What the program suggests has no quotes but around names of files.
const commandWords = (text) => (text.match(/'[^']*'|\S+/g) || [])
  .map((word) => word.replace(/^'|'$/g, "")).slice(1);
