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

const rateOf = (row) => row.tokens_per_s || row.images_per_s;
const rateUnit = (row) => (row.images_per_s ? "images/s" : "tokens/s");

// --- deadline and budget -----------------------------------------------------------------------

function verdicts(question, row) {
  const found = [], deadline = Number(question.deadline), budget = Number(question.budget);
  if (deadline > 0 && row.days)
    found.push(row.days_high <= deadline ? ["good", `Within ${grouped(deadline)} days, also at its longest`]
      : row.days <= deadline ? ["doubtful", `Within ${grouped(deadline)} days if it takes no longer than predicted`]
        : ["bad", `${daysWords(row.days - deadline)} past the deadline`]);
  if (budget > 0 && row.rent_usd !== null && row.rent_usd !== undefined)
    found.push(row.rent_usd <= budget ? ["good", `Rent is within ${dollars(budget)}`]
      : ["bad", `Rent is ${dollars(row.rent_usd - budget)} above the budget`]);
  if (budget > 0 && row.hardware_usd)
    found.push(row.hardware_usd <= budget ? ["good", `Buying it (${dollars(row.hardware_usd)}) is within the budget`]
      : ["bad", `Buying it costs ${dollars(row.hardware_usd)}`]);
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
  const most = Math.max(row.days_high, deadline || 0) * 1.04;
  const bar = make("div", { class: "days-bar", role: "img",
    "aria-label": `between ${rangeWords(row.days_low, row.days_high)}, most likely ${daysWords(row.days, row.days_high)}` +
      (deadline ? `; the deadline is in ${grouped(deadline)} days` : "") },
  setWidth(make("span", { class: "likely" }), { left: percent(row.days_low / most),
    width: percent((row.days_high - row.days_low) / most) }),
  setWidth(make("span", { class: "point" }), { left: percent(row.days / most) }));
  if (deadline) bar.append(setWidth(make("span", { class: "deadline" }), { left: percent(deadline / most) }));
  return bar;
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
  const allowed = row.device_limit_bytes ? `, of which a plan may take ${bytesWords(row.device_limit_bytes)}` : "";
  return make("div", { class: "part" },
    make("h3", {}, "Memory of each GPU"),
    make("p", {}, make("strong", {}, bytesWords(row.peak_bytes)), ` of ${bytesWords(card)}${allowed}`),
    bar,
    make("ul", { class: "legend" }, shown.map(([key, name]) => make("li", {},
      make("span", { class: `swatch ${key}`, "aria-hidden": "true" }), `${name} `,
      make("span", { class: "figure" }, bytesWords(categories[key]))))),
    row.host_bytes > 2 ** 20 && make("p", { class: "hint" }, `${bytesWords(row.host_bytes)} of host memory each`));
}

// --- the answer --------------------------------------------------------------------------------

const figure = (name, value, hint) => make("div", { class: "tile" },
  make("dt", {}, name), make("dd", {}, make("strong", {}, value), hint && make("span", { class: "hint" }, hint)));

function figures(row) {
  const list = [];
  if (row.rent_usd !== null && row.rent_usd !== undefined)
    list.push(figure("Rent", dollars(row.rent_usd), `$${grouped(row.rent_usd_per_gpu_hour, 2)} a GPU-hour, ${row.rent_provider}`));
  if (row.hardware_usd)
    list.push(figure("Own machine", dollars(row.experiment_usd), `its share of 5 years; ${row.bought} costs ${dollars(row.hardware_usd)}`));
  if (row.wall_energy_kwh)
    list.push(figure("Energy", `${rounded(row.wall_energy_kwh)} kWh`,
      [row.energy_usd && dollars(row.energy_usd), row.co2_kg && `${rounded(row.co2_kg)} kg of CO₂`].filter(Boolean).join(", ")));
  if (rateOf(row))
    list.push(figure("Speed", grouped(rateOf(row)),
      `${rateUnit(row)}, ${grouped(rateOf(row) / row.count)} a GPU`));
  if (row.mfu) list.push(figure("MFU", `${(100 * row.mfu).toFixed(0)} %`, "of the GPU's peak"));
  return make("dl", { class: "tiles" }, list);
}

