"use strict";
// Search, filters and sorting. Without it everything is there, unsorted, as tables.

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

// -- search, filters and addresses -----------------------------------------------------------------
(() => {
  const controls = document.getElementById("controls");
  const search = document.getElementById("search");
  const selects = all("#controls select");
  const entries = all("[data-verdict]");
  const rows = entries.filter((entry) => entry.matches("tr"));
  const details = () => all("main details:not(.values)").filter((element) => !element.closest("[hidden]"));

  const matches = (entry) =>
    entry.dataset.text.toLowerCase().includes(search.value.trim().toLowerCase()) &&
    selects.every((select) => !select.value || entry.dataset[select.name] === select.value);

  const apply = () => {
    for (const entry of entries) entry.hidden = !matches(entry);
    for (const group of all("[data-group]")) {
      group.hidden = !all("[data-verdict]", group).some((entry) => !entry.hidden);
    }
    const shown = rows.filter((row) => !row.hidden).length;
    document.getElementById("count").textContent = `${shown} of ${rows.length} cases shown`;
  };

  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (controls && target.closest("[hidden]")) {
      search.value = "";
      for (const select of selects) select.value = "";
      apply();
    }
    for (let node = target; node; node = node.parentElement) {
      if (node.matches("details")) node.open = true;
    }
    target.scrollIntoView();
  };

  // A narrow screen has room for few rows before the samples.
  if (matchMedia("(max-width: 640px)").matches) {
    for (const element of all("details.fold")) element.open = false;
  }
  window.addEventListener("hashchange", reveal);
  window.addEventListener("beforeprint", () => {
    for (const element of details()) element.open = true;
  });
  if (controls) {
    const toggle = document.getElementById("toggle");
    toggle.addEventListener("click", () => {
      const open = toggle.getAttribute("aria-pressed") !== "true";
      toggle.setAttribute("aria-pressed", String(open));
      for (const element of details()) element.open = open;
    });
    search.addEventListener("input", apply);
    for (const select of selects) select.addEventListener("change", apply);
    controls.hidden = false;
    apply();
  }
  reveal();
})();

// -- tables are sorted by a column -----------------------------------------------------------------
(() => {
  const numeric = new Intl.Collator(undefined, { numeric: true });
  const compare = (first, second) => {
    const [a, b] = [first, second].map(Number);
    if (first.trim() && second.trim() && !Number.isNaN(a) && !Number.isNaN(b)) return a - b;
    return numeric.compare(first, second);
  };

  const sort = (heading) => {
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of all("th", heading.parentNode)) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = heading.closest("table").tBodies[0];
    const value = (row) => row.cells[heading.cellIndex].textContent;
    const empty = (row) => ["", "-"].includes(value(row).trim());
    const sorted = [...body.rows].sort((a, b) => {
      if (empty(a) || empty(b)) return empty(a) - empty(b);
      return (ascending ? 1 : -1) * compare(value(a), value(b));
    });
    body.append(...sorted);
  };

  for (const heading of all("table.cases th[data-sort]")) {
    const button = make("button", { type: "button" }, ...heading.childNodes);
    button.addEventListener("click", () => sort(heading));
    heading.append(button);
  }
})();
