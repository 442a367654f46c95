// Figures as people read them, rounded as the program's own answers are.

// "300B" and "40k", as people type them.
const UNITS = { K: 1e3, M: 1e6, B: 1e9, T: 1e12 };
const numberOf = (text) => Number(String(text || "").replace(/[kmbt]$|^\$|,(?=\d{3})/gi, "") || NaN) *
  (UNITS[String(text).slice(-1).toUpperCase()] || 1);

const grouped = (value, digits = 0) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

// Three digits that matter.
function rounded(value) {
  if (value >= 100) return grouped(value);
  return grouped(value, value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

const unitOf = (days) =>
  (days < 1 / 24 ? [1440, "minutes"] : days < 2 ? [24, "hours"]
    : days < 2000 ? [1, "days"] : [1 / 365.25, "years"]);

// In the unit of the upper end of a range, where it has one.
function daysWords(days, high = days) {
  const [factor, unit] = unitOf(high);
  return `${rounded(days * factor)} ${unit}`;
}

// "32.2 to 55.5 days".
function rangeWords(low, high) {
  const [factor, unit] = unitOf(high);
  return `${rounded(low * factor)} to ${rounded(high * factor)} ${unit}`;
}

function dateWords(text) {
  if (!text) return "";
  const [year, month, day] = text.split("-").map(Number);
  return new Date(year, month - 1, day).toLocaleDateString("en-GB",
    { day: "numeric", month: "short", year: "numeric" });
}

const dollars = (usd) => (usd < 10 ? `$${grouped(usd, 2)}` : `$${grouped(usd)}`);

function bytesWords(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1000 && unit < units.length - 1; unit++) bytes /= 1024;
  return `${unit ? rounded(bytes) : bytes} ${units[unit]}`;
}

// 405334016 is "405 M", 3e11 "300 B".
function countWords(count) {
  const units = ["", "K", "M", "B", "T"];
  let unit = 0;
  for (; count >= 999.5 && unit < units.length - 1; unit++) count /= 1000;
  return `${Number(count.toPrecision(3))}${unit ? " " + units[unit] : ""}`;
}

const shortTitle = (title) => title.replace(/^NVIDIA (GeForce )?/, "");
