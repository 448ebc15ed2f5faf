"use strict";
// Search, filters, sorting, keys and pictures beside each other. Without it everything is there,
// unsorted, as tables.

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

// -- search, filters, addresses and keys -----------------------------------------------------------
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
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
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

  // Arrows go from sample to sample, with Shift from case to case: each has its address.
  const go = (selector, forward) => {
    const places = all(selector).filter((element) => !element.closest("[hidden]"));
    const here = places.findIndex((element) => `#${element.id}` === location.hash);
    const above = places.findLastIndex((element) => element.getBoundingClientRect().bottom < 0);
    const back = here < 0 ? above : here - 1;
    const next = places[forward ? (here < 0 ? above : here) + 1 : back];
    if (next) location.hash = next.id;
  };
  document.addEventListener("keydown", (event) => {
    const scrolls = event.target.closest("input, select, textarea, dialog, .scroll, .text");
    if (scrolls || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    event.preventDefault();
    go(event.shiftKey ? "main details[id]" : "main [id^=sample-], main .sample[id]", event.key === "ArrowRight");
  });

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

// -- the pictures of a generation: side by side, under a slider, or one fading into the other -------
(() => {
  const openers = all(".enlarge");
  if (!openers.length) return;
  const MODES = [["side by side", ""], ["swipe", "over"], ["onion skin", "over"]];
  const title = make("b", {});
  const stage = make("div", { className: "stage" });
  const slider = make("input", { type: "range", min: 0, max: 100, value: 50 });
  const buttons = MODES.map(([label], mode) =>
    make("button", { type: "button", textContent: label, onclick: () => show(mode) }));
  const previous = make("button", { type: "button", textContent: "previous", onclick: () => step(-1) });
  const next = make("button", { type: "button", textContent: "next", onclick: () => step(1) });
  const close = make("button", { type: "button", textContent: "close", onclick: () => viewer.close() });
  const viewer = make("dialog", { className: "viewer" },
    make("header", {}, title, ...buttons, previous, next, close), stage, slider);
  let beside = [];
  let place = 0;
  let mode = 0;

  function step(by) {
    place = (place + by + beside.length) % beside.length;
    show(mode);
  }

  function pictures(opener) {
    const column = opener.closest("th").cellIndex;
    return ["before", "now"].map((row) => {
      const tableRow = opener.closest("table").querySelector(`tr.${row}`);
      return [tableRow.cells[0].textContent, tableRow.cells[column].firstElementChild];
    });
  }

  function show(chosen) {
    mode = chosen;
    const opener = beside[place];
    const shown = pictures(opener);
    const [before, now] = shown.map(([label]) => label);
    title.textContent = `${opener.closest("table").dataset.sample}, generation ` +
      opener.closest("th").dataset.generation;
    stage.className = `stage ${MODES[mode][1]}`;
    stage.replaceChildren(...shown.map(([label, picture]) =>
      make("figure", {}, picture.cloneNode(true), make("figcaption", { textContent: mode ? "" : label }))));
    slider.hidden = mode === 0;
    slider.setAttribute("aria-label", mode === 1
      ? `${before} to the left of here, ${now} to the right` : `from ${before} to ${now}`);
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", at === mode));
    previous.disabled = next.disabled = beside.length < 2;
    slide();
  }

  function slide() {
    const upper = stage.lastElementChild;
    upper.style.opacity = mode === 2 ? slider.value / 100 : 1;
    upper.style.clipPath = mode === 1 ? `inset(0 0 0 ${slider.value}%)` : "none";
  }

  function open(opener) {
    beside = all(".enlarge", opener.closest("table"));
    place = beside.indexOf(opener);
    show(mode);
    viewer.showModal();
  }

  slider.oninput = slide;
  viewer.setAttribute("aria-label", "compare pictures");
  viewer.addEventListener("keydown", (event) => {
    if (event.key >= "1" && event.key <= "3") show(Number(event.key) - 1);
    else if (event.target === slider) return;
    else if (event.key === "ArrowRight") step(1);
    else if (event.key === "ArrowLeft") step(-1);
  });
  document.body.append(viewer);
  for (const opener of openers) {
    opener.hidden = false;
    opener.onclick = () => open(opener);
    for (const [, picture] of pictures(opener)) {
      picture.classList.add("enlargeable");
      picture.addEventListener("click", (event) => {
        event.preventDefault(); // a picture beside the page is a link to its original
        open(opener);
      });
    }
  }
})();

// -- every dot of the paired differences can be chosen, by pointer or with a slider ------------------
(() => {
  const command = document.querySelector("main").dataset.command;
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);

  function setUp(figure) {
    const plot = figure.querySelector("svg");
    const rows = figure.querySelector("tbody").rows;
    const path = plot.querySelector(".dots").getAttribute("d");
    const dots = [...path.matchAll(/M(\S+) (\S+?)h0/g)].map(([, x, y]) => [Number(x), Number(y)]);
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    mark.setAttribute("class", "chosen-dot");
    mark.setAttribute("r", 5.5);
    const slider = make("input", { type: "range", min: 0, max: dots.length - 1, value: 0 });
    slider.setAttribute("aria-label", "sample, by its difference");
    const output = make("output", { className: "chosen" });

    const choose = (at) => {
      const [sample, before, now, change] = rows[at].cells;
      const link = sample.querySelector("a");
      const name = sample.textContent;
      slider.value = at;
      slider.setAttribute("aria-valuetext", `${name}, ${change.textContent}`);
      [mark.cx.baseVal.value, mark.cy.baseVal.value] = dots[at];
      plot.append(mark);
      const heads = figure.querySelectorAll("thead th");
      output.replaceChildren(
        make("b", { textContent: name }),
        ` ${heads[1].textContent} ${before.textContent}, now ${now.textContent}, ` +
          `change ${change.textContent}. `,
        ...(link
          ? [make("a", { href: link.hash, textContent: "see it" })]
          : ["To see it, repeat the run, which computes nothing twice: ",
            make("code", { textContent: `${command} --cep-show=${quoted(name)}`.trim() })]));
    };

    plot.addEventListener("click", (event) => {
      const box = plot.getBoundingClientRect();
      const scale = plot.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      const distances = dots.map(([left, top]) => (left - x) ** 2 + (top - y) ** 2);
      choose(distances.indexOf(Math.min(...distances)));
    });
    slider.addEventListener("input", () => choose(Number(slider.value)));
    const hint = " Choose a dot, or move the slider, to see its sample.";
    figure.querySelector(".legend").append(make("span", { className: "hint", textContent: hint }));
    plot.after(slider);
    figure.querySelector(".values").before(output);
  }

  all(".differences").forEach(setUp);
})();
