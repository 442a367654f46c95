#!/usr/bin/env bash
# The page in a browser: no errors, nothing asked of a network, ids and anchors in order, tables that
# sort by their buttons, a theme that changes, an appendix that opens for links and print; and at the
# widths of a desktop and of a phone no text of a figure below 12 pixels, none upon another, nothing
# wider than the page, and a hint at every box that scrolls.
# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/cli/common.sh"

browser=
for name in chromium chromium-browser google-chrome; do
  [[ -z $browser ]] && browser=$(command -v "$name" || true)
done
if [[ -z $browser ]]; then
  echo "skipped: no Chromium here; apt-get install chromium"
  exit 77
fi

expect 0 results load "$GD_SOURCE_DIR/results/h200.csv"
expect 0 results load "$GD_SOURCE_DIR/results/epyc.csv"
try report -o "$WORK/report" --no-predictions
[[ $RC == 0 ]] || fail "$LAST: exit $RC"

# The page with a watcher before its own script, and questions behind it.
watcher='<script>window.wrong = []; addEventListener("error", function (e) { wrong.push(e.message); });</script>'
{
  sed "s|<title>|$watcher<title>|; /<\/body>/,\$d" "$WORK/report/index.html"
  cat <<'END'
<script>
(function () {
  var say = [];
  function check(name, fine) { say.push((fine ? "ok " : "NOT ") + name); }
  function all(what) { return Array.prototype.slice.call(document.querySelectorAll(what)); }
  check("no errors " + window.wrong.join("; "), window.wrong.length === 0);
  check("script ran", document.documentElement.classList.contains("ready"));
  var ids = all("[id]").map(function (e) { return e.id; });
  check("ids are unique", new Set(ids).size === ids.length);
  check("anchors lead somewhere", all('a[href^="#"]').every(function (a) {
    return document.getElementById(a.getAttribute("href").slice(1)); }));
  check("nothing was loaded", performance.getEntriesByType("resource").length === 0);
  check("drawings have names", all("svg").every(function (s) { return s.getAttribute("aria-label"); }));
  check("one h1", all("h1").length === 1);
  /* The appendix is folded until it is linked to, or printed. */
  var appendix = document.querySelector("details.appendix");
  check("appendix is folded", !appendix.open && appendix.querySelector("#table-1"));
  dispatchEvent(new Event("beforeprint"));
  check("print opens it and what is folded in it", appendix.open && all("details.more").length > 0 &&
    all("details.more").every(function (fold) { return fold.open; }));
  dispatchEvent(new Event("afterprint"));
  check("and folds it again", !appendix.open && all("details.more").every(function (fold) { return !fold.open; }));
  location.hash = "#figure-7";
  dispatchEvent(new Event("hashchange"));
  check("a link opens it", appendix.open);
  all("details").forEach(function (d) { d.open = true; });
  check("figures have titles", all("figure").every(function (f) {
    return !f.querySelector("svg") || f.querySelector("figcaption b").textContent.length > 8; }));
  var small = [], upon = [];
  all("svg").forEach(function (svg) {
    var name = svg.closest("figure").id, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    var boxes = Array.prototype.map.call(svg.querySelectorAll("text"), function (text) {
      if (parseFloat(getComputedStyle(text).fontSize) * scale < 11.99) small.push(name);
      var box = text.getBoundingClientRect(); /* of letters alone, not of the line's height */
      return { text: text.textContent.trim(), x0: box.left + 1, x1: box.right - 1, y0: box.top + 3, y1: box.bottom - 3,
        rotated: text.closest("[transform*=rotate]") };
    }).filter(function (box) { return box.text && !box.rotated; });
    boxes.forEach(function (a, i) {
      boxes.slice(i + 1).forEach(function (b) {
        if (a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1) upon.push(name + ": " + a.text + " / " + b.text);
      });
    });
  });
  check("texts of figures have 12 pixels " + small.join(" "), small.length === 0);
  check("no text of a figure lies upon another " + upon.slice(0, 9).join("; "), upon.length === 0);
  check("columns have headers", all("table").every(function (t) {
    return t.querySelectorAll("thead th[scope=col]").length > 0; }));
  /* Table 1 by its second column: days on one RTX 3090, which Pythia 6.9B has none of. */
  var table = document.querySelector("#table-1-paper table");
  var head = table.tHead.rows[1].cells[1], press = head.querySelector("button");
  function column() {
    return Array.prototype.map.call(table.tBodies[0].rows, function (r) {
      return parseFloat(r.cells[1].getAttribute("data-v")); });
  }
  function sorted(list, sign) {
    return list.every(function (v, i) {
      return i === 0 || isNaN(v) || sign * (v - list[i - 1]) >= 0; });
  }
  check("unsorted at first", !sorted(column(), 1) && !head.hasAttribute("aria-sort"));
  press.click();
  var up = column();
  check("sorts upwards", sorted(up, 1) && head.getAttribute("aria-sort") === "ascending" && isNaN(up[8]));
  press.click();
  var down = column();
  check("sorts downwards", sorted(down, -1) && head.getAttribute("aria-sort") === "descending" && isNaN(down[8]));
  table.tHead.rows[1].cells[0].querySelector("button").click();
  check("sorts by name", table.tBodies[0].rows[0].cells[0].textContent === "ConvNeXt 390M" &&
    table.querySelectorAll("[aria-sort]").length === 1);
  check("buttons can be reached", press.tabIndex === 0 && all(".scroll").every(function (s) { return s.tabIndex === 0; }));
  var theme = document.getElementById("theme"), light = getComputedStyle(document.body).backgroundColor;
  function press_until(word) {
    for (var i = 0; i < 3 && theme.textContent.indexOf(word) < 0; i++) theme.click();
    return getComputedStyle(document.body).backgroundColor;
  }
  check("themes differ", !theme.hidden && press_until("dark") !== press_until("light") && light);
  /* On a phone wide things scroll by themselves, the page does not. */
  check("page is as wide as the window", document.documentElement.scrollWidth <= innerWidth);
  var wider = all("body *").filter(function (e) {
    return e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll") && !e.classList.contains("skip"); });
  check("nothing is wider than the window " + wider.map(function (e) { return e.tagName + e.id; }), wider.length === 0);
  /* Observers of sizes run after this script: what they would do is asked for. */
  all(".scroll").forEach(function (s) { s.dispatchEvent(new Event("scroll")); });
  check("tables and figures are in boxes", all("table, svg").every(function (e) { return e.closest(".box > .scroll"); }));
  check("boxes that scroll say so", all(".scroll").every(function (s) {
    var hint = s.parentNode.querySelector(".hint"), over = s.scrollWidth > s.clientWidth + 1;
    return over === (getComputedStyle(hint).display !== "none") && (!over || getComputedStyle(s).overflowX === "auto"); }));
  check("some scroll on a phone", innerWidth > 600 || all(".box.over").length > 10);
  var pre = document.createElement("pre");
  pre.id = "answers";
  pre.textContent = say.join("\n") + "\nend";
  document.body.appendChild(pre);
})();
</script>
</body>
</html>
END
} >"$WORK/report/asked.html"

# Without its script, on paper: what is folded is open, and no box cuts a table off.
{
  sed '/^<script>/,$d' "$WORK/report/index.html"
  cat <<'END'
<pre id="answers"></pre>
<script>
addEventListener("load", function () {
  var say = [], folds = document.querySelectorAll("details.appendix, details.more");
  folds.forEach(function (fold) {
    if (CSS.supports("selector(details::details-content)") && getComputedStyle(fold, "::details-content").contentVisibility !== "visible")
      say.push("NOT open: " + fold.querySelector("summary").textContent);
  });
  document.querySelectorAll("details.appendix .scroll").forEach(function (box) {
    var style = getComputedStyle(box);
    if (style.maxHeight !== "none" || style.overflowY !== "visible") say.push("NOT whole: a table of " + box.closest("[id]").id);
  });
  document.getElementById("answers").textContent = (folds.length > 2 ? "" : "NOT folded") + say.join("\n") + "\nend";
});
</script>
</body></html>
END
} | sed 's/@media print/@media screen/' >"$WORK/report/plain.html"
HOME=$WORK timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
  --user-data-dir="$WORK/browser" --window-size=800,1100 --virtual-time-budget=5000 \
  --dump-dom "file://$WORK/report/plain.html" >"$OUT" 2>"$ERR" || fail "the browser ended with $?"
answers=$(sed -n '/<pre id="answers">/,/end/p' "$OUT" | sed 's/<[^>]*>//g')
[[ $answers == *end* && $answers != *NOT* ]] || fail "print without a script: $answers"

for size in 390,844 1280,900; do
  HOME=$WORK timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$WORK/browser" --window-size=$size --virtual-time-budget=5000 \
    --enable-logging=stderr --dump-dom "file://$WORK/report/asked.html" >"$OUT" 2>"$ERR" ||
    fail "the browser ended with $?"
  LAST="$browser at $size"
  answers=$(sed -n '/<pre id="answers">/,/end/p' "$OUT" | sed 's/<[^>]*>//g')
  [[ $answers == *end* ]] || fail "$LAST: the questions were not answered"
  [[ $answers != *NOT* ]] || fail "$LAST: $answers"
  ! grep -q 'CONSOLE' "$ERR" || fail "$LAST: the console has something to say"
done
