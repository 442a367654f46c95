// Answers as parts of the page: everything that is shown of the JSON of `gpudays plan`. Nothing is
// computed here but shares of a bar, and whether a deadline or a budget holds.

// make("p", { class: "hint" }, "text", other parts...)
function make(name, attributes, ...parts) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false)
      element.setAttribute(key, value === true ? "" : value);
  element.append(...parts.flat().filter((part) => part !== null && part !== undefined && part !== false));
  return element;
}

const percent = (share) => `${Math.max(0, Math.min(100, 100 * share)).toFixed(2)}%`;
const setWidth = (element, style) => { Object.assign(element.style, style); return element; };

const CATEGORIES = [["activations", "Activations"], ["optimizer", "Adam's moments"],
  ["parameters", "Weights"], ["gradients", "Gradients"], ["workspace", "Workspace"],
  ["inputs", "Inputs"]];

const placeOf = (question, gpu) =>
  `${Number(question.count) > 1 ? question.count + " × " : ""}${shortTitle(gpu ? gpu.title : question.gpu)}`;

const isSaid = (value) => value !== null && value !== undefined;
const rateOf = (row) => row.tokens_per_s || row.images_per_s;
const rateUnit = (row) => (row.images_per_s ? "images/s" : "tokens/s");

// --- deadline and budget -----------------------------------------------------------------------

// Days until it is done: on the calendar, where jobs of a cluster are asked about.
const daysOf = (row) => (row.calendar_days
  ? { days: row.calendar_days, low: row.calendar_days_low, high: row.calendar_days_high }
  : { days: row.days, low: row.days_low, high: row.days_high });

const DEADLINES = {
  likely: (days, { high }) => ["good", `Within ${grouped(days)} days, even at its longest, ${daysWords(high)}`],
  "at risk": (days, { low, high }) => ["doubtful", `${grouped(days)} days may not be enough: it takes ${rangeWords(low, high)}`],
  no: (days, { low, high }) => ["bad", `Not within ${grouped(days)} days: it takes ${rangeWords(low, high)}`],
};

function verdicts(question, row) {
  const found = [], budget = numberOf(question.budget);
  if (DEADLINES[row.deadline])
    found.push(DEADLINES[row.deadline](Number(question.days), daysOf(row)));
  if (question.budget && !(budget > 0))
    found.push(["bad", `The budget is “${question.budget}”; expected dollars, such as 500 or 40k`]);
  if (!(budget > 0)) return found;
  if (isSaid(row.rent_usd))
    found.push(row.rent_usd <= budget ? ["good", `Rent is within ${dollars(budget)}`]
      : ["bad", `Rent is ${dollars(row.rent_usd - budget)} above ${dollars(budget)}, which pays for ${(100 * budget / row.rent_usd).toFixed(0)} % of the run`]);
  if (row.hardware_usd)
    found.push(row.hardware_usd <= budget ? ["good", `Buying the machine is within ${dollars(budget)}`]
      : ["bad", `Buying the machine is not: ${dollars(row.hardware_usd)}`]);
  return found;
}

const verdictList = (question, row) => {
  const found = verdicts(question, row);
  const marks = { good: "✓", doubtful: "?", bad: "✗" };
  return found.length > 0 && make("ul", { class: "verdicts" }, found.map(([kind, text]) =>
    make("li", { class: kind }, make("span", { "aria-hidden": "true" }, marks[kind]), " ", text)));
};

// --- bars --------------------------------------------------------------------------------------

// Where the days lie between the shortest and the longest that are likely; a line is the deadline.
function daysBar(row, deadline) {
  const { days, low, high } = daysOf(row), most = Math.max(high, deadline || 0);
  const bar = make("div", { class: "days-bar", role: "img",
    "aria-label": `between ${rangeWords(low, high)}, most likely ${daysWords(days, high)}` +
      (deadline ? `; the deadline is in ${grouped(deadline)} days` : "") },
  setWidth(make("span", { class: "likely" }), { left: percent(low / most), width: percent((high - low) / most) }),
  setWidth(make("span", { class: "point" }), { left: percent(days / most) }));
  if (deadline) bar.append(setWidth(make("span", { class: "deadline" }), { left: percent(deadline / most) }));
  return make("div", {}, bar, make("p", { class: "scale hint", "aria-hidden": "true" }, make("span", {}, "today"),
    deadline > 0 && deadline < most && make("span", {}, "dashed: the deadline"),
    make("span", {}, deadline >= most ? `the deadline, in ${grouped(deadline)} days` : `in ${daysWords(high)}`)));
}