function answerParts(question, row, gpu) {
  const deadline = Number(question.deadline) || 0;
  return [
    make("p", { class: "asked" }, `${row.model} on ${placeOf(question, gpu)}`),
    make("h2", { class: "headline" }, daysWords(row.days, row.days_high)),
    make("p", { class: "range" }, rangeWords(row.days_low, row.days_high),
      row.done && make("span", {}, ", done by ", make("strong", {}, dateWords(row.done)),
        row.done_low !== row.done_high && ` (${dateWords(row.done_low)} to ${dateWords(row.done_high)})`)),
    daysBar(row, deadline),
    verdictList(question, row),
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
    make("p", { class: "range" }, row.reason),
    !remedies && make("p", { class: "hint" }, "Looking for what would fit…"),
    remedies && remedies.length > 0 && make("div", { class: "part" },
      make("h3", {}, "What would"),
      make("ul", { class: "remedies" }, remedies.map((remedy) => make("li", {},
        make("button", { type: "button", onclick: () => apply(remedy) }, remedy.change),
        ` ${remedy.days ? daysWords(remedy.days) : ""}, ${remedy.method}`)))),
    memoryPart(row, gpu),
  ];
}

const errorParts = (text) => [make("h2", { class: "headline small" }, "No answer"),
  make("p", { class: "notice" }, text.trim().replace(/^gpudays: /, ""))];

// --- all methods -------------------------------------------------------------------------------

const SHOWN_METHODS = 6;

// "compiled and fused kernels" is said of all: what is left says more.
function wordsBut(common, words) {
  return words && words.startsWith(common + ", ") ? words.slice(common.length + 2) : words;
}

function methodRow(row, longest, common) {
  const size = row.feasible ? `${grouped(row.micro_batch)} × ${grouped(row.accumulation)}` : "";
  return make("tr", { class: row.answer ? "chosen" : row.feasible ? null : "misfit" },
    make("th", { scope: "row" }, row.method, row.answer && make("span", { class: "tag" }, "answer"),
      row.method_words && make("span", { class: "hint" }, wordsBut(common, row.method_words))),
    make("td", { class: "time" }, row.feasible ? daysWords(row.days, row.days_high).replace(/ \(.*/, "") : "does not fit",
      row.feasible && setWidth(make("span", { class: "bar", "aria-hidden": "true" }), { width: percent(row.days / longest) }),
      !row.feasible && row.reason && make("span", { class: "hint" }, row.reason.split(": ").pop())),
    make("td", {}, row.feasible ? rangeWords(row.days_low, row.days_high) : ""),
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
        make("thead", {}, make("tr", {}, ["Method", "Time", "Range", "GPU memory", "Host memory", "Micro-batch × accumulation"]
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
  ["Done by", (row) => dateWords(row.done)],
  ["Rent", (row) => (row.rent_usd ? dollars(row.rent_usd) : "not listed"), (row) => row.rent_usd],
  ["To buy", (row) => (row.hardware_usd ? dollars(row.hardware_usd) : "not listed"), (row) => row.hardware_usd],
  ["Energy", (row) => (row.wall_energy_kwh ? `${rounded(row.wall_energy_kwh)} kWh` : ""), (row) => row.wall_energy_kwh],
  ["Speed", (row) => (rateOf(row) ? `${grouped(rateOf(row))} ${rateUnit(row)}` : "")],
  ["MFU", (row) => (row.mfu ? `${(100 * row.mfu).toFixed(0)} %` : "")],
  ["Memory", (row) => bytesWords(row.peak_bytes)],
  ["Method", (row) => row.method],
];

// columns: { question, row or null, error, gpu, edit, remove }; the least of a line is marked.
function compareParts(columns) {
  const leastOf = (value) => {
    const values = columns.map(({ row }) => row && row.feasible && value(row)).filter((x) => x > 0);
    return values.length > 1 ? Math.min(...values) : undefined;
  };
  const head = columns.map((column) => make("th", { scope: "col" },
    make("span", { class: "block" }, column.question.config ? CONFIG : column.question.model),
    make("span", { class: "block" }, placeOf(column.question, column.gpu)),
    column.question.stack && make("span", { class: "hint" }, column.question.stack),
    column.question.tokens && make("span", { class: "hint" }, `${column.question.tokens} tokens`),
    column.remove ? make("span", { class: "column-buttons" },
      make("button", { type: "button", onclick: column.edit }, "Edit"),
      make("button", { type: "button", onclick: column.remove, "aria-label": `Remove ${column.question.model} on ${placeOf(column.question, column.gpu)}` }, "Remove"))
      : make("span", { class: "tag" }, "shown above")));
  return [
    make("h2", {}, "Side by side"),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Side by side" },
      make("table", { class: "columns" },
        make("thead", {}, make("tr", {}, make("td", {}), head)),
        make("tbody", {}, COMPARED.map(([title, text, value]) => {
          const least = value && leastOf(value);
          return make("tr", {}, make("th", { scope: "row" }, title), columns.map(({ row, error }) =>
            make("td", { class: least !== undefined && row && value(row) === least ? "least" : null },
              row ? text(row) : title === "Time" ? error || "…" : "")));
        })))),
  ];
}
