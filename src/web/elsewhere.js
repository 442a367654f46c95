// Answers of `gpudays cost`: other machines for the model of the question, and what else its budget
// could train. Nothing is computed here but which of them lie within the limits.

const SHOWN_MACHINES = 8;

const wayWords = ({ way, gpu, count, machine }, gpus) =>
  `${way === "buy" ? "Buy" : "Rent"} ${placeOf({ gpu, count }, gpus.get(gpu))}` + (way === "buy" ? ` (${machine})` : "");
const usdOf = (option) => (option.way === "buy" ? option.hardware_usd : option.rent_usd);

// What it asks, as a button that asks it.
const take = (text, changes, apply) => make("button", { type: "button", onclick: () => apply(changes) }, text);
const placeAsked = ({ gpu, count }) => ({ gpu, count: String(count) });

// The advice, and what else money and days could be traded for.
function adviceList({ advice, options }, gpus, apply) {
  const found = [["Advised", advice]];
  for (const [title, prefix] of [["Cheapest", "cheapest"], ["Fastest", "fastest"]]) {
    const machine = advice[`${prefix}_machine`], way = advice[`${prefix}_way`];
    const option = options.find((each) => each.machine === machine);
    if (option && !found.some(([, each]) => each.machine === machine && each.way === way))
      found.push([title, { ...option, way, usd: advice[`${prefix}_usd`], days: advice[`${prefix}_days`] }]);
  }
  return make("ul", { class: "remedies" }, found.map(([title, each]) => make("li", {},
    take(wayWords(each, gpus), placeAsked(each), apply),
    make("span", {}, `${title}: ${dollars(each.usd)}, ${daysWords(each.days)}`))));
}

const isWithin = (option, budget) => option.deadline !== "no" &&
  (!(budget > 0) || [option.hardware_usd, option.rent_usd].some((usd) => isSaid(usd) && usd <= budget));

const money = (usd, budget) => make("td", { class: budget > 0 && isSaid(usd) && usd <= budget ? "within" : null },
  isSaid(usd) ? dollars(usd) : "");

function machineRow(option, gpus, budget, apply) {
  const name = placeOf(option, gpus.get(option.gpu));
  const times = rangeWords(option.days_low, option.days_high);
  const late = { no: "past the deadline", "at risk": "deadline at risk" }[option.deadline];
  return make("tr", { class: isWithin(option, budget) ? null : "misfit" },
    make("th", { scope: "row" }, make("button", { type: "button", class: "plainly", onclick: () => apply(placeAsked(option)) }, name),
      make("span", { class: "hint" }, option.machine)),
    make("td", { class: "time" }, daysWords(option.days, option.days_high), make("span", { class: "hint" }, times),
      option.jobs > 0 && make("span", { class: "hint" }, `${daysWords(option.calendar_days)} with the queue`),
      late && make("span", { class: "hint" }, late)),
    money(option.rent_usd, budget), money(option.hardware_usd, budget));
}

const titled = (titles) => make("thead", {}, make("tr", {}, titles.map((title) => make("th", { scope: "col" }, title))));
const scrolled = (name, ...parts) =>
  make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, make("table", {}, parts));
const refusal = (err) => make("p", { class: "notice" }, err.trim().replace(/^gpudays: /, ""));

// Machines within the limits before others, and of both the fastest first.
function machineParts({ found, err }, question, gpus, all, showAll, apply) {
  if (!found) return [refusal(err)];
  const budget = numberOf(question.budget), known = found.options.filter((option) => option.days);
  const rank = (option) => (isWithin(option, budget) ? 0 : 1);
  known.sort((a, b) => rank(a) - rank(b) || a.days - b.days);
  const limited = budget > 0 || Number(question.days) > 0;
  const within = known.filter((option) => isWithin(option, budget)).length;
  return [
    found.advice ? adviceList(found, gpus, apply) : refusal(err),
    make("p", { class: "hint" }, limited ? `${within || "None"} of ${known.length} machines within the limits.` : `${known.length} machines, the fastest first. A budget or a deadline leaves those within it.`),
    scrolled("Machines", titled(["Machine", "Time", "Rent", "To buy"]), make("tbody", {},
      (all ? known : known.slice(0, SHOWN_MACHINES)).map((option) => machineRow(option, gpus, budget, apply)))),
    known.length > SHOWN_MACHINES && make("button", { type: "button", onclick: showAll, "aria-expanded": String(all) },
      all ? "Show fewer" : `Show all ${known.length}`),
  ];
}

function presetParts({ found, err }, gpus, apply) {
  if (!found) return [refusal(err)];
  const largest = [...found.options].reverse();
  const smaller = largest.slice(SHOWN_MACHINES).map(({ model }) => model);
  return [
    make("p", { class: "hint" }, largest.length === 0 ? "No preset is likely to be trained for that."
      : "By the FLOPs of its run, the largest first; each as fast as it can be had for that."),
    largest.length > 0 && scrolled("Presets within the budget", titled(["Model", "How", "For", "Time"]),
      make("tbody", {}, largest.slice(0, SHOWN_MACHINES).map((option) => make("tr", {},
        make("th", { scope: "row" }, make("button", { type: "button", class: "plainly",
          onclick: () => apply({ model: option.model, ...placeAsked(option) }) }, option.model)),
        make("td", {}, wayWords(option, gpus)), make("td", {}, dollars(usdOf(option))),
        make("td", {}, daysWords(option.days, option.days_high),
          make("span", { class: "hint" }, rangeWords(option.days_low, option.days_high))))))),
    smaller.length > 0 && make("p", { class: "hint" }, `And, of fewer FLOPs: ${[...new Set(smaller)].join(", ")}.`),
  ];
}