function memoryPart(row, gpu) {
  const card = gpu ? gpu.memory_bytes : row.device_limit_bytes;
  const most = Math.max(card, row.peak_bytes);
  const categories = row.categories || { needed: row.peak_bytes };
  const shown = (row.categories ? CATEGORIES : [["needed", "In all"]])
    .filter(([key]) => categories[key] * 200 >= row.peak_bytes);
  const said = shown.map(([key, name]) => `${name} ${bytesWords(categories[key])}`).join(", ");
  const bar = make("div", { class: "memory-bar", role: "img",
    "aria-label": `${bytesWords(row.peak_bytes)} of ${bytesWords(card)}: ${said}` },
  shown.map(([key]) => setWidth(make("span", { class: key }), { width: percent(categories[key] / most) })));
  if (card < most) bar.append(setWidth(make("span", { class: "edge" }), { left: percent(card / most) }));
  const allowed = row.device_limit_bytes ? `; a plan may take ${bytesWords(row.device_limit_bytes)}` : "";
  return make("div", { class: "part" },
    make("h3", {}, "Memory of each GPU"),
    make("p", {}, make("strong", {}, bytesWords(row.peak_bytes)), ` of ${bytesWords(card)}${allowed}`),
    bar,
    make("ul", { class: "legend" }, shown.map(([key, name]) => make("li", {},
      make("span", { class: `swatch ${key}`, "aria-hidden": "true" }), `${name} `,
      make("span", { class: "figure" }, bytesWords(categories[key]))))),
    row.host_bytes > 2 ** 20 && make("p", { class: "hint" }, hostWords(row)));
}

function hostWords(row) {
  const held = CATEGORIES.filter(([key]) => row.host_categories && row.host_categories[key] * 20 > row.host_bytes)
    .map(([key, name]) => `${name.toLowerCase().replace("adam", "Adam")} ${bytesWords(row.host_categories[key])}`).join(", ");
  return `And ${bytesWords(row.host_bytes)} of the host's memory for each GPU${held ? `: ${held}` : ""}` +
    (row.host_limit_bytes ? `; a plan may take ${bytesWords(row.host_limit_bytes)}` : "");
}

// --- the answer --------------------------------------------------------------------------------

const figure = (name, value, hint) => make("div", { class: "tile" },
  make("dt", {}, name), make("dd", {}, make("strong", {}, value), hint && make("span", { class: "hint" }, hint)));

function figures(row) {
  const list = [];
  if (isSaid(row.rent_usd))
    list.push(figure("Rent", dollars(row.rent_usd), `$${grouped(row.rent_usd_per_gpu_hour, 2)} a GPU-hour, ${row.rent_provider}`));
  if (row.hardware_usd)
    list.push(figure("To buy", dollars(row.hardware_usd), `${row.bought}; the run is ${dollars(row.experiment_usd)} of its 5 years`));
  if (row.wall_energy_kwh)
    list.push(figure("Energy", `${rounded(row.wall_energy_kwh)} kWh`,
      [row.energy_usd && dollars(row.energy_usd), row.co2_kg && `${rounded(row.co2_kg)} kg of CO₂`].filter(Boolean).join(", ")));
  if (rateOf(row))
    list.push(figure("Speed", grouped(rateOf(row)),
      `${rateUnit(row)}, ${grouped(rateOf(row) / row.count)} a GPU`));
  if (row.mfu) list.push(figure("MFU", `${(100 * row.mfu).toFixed(0)} %`, "of the GPU's peak"));
  return make("dl", { class: "tiles" }, list);
}

