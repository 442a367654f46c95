"use strict";
(function () {
  var root = document.documentElement, button = document.getElementById("theme");
  var themes = ["system", "light", "dark"];
  function saved() {
    try { return localStorage.getItem("gpudays-theme") || "system"; } catch (e) { return "system"; }
  }
  function show(theme) {
    if (theme === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
    button.textContent = "Theme: " + theme;
  }
  var theme = themes.indexOf(saved()) < 0 ? "system" : saved();
  show(theme);
  button.hidden = false;
  button.addEventListener("click", function () {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("gpudays-theme", theme); } catch (e) { /* not kept, then */ }
    show(theme);
  });

  function value(row, column) {
    var cell = row.cells[column];
    return cell.hasAttribute("data-v") ? parseFloat(cell.getAttribute("data-v")) : cell.textContent.trim();
  }
  /* Numbers before texts, what is empty or infeasible last in either direction. */
  function compare(a, b, sign) {
    var x = typeof a === "number", y = typeof b === "number";
    if (x && y) return sign * (a - b);
    if (x !== y) return x ? -1 : 1;
    if (!a || !b) return a ? -1 : b ? 1 : 0;
    return sign * a.localeCompare(b, "en", { numeric: true });
  }
  function sortBy(table, head, column) {
    var up = head.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    table.querySelectorAll("th[aria-sort]").forEach(function (th) { th.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    rows.map(function (row, i) { return { row: row, key: value(row, column), at: i }; })
      .sort(function (a, b) { return compare(a.key, b.key, up ? 1 : -1) || a.at - b.at; })
      .forEach(function (item) { body.appendChild(item.row); });
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var line = table.tHead.rows[table.tHead.rows.length - 1];
    if (table.tBodies[0].rows.length < 2) return;
    Array.prototype.forEach.call(line.cells, function (head, column) {
      var press = document.createElement("button");
      press.type = "button";
      press.textContent = head.textContent;
      press.title = "Sort by this column";
      head.textContent = "";
      head.appendChild(press);
      press.addEventListener("click", function () { sortBy(table, head, column); });
    });
  });

  var wide = window.matchMedia("(min-width: 70rem)"), contents = document.querySelector("nav details");
  function fold() { contents.open = wide.matches; }
  fold();
  if (wide.addEventListener) wide.addEventListener("change", fold);
  root.classList.add("ready");
})();
