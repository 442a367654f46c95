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

  /* Boxes whose content is wider than they are say so, as long as more follows. */
  document.querySelectorAll(".scroll").forEach(function (scroll) {
    var box = scroll.parentNode, hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = scroll.classList.contains("drawing") ? "scroll sideways for all of it \u2192"
      : "scroll sideways for more columns \u2192";
    box.insertBefore(hint, scroll);
    box.classList.add("hinted");
    function look() {
      box.classList.toggle("over", scroll.scrollWidth > scroll.clientWidth + 1);
      box.classList.toggle("end", scroll.scrollLeft + scroll.clientWidth >= scroll.scrollWidth - 2);
    }
    scroll.addEventListener("scroll", look, { passive: true });
    if (window.ResizeObserver) new ResizeObserver(look).observe(scroll);
    look();
  });

  /* What a link leads to is opened, and so are folds for print: not the numbers of figures, which are drawn. */
  function reveal() {
    var target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch (e) { /* no such id */ }
    if (!target) return;
    var closed = false;
    for (var at = target; at; at = at.parentElement)
      if (at.tagName === "DETAILS" && !at.open) { at.open = true; closed = true; }
    if (closed) target.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) reveal();
  });
  reveal();
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.prototype.slice.call(document.querySelectorAll("details.appendix:not([open]), details.more:not([open])"));
    opened.forEach(function (fold) { fold.open = true; });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (fold) { fold.open = false; });
    opened = [];
  });

  var wide = window.matchMedia("(min-width: 70rem)"), contents = document.querySelector("nav details");
  function fold() { contents.open = wide.matches; }
  fold();
  if (wide.addEventListener) wide.addEventListener("change", fold);
  root.classList.add("ready");
})();