// "43 jobs of 24h, which wait 6h each: 53.1 days until it is done".
function jobsWords(question, row) {
  const limit = question["wall-limit"], wait = question["queue-wait"];
  const words = `${row.jobs === 1 ? "1 job" : `${grouped(row.jobs)} jobs`}${limit ? ` of ${limit}` : ""}` +
    `${wait ? `, ${row.jobs === 1 ? "which waits" : "each waits"} ${wait}` : ""}` +
    `${question.jobs > 1 ? `, ${question.jobs} in the queue at a time` : ""}`;
  return `${words}: ${daysWords(row.calendar_days)} in all, ${rangeWords(row.calendar_days_low, row.calendar_days_high)}`;
}

// What nobody has said: the recipe of a pasted config.json has no tokens and no batch.
function assumedParts(row) {
  const assumed = (row.assumed || []).filter(({ field }) => field !== "lr"); // no time depends on it
  const unknown = row.unknown_fields || [];
  const valueWords = ({ field, value }) => `${typeof value !== "number" ? value
    : field === "tokens" ? `${countWords(value)} tokens` : `${field} ${grouped(value)}`}`;
  return [
    assumed.length > 0 && make("p", { class: "notice" }, "Assumed, as no recipe says it: ",
      assumed.map((each, i) => [i ? "; " : "", make("strong", {}, valueWords(each)), ` (${each.from})`]).flat(),
      ". Fill in those fields to say otherwise."),
    unknown.length > 0 && make("p", { class: "notice" },
      `Not known, and not used, are these fields of the config.json: ${unknown.join(", ")}`),
  ];
}

function answerParts(question, row, gpu) {
  const deadline = row.deadline ? Number(question.days) : 0;
  return [
    make("p", { class: "asked" }, `${row.model} on ${placeOf(question, gpu)}`),
    make("h2", { class: "headline" }, daysWords(row.days, row.days_high)),
    make("p", { class: "range" }, rangeWords(row.days_low, row.days_high), row.jobs > 0 ? " of computing" : "",
      row.jobs > 0 && make("span", { class: "block" }, jobsWords(question, row)),
      row.done && make("span", {}, row.jobs > 0 ? "Done by " : ", done by ", make("strong", {}, dateWords(row.done)),
        row.done_low !== row.done_high && ` (${dateWords(row.done_low)} to ${dateWords(row.done_high)})`)),
    daysBar(row, deadline),
    verdictList(question, row),
    ...assumedParts(row),
    figures(row),
    make("div", { class: "parts" }, memoryPart(row, gpu),
      make("div", { class: "part" },
        make("h3", {}, "Settings"),
        make("p", {}, make("strong", {}, row.method)),
        make("ul", { class: "plain" },
          row.method_words && make("li", {}, row.method_words),
          make("li", {}, `micro-batch ${grouped(row.micro_batch)} a GPU, ${row.accumulation > 1
            ? `gradient accumulation ${grouped(row.accumulation)}` : "no gradient accumulation"}`),
          make("li", {}, row.precision + (row.precision_substituted ? ": the GPU lacks the recipe's" : "")),
          make("li", {}, row.software || row.stack)))),
    row.engine_runs === false && make("p", { class: "notice" },
      "gpudays' own engine does not run on this GPU: a prediction for comparison only."),
    row.paper_clock_days < 0.999 * row.days && make("p", { class: "notice" },
      `The clock of the paper's tables, which does not wait for the GPU to end a micro-step, would show ${daysWords(row.paper_clock_days)}.`),
    row.may_not_fit && make("p", { class: "notice" },
      "By the estimate it needs more memory than there is: it may not fit."),
    row.days_low > 365 && make("p", { class: "notice" },
      "Too long to wait for? Fewer tokens or other machines take less: see “Rent or buy” below."),
    row.network && make("p", { class: "hint" }, `${row.nodes} nodes, joined by ${row.network_cards} × ${row.network}` +
      (row.network_assumed ? ": assumed" : "")),
    make("details", { class: "trust" },
      make("summary", {}, "How far to trust it", row.validated ? "" : ": predicted, not measured"),
      make("p", {}, row.trust), row.basis !== row.trust && make("p", {}, row.basis)),
  ];
}

function misfitParts(question, row, gpu, remedies, apply) {
  return [
    make("p", { class: "asked" }, `${row.model} on ${placeOf(question, gpu)}`),
    make("h2", { class: "headline bad" }, "Does not fit"),
    make("p", { class: "range" }, row.reason.replace(/ \([a-z]+ [^()]*\)/, "")), // the bar says that
    !remedies && make("p", { class: "hint" }, "Looking for what would fit…"),
    remedies && remedies.length === 0 && make("p", { class: "hint" }, "Nothing was found that fits: neither other methods, nor more or larger GPUs, nor shorter sequences."),
    remedies && remedies.length > 0 && make("div", { class: "part" },
      make("h3", {}, "What would fit"),
      make("ul", { class: "remedies" }, remedies.map((remedy) => make("li", {},
        make("button", { type: "button", onclick: () => apply(remedy) }, remedy.change),
        make("span", {}, `${remedy.days ? `${daysWords(remedy.days)}, ` : ""}by ${remedy.method}`))))),
    memoryPart(row, gpu),
  ];
}

const errorParts = (text) => [make("h2", { class: "headline small" }, "No answer yet"),
  make("p", { class: "notice" }, text.trim().replace(/^gpudays: /, ""))];

// --- all methods -------------------------------------------------------------------------------

const SHOWN_METHODS = 6;

// "free-lunch+ckpt+zero3", which may break before each +.
const breakable = (method) => method.split("+").flatMap((part, i) => (i ? [make("wbr"), `+${part}`] : [part]));

// "compiled and fused kernels" is said of all: what is left says more.
function wordsBut(common, words) {
  return words && words.startsWith(common + ", ") ? words.slice(common.length + 2) : words;
}

function methodRow(row, longest, common) {
  const size = row.feasible ? `${grouped(row.micro_batch)} × ${grouped(row.accumulation)}` : "";
  return make("tr", { class: row.answer ? "chosen" : row.feasible ? null : "misfit" },
    make("th", { scope: "row" }, breakable(row.method), row.answer && make("span", { class: "tag" }, "answer"),
      row.method_words && make("span", { class: "hint" }, wordsBut(common, row.method_words))),
    make("td", { class: "time" }, row.feasible ? daysWords(row.days, row.days_high) : "does not fit",
      row.feasible && setWidth(make("span", { class: "bar", "aria-hidden": "true" }), { width: percent(row.days / longest) }),
      !row.feasible && row.reason && make("span", { class: "hint" }, row.reason.split(": ").pop()),
      row.feasible && make("span", { class: "hint narrow" }, `${rangeWords(row.days_low, row.days_high)}; ${bytesWords(row.peak_bytes)}` +
        `${row.host_bytes > 2 ** 20 ? ` and ${bytesWords(row.host_bytes)} of the host` : ""}; ${size}`)),
    make("td", {}, row.feasible ? rangeWords(row.days_low, row.days_high) : "",
      row.feasible && DEADLINES[row.deadline] && row.deadline !== "likely" &&
        make("span", { class: "hint" }, row.deadline === "no" ? "past the deadline" : "deadline at risk")),
    make("td", {}, bytesWords(row.peak_bytes)),
    make("td", {}, row.host_bytes > 2 ** 20 ? bytesWords(row.host_bytes) : ""),
    make("td", {}, size));
}

function methodParts(rows, all, showAll) {
  const longest = Math.max(...rows.filter((row) => row.feasible).map((row) => row.days));
  const fitting = rows.filter((row) => row.feasible).length;
  const words = rows.map((row) => row.method_words || "");
  const first = words[0].split(", ")[0];
  const common = words.every((text) => text.startsWith(first)) ? first : "";
  const shown = all ? rows : rows.filter((row, i) => i < SHOWN_METHODS || row.answer);
  return [
    make("h2", {}, "Methods, ranked"),
    make("p", { class: "hint" }, `${fitting || "None"} of ${rows.length} fit.` +
      (fitting > 1 && !rows[0].answer ? " The answer is simpler than the first and nearly as fast." : "")),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Methods, ranked" },
      make("table", {},
        make("thead", {}, make("tr", {}, ["Method", "Time", "Range", "GPU memory", "Host memory", "Micro-batch × accum."]
          .map((title) => make("th", { scope: "col" }, title)))),
        make("tbody", {}, shown.map((row) => methodRow(row, longest, common))))),
    shown.length < rows.length || all ? make("button", { type: "button", onclick: showAll, "aria-expanded": String(all) },
      all ? "Show fewer" : `Show all ${rows.length}`) : null,
  ];
}

// --- answers side by side ----------------------------------------------------------------------

const COMPARED = [
  ["Time", (row) => row.feasible ? daysWords(row.days, row.days_high) : "does not fit", (row) => row.days],
  ["Range", (row) => row.feasible ? rangeWords(row.days_low, row.days_high) : ""],
  ["Deadline", (row) => row.deadline || ""],
  ["Done by", (row) => dateWords(row.done)],
  ["Rent", (row) => (row.rent_usd ? dollars(row.rent_usd) : "not listed"), (row) => row.rent_usd],
  ["To buy", (row) => (row.hardware_usd ? dollars(row.hardware_usd) : "not listed"), (row) => row.hardware_usd],
  ["Energy", (row) => (row.wall_energy_kwh ? `${rounded(row.wall_energy_kwh)} kWh` : ""), (row) => row.wall_energy_kwh],
  ["Speed", (row) => (rateOf(row) ? `${grouped(rateOf(row))} ${rateUnit(row)}` : "")],
  ["MFU", (row) => (row.mfu ? `${(100 * row.mfu).toFixed(0)} %` : "")],
  ["Memory", (row) => bytesWords(row.peak_bytes)],
  ["Method", (row) => breakable(row.method)],
];
// A phone shows the table as a grid, which must stay a table for those who hear it.
const cell = (name, role, attributes, ...parts) => make(name, { role, ...attributes }, ...parts);

// columns: { question, row or null, error, gpu, edit, remove }; the least of a line is marked.
function compareParts(columns) {
  const leastOf = (value) => {
    const values = columns.map(({ row }) => row && row.feasible && value(row)).filter((x) => x > 0);
    return values.length > 1 ? Math.min(...values) : undefined;
  };
  const head = columns.map((column) => cell("th", "columnheader", { scope: "col" },
    make("span", { class: "block" }, column.question.config ? CONFIG : column.question.model),
    make("span", { class: "block" }, placeOf(column.question, column.gpu)),
    column.question.stack && make("span", { class: "hint" }, column.question.stack),
    column.question.tokens && make("span", { class: "hint" }, `${column.question.tokens} tokens`),
    column.remove ? make("span", { class: "column-buttons" },
      make("button", { type: "button", onclick: column.edit, "aria-label": `Edit ${columnName(column)}` }, "Edit"),
      make("button", { type: "button", onclick: column.remove, "aria-label": `Remove ${columnName(column)}` }, "Remove"))
      : make("span", { class: "tag" }, "shown above")));
  const shown = COMPARED.filter(([, text]) => columns.some(({ row }) => row && String(text(row))));
  const table = cell("table", "table", { class: "columns" },
    cell("thead", "rowgroup", {}, cell("tr", "row", {}, cell("td", "cell", {}), head)),
    cell("tbody", "rowgroup", {}, shown.map(([title, text, value]) => {
      const least = value && leastOf(value);
      return cell("tr", "row", {}, cell("th", "rowheader", { scope: "row" }, title), columns.map(({ row, error }) =>
        cell("td", "cell", { class: least !== undefined && row && row.feasible && value(row) === least ? "least" : null },
          row ? text(row) : title === "Time" ? error || "…" : "")));
    })));
  table.style.setProperty("--columns", columns.length);
  return [make("h2", { tabindex: "-1" }, "Side by side"),
    make("p", { class: "hint" }, columns.length < MOST_ANSWERS
      ? "Change the question above, and its column changes. Bold green: the least of a line." : "Bold green: the least of a line."),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Side by side" }, table)];
}

const columnName = ({ question, gpu }) => `${question.config ? CONFIG : question.model} on ${placeOf(question, gpu)}`;
